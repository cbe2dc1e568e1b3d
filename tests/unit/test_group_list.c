/* SPDX-License-Identifier: Apache-2.0
 * test_group_list.c - several tensors in one call, a rank that is killed in
 * each collective, and averages whose sum overflows */
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

#define N_LIST 5

static const size_t sizes[N_LIST] = {3, 0, 70000, 1, 513};

static void test_arguments (void **state)
{
    train_group_options_t opts = {.size = sizeof (opts), .backend = "self"};
    train_group_t *group = NULL;
    train_tensor_t t[2];
    DLTensor *list[2] = {&t[0].t, &t[1].t};
    float x[2] = {1, 2};
    train_error_t err;

    (void)state;
    view_of (&t[0], &x[0], TRAIN_F32, 1);
    view_of (&t[1], &x[1], TRAIN_I32, 1);
    assert_int_equal (train_group_create (&opts, &group, &err), TRAIN_OK);
    assert_int_equal (train_all_reduce_list (NULL, list, 1, TRAIN_SUM, &err),
                      TRAIN_EINVAL);
    assert_int_equal (train_all_reduce_list (group, NULL, 1, TRAIN_SUM, &err),
                      TRAIN_EINVAL);
    assert_int_equal (train_all_reduce_list (group, list, 0, TRAIN_SUM, &err),
                      TRAIN_EINVAL);
    assert_int_equal (train_all_reduce_list (group, list, 2, TRAIN_SUM, &err),
                      TRAIN_EINVAL);
    assert_non_null (strstr (err.text, "tensor 1 is I32, those before F32"));
    view_of (&t[1], &x[1], TRAIN_U8, 1);
    assert_int_equal (
        train_all_reduce_list (group, list + 1, 1, TRAIN_SUM, &err),
        TRAIN_ENOTSUP);
    view_of (&t[1], &x[1], TRAIN_F32, 1);
    assert_int_equal (train_all_reduce_list (group, list, 2, TRAIN_SUM, &err),
                      TRAIN_OK);
    assert_true (x[0] == 1 && x[1] == 2);
    train_group_destroy (group);
}

/* The list has the bits of one call each; rank arg gives another size. */
static void body_list (struct job *job, int rank, train_group_t *group)
{
    struct seen *s = &job->shared->seen[rank];
    float *one[N_LIST], *all[N_LIST];
    train_tensor_t t, many[N_LIST];
    DLTensor *list[N_LIST];

    for (int i = 0; i < N_LIST; i++) {
        size_t n = sizes[i];

        one[i] = calloc (n + 1, sizeof (float));
        all[i] = calloc (n + 1, sizeof (float));
        for (size_t k = 0; k < n; k++)
            one[i][k] = all[i][k] =
                (float)(rank + 1) / (float)(3 + k % 77 + (size_t)i);
        view_of (&many[i], all[i], TRAIN_F32,
                 rank == job->arg && i == 2   ? n - 1
                 : rank == job->arg && i == 4 ? n + 1
                                              : n);
        list[i] = &many[i].t;
    }
    s->status = train_all_reduce_list (group, list, N_LIST, TRAIN_AVG, &s->err);
    for (int i = 0; i < N_LIST; i++) {
        view_of (&t, one[i], TRAIN_F32, sizes[i]);
        if (job->arg < 0
            && train_all_reduce (group, &t.t, TRAIN_AVG, NULL) != TRAIN_OK)
            note (job, rank, "all_reduce", 0, 0, 0);
        if (memcmp (one[i], all[i], sizes[i] * sizeof (float)) != 0)
            note (job, rank, "other bits", i, 0, sizes[i]);
        free (one[i]);
        free (all[i]);
    }
}

static void test_list (void **state)
{
    static const char *const layouts[] = {"aaa", "aabb", "aba"};

    (void)state;
    for (int i = 0; i < 3; i++) {
        struct job job = {.layout = layouts[i], .body = body_list, .arg = -1};

        run_job (&job);
        want_ok (&job);
        free_job (&job);
    }
}

