/* SPDX-License-Identifier: Apache-2.0
 * test_group_nccl.c - groups with backend nccl on two real GPUs: every call
 * beside plain values, and ranks that disagree, end, stop or come less
 *
 *   test_group_nccl [hosts]   hosts: each process plays a machine of its own,
 *                             to NCCL and to libtrain, and meets by sockets
 *
 * Needs two GPUs and libnccl.so.2. */
#include "config.h"

#include "tap.h"

#if HAVE_CUDA

#include <poll.h>
#include <signal.h>
#include <unistd.h>

#include "nccl_ranks.h"
#include "nccl_values.h"
#include "sleeps.h"
#include "sock.h"

static void reductions (struct rank *r, train_dtype_t dtype, train_op_t op)
{
    train_tensor_t t, all;
    size_t bytes = N * train_dtype_size (dtype);

    fill (r, r->out, dtype, N);
    on_gpu (&t, r->out, dtype, N, r->rank);
    if (try_ok (r, "all_reduce",
                train_all_reduce (r->group, &t.t, op, &r->err)))
        want (r, "all_reduce", r->out, dtype, N, 0, op, -1);
    fill (r, r->out, dtype, N);
    if (try_ok (r, "reduce", train_reduce (r->group, &t.t, op, 1, &r->err)))
        want (r, "reduce", r->out, dtype, N, 0, op, r->rank == 1 ? -1 : 0);
    fill (r, r->in, dtype, 2 * N);
    on_gpu (&all, r->in, dtype, 2 * N, r->rank);
    on_gpu (&t, r->in + (size_t)r->rank * bytes, dtype, N, r->rank);
    if (try_ok (r, "reduce_scatter",
                train_reduce_scatter (r->group, &all.t, &t.t, op, &r->err)))
        want (r, "reduce_scatter", t.t.data, dtype, N, (size_t)r->rank * N, op,
              -1);
}

static void body_reductions (struct rank *r)
{
    static const train_dtype_t dtypes[] = {TRAIN_F32, TRAIN_F64, TRAIN_BF16,
                                           TRAIN_F16, TRAIN_I64, TRAIN_I32};

    for (size_t i = 0; i < sizeof (dtypes) / sizeof (*dtypes); i++) {
        bool whole = dtypes[i] == TRAIN_I64 || dtypes[i] == TRAIN_I32;

        for (train_op_t op = TRAIN_SUM; op <= TRAIN_PROD; op++) {
            if (!whole || op != TRAIN_AVG)
                reductions (r, dtypes[i], op);
        }
    }
}

