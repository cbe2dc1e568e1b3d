/* SPDX-License-Identifier: Apache-2.0
 * test_group_work.c - asynchronous calls: their order, their errors, and what
 * becomes of them when the group ends first */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <cmocka.h>

#include <poll.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "group_ranks.h"

#define N 1000

static void test_arguments (void **state)
{
    train_group_options_t opts = {.size = sizeof (opts), .backend = "self"};
    train_group_t *group = NULL;
    train_work_t *work = NULL;
    train_error_t err;
    uint8_t x[4] = {1, 2, 3, 4};
    train_tensor_t t;

    (void)state;
    view_of (&t, x, TRAIN_U8, 4);
    assert_int_equal (train_barrier_async (NULL, &work, &err), TRAIN_EINVAL);
    assert_int_equal (train_work_wait (NULL, 0, &err), TRAIN_EINVAL);
    assert_int_equal (train_work_test (NULL), TRAIN_EINVAL);
    assert_int_equal (train_group_create (&opts, &group, &err), TRAIN_OK);
    assert_int_equal (train_barrier_async (group, NULL, &err), TRAIN_EINVAL);
    assert_int_equal (
        train_all_reduce_async (group, &t.t, TRAIN_SUM, &work, &err),
        TRAIN_ENOTSUP);
    assert_null (work);
    assert_int_equal (train_broadcast_async (group, &t.t, 1, &work, &err),
                      TRAIN_EINVAL);
    assert_null (work);
    assert_int_equal (train_broadcast_async (group, &t.t, 0, &work, &err),
                      TRAIN_OK);
    assert_int_equal (train_barrier (group, &err), TRAIN_OK);
    assert_int_equal (train_work_test (work), TRAIN_OK);
    assert_int_equal (train_work_wait (work, 0, &err), TRAIN_OK);
    train_group_destroy (group);
}

/* Wait for [n] of them, the last first. */
static train_status_t wait_all (train_work_t **work, int n, train_error_t *err)
{
    train_status_t status = TRAIN_OK;

    while (n > 0) {
        train_error_t why;
        train_status_t one = train_work_wait (work[--n], -1, &why);

        if (one != TRAIN_OK) {
            status = one; /* the first of them stays */
            *err = why;
        }
    }
    return status;
}

enum { N_CALLS = 14 };

/* Every form once, on x[0..]; those that need room use all. */
static train_status_t issue_all (train_group_t *group, float *x, float *all,
                                 train_work_t **work, int *n,
                                 train_error_t *err)
{
    int size = train_group_size (group);
    train_tensor_t t, many, out;
    DLTensor *list[1] = {&t.t}, *wide[1] = {&many.t};
    train_status_t rc[N_CALLS];

    view_of (&t, x, TRAIN_F32, N);
    view_of (&many, all, TRAIN_F32, (size_t)size * N);
    view_of (&out, all, TRAIN_F32, (size_t)size * N);
    rc[0] = train_all_reduce_async (group, &t.t, TRAIN_SUM, &work[0], err);
    rc[1] = train_all_gather_async (group, &t.t, &many.t, &work[1], err);
    rc[2] = train_all_to_all_async (group, &many.t, &out.t, &work[2], err);
    rc[3] = train_reduce_scatter_async (group, &many.t, &t.t, TRAIN_AVG,
                                        &work[3], err);
    rc[4] = train_gather_async (group, &t.t, &many.t, 1, &work[4], err);
    rc[5] = train_scatter_async (group, &many.t, &t.t, 1, &work[5], err);
    rc[6] = train_send_recv_async (group, &t.t, 0, 1, &work[6], err);
    rc[7] = train_broadcast_async (group, &t.t, 1, &work[7], err);
    rc[8] = train_reduce_async (group, &t.t, TRAIN_MAX, 1, &work[8], err);
    rc[9] = train_barrier_async (group, &work[9], err);
    rc[10] = train_all_gather_list_async (group, list, wide, 1, &work[10], err);
    rc[11] = train_reduce_scatter_list_async (group, wide, list, 1, TRAIN_AVG,
                                              &work[11], err);
    rc[12] = train_broadcast_list_async (group, list, 1, 0, &work[12], err);
    rc[13] =
        train_all_reduce_list_async (group, list, 1, TRAIN_SUM, &work[13], err);
    /* the views are not looked at any more */
    memset (&t, 0xff, sizeof (t));
    memset (&many, 0xff, sizeof (many));
    memset (&out, 0xff, sizeof (out));
    for (*n = 0; *n < N_CALLS && rc[*n] == TRAIN_OK;)
        ++*n;
    return *n < N_CALLS ? rc[*n] : TRAIN_OK;
}

