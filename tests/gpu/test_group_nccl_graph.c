/* SPDX-License-Identifier: Apache-2.0
 * test_group_nccl_graph.c - CUDA graphs of a group's calls on two real GPUs, or
 * on one: replays beside plain values, a graph that sticks, and NCCL's own
 * collective in one
 *
 *   test_group_nccl_graph [hosts]   as test_group_nccl has it */
#include "config.h"

#include "tap.h"

#if HAVE_CUDA

#include <cuda_runtime.h>
#include <poll.h>
#include <string.h>

#include <train/graph.h>

#include "backend.h"
#include "nccl_api.h"
#include "nccl_ranks.h"
#include "nccl_values.h"
#include "sock.h"

#define BLOCK (N * 4)

struct play {
    struct rank *r;
    train_tensor_t t, all, list[2];
    DLTensor *lists[2];
    train_graph_t *graph;
};

static void begin (struct play *p, struct rank *r)
{
    *p = (struct play){.r = r};
    on_gpu (&p->t, r->in, TRAIN_F32, N, r->rank);
    on_gpu (&p->all, r->out, TRAIN_F32, N * (size_t)ranks, r->rank);
    on_gpu (&p->list[0], r->in, TRAIN_F32, 5, r->rank);
    on_gpu (&p->list[1], r->in + 20, TRAIN_F32, N - 5, r->rank);
    p->lists[0] = &p->list[0].t;
    p->lists[1] = &p->list[1].t;
}

/* The program's own work, in the middle: bytes behind the tensor. */
static void record (struct play *p)
{
    struct rank *r = p->r;

    try_ok (r, "graph_begin", train_graph_begin (r->group, &r->err));
    try_ok (r, "all_reduce",
            train_all_reduce (r->group, &p->t.t, TRAIN_SUM, &r->err));
    try_ok (r, "own work",
            backend_cuda.fill (r->rank, r->in + BLOCK, 0x5a, 64, r->stream,
                               &r->err));
    try_ok (r, "list",
            train_broadcast_list (r->group, p->lists, 2, ranks - 1, &r->err));
    try_ok (r, "wire",
            train_broadcast_wire (r->group, &p->t.t, 0, TRAIN_BF16, &r->err));
    try_ok (r, "all_gather",
            train_all_gather (r->group, &p->t.t, &p->all.t, &r->err));
    try_ok (r, "graph_end", train_graph_end (r->group, &p->graph, &r->err));
}

static void replay (struct play *p, bool async)
{
    struct rank *r = p->r;
    train_work_t *work = NULL;

    memset (r->host, 0, 64);
    upload (r, r->in + BLOCK, 64);
    fill (r, r->in, TRAIN_F32, N);
    if (!async)
        try_ok (r, "launch", train_graph_launch (p->graph, &r->err));
    else if (try_ok (r, "launch",
                     train_graph_launch_async (p->graph, &work, &r->err)))
        try_ok (r, "launch", train_work_wait (work, -1, &r->err));
    for (int f = 0; f < ranks; f++)
        want (r, "replay", r->out + (size_t)f * BLOCK, TRAIN_F32, N, 0,
              TRAIN_SUM, -1);
    download (r, r->in + BLOCK, 64);
    if (r->host[0] != 0x5a || r->host[63] != 0x5a)
        note (r, "replay", "the program's own work is not in it");
}

static void body_replay (struct rank *r)
{
    struct play p, q;

    begin (&p, r);
    record (&p);
    for (int i = 0; i < 4; i++)
        replay (&p, i & 1);
    begin (&q, r);
    record (&q);
    for (int i = 0; i < 3; i++) {
        try_ok (r, "step_begin", train_step_begin (r->group, &r->err));
        replay (&p, false);
        replay (&q, i & 1);
        try_ok (r, "step_end", train_step_end (r->group, &r->err));
    }
    train_graph_destroy (p.graph);
    replay (&q, false);
    train_graph_destroy (q.graph);
}

/* A graph that lives longer than its group. */
static void body_order (struct rank *r)
{
    struct play p;

    begin (&p, r);
    record (&p);
    replay (&p, false);
    train_group_destroy (r->group);
    r->group = NULL;
    if (train_graph_launch (p.graph, &r->err) != TRAIN_ESTATE)
        note (r, "launch without a group", r->err.text);
    train_graph_destroy (p.graph);
}

static _Atomic int go_on;

static void stand_still (void *arg)
{
    (void)arg;
    for (int i = 0; i < 3000 && !atomic_load (&go_on); i++)
        poll (NULL, 0, 10);
}