/* Blocks of [n]: element i of block b of rank f has given (f, b * n + i). */
static void body_moves (struct rank *r)
{
    size_t n = N, bytes = n * 4, mine = (size_t)r->rank * bytes;
    train_tensor_t in, out, one, block;

    on_gpu (&in, r->in, TRAIN_F32, 2 * n, r->rank);
    on_gpu (&out, r->out, TRAIN_F32, 2 * n, r->rank);
    on_gpu (&one, r->in, TRAIN_F32, n, r->rank);
    on_gpu (&block, r->out + mine, TRAIN_F32, n, r->rank);
    for (int pass = 0; pass < 2; pass++) {
        fill (r, r->in, TRAIN_F32, 2 * n);
        try_ok (r, "all_to_all",
                train_all_to_all (r->group, &in.t, &out.t, &r->err));
        for (int f = 0; f < 2; f++)
            want (r, "all_to_all", r->out + (size_t)f * bytes, TRAIN_F32, n,
                  (size_t)r->rank * n, TRAIN_SUM, f);
        try_ok (r, "all_to_all in place",
                train_all_to_all (r->group, &in.t, &in.t, &r->err));
        for (int f = 0; f < 2; f++)
            want (r, "all_to_all in place", r->in + (size_t)f * bytes,
                  TRAIN_F32, n, (size_t)r->rank * n, TRAIN_SUM, f);
        fill (r, r->in, TRAIN_F32, 2 * n);
        try_ok (r, "all_gather",
                train_all_gather (r->group, &one.t, &out.t, &r->err));
        for (int f = 0; f < 2; f++)
            want (r, "all_gather", r->out + (size_t)f * bytes, TRAIN_F32, n, 0,
                  TRAIN_SUM, f);
        fill (r, r->out + mine, TRAIN_F32, n);
        try_ok (r, "gather in place",
                train_gather (r->group, &block.t, &out.t, 1, &r->err));
        for (int f = 0; f < 2 && r->rank == 1; f++)
            want (r, "gather", r->out + (size_t)f * bytes, TRAIN_F32, n, 0,
                  TRAIN_SUM, f);
        try_ok (r, "scatter",
                train_scatter (r->group, &in.t, &block.t, 0, &r->err));
        want (r, "scatter", r->out + mine, TRAIN_F32, n, (size_t)r->rank * n,
              TRAIN_SUM, 0);
        try_ok (r, "send_recv",
                train_send_recv (r->group, &one.t, 1, 0, &r->err));
        want (r, "send_recv", r->in, TRAIN_F32, n, 0, TRAIN_SUM, 1);
        fill (r, r->in, TRAIN_F32, n);
        try_ok (r, "broadcast", train_broadcast (r->group, &one.t, 1, &r->err));
        want (r, "broadcast", r->in, TRAIN_F32, n, 0, TRAIN_SUM, 1);
    }
}

static void body_list (struct rank *r)
{
    static const size_t n[4] = {3, 0, N, 1};
    train_tensor_t t[4];
    DLTensor *list[4];
    char *at = r->in;

    for (int i = 0; i < 4; i++) {
        on_gpu (&t[i], n[i] ? at : NULL, TRAIN_F32, n[i], r->rank);
        fill (r, at, TRAIN_F32, n[i]);
        list[i] = &t[i].t;
        at += (n[i] + 64) * 4;
    }
    try_ok (r, "list",
            train_all_reduce_list (r->group, list, 4, TRAIN_SUM, &r->err));
    for (int i = 0; i < 4; i++) {
        if (n[i])
            want (r, "list", t[i].t.data, TRAIN_F32, n[i], 0, TRAIN_SUM, -1);
    }
}

static void body_steps (struct rank *r)
{
    for (int i = 0; i < 3; i++) {
        try_ok (r, "step_begin", train_step_begin (r->group, &r->err));
        reductions (r, TRAIN_F32, TRAIN_SUM);
        body_list (r);
        try_ok (r, "step_end", train_step_end (r->group, &r->err));
    }
}

static train_status_t all_reduce (struct rank *r, size_t n)
{
    train_tensor_t t;

    on_gpu (&t, r->in, TRAIN_F32, n, r->rank);
    return train_all_reduce (r->group, &t.t, TRAIN_MAX, &r->err);
}

static void body_mismatch (struct rank *r)
{
    fill (r, r->in, TRAIN_F32, N);
    r->seen->status = all_reduce (r, r->rank == 1 ? N - 2 : N);
    r->seen->err = r->err;
    want (r, "untouched", r->in, TRAIN_F32, N, 0, TRAIN_SUM, r->rank);
}

static void body_elsewhere (struct rank *r)
{
    train_tensor_t t;

    on_gpu (&t, r->host, TRAIN_F32, N, r->rank);
    if (train_all_reduce (r->group, &t.t, TRAIN_SUM, &r->err) != TRAIN_EINVAL
        || !strstr (r->err.text, "its memory is the host's"))
        note (r, "host memory that says GPU", r->err.text);
    t.t.device.device_type = kDLCPU;
    if (train_all_reduce (r->group, &t.t, TRAIN_SUM, &r->err) != TRAIN_ENOTSUP
        || !strstr (r->err.text, "backend host moves"))
        note (r, "CPU tensor", r->err.text);
    on_gpu (&t, r->in, TRAIN_F32, N, 1 - r->rank);
    if (train_all_reduce (r->group, &t.t, TRAIN_SUM, &r->err) != TRAIN_ENOTSUP)
        note (r, "another GPU", r->err.text);
    try_ok (r, "all_reduce after refusals", all_reduce (r, N));
}

