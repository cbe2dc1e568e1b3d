/* SPDX-License-Identifier: Apache-2.0
 * nccl_bench_step.c - the collectives of one FULL_SHARD step of the 1b preset,
 * without its kernels: raw NCCL, and as compared calls, a learnt step, a graph
 *
 * 18 units: embedding, 16 layers (dim 2048, 32 heads, 8 of keys and values, ffn
 * 8192), norm and head (vocabulary 50304). Forward gathers each in BF16,
 * backward gathers it again and scatters its gradient in F32. Each call is
 * waited for, so a call's own cost shows; a program hides part of it. */
#include "config.h"

#include <stdio.h>
#include <stdlib.h>

#include <train/graph.h>

#include "nccl_bench.h"

#define UNITS  18
#define ROUNDS 11

enum { RAW, OURS, STEP, GRAPH, WAYS };

static const char *const names[WAYS] = {"raw", "compared", "learnt", "graph"};

static size_t unit_size (int u)
{
    const size_t dim = 2048, ffn = 8192, kv = 512, vocab = 50304;
    const size_t layer = 2 * dim * dim + 2 * kv * dim + 3 * dim * ffn + 2 * dim;

    return u == 0 ? vocab * dim : u < UNITS - 1 ? layer : vocab * dim + dim;
}

/* The memory of the largest unit serves all: one shard, one whole. */
static struct {
    char *shard, *whole;
    size_t ranks;
} s;

static size_t shard_size (int u)
{
    return (unit_size (u) + s.ranks - 1) / s.ranks;
}

static void on_gpu (train_tensor_t *t, void *data, train_dtype_t dtype,
                    size_t n)
{
    int64_t shape[1] = {(int64_t)n};

    train_tensor_view (t, data, dtype, 1, shape, NULL);
    t->t.device.device_type = kDLCUDA;
    t->t.device.device_id = b.device;
}

static void sync_raw (int rc)
{
    train_error_t err;

    if (rc != NCCL_RC_SUCCESS)
        exit (1);
    must (b.gpu->sync (b.stream, &err), &err);
}

static void gather (int way, int u)
{
    size_t n = shard_size (u);
    train_tensor_t one, all;
    train_error_t err;

    if (way == RAW) {
        sync_raw (b.api->all_gather (s.shard, s.whole, n, NCCL_DTYPE_BF16,
                                     b.comm, b.stream));
        return;
    }
    on_gpu (&one, s.shard, TRAIN_BF16, n);
    on_gpu (&all, s.whole, TRAIN_BF16, n * s.ranks);
    must (train_all_gather (b.group, &one.t, &all.t, &err), &err);
}

static void scatter (int way, int u)
{
    size_t n = shard_size (u);
    train_tensor_t one, all;
    train_error_t err;

    if (way == RAW) {
        sync_raw (b.api->reduce_scatter (s.whole, s.shard, n, NCCL_DTYPE_F32,
                                         NCCL_OP_SUM, b.comm, b.stream));
        return;
    }
    on_gpu (&one, s.shard, TRAIN_F32, n);
    on_gpu (&all, s.whole, TRAIN_F32, n * s.ranks);
    must (train_reduce_scatter (b.group, &all.t, &one.t, TRAIN_SUM, &err),
          &err);
}

static void calls (int way)
{
    for (int u = 0; u < UNITS; u++)
        gather (way, u);
    for (int u = UNITS - 1; u >= 0; u--) {
        gather (way, u);
        scatter (way, u);
    }
}

static double step (int way, train_graph_t *graph)
{
    train_error_t err;
    double start;

    must (train_barrier (b.group, &err), &err);
    start = now_us ();
    if (way == STEP)
        must (train_step_begin (b.group, &err), &err);
    if (way == GRAPH)
        must (train_graph_launch (graph, &err), &err);
    else
        calls (way);
    if (way == STEP)
        must (train_step_end (b.group, &err), &err);
    return now_us () - start;
}

static train_graph_t *record (void)
{
    train_graph_t *graph;
    train_error_t err;

    must (train_graph_begin (b.group, &err), &err);
    calls (GRAPH);
    must (train_graph_end (b.group, &graph, &err), &err);
    return graph;
}

void bench_step (void)
{
    size_t bytes = (unit_size (UNITS - 1) + 64) * 4;
    double us[WAYS][ROUNDS];
    train_graph_t *graph;
    train_error_t err;

    s.ranks = (size_t)train_group_size (b.group);
    must (b.gpu->alloc (b.device, bytes, (void **)&s.shard, &err), &err);
    must (b.gpu->alloc (b.device, bytes, (void **)&s.whole, &err), &err);
    must (b.gpu->fill (b.device, s.whole, 0, bytes, NULL, &err), &err);
    must (b.gpu->fill (b.device, s.shard, 0, bytes, NULL, &err), &err);
    must (b.gpu->sync (NULL, &err), &err);
    graph = record ();
    for (int i = -2; i < ROUNDS; i++) {
        for (int way = 0; way < WAYS; way++) {
            double took = step (way, graph);

            if (i >= 0)
                us[way][i] = took;
        }
    }
    for (int way = 0; way < WAYS; way++) {
        qsort (us[way], ROUNDS, sizeof (**us), by_value);
        if (train_group_rank (b.group) == 0)
            printf ("step of 1b FULL_SHARD, %d calls: %s %.1f us (%+.2f %%)\n",
                    3 * UNITS, names[way], us[way][ROUNDS / 2],
                    100 * (us[way][ROUNDS / 2] / us[RAW][ROUNDS / 2] - 1));
    }
    train_graph_destroy (graph);
    b.gpu->free (s.shard);
    b.gpu->free (s.whole);
}