/* The same number of elements, cut in other places. */
static void test_other_sizes (void **state)
{
    struct job job = {.layout = "aab", .body = body_list, .arg = 1};

    (void)state;
    run_job (&job);
    want (&job, "", TRAIN_EMISMATCH,
          "rank 1 called all_reduce_list (average of 70517 F32, sizes with "
          "hash ");
    free_job (&job);
}

/* Tensors of both sides of the other lists; [one] by single calls. */
struct pairs {
    float *in[N_LIST], *out[N_LIST], *one[N_LIST];
    train_tensor_t in_t[N_LIST], out_t[N_LIST], one_t[N_LIST];
    DLTensor *ins[N_LIST], *outs[N_LIST];
};

/* [in] has a blocks, [out] b; every rank gives other values. */
static void make_pairs (struct pairs *p, int rank, size_t a, size_t b, int odd)
{
    for (int i = 0; i < N_LIST; i++) {
        size_t n = sizes[i] + (odd && i == 0) - (odd && i == 4);

        p->in[i] = calloc (a * n + 1, sizeof (float));
        p->out[i] = calloc (b * n + 1, sizeof (float));
        p->one[i] = calloc (b * n + 1, sizeof (float));
        for (size_t k = 0; k < a * n; k++)
            p->in[i][k] = (float)(rank + 1) / (float)(3 + k % 77 + (size_t)i);
        for (size_t k = 0; a == b && k < b * n; k++)
            p->out[i][k] = p->one[i][k] = p->in[i][k];
        view_of (&p->in_t[i], p->in[i], TRAIN_F32, a * n);
        view_of (&p->out_t[i], p->out[i], TRAIN_F32, b * n);
        view_of (&p->one_t[i], p->one[i], TRAIN_F32, b * n);
        p->ins[i] = &p->in_t[i].t;
        p->outs[i] = &p->out_t[i].t;
    }
}

enum { GATHER = 0, SCATTER = 1, BROADCAST = 2, ODD = 10 };

static train_status_t call_one (train_group_t *group, int way, struct pairs *p,
                                int i)
{
    if (way == GATHER)
        return train_all_gather (group, &p->in_t[i].t, &p->one_t[i].t, NULL);
    if (way == SCATTER)
        return train_reduce_scatter (group, &p->in_t[i].t, &p->one_t[i].t,
                                     TRAIN_AVG, NULL);
    return train_broadcast (group, &p->one_t[i].t, 1, NULL);
}

/* Bits of one call each; with ODD rank 1 cuts its tensors otherwise. */
static void body_pairs (struct job *job, int rank, train_group_t *group)
{
    struct seen *s = &job->shared->seen[rank];
    int way = job->arg % 10;
    size_t size = (size_t)job->size;
    struct pairs p;

    make_pairs (&p, rank, way == SCATTER ? size : 1, way == GATHER ? size : 1,
                job->arg >= ODD && rank == 1);
    if (way == GATHER)
        s->status =
            train_all_gather_list (group, p.ins, p.outs, N_LIST, &s->err);
    else if (way == SCATTER)
        s->status = train_reduce_scatter_list (group, p.ins, p.outs, N_LIST,
                                               TRAIN_AVG, &s->err);
    else
        s->status = train_broadcast_list (group, p.outs, N_LIST, 1, &s->err);
    for (int i = 0; i < N_LIST; i++) {
        if (job->arg < ODD && call_one (group, way, &p, i) != TRAIN_OK)
            note (job, rank, "single call", i, 0, 0);
        if (memcmp (p.one[i], p.out[i], train_tensor_bytes (p.outs[i])) != 0)
            note (job, rank, "other bits", i, way, 0);
        free (p.in[i]);
        free (p.out[i]);
        free (p.one[i]);
    }
}

