/* SPDX-License-Identifier: Apache-2.0
 * nccl_bench.c - all-reduce of the group backend nccl beside NCCL itself
 *
 *   nccl_bench [BYTES...|step|ops] one process a GPU, with RANK and the like set
 *
 * Each call is waited for. Rank 0 prints one line a size: bytes, and the median
 * microseconds of ncclAllReduce with cudaStreamSynchronize, of
 * train_all_reduce, of the same in a learnt step; then the differences. "step":
 * nccl_bench_step.c, "ops": nccl_bench_ops.c. */
#include "config.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>

#include "group_impl.h"
#include "nccl_bench.h"

#define ROUNDS 21

enum { RAW, OURS, STEP, WAYS };

struct bench b;

double now_us (void)
{
    struct timespec t;

    clock_gettime (CLOCK_MONOTONIC, &t);
    return (double)t.tv_sec * 1e6 + (double)t.tv_nsec / 1e3;
}

int by_value (const void *x, const void *y)
{
    double a = *(const double *)x, c = *(const double *)y;

    return (a > c) - (a < c);
}

void must (train_status_t status, const train_error_t *err)
{
    if (status == TRAIN_OK)
        return;
    fprintf (stderr, "nccl_bench: %s\n", err->text);
    exit (1);
}

static double row (int way, DLTensor *t, size_t bytes, int n)
{
    train_error_t err;
    double start;

    must (train_barrier (b.group, &err), &err);
    start = now_us ();
    if (way == STEP)
        must (train_step_begin (b.group, &err), &err);
    for (int k = 0; k < n; k++) {
        if (way != RAW) {
            must (train_all_reduce (b.group, t, TRAIN_SUM, &err), &err);
            continue;
        }
        if (b.api->all_reduce (b.data, b.data, bytes / 4, NCCL_DTYPE_F32,
                               NCCL_OP_SUM, b.comm, b.stream)
            != NCCL_RC_SUCCESS)
            exit (1);
        must (b.gpu->sync (b.stream, &err), &err);
    }
    if (way == STEP)
        must (train_step_end (b.group, &err), &err);
    return (now_us () - start) / n;
}

static void measure (size_t bytes)
{
    int n = bytes < (1u << 20) ? 200 : bytes < (1u << 28) ? 20 : 4;
    int64_t shape[1] = {(int64_t)(bytes / 4)};
    double us[WAYS][ROUNDS];
    train_tensor_t t;

    train_tensor_view (&t, b.data, TRAIN_F32, 1, shape, NULL);
    t.t.device.device_type = kDLCUDA;
    t.t.device.device_id = b.device;
    for (int i = -2; i < ROUNDS; i++) {
        for (int way = 0; way < WAYS; way++) {
            double took = row (way, &t.t, bytes, n);

            if (i >= 0)
                us[way][i] = took;
        }
    }
    for (int way = 0; way < WAYS; way++)
        qsort (us[way], ROUNDS, sizeof (**us), by_value);
    if (train_group_rank (b.group) == 0)
        printf ("%zu raw %.2f ours %.2f step %.2f us; more %.2f (%.2f %%), "
                "step %.2f (%.2f %%)\n",
                bytes, us[RAW][ROUNDS / 2], us[OURS][ROUNDS / 2],
                us[STEP][ROUNDS / 2],
                us[OURS][ROUNDS / 2] - us[RAW][ROUNDS / 2],
                100 * (us[OURS][ROUNDS / 2] / us[RAW][ROUNDS / 2] - 1),
                us[STEP][ROUNDS / 2] - us[RAW][ROUNDS / 2],
                100 * (us[STEP][ROUNDS / 2] / us[RAW][ROUNDS / 2] - 1));
    fflush (stdout);
}

/* A communicator of its own, as a program in C makes it. */
static void begin (void)
{
    train_group_options_t opts = {.size = sizeof (opts), .backend = "nccl"};
    struct nccl_id id = {{0}};
    train_error_t err;
    size_t len;
    void *got;

    must (train_group_create (&opts, &b.group, &err), &err);
    must (nccl_open (&b.api, &b.gpu, &err), &err);
    b.device = b.group->where.device;
    (void)b.gpu->enter (b.device);
    if (train_group_rank (b.group) == 0 && b.api->get_id (&id) != 0)
        exit (1);
    must (
        train_broadcast_object (b.group, &id, sizeof (id), 0, &got, &len, &err),
        &err);
    memcpy (&id, got, sizeof (id));
    free (got);
    if (b.api->init (&b.comm, train_group_size (b.group), id,
                     train_group_rank (b.group))
        != NCCL_RC_SUCCESS)
        exit (1);
    must (b.gpu->stream_create (b.device, &b.stream, &err), &err);
}

int main (int argc, char **argv)
{
    static char *defaults[] = {"",        "8",        "8192",
                               "1048576", "67108864", "1073741824"};
    size_t most = 0;
    void (*part) (void) = NULL;
    train_error_t err;

    if (argc < 2) {
        argv = defaults;
        argc = (int)(sizeof (defaults) / sizeof (*defaults));
    }
    begin ();
    if (strcmp (argv[1], "step") == 0)
        part = bench_step;
    else if (strcmp (argv[1], "ops") == 0)
        part = bench_ops;
    if (part)
        argc = 1;
    for (int i = 1; i < argc; i++) {
        size_t bytes = strtoul (argv[i], NULL, 10);

        most = bytes > most ? bytes : most;
    }
    if (most > 0)
        must (b.gpu->alloc (b.device, most, (void **)&b.data, &err), &err);
    if (most > 0)
        must (b.gpu->fill (b.device, b.data, 0, most, NULL, &err), &err);
    must (b.gpu->sync (NULL, &err), &err);
    if (train_group_rank (b.group) == 0 && part != bench_ops)
        printf ("NCCL %d, %d ranks\n", b.api->version,
                train_group_size (b.group));
    for (int i = 1; i < argc && most > 0; i++)
        measure (strtoul (argv[i], NULL, 10));
    if (part)
        part ();
    b.api->destroy (b.comm);
    train_group_destroy (b.group);
    return 0;
}
