/* SPDX-License-Identifier: Apache-2.0
 * test_group_step.c - steps that are learnt: right data without agreement, and
 * an error on every rank when one departs */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <cmocka.h>

#include <poll.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "group_ranks.h"

#define BIG 70001 /* more than a chunk */

static void test_arguments (void **state)
{
    train_group_options_t opts = {.size = sizeof (opts), .backend = "self"};
    train_group_t *group = NULL;
    train_error_t err;
    float x = 3;
    train_tensor_t t;

    (void)state;
    view_of (&t, &x, TRAIN_F32, 1);
    assert_int_equal (train_step_begin (NULL, &err), TRAIN_EINVAL);
    assert_int_equal (train_step_end (NULL, NULL), TRAIN_EINVAL);
    assert_int_equal (train_group_create (&opts, &group, &err), TRAIN_OK);
    assert_int_equal (train_step_end (group, &err), TRAIN_ESTATE);
    assert_non_null (strstr (err.text, "'world' has no step open"));
    for (int i = 0; i < 3; i++) {
        assert_int_equal (train_step_begin (group, &err), TRAIN_OK);
        assert_int_equal (train_step_begin (group, &err), TRAIN_ESTATE);
        assert_non_null (strstr (err.text, "'world' has a step open"));
        for (int k = 0; k < 40 + i / 2; k++)
            assert_int_equal (train_all_reduce (group, &t.t, TRAIN_SUM, &err),
                              TRAIN_OK);
        assert_int_equal (train_step_end (group, &err), TRAIN_OK);
    }
    assert_true (x == 3);
    train_group_destroy (group);
}

/* Calls of every kind, so that each follows each in the rings. */
struct data {
    float *x, *all;
    int32_t one;
};

static bool is_all (const float *x, size_t n, float want)
{
    for (size_t i = 0; i < n; i++) {
        if (x[i] != want)
            return false;
    }
    return true;
}

static void fill (float *x, size_t n, float value)
{
    for (size_t i = 0; i < n; i++)
        x[i] = value;
}

/* Every rank gives rank + round; what comes back is known. */
static train_status_t mixed (struct job *job, int rank, train_group_t *group,
                             struct data *d, int round, train_error_t *err)
{
    int size = train_group_size (group), root = job->arg % size;
    float mine = (float)(rank + round);
    float sum = (float)(size * (size - 1) / 2 + size * round);
    train_tensor_t t, all, one;
    train_status_t status;

    view_of (&t, d->x, TRAIN_F32, BIG);
    view_of (&all, d->all, TRAIN_F32, (size_t)size * BIG);
    view_of (&one, &d->one, TRAIN_I32, 1);
    fill (d->x, BIG, mine);
    status = train_broadcast (group, &t.t, root, err);
    if (status == TRAIN_OK && !is_all (d->x, BIG, (float)(root + round)))
        note (job, rank, "broadcast", round, 0, 0);
    d->one = rank + round;
    if (status == TRAIN_OK)
        status = train_broadcast (group, &one.t, root, err);
    if (status == TRAIN_OK && d->one != root + round)
        note (job, rank, "small broadcast", round, 0, 0);
    fill (d->x, BIG, mine);
    if (status == TRAIN_OK)
        status = train_all_reduce (group, &t.t, TRAIN_SUM, err);
    if (status == TRAIN_OK && !is_all (d->x, BIG, sum))
        note (job, rank, "all_reduce", round, (int)d->x[0], 0);
    fill (d->x, BIG, mine);
    if (status == TRAIN_OK)
        status = train_all_gather (group, &t.t, &all.t, err);
    for (int r = 0; status == TRAIN_OK && r < size; r++) {
        if (!is_all (d->all + (size_t)r * BIG, BIG, (float)(r + round)))
            note (job, rank, "all_gather", round, r, 0);
    }
    if (status == TRAIN_OK && round % 3 != 2)
        status = train_barrier (group, err);
    fill (d->all, (size_t)size * BIG, mine);
    if (status == TRAIN_OK)
        status = train_reduce_scatter (group, &all.t, &t.t, TRAIN_SUM, err);
    if (status == TRAIN_OK && !is_all (d->x, BIG, sum))
        note (job, rank, "reduce_scatter", round, (int)d->x[0], 0);
    fill (d->x, BIG, mine);
    if (status == TRAIN_OK)
        status = train_reduce (group, &t.t, TRAIN_MAX, root, err);
    if (status == TRAIN_OK
        && !is_all (d->x, BIG, rank == root ? (float)(size - 1 + round) : mine))
        note (job, rank, "reduce", round, 0, 0);
    if (status == TRAIN_OK)
        status = train_send_recv (group, &t.t, size - 1, 0, err);
    return status;
}

/* Eight steps: every third leaves the barrier out, so the ranks depart and
 * learn anew together. The last ends after two calls. */