static void test_pairs (void **state)
{
    static const char *const layouts[] = {"aaa", "aabb", "aba"};
    static const char *const names[] = {
        "rank 1 called all_gather_list (70517 F32 each, sizes with hash ",
        "rank 1 called reduce_scatter_list (average of 70517 F32 each, sizes ",
        "rank 1 called broadcast_list (70517 F32 from rank 1, sizes with hash ",
    };

    (void)state;
    for (int i = 0; i < 9; i++) {
        struct job job = {
            .layout = layouts[i / 3], .body = body_pairs, .arg = i % 3};

        run_job (&job);
        want_ok (&job);
        free_job (&job);
        job.arg += ODD;
        if (i >= 3)
            continue;
        run_job (&job);
        want (&job, "", TRAIN_EMISMATCH, names[i]);
        free_job (&job);
    }
}

/* Pairs in place, and pairs that do not fit. */
static void test_pair_arguments (void **state)
{
    train_group_options_t opts = {.size = sizeof (opts), .backend = "self"};
    train_group_t *group = NULL;
    train_tensor_t t[2];
    DLTensor *a[1] = {&t[0].t}, *b[1] = {&t[1].t}, *same[1] = {&t[0].t};
    DLTensor *both[2] = {&t[1].t, &t[0].t};
    float x[3] = {1, 2, 3};
    train_error_t err;

    (void)state;
    view_of (&t[0], x, TRAIN_F32, 2);
    view_of (&t[1], x, TRAIN_F32, 3);
    assert_int_equal (train_group_create (&opts, &group, &err), TRAIN_OK);
    assert_int_equal (train_all_gather_list (group, a, b, 1, &err),
                      TRAIN_EINVAL);
    assert_non_null (strstr (err.text, "tensor 0 has 2 F32 on one side and 3"));
    assert_int_equal (train_all_gather_list (group, a, a, 1, &err),
                      TRAIN_EINVAL);
    assert_int_equal (train_all_gather_list (NULL, a, b, 1, &err),
                      TRAIN_EINVAL);
    assert_int_equal (
        train_reduce_scatter_list (group, a, NULL, 1, TRAIN_SUM, &err),
        TRAIN_EINVAL);
    assert_int_equal (
        train_reduce_scatter_list (group, a, a, 1, TRAIN_SUM, &err),
        TRAIN_EINVAL);
    assert_int_equal (train_broadcast_list (group, a, 1, 1, &err),
                      TRAIN_EINVAL);
    assert_int_equal (train_broadcast_list (group, NULL, 1, 0, &err),
                      TRAIN_EINVAL);
    assert_int_equal (train_broadcast_list (group, a, 1, 0, &err), TRAIN_OK);
    assert_int_equal (train_all_gather_list (group, a, same, 1, &err),
                      TRAIN_OK);
    assert_int_equal (
        train_reduce_scatter_list (group, a, same, 1, TRAIN_SUM, &err),
        TRAIN_OK);
    assert_true (x[0] == 1 && x[1] == 2 && x[2] == 3);
    view_of (&t[1], x + 1, TRAIN_F32,
             2); /* the second of [a] is in the first */
    assert_int_equal (train_broadcast_list (group, both, 2, 0, &err),
                      TRAIN_EINVAL);
    assert_non_null (strstr (err.text, "tensors 0 and 1 share memory"));
    view_of (&t[1], x + 2, TRAIN_F32, 1);
    assert_int_equal (train_broadcast_list (group, both, 2, 0, &err), TRAIN_OK);
    assert_int_equal (train_all_reduce_list (group, both, 2, TRAIN_SUM, &err),
                      TRAIN_OK);
    train_group_destroy (group);
}

