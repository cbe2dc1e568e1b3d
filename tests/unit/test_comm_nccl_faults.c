/* SPDX-License-Identifier: Apache-2.0
 * test_comm_nccl_faults.c - the backend nccl over made-up GPUs: ranks that
 * disagree, end, stop, come less; NCCL that hangs or fails; survivors */
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
#include <unistd.h>

#include "fake_nccl.h"
#include "group_ranks.h"

#define N       64
#define TIME_MS 3000 /* long enough for a loaded machine to begin */

static const struct fake_orders no_orders = {.rank = -1};

static void on_gpu (train_tensor_t *t, void *data, train_dtype_t dtype,
                    size_t n, const train_group_t *group)
{
    view_of (t, data, dtype, n);
    t->t.device.device_type = kDLCUDA;
    t->t.device.device_id = train_group_local_rank (group);
}

/* One call of a rank that differs from the others'. */
struct odd_call {
    char kind; /* r(educe), b(roadcast), g(ather), w(ait) */
    train_dtype_t dtype;
    size_t n;
    int root;
    train_op_t op;
    const char *text;
};

static const struct odd_call odd_calls[] = {
    {'r', TRAIN_F32, N, 0, TRAIN_SUM, "all_reduce (sum of 64 F32)"},
    {'r', TRAIN_F32, N - 2, 0, TRAIN_SUM, "all_reduce (sum of 62 F32)"},
    {'r', TRAIN_BF16, N, 0, TRAIN_SUM, "all_reduce (sum of 64 BF16)"},
    {'r', TRAIN_F32, N, 0, TRAIN_MAX, "all_reduce (maximum of 64 F32)"},
    {'b', TRAIN_F32, N, 1, TRAIN_SUM, "broadcast (64 F32 from rank 1)"},
    {'w', TRAIN_F32, 0, 0, TRAIN_SUM, "barrier"},
    {'r', TRAIN_F32, 0, 0, TRAIN_SUM, "all_reduce (sum of 0 F32)"},
};
#define N_ODD ((int)(sizeof (odd_calls) / sizeof (*odd_calls)))

static train_status_t make_call (train_group_t *group, const struct odd_call *c,
                                 void *data, train_error_t *err)
{
    train_tensor_t t;

    on_gpu (&t, data, c->dtype, c->n, group);
    if (c->kind == 'w')
        return train_barrier (group, err);
    if (c->kind == 'b')
        return train_broadcast (group, &t.t, c->root, err);
    return train_all_reduce (group, &t.t, c->op, err);
}

/* Rank arg/100 makes odd call arg%100, the others the first. */
static void body_mismatch (struct job *job, int rank, train_group_t *group)
{
    bool odd = rank == job->arg / 100;
    struct seen *s = &job->shared->seen[rank];
    unsigned char *data =
        fake_alloc (train_group_local_rank (group), N * sizeof (float));
    train_error_t err;

    memset (data, 0x11 + rank, N * sizeof (float));
    train_barrier (group, NULL);
    s->status =
        make_call (group, &odd_calls[odd ? job->arg % 100 : 0], data, &s->err);
    for (size_t i = 0; i < N * sizeof (float); i++) {
        if (data[i] != 0x11 + rank)
            note (job, rank, "memory was touched", 0, 0, i);
    }
    if (fake_seen_of (rank)->calls != 0)
        note (job, rank, "NCCL was called", 0, 0, 0);
    if (make_call (group, &odd_calls[0], data, &err) != TRAIN_ESTATE)
        note (job, rank, "a later call is not ESTATE", 0, 0, 0);
}

static void test_mismatch (void **state)
{
    static const char *const layouts[] = {"aaa", "aab"};

    (void)state;
    for (int i = 1; i < N_ODD; i++) {
        int rank = i % 3;
        struct job job = {.layout = layouts[i % 2],
                          .body = body_mismatch,
                          .backend = "nccl",
                          .arg = rank * 100 + i};
        char text[80];

        fake_open (&no_orders);
        run_job (&job);
        want (&job, "", TRAIN_EMISMATCH, "disagree at its call 2");
        want (&job, "", TRAIN_EMISMATCH, odd_calls[0].text);
        snprintf (text, sizeof (text), "rank %d called %s", rank,
                  odd_calls[i].text);
        want (&job, "", TRAIN_EMISMATCH, text);
        free_job (&job);
        fake_close ();
    }
}

