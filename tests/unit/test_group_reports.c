/* SPDX-License-Identifier: Apache-2.0
 * test_group_reports.c - public reports of collectives that hung or gave wrong
 * numbers, on the host backend: each test has its report's name */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <cmocka.h>

#include <stdlib.h>
#include <string.h>

#include "group_ranks.h"

#define MAX_BYTES ((size_t)409600 * 4)

/* One call of a rank. */
struct act {
    enum { ALL_REDUCE, REDUCE, ALL_GATHER, BROADCAST, BARRIER } kind;
    train_dtype_t dtype;
    size_t n;
    int root;
};

/* Rank [odd] makes the second call, the others the first. */
struct report {
    const char *name;
    struct act all, one;
    int odd;
    const char *texts[2]; /* who called what */
};

static const struct report reports[] = {
    {"NVIDIA/nccl#1417: all-reduce of 409600 and of 409598",
     {ALL_REDUCE, TRAIN_F32, 409600, 0},
     {ALL_REDUCE, TRAIN_F32, 409598, 0},
     1,
     {"ranks 0,2-3 called all_reduce (sum of 409600 F32)",
      "rank 1 called all_reduce (sum of 409598 F32)"}},
    {"NVIDIA/nccl#1394: 100 rows and 200",
     {ALL_GATHER, TRAIN_F32, 100, 0},
     {ALL_GATHER, TRAIN_F32, 200, 0},
     3,
     {"ranks 0-2 called all_gather (100 F32 each)",
      "rank 3 called all_gather (200 F32 each)"}},
    {"NVIDIA/nccl#1394: 1 row and 2",
     {ALL_GATHER, TRAIN_F32, 1, 0},
     {ALL_GATHER, TRAIN_F32, 2, 0},
     3,
     {"ranks 0-2 called all_gather (1 F32 each)",
      "rank 3 called all_gather (2 F32 each)"}},
    {"pytorch/pytorch#150248: bf16 and fp32",
     {ALL_REDUCE, TRAIN_BF16, 5000, 0},
     {ALL_REDUCE, TRAIN_F32, 5000, 0},
     2,
     {"ranks 0-1,3 called all_reduce (sum of 5000 BF16)",
      "rank 2 called all_reduce (sum of 5000 F32)"}},
    {"pytorch/pytorch#150433: bf16 and fp32 of the same bytes",
     {BROADCAST, TRAIN_BF16, 10000, 1},
     {BROADCAST, TRAIN_F32, 5000, 1},
     0,
     {"ranks 1-3 called broadcast (10000 BF16 from rank 1)",
      "rank 0 called broadcast (5000 F32 from rank 1)"}},
    {"pytorch/pytorch#39706: reduce to another rank",
     {REDUCE, TRAIN_F32, 64, 0},
     {REDUCE, TRAIN_F32, 64, 3},
     3,
     {"ranks 0-2 called reduce (sum of 64 F32 to rank 0)",
      "rank 3 called reduce (sum of 64 F32 to rank 3)"}},
    {"pytorch/pytorch#140563: another operation and size",
     {ALL_REDUCE, TRAIN_F32, 3000, 0},
     {BROADCAST, TRAIN_F32, 7, 2},
     1,
     {"ranks 0,2-3 called all_reduce (sum of 3000 F32)",
      "rank 1 called broadcast (7 F32 from rank 2)"}},
    {"facebookresearch/optimizers#149: a rank without gradients goes on",
     {ALL_REDUCE, TRAIN_F32, 3000, 0},
     {BARRIER, TRAIN_F32, 0, 0},
     1,
     {"ranks 0,2-3 called all_reduce (sum of 3000 F32)",
      "rank 1 called barrier"}},
};
#define N_REPORTS (sizeof (reports) / sizeof (*reports))

static train_status_t perform (train_group_t *group, const struct act *act,
                               void *data, void *out, train_error_t *err)
{
    size_t size = (size_t)train_group_size (group);
    train_tensor_t t, o;

    view_of (&t, data, act->dtype, act->n);
    view_of (&o, out, act->dtype, act->n * size);
    switch (act->kind) {
    case ALL_REDUCE:
        return train_all_reduce (group, &t.t, TRAIN_SUM, err);
    case REDUCE:
        return train_reduce (group, &t.t, TRAIN_SUM, act->root, err);
    case ALL_GATHER:
        return train_all_gather (group, &t.t, &o.t, err);
    case BROADCAST:
        return train_broadcast (group, &t.t, act->root, err);
    case BARRIER:
        break;
    }
    return train_barrier (group, err);
}

