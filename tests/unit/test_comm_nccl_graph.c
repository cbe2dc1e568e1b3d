/* SPDX-License-Identifier: Apache-2.0
 * test_comm_nccl_graph.c - graphs of calls over made-up GPUs: replays, what
 * cannot be in one, ranks that record or launch differently, and graphs that
 * stick */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <cmocka.h>

#include <poll.h>
#include <signal.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include <train/graph.h>

#include "nccl_desk.h"

#define TIME_MS 2000

/* A group of its own, on a stream of its own. */
struct play {
    struct desk d;
    void *stream;
    train_graph_t *graph;
    train_tensor_t t, list[2], all;
    DLTensor *lists[2];
    int32_t *own; /* what the program's own work writes */
};

static bool begin (struct play *p, struct job *job, int rank,
                   train_group_t *group, int64_t timeout_ms)
{
    train_group_options_t opts = {.size = sizeof (opts),
                                  .backend = "nccl",
                                  .name = "graphs",
                                  .timeout_ms = timeout_ms};
    int gpu = train_group_local_rank (group);

    *p = (struct play){.d = {job, NULL, rank, job->size, NULL, NULL, {0}}};
    opts.stream = p->stream = fake_stream ();
    fake_release (p->stream);
    try_ok (&p->d, "create",
            train_group_create (&opts, &p->d.group, &p->d.err));
    if (!p->d.group)
        return false;
    p->d.in = fake_alloc (gpu, N * 4);
    p->d.out = fake_alloc (gpu, N * 4 * (size_t)job->size);
    p->own = fake_alloc (gpu, sizeof (*p->own));
    on_gpu (&p->t, p->d.in, TRAIN_F32, N, p->d.group);
    on_gpu (&p->list[0], p->d.in, TRAIN_F32, 3, p->d.group);
    on_gpu (&p->list[1], p->d.in + 12, TRAIN_F32, N - 3, p->d.group);
    on_gpu (&p->all, p->d.out, TRAIN_F32, N * (size_t)job->size, p->d.group);
    p->lists[0] = &p->list[0].t;
    p->lists[1] = &p->list[1].t;
    return true;
}

/* all_reduce, a word of the program's own, a list, a cast, messages. */
static void record (struct play *p)
{
    struct desk *d = &p->d;

    try_ok (d, "graph_begin", train_graph_begin (d->group, &d->err));
    try_ok (d, "all_reduce",
            train_all_reduce (d->group, &p->t.t, TRAIN_SUM, &d->err));
    fake_store (p->stream, p->own, 7);
    try_ok (d, "list",
            train_broadcast_list (d->group, p->lists, 2, d->size - 1, &d->err));
    try_ok (d, "wire",
            train_broadcast_wire (d->group, &p->t.t, 0, TRAIN_BF16, &d->err));
    try_ok (d, "all_gather",
            train_all_gather (d->group, &p->t.t, &p->all.t, &d->err));
    try_ok (d, "all_to_all in place",
            train_all_to_all (d->group, &p->all.t, &p->all.t, &d->err));
    if (*p->own != 0 || ((float *)d->in)[1] != (float)given (d->rank, 1))
        note (d->job, d->rank, "recorded calls ran", *p->own, 0, 0);
    try_ok (d, "graph_end", train_graph_end (d->group, &p->graph, &d->err));
}

static void fresh (struct play *p)
{
    fill (&p->d, p->d.in, TRAIN_F32, N);
    memset (p->d.out, 0xee, N * 4 * (size_t)p->d.size);
    *p->own = 0;
}