/* Calls without end, of kind arg; what happens is in the orders. */
enum { ALL_REDUCE, BROADCAST, ALL_TO_ALL, GATHER };

static train_status_t endless_call (train_group_t *group, int kind, float *data,
                                    train_error_t *err)
{
    size_t size = (size_t)train_group_size (group);
    train_tensor_t all, one;

    on_gpu (&all, data, TRAIN_F32, 2 * size, group);
    on_gpu (&one, data + 2 * size, TRAIN_F32, 2, group);
    switch (kind) {
    case ALL_REDUCE:
        return train_all_reduce (group, &all.t, TRAIN_SUM, err);
    case BROADCAST:
        return train_broadcast (group, &all.t, 1, err);
    case ALL_TO_ALL:
        return train_all_to_all (group, &all.t, &all.t, err);
    default:
        return train_gather (group, &one.t, &all.t, 0, err);
    }
}

static void try_survivors (struct job *job, int rank, train_group_t *group,
                           float *data)
{
    struct seen *s = &job->shared->seen[rank];
    train_group_t *made = NULL;
    train_tensor_t t;
    train_error_t err;

    if (train_group_survivors (group, 0, NULL, &made, &err) != TRAIN_OK) {
        note (job, rank, err.text, 0, 0, 0);
        return;
    }
    if (strcmp (train_group_backend (made), "nccl") != 0
        || train_group_size (made) != job->size - 1)
        note (job, rank, "the survivors are another group", 0, 0,
              (size_t)train_group_size (made));
    data[0] = 1;
    on_gpu (&t, data, TRAIN_F32, 1, group);
    if (train_all_reduce (made, &t.t, TRAIN_SUM, &err) != TRAIN_OK)
        note (job, rank, err.text, 1, 0, 0);
    if (data[0] != (float)(job->size - 1))
        note (job, rank, "wrong sum of the survivors", (int)data[0], 0, 0);
    train_group_destroy (made);
    (void)s;
}

static void body_struck (struct job *job, int rank, train_group_t *group)
{
    struct seen *s = &job->shared->seen[rank];
    float *data = fake_alloc (train_group_local_rank (group), 4096);
    int64_t start_ms;

    memset (data, 0, 4096);
    start_ms = now_ms ();
    s->status = endless_call (group, job->arg % 10, data, &s->err);
    s->ms = now_ms () - start_ms;
    if (s->ms > job->timeout_ms + LATE_MS)
        note (job, rank, "too late", 0, 0, (size_t)s->ms);
    if (!strstr (s->err.text, "undefined"))
        note (job, rank, "nothing said of the data", 0, 0, 0);
    if (job->arg >= 10)
        try_survivors (job, rank, group, data);
    atomic_fetch_add (&job->shared->flag, 1);
}

/* All but the struck rank come back. */
static void wait_others (const struct job *job)
{
    int64_t until_ms = now_ms () + PATIENCE_MS;

    while (atomic_load (&job->shared->flag) < job->size - 1
           && now_ms () < until_ms)
        poll (NULL, 0, 5);
}

static const struct {
    const char *layout;
    int kind, rank;
    enum fake_fault kernel, connect;
    train_status_t status;
    const char *text;
} struck[] = {
    {"aaa", ALL_REDUCE, 1, FAKE_KILL, FAKE_NONE, TRAIN_EPEER,
     "rank 1 ended during all_reduce (sum of 6 F32), call 1 of group "
     "'world'"},
    {"aab", ALL_REDUCE, 2, FAKE_KILL, FAKE_NONE, TRAIN_EPEER,
     "rank 2 ended during all_reduce"},
    {"abb", ALL_REDUCE, 2, FAKE_KILL, FAKE_NONE, TRAIN_EPEER,
     "rank 2 ended during all_reduce"},
    {"aaa", BROADCAST, 1, FAKE_KILL, FAKE_NONE, TRAIN_EPEER,
     "rank 1 ended during broadcast"},
    {"aaa", ALL_TO_ALL, 2, FAKE_KILL, FAKE_NONE, TRAIN_EPEER,
     "rank 2 ended during all_to_all"},
    {"aaa", ALL_TO_ALL, 2, FAKE_NONE, FAKE_KILL, TRAIN_EPEER,
     "rank 2 ended during all_to_all"},
    {"aaa", ALL_REDUCE, 0, FAKE_STOP, FAKE_NONE, TRAIN_ETIMEDOUT,
     "rank 0 did not go on with all_reduce (sum of 6 F32), call 1 of group "
     "'world'"},
    {"aab", ALL_REDUCE, 1, FAKE_STOP, FAKE_NONE, TRAIN_ETIMEDOUT,
     "rank 1 did not go on with all_reduce"},
    {"aab", ALL_REDUCE, 2, FAKE_STOP, FAKE_NONE, TRAIN_ETIMEDOUT,
     "rank 2 did not go on with all_reduce"},
    {"aaa", ALL_TO_ALL, 1, FAKE_STOP, FAKE_NONE, TRAIN_ETIMEDOUT,
     "rank 1 did not go on with all_to_all"},
    {"aaa", ALL_TO_ALL, 1, FAKE_NONE, FAKE_STOP, TRAIN_ETIMEDOUT,
     "rank 1 did not go on with all_to_all"},
};

