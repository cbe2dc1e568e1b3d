/* SPDX-License-Identifier: Apache-2.0
 * fake_share.h - made-up GPUs whose memory other processes can map, by the
 * rules of CUDA's handles. For tests alone. */
#ifndef TESTS_UNIT_FAKE_SHARE_H
#define TESTS_UNIT_FAKE_SHARE_H

#include "backend.h"

#define FAKE_GPUS 2

/* What this process's GPUs are like, and what was done with them. */
extern struct fake_share_state {
    unsigned kinds; /* bits of 1 << train_share_kind_t */
    int first;      /* the GPU that has number 0 here */
    bool closed;    /* what others made cannot be mapped */
    bool spoil;     /* what is mapped shows other bytes */
    int mapped;     /* memory of others that is mapped now */
    int opened;     /* handles that are open now */
    int blocks;     /* memory of its own */
} fake_share;

extern const struct backend_ops fake_share_gpu;

/* fake_share_carve - [bytes] of GPU [device] that lie [offset] into an
 * allocation; freed by fake_share_gpu.free (of the result - offset). */
char *fake_share_carve (int device, size_t offset, size_t bytes);

/* fake_share_later - a stream on which memory is filled once somebody waits. */
void *fake_share_later (void *memory, int value, size_t bytes);

#endif