static void replay (struct play *p, bool async)
{
    struct desk *d = &p->d;
    train_work_t *work = NULL;

    fresh (p);
    if (!async) {
        try_ok (d, "launch", train_graph_launch (p->graph, &d->err));
    } else {
        try_ok (d, "launch",
                train_graph_launch_async (p->graph, &work, &d->err));
        if (work)
            try_ok (d, "wait", train_work_wait (work, -1, &d->err));
    }
    for (size_t i = 0; i < N; i++) {
        want_value (d, "graph", d->in, TRAIN_F32, i,
                    combined (d->size, i, TRAIN_SUM));
        for (int r = 0; r < d->size; r++)
            want_value (d, "all_to_all", d->out, TRAIN_F32, (size_t)r * N + i,
                        combined (d->size, i, TRAIN_SUM));
    }
    if (*p->own != 7)
        note (d->job, d->rank, "the program's own work is not in it", *p->own,
              0, 0);
}

static void body_replay (struct job *job, int rank, train_group_t *group)
{
    struct play p;

    if (!begin (&p, job, rank, group, PATIENCE_MS))
        return;
    fresh (&p);
    record (&p);
    for (int i = 0; i < 4; i++)
        replay (&p, i & 1);
    for (int i = 0; i < 3; i++) { /* and learnt, beside other calls */
        try_ok (&p.d, "step_begin", train_step_begin (p.d.group, &p.d.err));
        replay (&p, false);
        try_ok (&p.d, "all_reduce",
                train_all_reduce (p.d.group, &p.t.t, TRAIN_MAX, &p.d.err));
        replay (&p, true);
        try_ok (&p.d, "step_end", train_step_end (p.d.group, &p.d.err));
    }
    if (rank & 1)
        train_graph_destroy (p.graph);
    train_group_destroy (p.d.group);
    if (rank & 1)
        return;
    if (train_graph_launch (p.graph, &p.d.err) != TRAIN_ESTATE)
        note (job, rank, "a launch without a group", 0, 0, 0);
    train_graph_destroy (p.graph);
}

/* What cannot be recorded is refused and leaves the record as it is. */
static void body_refused (struct job *job, int rank, train_group_t *group)
{
    train_work_t *work = NULL;
    train_graph_t *none = NULL;
    struct play p;
    void *bytes;
    size_t len;

    if (!begin (&p, job, rank, group, PATIENCE_MS))
        return;
    fresh (&p);
    record (&p);
    try_ok (&p.d, "graph_begin", train_graph_begin (p.d.group, &p.d.err));
    if (train_graph_begin (p.d.group, &p.d.err) != TRAIN_ESTATE
        || train_barrier (p.d.group, &p.d.err) != TRAIN_ESTATE
        || !strstr (p.d.err.text, "barrier cannot be in one")
        || train_step_begin (p.d.group, &p.d.err) != TRAIN_ESTATE
        || train_graph_launch (p.graph, &p.d.err) != TRAIN_ESTATE
        || train_broadcast_object (p.d.group, "a", 1, 0, &bytes, &len, &p.d.err)
               != TRAIN_ESTATE
        || train_all_reduce_async (p.d.group, &p.t.t, TRAIN_SUM, &work,
                                   &p.d.err)
               != TRAIN_ESTATE
        || train_broadcast_list_async (p.d.group, p.lists, 2, 0, &work,
                                       &p.d.err)
               != TRAIN_ESTATE)
        note (job, rank, p.d.err.text, 0, 0, 0);
    if (train_graph_end (p.d.group, &none, &p.d.err) != TRAIN_EINVAL || none)
        note (job, rank, "a graph of nothing", 0, 0, 0);
    if (train_graph_end (p.d.group, &none, &p.d.err) != TRAIN_ESTATE)
        note (job, rank, "an end without a beginning", 0, 0, 0);
    replay (&p, false);
    try_ok (&p.d, "barrier", train_barrier (p.d.group, &p.d.err));
    train_group_destroy (p.d.group);
    train_graph_destroy (p.graph);
}

/* Rank 1 records another call (0), launches another graph (1), or makes a call
 * instead of a launch (2). */