/* The orders are for every communicator, so for the survivors' too. */
static void *start_struck (struct job *job, int i)
{
    struct fake_orders orders = {.rank = struck[i].rank,
                                 .kernel = struck[i].kernel,
                                 .connect = struck[i].connect};

    fake_open (&orders);
    start_job (job);
    return fake_take ();
}

static void end_struck (struct job *job, int i, void *world)
{
    wait_others (job);
    kill (job->pids[struck[i].rank], SIGKILL);
    end_job (job);
    fake_give (world);
}

static void test_struck (void **state)
{
    enum { CASES = sizeof (struck) / sizeof (*struck) };
    static struct job jobs[CASES];
    void *worlds[CASES];

    (void)state;
    for (int i = 0; i < CASES; i++) {
        jobs[i] =
            (struct job){.layout = struck[i].layout,
                         .body = body_struck,
                         .backend = "nccl",
                         .arg = struck[i].kind + (struck[i].rank == 2 ? 10 : 0),
                         .timeout_ms = TIME_MS};
        worlds[i] = start_struck (&jobs[i], i);
    }
    for (int i = 0; i < CASES; i++) {
        char except[2] = {(char)('0' + struck[i].rank), '\0'};

        end_struck (&jobs[i], i, worlds[i]);
        while (once_more (&jobs[i], except, struck[i].status, struck[i].text)) {
            fake_close ();
            end_struck (&jobs[i], i, start_struck (&jobs[i], i));
        }
        want (&jobs[i], except, struck[i].status, struck[i].text);
        for (int r = 0; r < jobs[i].size; r++) {
            if (r != struck[i].rank && struck[i].connect == FAKE_NONE)
                assert_true (fake_seen_of (r)->aborts > 0);
        }
        free_job (&jobs[i]);
        fake_close ();
    }
}

/* NCCL itself fails, or never runs, on a rank that lives. */
static void test_nccl_fails (void **state)
{
    static const struct {
        enum fake_fault kernel;
        train_status_t status;
        const char *text;
    } cases[] = {
        {FAKE_ERROR, TRAIN_EPEER,
         "rank 1: NCCL failed in all_reduce (sum of 6 F32): made-up remote "
         "error: made-up;"},
        {FAKE_HANG, TRAIN_ETIMEDOUT, "though every rank waits for it"},
    };

    (void)state;
    for (size_t i = 0; i < 2; i++) {
        struct fake_orders orders = {.rank = 1, .kernel = cases[i].kernel};
        struct job job = {.layout = "aab",
                          .body = body_struck,
                          .backend = "nccl",
                          .timeout_ms = TIME_MS};

        fake_open (&orders);
        run_job (&job);
        while (once_more (&job, "", cases[i].status, cases[i].text)) {
            fake_close ();
            fake_open (&orders);
            run_job (&job);
        }
        want (&job, "", cases[i].status, cases[i].text);
        free_job (&job);
        fake_close ();
    }
}