/* Each call leaves the same value everywhere, but the two sums. */
static void body_all (struct job *job, int rank, train_group_t *group)
{
    struct seen *s = &job->shared->seen[rank];
    float *x = malloc (N * sizeof (float));
    float *all = calloc ((size_t)job->size * N, sizeof (float));
    float want = (float)(job->size * (job->size + 1) / 2 * job->size);
    train_work_t *work[N_CALLS];
    train_error_t why;
    int n = 0;

    for (int i = 0; i < 6 && s->status == TRAIN_OK; i++) {
        for (int k = 0; k < N; k++)
            x[k] = (float)(rank + 1);
        if (i > 2)
            s->status = train_step_begin (group, &s->err);
        if (s->status == TRAIN_OK)
            s->status = issue_all (group, x, all, work, &n, &s->err);
        if (s->status == TRAIN_OK && i > 2)
            s->status = train_step_end (group, &s->err);
        if (wait_all (work, n, &why) != TRAIN_OK) {
            s->status = why.code;
            s->err = why;
        }
        for (int k = 0; k < N; k++) {
            if (x[k] != want)
                note (job, rank, "wrong value", (int)x[k], i, (size_t)k);
        }
    }
    free (x);
    free (all);
}

static void test_all (void **state)
{
    static const char *const layouts[] = {"aa", "aaa", "aabb", "aba"};

    (void)state;
    for (int i = 0; i < 4; i++) {
        struct job job = {.layout = layouts[i], .body = body_all};

        run_job (&job);
        want_ok (&job);
        free_job (&job);
    }
}

/* Many at once, and a blocking call behind them without a wait between. */
static void body_order (struct job *job, int rank, train_group_t *group)
{
    struct seen *s = &job->shared->seen[rank];
    train_work_t *work[40];
    int64_t x[2] = {1, rank};
    train_tensor_t t, r;
    train_error_t why;
    int n = 0;

    view_of (&t, &x[0], TRAIN_I64, 1);
    view_of (&r, &x[1], TRAIN_I64, 1);
    while (n < 40 && s->status == TRAIN_OK) {
        s->status = n % 2 ? train_all_reduce_async (group, &t.t, TRAIN_SUM,
                                                    &work[n], &s->err)
                          : train_broadcast_async (group, &r.t, n % job->size,
                                                   &work[n], &s->err);
        n += s->status == TRAIN_OK;
    }
    if (s->status == TRAIN_OK)
        s->status = train_all_reduce (group, &t.t, TRAIN_MAX, &s->err);
    if (x[0] != (int64_t)1 << 20 && job->size == 2)
        note (job, rank, "other order", (int)x[0], 0, 0);
    if (wait_all (work, n, &why) != TRAIN_OK)
        note (job, rank, why.text, 0, 0, 0);
}

static void test_order (void **state)
{
    static const char *const layouts[] = {"aa", "ab"};

    (void)state;
    for (int i = 0; i < 2; i++) {
        struct job job = {.layout = layouts[i], .body = body_order};

        run_job (&job);
        want_ok (&job);
        free_job (&job);
    }
}

/* Rank 1 comes when rank 0 has seen that its call is under way. */
static void body_pending (struct job *job, int rank, train_group_t *group)
{
    struct seen *s = &job->shared->seen[rank];
    int64_t until_ms = now_ms () + PATIENCE_MS;
    train_work_t *work = NULL;
    train_error_t why = {0};

    while (rank == 1 && !atomic_load (&job->shared->flag)
           && now_ms () < until_ms)
        poll (NULL, 0, 2);
    s->status = train_barrier_async (group, &work, &s->err);
    if (rank == 0) {
        if (train_work_wait (work, 0, NULL) != TRAIN_PENDING
            || train_work_wait (work, 20, &why) != TRAIN_PENDING
            || train_work_test (work) != TRAIN_PENDING
            || !strstr (why.text, "not within 20 ms"))
            note (job, rank, "not pending", 0, 0, 0);
        atomic_store (&job->shared->flag, 1);
    }
    if (s->status == TRAIN_OK)
        s->status = train_work_wait (work, -1, &s->err);
}