static void body_differ (struct job *job, int rank, train_group_t *group)
{
    struct seen *s = &job->shared->seen[rank];
    train_op_t op = rank == 1 && job->arg == 0 ? TRAIN_MAX : TRAIN_SUM;
    train_graph_t *other = NULL;
    struct play p;

    if (!begin (&p, job, rank, group, PATIENCE_MS))
        return;
    fresh (&p);
    if (job->arg > 0) {
        record (&p);
        other = p.graph;
        record (&p);
    }
    if (job->arg == 0) {
        try_ok (&p.d, "graph_begin", train_graph_begin (p.d.group, &p.d.err));
        s->status = train_all_reduce (p.d.group, &p.t.t, op, &s->err);
        if (train_graph_end (p.d.group, &other, &p.d.err) != TRAIN_ESTATE)
            note (job, rank, "a graph of a group that broke", 0, 0, 0);
    } else if (rank == 1 && job->arg == 2) {
        s->status = train_all_reduce (p.d.group, &p.t.t, op, &s->err);
    } else {
        s->status = train_graph_launch (rank == 1 ? other : p.graph, &s->err);
    }
    if (((float *)p.d.in)[1] != (float)given (rank, 1))
        note (job, rank, "data was touched", 0, 0, 0);
    train_graph_destroy (p.graph);
    train_group_destroy (p.d.group);
    if (job->arg == 2)
        train_graph_destroy (other);
}

/* Rank 1's own work, recorded after two calls, never ends (0), or after all (3),
 * or rank 1 is killed (1) or stopped (2) while it launches. */
static void body_stuck (struct job *job, int rank, train_group_t *group)
{
    struct seen *s = &job->shared->seen[rank];
    int64_t begin_ms;
    struct play p;

    if (!begin (&p, job, rank, group, job->timeout_ms))
        return;
    fresh (&p);
    try_ok (&p.d, "graph_begin", train_graph_begin (p.d.group, &p.d.err));
    for (int i = 0; i < 3; i++) {
        if (i == 2 && rank == 1 && job->arg < 3)
            fake_lock (p.stream);
        try_ok (&p.d, "all_reduce",
                train_all_reduce (p.d.group, &p.t.t, (train_op_t)(2 + i),
                                  &p.d.err));
    }
    if (rank == 1 && job->arg == 3)
        fake_lock (p.stream);
    try_ok (&p.d, "graph_end", train_graph_end (p.d.group, &p.graph, &p.d.err));
    if (rank == 1 && (job->arg == 1 || job->arg == 2)) {
        poll (NULL, 0, 200);
        kill (getpid (), job->arg == 1 ? SIGKILL : SIGSTOP);
    }
    begin_ms = now_ms ();
    s->status = train_graph_launch (p.graph, &s->err);
    s->ms = now_ms () - begin_ms;
    if (s->ms > job->timeout_ms + LATE_MS)
        note (job, rank, "it came too late", (int)s->ms, 0, 0);
    train_group_destroy (p.d.group);
    train_graph_destroy (p.graph);
    atomic_fetch_add (&job->shared->flag, 1);
}

/* Where rank 1 is stopped it ends once the others have said what they saw. */
static void run_stuck (struct job *job, const char *except,
                       train_status_t status, const char *text)
{
    bool more;

    job->body = body_stuck;
    job->backend = "nccl";
    job->timeout_ms = TIME_MS;
    do {
        int64_t until_ms = now_ms () + PATIENCE_MS;

        fake_open (&desk_no_orders);
        start_job (job);
        while (job->arg == 2 && atomic_load (&job->shared->flag) < job->size - 1
               && now_ms () < until_ms)
            poll (NULL, 0, 5);
        if (job->arg == 2)
            kill (job->pids[1], SIGKILL);
        end_job (job);
        more = once_more (job, except, status, text);
        if (more)
            fake_close ();
    } while (more);
    want (job, except, status, text);
}

/* Each graph went, and before its communicator. */
static void want_no_graphs (void)
{
    assert_int_equal (fake_graphs (), 0);
    for (int r = 0; r < FAKE_RANKS; r++)
        assert_int_equal (fake_seen_of (r)->held, 0);
}