/* The last rank's own work before call 2 does not end. */
static void body_stuck (struct rank *r)
{
    int64_t begin_ms;
    struct play p;

    begin (&p, r);
    fill (r, r->in, TRAIN_F32, N);
    try_ok (r, "graph_begin", train_graph_begin (r->group, &r->err));
    try_ok (r, "all_reduce",
            train_all_reduce (r->group, &p.t.t, TRAIN_MAX, &r->err));
    if (r->rank == ranks - 1
        && cudaLaunchHostFunc ((cudaStream_t)r->stream, stand_still, NULL)
               != cudaSuccess)
        note (r, "own work", "cannot be recorded");
    try_ok (r, "all_reduce",
            train_all_reduce (r->group, &p.t.t, TRAIN_MIN, &r->err));
    try_ok (r, "graph_end", train_graph_end (r->group, &p.graph, &r->err));
    begin_ms = clock_ms ();
    r->seen->status = train_graph_launch (p.graph, &r->err);
    r->seen->ms = clock_ms () - begin_ms;
    r->seen->err = r->err;
    atomic_store (&go_on, 1);
    train_graph_destroy (p.graph);
}

/* One rank has nobody who watches it. */
static void body_late (struct rank *r)
{
    int64_t begin_ms = clock_ms ();
    struct play p;

    begin (&p, r);
    cudaLaunchHostFunc ((cudaStream_t)r->stream, stand_still, NULL);
    r->seen->status = train_all_reduce (r->group, &p.t.t, TRAIN_MAX, &r->err);
    r->seen->ms = clock_ms () - begin_ms;
    r->seen->err = r->err;
    atomic_store (&go_on, 1);
}

/* NCCL's own collective between two marks, in a communicator of one rank: the
 * graph goes before it. */
static void body_raw (struct rank *r)
{
    const struct backend_graph *g = &backend_cuda_graph;
    const struct backend_ops *gpu;
    const struct nccl_api *api;
    void *comm = NULL, *graph = NULL, *memory = NULL;
    volatile uint32_t *mark;
    struct nccl_id id;

    if (!try_ok (r, "nccl", nccl_open (&api, &gpu, &r->err))
        || !try_ok (r, "pin", gpu->pin (r->rank, 4096, &memory, &r->err)))
        return;
    mark = memory;
    gpu->enter (r->rank);
    if (api->get_id (&id) != 0 || api->init (&comm, 1, id, 0) != 0)
        note (r, "nccl", "no communicator of one rank");
    fill (r, r->in, TRAIN_F32, N);
    try_ok (r, "begin", g->begin (r->stream, r->rank, &r->err));
    try_ok (r, "mark", g->mark (mark, 1, r->stream, r->rank, &r->err));
    if (api->all_reduce (r->in, r->out, N, NCCL_DTYPE_F32, NCCL_OP_SUM, comm,
                         r->stream)
        != 0)
        note (r, "nccl", "all_reduce");
    try_ok (r, "mark", g->mark (mark, 2, r->stream, r->rank, &r->err));
    try_ok (r, "end", g->end (r->stream, r->rank, &graph, &r->err));
    if (*mark != 0)
        note (r, "mark", "written by the record");
    for (int i = 0; i < 3 && graph; i++) {
        *mark = 0;
        memset (r->host, 0, BLOCK);
        upload (r, r->out, BLOCK);
        try_ok (r, "launch", g->launch (graph, r->stream, r->rank, &r->err));
        try_ok (r, "sync", gpu->sync (r->stream, &r->err));
        want (r, "all_reduce of one", r->out, TRAIN_F32, N, 0, TRAIN_SUM,
              r->rank);
        if (*mark != 2)
            note (r, "mark", "not written");
    }
    if (graph)
        g->destroy (graph);
    if (comm && api->destroy (comm) != 0)
        note (r, "nccl", "destroy");
    gpu->unpin (memory, 4096);
}

int main (int argc, char **argv)
{
    as_hosts = argc > 1 && strcmp (argv[1], "hosts") == 0;
    if (!open_ranks ())
        tap_skip_all ("needs a GPU and libnccl.so.2");
    printf ("# ranks: %d\n", ranks);
    tap_ok (run (body_replay, 0), "replays, in learnt steps too");
    tap_ok (run (body_order, 0), "a graph that outlives its group");
    tap_ok (run (body_raw, 0), "NCCL's all_reduce between marks");
    tap_ok (run (body_stuck, 0)
                && said (0, TRAIN_ETIMEDOUT,
                         ranks == 1
                             ? "the GPU of rank 0 was before call 2 of the 2"
                             : "the GPU of rank 1 is before call 2 of the 2",
                         TIME_MS + 2000),
            "a graph that sticks: the call and the rank are named");
    if (ranks == 1)
        tap_ok (run (body_late, 0)
                    && said (0, TRAIN_ETIMEDOUT, "did not end within 5.0 s",
                             TIME_MS + 1000),
                "one rank has a deadline too");
    return tap_end ();
}

#else

int main (void)
{
    tap_skip_all ("built without CUDA");
    return 0;
}

#endif