/* A call that cannot end, and a group that is destroyed meanwhile. */
static void body_abort (struct job *job, int rank, train_group_t *group)
{
    struct seen *s = &job->shared->seen[rank];
    float *data = fake_alloc (train_group_local_rank (group), 4096);
    train_group_options_t opts = {.size = sizeof (opts),
                                  .backend = "nccl",
                                  .timeout_ms = PATIENCE_MS,
                                  .name = "short"};
    train_group_t *made = NULL;
    train_work_t *work = NULL;
    int64_t start_ms;
    train_tensor_t t;

    s->status = train_group_create (&opts, &made, &s->err);
    if (s->status != TRAIN_OK)
        return;
    memset (data, 0, 4096);
    on_gpu (&t, data, TRAIN_F32, 8, made);
    s->status = train_all_reduce_async (made, &t.t, TRAIN_SUM, &work, &s->err);
    if (s->status != TRAIN_OK)
        return;
    while (fake_seen_of (rank)->calls == 0)
        poll (NULL, 0, 2);
    start_ms = now_ms ();
    if (rank > 0) /* others hear of the first that leaves */
        poll (NULL, 0, 1000);
    train_group_destroy (made);
    s->status = train_work_wait (work, -1, &s->err);
    s->ms = now_ms () - start_ms;
    if (fake_seen_of (rank)->aborts == 0)
        note (job, rank, "not aborted", 0, 0, 0);
}

static void test_abort (void **state)
{
    struct fake_orders orders = {.rank = 1, .kernel = FAKE_HANG};
    struct job job = {.layout = "aa", .body = body_abort, .backend = "nccl"};

    (void)state;
    fake_open (&orders);
    run_job (&job);
    want (&job, "1", TRAIN_EABORTED,
          "group 'short' was destroyed during its call 1");
    want (&job, "0", TRAIN_EPEER, "rank 0 ended during all_reduce");
    for (int r = 0; r < job.size; r++)
        assert_true (job.shared->seen[r].ms < PATIENCE_MS / 2);
    free_job (&job);
    fake_close ();
}

/* Rank 1 departs from a learnt step: the others are in NCCL already. */
static void body_depart (struct job *job, int rank, train_group_t *group)
{
    struct seen *s = &job->shared->seen[rank];
    float *data = fake_alloc (train_group_local_rank (group), 4096);
    int64_t start_ms;

    memset (data, 0, 4096);
    for (int i = 0; i < 3; i++) {
        if (train_step_begin (group, &s->err) != TRAIN_OK
            || endless_call (group, ALL_REDUCE, data, &s->err) != TRAIN_OK
            || train_step_end (group, &s->err) != TRAIN_OK)
            note (job, rank, "no step", i, 0, 0);
    }
    train_step_begin (group, NULL);
    if (rank == 1)
        poll (NULL, 0, 200);
    start_ms = now_ms ();
    s->status =
        endless_call (group, rank == 1 ? BROADCAST : ALL_REDUCE, data, &s->err);
    s->ms = now_ms () - start_ms;
}

static void test_depart (void **state)
{
    static const char *const layouts[] = {"aaa", "aab"};

    (void)state;
    for (int i = 0; i < 2; i++) {
        struct job job = {
            .layout = layouts[i], .body = body_depart, .backend = "nccl"};

        fake_open (&no_orders);
        run_job (&job);
        want (&job, "", TRAIN_EMISMATCH,
              "rank 1 called broadcast (6 F32 from rank 1)");
        want (&job, "1", TRAIN_EMISMATCH, "undefined");
        for (int r = 0; r < job.size; r++)
            assert_true (job.shared->seen[r].ms < PATIENCE_MS / 2);
        free_job (&job);
        fake_close ();
    }
}

static void body_nothing (struct job *job, int rank, train_group_t *group)
{
    (void)job, (void)rank, (void)group;
}

static void run_begin (struct job *job, const struct fake_orders *orders)
{
    int64_t until_ms = now_ms () + PATIENCE_MS;

    fake_open (orders);
    start_job (job);
    while (orders->begin == FAKE_STOP && now_ms () < until_ms
           && (job->shared->seen[0].ms == 0 || job->shared->seen[2].ms == 0))
        poll (NULL, 0, 5);
    if (orders->begin == FAKE_STOP)
        kill (job->pids[1], SIGKILL);
    end_job (job);
}

