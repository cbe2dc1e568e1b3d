/* SPDX-License-Identifier: Apache-2.0
 * nccl_bench.h - what the parts of nccl_bench share */
#ifndef TESTS_BENCH_NCCL_BENCH_H
#define TESTS_BENCH_NCCL_BENCH_H

#include <train/group.h>

#include "backend.h"
#include "nccl_api.h"

struct bench {
    const struct nccl_api *api;
    const struct backend_ops *gpu;
    train_group_t *group;
    void *comm, *stream; /* of raw NCCL */
    int device;
    char *data;
};

extern struct bench b;

double now_us (void);
int by_value (const void *x, const void *y);                 /* doubles */
void must (train_status_t status, const train_error_t *err); /* or ends */

/* bench_step - the collectives of a FULL_SHARD step.
 * bench_ops - three collectives at four sizes. */
void bench_step (void);
void bench_ops (void);

#endif
