/* SPDX-License-Identifier: Apache-2.0
 * nccl_bench_ops.c - three collectives by size: raw NCCL, and as compared calls
 * and as those of a learnt step; a line of JSON each
 *
 * Bytes are those of the whole, in F32. As a program that needs the answer
 * each call is waited for. Bus bandwidth is that of nccl-tests'
 * doc/PERFORMANCE.md. */
#include "config.h"

#include <stdio.h>
#include <stdlib.h>

#include "nccl_bench.h"

#define ROUNDS 15

enum { RAW, OURS, STEP, WAYS };
enum { REDUCE, GATHER, SCATTER, OPS };

static const char *const names[OPS] = {"all_reduce", "all_gather",
                                       "reduce_scatter"};
static const size_t sizes[] = {8192, (size_t)1 << 20, (size_t)64 << 20,
                               (size_t)1 << 30};

static struct {
    char *whole, *part;
    size_t ranks;
} s;

static void view (train_tensor_t *t, void *data, size_t floats)
{
    int64_t n = (int64_t)floats;

    train_tensor_view (t, data, TRAIN_F32, 1, &n, NULL);
    t->t.device.device_type = kDLCUDA;
    t->t.device.device_id = b.device;
}

static void raw (int op, size_t n)
{
    size_t part = n / s.ranks;
    train_error_t err;
    int rc;

    if (op == REDUCE)
        rc = b.api->all_reduce (s.whole, s.whole, n, NCCL_DTYPE_F32,
                                NCCL_OP_SUM, b.comm, b.stream);
    else if (op == GATHER)
        rc = b.api->all_gather (s.part, s.whole, part, NCCL_DTYPE_F32, b.comm,
                                b.stream);
    else
        rc = b.api->reduce_scatter (s.whole, s.part, part, NCCL_DTYPE_F32,
                                    NCCL_OP_SUM, b.comm, b.stream);
    if (rc != NCCL_RC_SUCCESS) {
        fprintf (stderr, "nccl_bench: raw %s: NCCL error %d\n", names[op], rc);
        exit (1);
    }
    must (b.gpu->sync (b.stream, &err), &err);
}

static void ours (int op, size_t n)
{
    train_tensor_t whole, part;
    train_error_t err;
    train_status_t status;

    view (&whole, s.whole, n);
    view (&part, s.part, n / s.ranks);
    if (op == REDUCE)
        status = train_all_reduce (b.group, &whole.t, TRAIN_SUM, &err);
    else if (op == GATHER)
        status = train_all_gather (b.group, &part.t, &whole.t, &err);
    else
        status =
            train_reduce_scatter (b.group, &whole.t, &part.t, TRAIN_SUM, &err);
    must (status, &err);
}

/* Microseconds of one of [calls]. */
static double row (int op, int way, size_t n, int calls)
{
    train_error_t err;
    double start;

    must (train_barrier (b.group, &err), &err);
    start = now_us ();
    if (way == STEP)
        must (train_step_begin (b.group, &err), &err);
    for (int k = 0; k < calls; k++) {
        if (way == RAW)
            raw (op, n);
        else
            ours (op, n);
    }
    if (way == STEP)
        must (train_step_end (b.group, &err), &err);
    return (now_us () - start) / calls;
}

static void measure (int op, size_t bytes)
{
    size_t n = bytes / 4 / s.ranks * s.ranks;
    int calls = bytes <= (1u << 20) ? 50 : bytes < (1u << 28) ? 10 : 3;
    double us[WAYS][ROUNDS], bus = (double)(n * 4) / 1e3;

    for (int i = -2; i < ROUNDS; i++) {
        for (int way = 0; way < WAYS; way++) {
            double took = row (op, way, n, calls);

            if (i >= 0)
                us[way][i] = took;
        }
    }
    for (int way = 0; way < WAYS; way++)
        qsort (us[way], ROUNDS, sizeof (**us), by_value);
    bus *= (double)(s.ranks - 1) / (double)s.ranks * (op == REDUCE ? 2 : 1);
    if (train_group_rank (b.group) != 0)
        return;
    printf ("{\"op\": \"%s\", \"who\": \"libtrain\", \"world\": %zu, "
            "\"bytes\": %zu, \"raw_us\": %.2f, \"us\": %.2f, \"step_us\": "
            "%.2f, \"raw_gb_s\": %.1f, \"gb_s\": %.1f}\n",
            names[op], s.ranks, n * 4, us[RAW][ROUNDS / 2],
            us[OURS][ROUNDS / 2], us[STEP][ROUNDS / 2],
            bus / us[RAW][ROUNDS / 2], bus / us[OURS][ROUNDS / 2]);
    fflush (stdout);
}

void bench_ops (void)
{
    size_t most = sizes[sizeof (sizes) / sizeof (*sizes) - 1];
    train_error_t err;

    s.ranks = (size_t)train_group_size (b.group);
    must (b.gpu->alloc (b.device, most, (void **)&s.whole, &err), &err);
    must (b.gpu->alloc (b.device, most, (void **)&s.part, &err), &err);
    must (b.gpu->fill (b.device, s.whole, 0, most, NULL, &err), &err);
    must (b.gpu->fill (b.device, s.part, 0, most, NULL, &err), &err);
    must (b.gpu->sync (NULL, &err), &err);
    for (size_t i = 0; i < sizeof (sizes) / sizeof (*sizes); i++)
        for (int op = 0; op < OPS; op++)
            measure (op, sizes[i]);
    b.gpu->free (s.whole);
    b.gpu->free (s.part);
}