static void run_in (const char *layout, rank_f body)
{
    struct job job = {.layout = layout, .body = body, .backend = "nccl"};

    fake_open (&desk_no_orders);
    run_job (&job);
    want_ok (&job);
    want_no_graphs ();
    free_job (&job);
    fake_close ();
}

static void test_replay (void **state)
{
    (void)state;
    run_in ("aaa", body_replay);
    run_in ("aab", body_replay);
    run_in ("a", body_replay);
}

static void test_refused (void **state)
{
    (void)state;
    run_in ("aab", body_refused);
}

static void test_differ (void **state)
{
    static const char *const text[] = {
        "rank 1 called all_reduce (maximum of 100 F32)",
        "rank 1 called graph_launch (graph 1, 5 calls, hash ",
        "rank 1 called all_reduce (sum of 100 F32)",
    };

    (void)state;
    for (int i = 0; i < 3; i++) {
        struct job job = {
            .layout = "aab", .body = body_differ, .backend = "nccl", .arg = i};

        fake_open (&desk_no_orders);
        run_job (&job);
        want (&job, "", TRAIN_EMISMATCH, text[i]);
        if (i > 0)
            want (&job, "", TRAIN_EMISMATCH,
                  "ranks 0,2 called graph_launch (graph 2, 5 calls, hash ");
        want_no_graphs ();
        free_job (&job);
        fake_close ();
    }
}

/* Rank 1 sticks before the third call, the others in it: all name rank 1, on
 * whatever nodes they are. */
static void test_stuck (void **state)
{
    static const char *const layouts[] = {"aaa", "aab"};

    (void)state;
    for (int i = 0; i < 2; i++) {
        struct job job = {.layout = layouts[i]};

        run_stuck (
            &job, "", TRAIN_ETIMEDOUT,
            "the GPU of rank 1 is before call 3 of the 3 recorded, all_reduce "
            "(product of 100 F32): what the program has recorded there");
        want (&job, "0,2", TRAIN_ETIMEDOUT,
              "the GPU of rank 1 was before call 3");
        want (&job, "1,2", TRAIN_ETIMEDOUT, "the GPU of rank 0 was in call 3");
        for (int r = 0; r < 3; r++)
            assert_int_equal (fake_seen_of (r)->aborts, 1);
        want_no_graphs ();
        free_job (&job);
        fake_close ();
    }
}

/* Those who have ended the launch are not furthest back, nor to blame. */
static void test_last (void **state)
{
    static const char *const layouts[] = {"aaa", "abb"};

    (void)state;
    for (int i = 0; i < 2; i++) {
        struct job job = {.layout = layouts[i], .arg = 3};

        run_stuck (&job, "0,2", TRAIN_ETIMEDOUT,
                   "the GPU of rank 1 is past all 3 recorded calls");
        want (&job, "1", TRAIN_OK, "");
        free_job (&job);
        fake_close ();
    }
}

static void test_struck (void **state)
{
    static const struct {
        train_status_t status;
        const char *text;
    } cases[] = {
        {TRAIN_OK, ""},
        {TRAIN_EPEER, "rank 1 ended during graph_launch (graph 1, 3 calls"},
        {TRAIN_ETIMEDOUT, "rank 1 did not come to graph_launch (graph 1, 3"},
    };

    (void)state;
    for (int i = 1; i < 3; i++) {
        struct job job = {.layout = "aab", .arg = i};

        run_stuck (&job, "1", cases[i].status, cases[i].text);
        free_job (&job);
        fake_close ();
    }
}

int main (void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test (test_replay), cmocka_unit_test (test_refused),
        cmocka_unit_test (test_differ), cmocka_unit_test (test_stuck),
        cmocka_unit_test (test_last),   cmocka_unit_test (test_struck),
    };

    return cmocka_run_group_tests_name ("comm_nccl_graph", tests, NULL, NULL);
}