/* Calls without end; the parent strikes rank 1. Then rank 0 goes on alone. */
static void go_on_alone (struct rank *r)
{
    train_group_t *made = NULL;
    train_tensor_t t;

    if (!try_ok (r, "survivors",
                 train_group_survivors (r->group, 1, NULL, &made, &r->err)))
        return;
    fill (r, r->in, TRAIN_F32, N);
    on_gpu (&t, r->in, TRAIN_F32, N, r->rank);
    try_ok (r, "all_reduce of the survivor",
            train_all_reduce (made, &t.t, TRAIN_SUM, &r->err));
    want (r, "all_reduce of the survivor", r->in, TRAIN_F32, N, 0, TRAIN_SUM,
          0);
    if (strcmp (train_group_backend (made), "nccl") != 0)
        note (r, "survivors", "another backend");
    train_group_destroy (made);
}

static void endless (struct rank *r, bool messages)
{
    train_tensor_t in, out;
    int64_t begin_ms = clock_ms ();

    on_gpu (&in, r->in, TRAIN_F32, LARGE, r->rank);
    on_gpu (&out, r->out, TRAIN_F32, LARGE, r->rank);
    while (r->seen->status == TRAIN_OK) {
        begin_ms = clock_ms ();
        r->seen->status =
            messages ? train_all_to_all (r->group, &in.t, &out.t, &r->err)
                     : train_all_reduce (r->group, &in.t, TRAIN_MAX, &r->err);
        atomic_fetch_add (&r->seen->calls, 1);
    }
    r->seen->ms = clock_ms () - begin_ms;
    r->seen->err = r->err;
    go_on_alone (r);
}

static void body_endless (struct rank *r)
{
    endless (r, false);
}

static void body_endless_messages (struct rank *r)
{
    endless (r, true);
}

/* In learnt steps nobody agrees before a call: who is struck leaves the other
 * in NCCL. */
static void body_endless_steps (struct rank *r)
{
    int64_t begin_ms = clock_ms ();

    while (r->seen->status == TRAIN_OK) {
        try_ok (r, "step_begin", train_step_begin (r->group, &r->err));
        for (int i = 0; i < 4 && r->seen->status == TRAIN_OK; i++) {
            begin_ms = clock_ms ();
            r->seen->status = all_reduce (r, N);
        }
        if (r->seen->status == TRAIN_OK)
            r->seen->status = train_step_end (r->group, &r->err);
        atomic_fetch_add (&r->seen->calls, 1);
    }
    r->seen->ms = clock_ms () - begin_ms;
    r->seen->err = r->err;
    go_on_alone (r);
}

/* Rank 1 calls less. */
static void body_less (struct rank *r)
{
    int64_t begin_ms = clock_ms ();

    try_ok (r, "first", all_reduce (r, N));
    if (r->rank == 1) {
        while (!atomic_load (&shared->rank[0].over))
            poll (NULL, 0, 20);
        return;
    }
    begin_ms = clock_ms ();
    r->seen->status = all_reduce (r, N);
    r->seen->err = r->err;
    r->seen->ms = clock_ms () - begin_ms;
}

/* Rank 1 departs from a learnt step. */
static void body_depart (struct rank *r)
{
    int64_t begin_ms;

    for (int i = 0; i < 3; i++) {
        try_ok (r, "step_begin", train_step_begin (r->group, &r->err));
        try_ok (r, "all_reduce", all_reduce (r, N));
        try_ok (r, "step_end", train_step_end (r->group, &r->err));
    }
    try_ok (r, "step_begin", train_step_begin (r->group, &r->err));
    if (r->rank == 1)
        poll (NULL, 0, 500);
    begin_ms = clock_ms ();
    r->seen->status = all_reduce (r, r->rank == 1 ? 8 : N);
    r->seen->err = r->err;
    r->seen->ms = clock_ms () - begin_ms;
}