static void test_pending (void **state)
{
    struct job job = {.layout = "aa", .body = body_pending};

    (void)state;
    run_job (&job);
    want_ok (&job);
    free_job (&job);
}

/* The second of three calls differs. */
static void body_mismatch (struct job *job, int rank, train_group_t *group)
{
    struct seen *s = &job->shared->seen[rank];
    train_work_t *work[3] = {NULL};
    float x[8] = {0};
    train_tensor_t t;
    train_error_t why;

    for (int i = 0; i < 3; i++) {
        view_of (&t, x, TRAIN_F32, i == 1 && rank == 1 ? 7 : 8);
        train_all_reduce_async (group, &t.t, TRAIN_SUM, &work[i], &why);
    }
    if (train_work_wait (work[2], -1, &why) != TRAIN_ESTATE)
        note (job, rank, "the third is not ESTATE", 0, 0, 0);
    s->status = train_work_wait (work[1], -1, &s->err);
    if (train_work_wait (work[0], -1, &why) != TRAIN_OK)
        note (job, rank, "the first is not OK", 0, 0, 0);
    if (train_barrier (group, &why) != TRAIN_ESTATE)
        note (job, rank, "not broken", 0, 0, 0);
}

static void test_mismatch (void **state)
{
    struct job job = {.layout = "aab", .body = body_mismatch};

    (void)state;
    run_job (&job);
    want (&job, "", TRAIN_EMISMATCH, "rank 1 called all_reduce (sum of 7 F32)");
    free_job (&job);
}

/* Rank arg leaves a group in which the others do not come, with calls under
 * way and behind; the others find it gone. */
static void body_leave (struct job *job, int rank, train_group_t *group)
{
    struct seen *s = &job->shared->seen[rank];
    train_work_t *work[2] = {NULL};
    train_group_t *other = NULL;
    train_error_t why = {0};

    s->status = train_group_split (group, 0, rank, "other", &other, &s->err);
    if (s->status == TRAIN_OK && rank == job->arg) {
        int64_t start_ms = now_ms ();

        train_barrier_async (other, &work[0], &why);
        train_barrier_async (other, &work[1], &why);
        train_work_wait (work[0], 500, &why); /* its thread is in it by then */
        train_group_destroy (other);
        if (now_ms () - start_ms > 20000)
            note (job, rank, "destroyed late", 0, 0, 0);
        if (train_work_wait (work[1], -1, &why) != TRAIN_EABORTED
            || !strstr (why.text, "destroyed before barrier"))
            note (job, rank, why.text, 1, 0, 0);
        s->status = train_work_wait (work[0], -1, &s->err);
        atomic_store (&job->shared->flag, 1);
        return;
    }
    while (s->status == TRAIN_OK && !atomic_load (&job->shared->flag))
        poll (NULL, 0, 2);
    /* it came to the first, which may be complete */
    for (int i = 0; i < 2 && s->status == TRAIN_OK; i++)
        s->status = train_barrier (other, &s->err);
    train_group_destroy (other);
}

static void test_leave (void **state)
{
    static const char *const layouts[] = {"aa", "aabb", "aabb"};

    (void)state;
    for (int i = 0; i < 3; i++) {
        struct job job = {.layout = layouts[i], .body = body_leave, .arg = i};
        char me[2] = {(char)('0' + i), '\0'}, others[5] = "", text[60];

        for (int r = 0; r < (int)strlen (layouts[i]); r++) {
            if (r != i)
                others[strlen (others)] = (char)('0' + r);
        }
        run_job (&job);
        want (&job, others, TRAIN_EABORTED, "was destroyed during its call 1");
        snprintf (text, sizeof (text), "rank %d left the group during barrier",
                  i);
        want (&job, me, TRAIN_EPEER, text);
        free_job (&job);
    }
}

int main (void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test (test_arguments), cmocka_unit_test (test_all),
        cmocka_unit_test (test_order),     cmocka_unit_test (test_pending),
        cmocka_unit_test (test_mismatch),  cmocka_unit_test (test_leave),
    };

    return cmocka_run_group_tests_name ("group_work", tests, NULL, NULL);
}