static void body_mixed (struct job *job, int rank, train_group_t *group)
{
    struct seen *s = &job->shared->seen[rank];
    struct data d = {calloc (BIG, sizeof (float)),
                     calloc ((size_t)job->size * BIG, sizeof (float)), 0};
    train_tensor_t one;

    view_of (&one, &d.one, TRAIN_I32, 1);
    for (int i = 0; i < 8 && s->status == TRAIN_OK; i++) {
        s->status = train_step_begin (group, &s->err);
        if (s->status == TRAIN_OK)
            s->status = mixed (job, rank, group, &d, i, &s->err);
        if (s->status == TRAIN_OK)
            s->status = train_step_end (group, &s->err);
        if (s->status == TRAIN_OK && i % 2 == 0)
            s->status = train_barrier (group, &s->err); /* between steps */
    }
    for (int i = 0; i < 3 && s->status == TRAIN_OK; i++) {
        d.one = rank;
        s->status = train_step_begin (group, &s->err);
        if (s->status == TRAIN_OK)
            s->status = train_all_reduce (group, &one.t, TRAIN_MAX, &s->err);
        if (s->status == TRAIN_OK)
            s->status = train_step_end (group, &s->err);
        if (d.one != job->size - 1)
            note (job, rank, "short step", d.one, i, 0);
    }
    free (d.x);
    free (d.all);
}

static void test_mixed (void **state)
{
    static const char *const layouts[] = {"aa", "aaa", "aabb", "abab", "abc"};

    (void)state;
    for (int i = 0; i < 5; i++) {
        struct job job = {.layout = layouts[i], .body = body_mixed, .arg = i};

        run_job (&job);
        want_ok (&job);
        free_job (&job);
    }
}

/* A root that waits for nobody runs ahead; then it must be caught up with. */
static void body_ahead (struct job *job, int rank, train_group_t *group)
{
    struct seen *s = &job->shared->seen[rank];
    int32_t x = 0;
    train_tensor_t t;

    view_of (&t, &x, TRAIN_I32, 1);
    for (int i = 0; i < 300 && s->status == TRAIN_OK; i++) {
        s->status = train_step_begin (group, &s->err);
        for (int k = 0; k < 3 && s->status == TRAIN_OK; k++) {
            x = rank == job->arg ? 1000 * k + i : -1;
            s->status = train_broadcast (group, &t.t, job->arg, &s->err);
            if (x != 1000 * k + i)
                note (job, rank, "broadcast", k, x, (size_t)i);
            if (rank != job->arg && i % 64 == 5)
                poll (NULL, 0, 2);
        }
        if (s->status == TRAIN_OK)
            s->status = train_step_end (group, &s->err);
    }
}

static void test_ahead (void **state)
{
    static const char *const layouts[] = {"aaa", "aabb", "aabb", "abc"};

    (void)state;
    for (int i = 0; i < 4; i++) {
        struct job job = {
            .layout = layouts[i], .body = body_ahead, .arg = i % 3};

        run_job (&job);
        want_ok (&job);
        free_job (&job);
    }
}

/* How rank arg/10 departs in the third step, of two all-reduces: */
enum { OTHER = 0, EARLY = 1, MORE = 2, OUTSIDE = 3, N_WAYS = 4 };

static train_status_t sums (train_group_t *group, float *x, int n, size_t size,
                            train_error_t *err)
{
    train_status_t status = TRAIN_OK;
    train_tensor_t t;

    view_of (&t, x, TRAIN_F32, size);
    for (int i = 0; i < n && status == TRAIN_OK; i++)
        status = train_all_reduce (group, &t.t, TRAIN_SUM, err);
    return status;
}

static train_status_t odd_step (train_group_t *group, int way, float *x,
                                train_error_t *err)
{
    train_status_t status;

    if (way == OUTSIDE)
        return sums (group, x, 1, 8, err);
    status = train_step_begin (group, err);
    if (status == TRAIN_OK)
        status = sums (group, x, way == MORE ? 3 : 1, 8, err);
    if (status == TRAIN_OK && way == OTHER)
        status = sums (group, x, 1, 7, err);
    if (status == TRAIN_OK)
        status = train_step_end (group, err);
    return status;
}

static void body_depart (struct job *job, int rank, train_group_t *group)
{
    struct seen *s = &job->shared->seen[rank];
    bool odd = rank == job->arg / 10;
    int64_t start_ms = 0;
    train_error_t err;
    float x[8] = {0};

    for (int i = 0; i < 100 && s->status == TRAIN_OK; i++) {
        start_ms = now_ms ();
        if (odd && i == 2) {
            s->status = odd_step (group, job->arg % 10, x, &s->err);
            continue;
        }
        s->status = train_step_begin (group, &s->err);
        if (s->status == TRAIN_OK)
            s->status = sums (group, x, 2, 8, &s->err);
        if (s->status == TRAIN_OK)
            s->status = train_step_end (group, &s->err);
    }
    /* 1 s is promised; a loaded machine gets more, less than the deadline */
    if (now_ms () - start_ms > LATE_MS)
        note (job, rank, "noticed late", 0, 0, (size_t)(now_ms () - start_ms));
    if (train_step_begin (group, &err) != TRAIN_ESTATE
        && train_step_end (group, &err) != TRAIN_ESTATE)
        note (job, rank, "not broken", 0, 0, 0);
}

