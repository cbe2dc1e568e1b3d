/* SPDX-License-Identifier: Apache-2.0
 * optim_state.h - what an AdamW is made of, for its own files. */
#ifndef TRAIN_OPTIM_STATE_H
#define TRAIN_OPTIM_STATE_H

#include <train/optim.h>

#include "backend.h"
#include "optim.h"
#include "optim_far.h"

/* Neighbours of the same decay are one range: one pass of the kernel. */
struct adamw_range {
    size_t offset, count;
    size_t at;   /* of its moments in m and v, and of its masters */
    size_t grad; /* of its gradients */
    bool decay;
    uint64_t first; /* number of its first element in the model */
};

struct train_adamw {
    train_adamw_options_t opts;
    train_dtype_t dtype;
    size_t numel;
    size_t state; /* elements of m, of v and of masters: numel, or of the ranges
                     alone */
    size_t
        n_grads; /* elements of the gradients: numel, or as adamw_place_grads */
    struct adamw_range *range;
    size_t n_ranges;
    const struct backend_ops *ops;
    int device; /* as [ops] counts */
    bool gpu;
    size_t esize; /* of moments, gradients, masters */
    void *arena;  /* m, v, then masters; with offload the host's, pinned */
    size_t bytes; /* of it */
    unsigned how; /* of adamw_create_at */
    struct adamw_far *far; /* NULL: nothing passes through the GPU */
    train_tensor_t m, v, masters;
    bool has_masters;
    float *factor; /* of a GPU: what grad_scale is given by */
    int64_t updates;
};

static inline bool adamw_is_half (const train_adamw_t *a)
{
    return a->dtype == TRAIN_BF16 || a->dtype == TRAIN_F16;
}

/* Elements of what passes through a GPU, where a range of it begins: with the
 * moments, or as the parameters lie. */
static inline size_t adamw_far_numel (const train_adamw_t *a)
{
    return a->opts.offload ? a->state : a->numel;
}

static inline size_t adamw_far_at (const train_adamw_t *a,
                                   const struct adamw_range *r)
{
    return a->opts.offload ? r->at : r->offset;
}

/* adamw_settle - wait for what the optimizer's GPU was given without a stream:
 * each GPU has a queue of its own for that, and no stream is the present one's. */
train_status_t adamw_settle (const train_adamw_t *a, train_error_t *err);

#endif