/* By the group's thread. */
static void body_awake (struct rank *r)
{
    train_work_t *work = NULL;
    train_tensor_t t;

    fill (r, r->out, TRAIN_F32, N);
    on_gpu (&t, r->out, TRAIN_F32, N, r->rank);
    if (try_ok (
            r, "all_reduce",
            train_all_reduce_async (r->group, &t.t, TRAIN_SUM, &work, &r->err))
        && try_ok (r, "wait", train_work_wait (work, -1, &r->err)))
        want (r, "all_reduce", r->out, TRAIN_F32, N, 0, TRAIN_SUM, -1);
    if (!sleeps (1 - r->rank))
        note (r, "all_reduce", "it has a context on the other rank's GPU");
}

int main (int argc, char **argv)
{
    as_hosts = argc > 1 && strcmp (argv[1], "hosts") == 0;
    if (!open_ranks () || ranks < 2)
        tap_skip_all ("needs two GPUs and libnccl.so.2");
    tap_ok (run (body_reductions, 0), "reductions of every type");
    tap_ok (run (body_moves, 0), "moves, new and old connections");
    tap_ok (run (body_list, 0), "a list");
    tap_ok (run (body_steps, 0), "learnt steps");
    at_home = true;
    tap_ok (run (body_awake, 0), "a rank leaves the other's GPU alone");
    at_home = false;
    tap_ok (run (body_elsewhere, 0), "tensors that are elsewhere");
    tap_ok (run (body_mismatch, 0)
                && said (0, TRAIN_EMISMATCH, "rank 1 called all_reduce", 0)
                && said (1, TRAIN_EMISMATCH, "rank 1 called all_reduce", 0),
            "counts differ: both are told, nothing is touched");
    tap_ok (
        run (body_less, 0)
            && said (0, TRAIN_ETIMEDOUT, "rank 1 did not come", TIME_MS + 2000),
        "a rank that calls less is named at the deadline");
    tap_ok (run (body_depart, 0)
                && said (0, TRAIN_EMISMATCH, "rank 1 called", 1500)
                && said (1, TRAIN_EMISMATCH, "rank 1 called", 1500),
            "a rank departs from a learnt step: within a second");
    tap_ok (run (body_endless, SIGKILL)
                && said (0, TRAIN_EPEER, "rank 1 ended during", 2000),
            "a rank is killed in all_reduce, the other goes on");
    tap_ok (run (body_endless_messages, SIGKILL)
                && said (0, TRAIN_EPEER, "rank 1 ended during", 2000),
            "a rank is killed in all_to_all, the other goes on");
    tap_ok (run (body_endless, SIGSTOP)
                && said (0, TRAIN_ETIMEDOUT, "rank 1 did not", TIME_MS + 2000),
            "a rank is stopped in all_reduce, the other goes on");
    tap_ok (run (body_endless_messages, SIGSTOP)
                && said (0, TRAIN_ETIMEDOUT, "rank 1 did not", TIME_MS + 2000),
            "a rank is stopped in all_to_all, the other goes on");
    tap_ok (run (body_endless_steps, SIGKILL)
                && said (0, TRAIN_EPEER, "rank 1 ended during", 2000),
            "a rank is killed in a learnt step, the other goes on");
    tap_ok (run (body_endless_steps, SIGSTOP)
                && said (0, TRAIN_ETIMEDOUT, "rank 1 did not go on with",
                         TIME_MS + 2000)
                && strstr (shared->rank[0].err.text, "undefined"),
            "a rank is stopped in a learnt step, the other leaves NCCL");
    return tap_end ();
}

#else

int main (void)
{
    tap_skip_all ("built without CUDA");
    return 0;
}

#endif
