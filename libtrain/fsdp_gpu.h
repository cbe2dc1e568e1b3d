/* SPDX-License-Identifier: Apache-2.0
 * fsdp_gpu.h - what the engine has on a GPU, for its own files. */
#ifndef TRAIN_FSDP_GPU_H
#define TRAIN_FSDP_GPU_H

#include "fsdp_impl.h"
#include "group_impl.h"

#include "kernels/kernels.h"

/* On the GPU. */
struct fsdp_numbers {
    double norm, sumsq, sums[FSDP_SUMS + 1], parts[KERN_SUMSQ_PARTS];
    float factor;
};

/* What the host reads when a step has ended, and gave before. Pinned. */
struct fsdp_read {
    double norm, sums[FSDP_SUMS + 1], own[FSDP_SUMS];
};

struct fsdp_gpu {
    void *side; /* stream of casts and sums beside the passes */
    void *link; /* stream of what a gather comes after */
    void *come; /* event: it has */
    void *mark; /* event: what a call comes after */
    void *end;  /* event: of a step */
    bool step;  /* of the group, open */
    struct fsdp_numbers *numbers;
    struct fsdp_read *read;
};

#endif