static void test_depart (void **state)
{
    static const char *const layouts[] = {"aaa", "aabb", "abab", "abc"};
    static const char *const texts[N_WAYS] = {
        "all_reduce (sum of 7 F32); ",
        "step_end (after 1 calls, hash ",
        "all_reduce (sum of 8 F32)",
        "all_reduce (sum of 8 F32) outside that step; ",
    };

    (void)state;
    for (int i = 0; i < 4 * N_WAYS; i++) {
        int way = i % N_WAYS, odd = (i + i / 4) % 3;
        struct job job = {.layout = layouts[i / 4],
                          .body = body_depart,
                          .arg = odd * 10 + way};
        char text[80];

        run_job (&job);
        snprintf (text, sizeof (text), "rank %d called %s", odd, texts[way]);
        want (&job, "", TRAIN_EMISMATCH, text);
        want (&job, "", TRAIN_EMISMATCH,
              "called all_reduce (sum of 8 F32), as the learnt step has it; "
              "what the calls of this step wrote is undefined");
        free_job (&job);
    }
}

/* A departing root may be past by far, or the others past it. */
static void body_past (struct job *job, int rank, train_group_t *group)
{
    struct seen *s = &job->shared->seen[rank];
    bool odd = rank == job->arg % 10;
    char bytes[4] = {0};
    train_tensor_t t;

    for (int i = 0; i < 50 && s->status == TRAIN_OK; i++) {
        s->status = train_step_begin (group, &s->err);
        for (int k = 0; k < 4 && s->status == TRAIN_OK; k++) {
            view_of (&t, bytes, TRAIN_U8, odd && i == 9 && k == 1 ? 3 : 4);
            s->status = train_broadcast (group, &t.t, job->arg / 10, &s->err);
        }
        if (s->status == TRAIN_OK)
            s->status = train_step_end (group, &s->err);
    }
    if (s->status == TRAIN_OK) /* a root waits for nobody */
        s->status = train_barrier (group, &s->err);
}

static void test_past (void **state)
{
    static const struct {
        const char *layout;
        int root, odd;
    } cases[] = {
        {"aaa", 0, 0},  {"aaa", 0, 1},  {"aabb", 1, 1},
        {"aabb", 2, 0}, {"aabb", 0, 3}, {"abc", 0, 2},
    };

    (void)state;
    for (size_t i = 0; i < sizeof (cases) / sizeof (*cases); i++) {
        struct job job = {.layout = cases[i].layout,
                          .body = body_past,
                          .arg = cases[i].root * 10 + cases[i].odd};
        char text[80];

        run_job (&job);
        snprintf (text, sizeof (text),
                  "rank %d called broadcast (3 U8 from rank %d); ",
                  cases[i].odd, cases[i].root);
        want (&job, "", TRAIN_EMISMATCH, text);
        free_job (&job);
    }
}

/* A rank that ends, or makes no call, in a learnt step. */
static void body_end (struct job *job, int rank, train_group_t *group)
{
    struct seen *s = &job->shared->seen[rank];
    int64_t until_ms = now_ms () + PATIENCE_MS;
    float x[8] = {0};

    for (int i = 0; i < 100 && s->status == TRAIN_OK; i++) {
        s->status = train_step_begin (group, &s->err);
        if (rank == job->arg && i == 4 && job->timeout_ms == 0)
            raise (SIGKILL);
        while (rank == job->arg && i == 4 && now_ms () < until_ms
               && atomic_load (&job->shared->flag) < job->size - 1)
            poll (NULL, 0, 5);
        if (s->status == TRAIN_OK)
            s->status = sums (group, x, 2, 8, &s->err);
        if (s->status == TRAIN_OK)
            s->status = train_step_end (group, &s->err);
    }
    atomic_fetch_add (&job->shared->flag, 1);
}

static void test_end (void **state)
{
    (void)state;
    for (int i = 0; i < 6; i++) {
        struct job job = {.layout = i < 2 ? "aaa" : "aabb",
                          .body = body_end,
                          .arg = i % 3 + i / 5,
                          .timeout_ms = i % 2 ? 1500 : 0};
        train_status_t status = i % 2 ? TRAIN_ETIMEDOUT : TRAIN_EPEER;
        char except[2] = {i % 2 ? '\0' : (char)('0' + job.arg), '\0'};
        char text[64];

        snprintf (text, sizeof (text), "rank %d %s all_reduce (sum of 8 F32)",
                  job.arg, i % 2 ? "did not go on with" : "ended during");
        do
            run_job (&job);
        while (i % 2 && once_more (&job, except, status, text));
        want (&job, except, status, text);
        free_job (&job);
    }
}

int main (void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test (test_arguments), cmocka_unit_test (test_mixed),
        cmocka_unit_test (test_ahead),     cmocka_unit_test (test_depart),
        cmocka_unit_test (test_past),      cmocka_unit_test (test_end),
    };

    return cmocka_run_group_tests_name ("group_step", tests, NULL, NULL);
}