/* No beginning: an error on every rank, in time. */
static void test_begin (void **state)
{
    static const struct {
        enum fake_fault begin;
        train_status_t status;
        const char *text;
    } cases[] = {
        {FAKE_ERROR, TRAIN_EDEVICE,
         "rank 1: NCCL cannot connect the ranks: made-up system error"},
        {FAKE_HANG, TRAIN_ETIMEDOUT, "NCCL did not connect the ranks within"},
        {FAKE_KILL, TRAIN_EPEER,
         "rank 1 ended during the beginning of group 'world'"},
        {FAKE_STOP, TRAIN_ETIMEDOUT, "rank 1 said nothing within the deadline"},
    };

    (void)state;
    for (size_t i = 0; i < sizeof (cases) / sizeof (*cases); i++) {
        struct fake_orders orders = {.rank = 1, .begin = cases[i].begin};
        struct job job = {.layout = "aaa",
                          .body = body_nothing,
                          .backend = "nccl",
                          .timeout_ms = TIME_MS};
        bool ends = cases[i].begin == FAKE_KILL || cases[i].begin == FAKE_STOP;
        const char *except = ends ? "1" : "";

        run_begin (&job, &orders);
        while (once_more (&job, except, cases[i].status, cases[i].text)) {
            fake_close ();
            run_begin (&job, &orders);
        }
        want (&job, except, cases[i].status, cases[i].text);
        for (int r = 0; r < 3; r++) {
            if (job.shared->seen[r].ms > job.timeout_ms + LATE_MS)
                fail_msg ("rank %d took %d ms", r, (int)job.shared->seen[r].ms);
        }
        free_job (&job);
        fake_close ();
    }
}

/* NCCL holds a thread of each rank for ever: the program still ends as it says,
 * and no exit handler from before takes apart what that thread uses. */
static void test_begin_and_exit (void **state)
{
    struct fake_orders orders = {.rank = 1, .begin = FAKE_HANG};
    struct job job = {.layout = "aa",
                      .body = body_nothing,
                      .backend = "nccl",
                      .exit_status = 7,
                      .timeout_ms = TIME_MS};

    (void)state;
    fake_open (&orders);
    run_job (&job);
    for (int r = 0; r < job.size; r++) {
        assert_true (WIFEXITED (job.ends[r]));
        assert_int_equal (WEXITSTATUS (job.ends[r]), 7);
    }
    free_job (&job);
    fake_close ();
}

/* What the ranks have does not fit together. */
static void test_unfit (void **state)
{
    struct job one = {.layout = "aa",
                      .body = body_nothing,
                      .backend = "nccl",
                      .device = "cuda:0"};
    struct job far = {.layout = "aa",
                      .body = body_nothing,
                      .backend = "nccl",
                      .device = "cuda:8"};
    struct job open = {.layout = "aa", .body = body_nothing, .backend = "nccl"};

    (void)state;
    fake_open (&no_orders);
    run_job (&one);
    want (&one, "", TRAIN_EINVAL, "ranks 0 and 1 are on one GPU (made-up-0-0)");
    free_job (&one);
    run_job (&far);
    want (&far, "", TRAIN_EINVAL, "wants GPU 8, 8 are visible");
    free_job (&far);
    setenv ("NCCL_COMM_BLOCKING", "0", 1);
    run_job (&open);
    want (&open, "", TRAIN_EINVAL, "NCCL_COMM_BLOCKING=0 is set");
    free_job (&open);
    unsetenv ("NCCL_COMM_BLOCKING");
    fake_close ();
}

static void test_arguments (void **state)
{
    static const char *const wrong[] = {"cuda",
                                        "cuda:",
                                        "cuda:x",
                                        "cuda:-1",
                                        "host:0",
                                        "cuda:1 ",
                                        "cuda:99999999999999999999"};
    train_group_options_t opts = {.size = sizeof (opts), .backend = "nccl"};
    train_group_t *group = NULL;
    train_error_t err;

    (void)state;
    for (size_t i = 0; i < sizeof (wrong) / sizeof (*wrong); i++) {
        opts.device = wrong[i];
        assert_int_equal (train_group_create (&opts, &group, &err),
                          TRAIN_EINVAL);
        assert_non_null (strstr (err.text, "no device"));
    }
    assert_null (group);
}

int main (void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test (test_arguments),      cmocka_unit_test (test_unfit),
        cmocka_unit_test (test_mismatch),       cmocka_unit_test (test_struck),
        cmocka_unit_test (test_nccl_fails),     cmocka_unit_test (test_depart),
        cmocka_unit_test (test_abort),          cmocka_unit_test (test_begin),
        cmocka_unit_test (test_begin_and_exit),
    };

    return cmocka_run_group_tests_name ("comm_nccl_faults", tests, NULL, NULL);
}