static void body (struct job *job, int rank, train_group_t *group)
{
    const struct report *report = &reports[job->arg];
    struct seen *s = &job->shared->seen[rank];
    unsigned char *data = malloc (MAX_BYTES);
    unsigned char *out = malloc (MAX_BYTES);

    memset (data, 0x11 + rank, MAX_BYTES);
    memset (out, 0x22 + rank, MAX_BYTES);
    s->status =
        perform (group, rank == report->odd ? &report->one : &report->all, data,
                 out, &s->err);
    for (size_t i = 0; i < MAX_BYTES; i++) {
        if (data[i] != 0x11 + rank || out[i] != 0x22 + rank)
            note (job, rank, "a buffer was touched", 0, 0, i);
    }
    free (data);
    free (out);
}

/* An error on every rank that names ranks and both calls, and no byte moved;
 * on one node and on two. */
static void test_report (void **state)
{
    static const char *const layouts[] = {"aaaa", "aabb"};
    const struct report *report = *state;

    for (int i = 0; i < 2; i++) {
        struct job job = {
            .layout = layouts[i], .body = body, .arg = (int)(report - reports)};

        run_job (&job);
        want (&job, "", TRAIN_EMISMATCH, "disagree at its call 1");
        want (&job, "", TRAIN_EMISMATCH, report->texts[0]);
        want (&job, "", TRAIN_EMISMATCH, report->texts[1]);
        free_job (&job);
    }
}

/* The same rank with nothing to give still joins, and all is well. */
static void body_joins (struct job *job, int rank, train_group_t *group)
{
    struct seen *s = &job->shared->seen[rank];
    float x[4] = {1, 1, 1, 1};
    train_tensor_t t;

    if (rank == 1)
        memset (x, 0, sizeof (x));
    view_of (&t, x, TRAIN_F32, 4);
    s->status = train_all_reduce (group, &t.t, TRAIN_SUM, &s->err);
    if (x[0] != (float)job->size - 1)
        note (job, rank, "wrong sum", 0, 0, 0);
}

static void test_joins (void **state)
{
    struct job job = {.layout = "aabb", .body = body_joins};

    (void)state;
    run_job (&job);
    want_ok (&job);
    free_job (&job);
}

static void test_avg_of_one (void **state)
{
    static const train_dtype_t dtypes[] = {TRAIN_F32, TRAIN_F64, TRAIN_BF16,
                                           TRAIN_F16};
    train_group_options_t opts = {.size = sizeof (opts), .backend = "self"};
    train_group_t *group = NULL;
    unsigned char data[64], out[64], was[64];

    (void)state;
    assert_int_equal (train_group_create (&opts, &group, NULL), TRAIN_OK);
    for (size_t d = 0; d < sizeof (dtypes) / sizeof (*dtypes); d++) {
        size_t n = sizeof (data) / train_dtype_size (dtypes[d]);
        train_tensor_t t, o;

        for (size_t i = 0; i < sizeof (data); i++)
            was[i] = (unsigned char)(i * 7 % 100); /* no NaN in any type */
        memcpy (data, was, sizeof (data));
        memset (out, 0, sizeof (out));
        view_of (&t, data, dtypes[d], n);
        view_of (&o, out, dtypes[d], n);
        assert_int_equal (train_all_reduce (group, &t.t, TRAIN_AVG, NULL),
                          TRAIN_OK);
        assert_memory_equal (data, was, sizeof (data));
        assert_int_equal (
            train_reduce_scatter (group, &t.t, &o.t, TRAIN_AVG, NULL),
            TRAIN_OK);
        assert_memory_equal (out, was, sizeof (out));
    }
    train_group_destroy (group);
}

int main (void)
{
    struct CMUnitTest tests[N_REPORTS + 2] = {0};

    for (size_t i = 0; i < N_REPORTS; i++)
        tests[i] = (struct CMUnitTest){.name = reports[i].name,
                                       .test_func = test_report,
                                       .initial_state = (void *)&reports[i]};
    tests[N_REPORTS] = (struct CMUnitTest){
        .name = "facebookresearch/optimizers#149: it gives zeros and joins",
        .test_func = test_joins};
    tests[N_REPORTS + 1] = (struct CMUnitTest){
        .name = "pytorch/pytorch _fsdp_collectives.py: average of one rank",
        .test_func = test_avg_of_one};
    return cmocka_run_group_tests_name ("group_reports", tests, NULL, NULL);
}