/* 60000 + 60000 + 60000 is above the largest fp16, 65504. */
static void body_fp16 (struct job *job, int rank, train_group_t *group)
{
    struct seen *s = &job->shared->seen[rank];
    uint16_t x[2] = {0x7b53, 0x7b53};
    train_tensor_t t;

    view_of (&t, x, TRAIN_F16, 2);
    s->status = train_all_reduce (group, &t.t, TRAIN_AVG, &s->err);
    if (x[0] != 0x7b53 || x[1] != 0x7b53)
        note (job, rank, "overflow", x[0], x[1], 0);
}

static void test_fp16 (void **state)
{
    struct job job = {.layout = "aab", .body = body_fp16};

    (void)state;
    run_job (&job);
    want_ok (&job);
    free_job (&job);
}

enum { N_KINDS = 10 };

static const char *const kinds[N_KINDS] = {
    "broadcast",  "all_reduce", "reduce",  "all_gather", "reduce_scatter",
    "all_to_all", "gather",     "scatter", "send",       "barrier",
};

/* One call of a kind, on 4 * n elements. */
static train_status_t call_kind (train_group_t *group, int kind, float *a,
                                 float *b, size_t n, train_error_t *err)
{
    train_tensor_t one, all, out;

    view_of (&one, a, TRAIN_F32, n);
    view_of (&all, b, TRAIN_F32, 4 * n);
    view_of (&out, a, TRAIN_F32, 4 * n);
    switch (kind) {
    case 0:
        return train_broadcast (group, &all.t, 1, err);
    case 1:
        return train_all_reduce (group, &all.t, TRAIN_MAX, err);
    case 2:
        return train_reduce (group, &all.t, TRAIN_MAX, 1, err);
    case 3:
        return train_all_gather (group, &one.t, &all.t, err);
    case 4:
        return train_reduce_scatter (group, &all.t, &one.t, TRAIN_MAX, err);
    case 5:
        return train_all_to_all (group, &all.t, &out.t, err);
    case 6:
        return train_gather (group, &one.t, &all.t, 1, err);
    case 7:
        return train_scatter (group, &all.t, &one.t, 1, err);
    case 8:
        return train_send_recv (group, &all.t, 3, 0, err);
    default:
        return train_barrier (group, err);
    }
}

/* Call without end; the parent kills rank 3 somewhere in it. */
static void body_kinds (struct job *job, int rank, train_group_t *group)
{
    struct seen *s = &job->shared->seen[rank];
    size_t n = 1u << 16;
    float *a = calloc (4 * n, sizeof (*a)), *b = calloc (4 * n, sizeof (*b));

    for (int i = 0; s->status == TRAIN_OK; i++) {
        s->status = call_kind (group, job->arg, a, b, n, &s->err);
        if (i == 2)
            atomic_fetch_add (&job->shared->flag, 1);
    }
    free (a);
    free (b);
}

static void test_killed_in_each (void **state)
{
    (void)state;
    for (int kind = 0; kind < N_KINDS; kind++) {
        struct job job = {
            .layout = kind % 2 ? "aabb" : "abab",
            .body = body_kinds,
            .arg = kind,
        };
        int64_t until_ms = now_ms () + PATIENCE_MS;
        char text[60];

        start_job (&job);
        while (atomic_load (&job.shared->flag) < job.size
               && now_ms () < until_ms)
            poll (NULL, 0, 2);
        kill (job.pids[3], SIGKILL);
        end_job (&job);
        snprintf (text, sizeof (text), "rank 3 ended during %s", kinds[kind]);
        want (&job, "3", TRAIN_EPEER, text);
        free_job (&job);
    }
}

int main (void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test (test_arguments),
        cmocka_unit_test (test_list),
        cmocka_unit_test (test_pairs),
        cmocka_unit_test (test_pair_arguments),
        cmocka_unit_test (test_other_sizes),
        cmocka_unit_test (test_fp16),
        cmocka_unit_test (test_killed_in_each),
    };

    return cmocka_run_group_tests_name ("group_list", tests, NULL, NULL);
}
