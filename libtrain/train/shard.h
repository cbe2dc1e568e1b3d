/* SPDX-License-Identifier: Apache-2.0
 * train/shard.h - which rank holds which elements of a sharded model.
 *
 * Pure arithmetic: no group, no device, no data. A model is a list of
 * parameters in its own units (of a decoder: the embedding, each block, the
 * head). A wrap policy joins consecutive units to flat ones: their parameters
 * one after the other, and each of W ranks holds one chunk of ceil (n / W)
 * elements, rank r the r-th. Nothing has to divide: the last chunks are short
 * or empty, and what is missing at the end is padding, zero for ever. A rank's
 * shard is its chunks of all flat units one after the other, padding included,
 * so it is of one size on all ranks. Parameters may be still, as weights are that
 * do not train: a flat unit is cut where that changes, and chunks of still ones
 * are the end of a shard, so that gradients and masters are of its beginning
 * alone. (Zhao et al. 2023, arXiv:2304.11277;
 * Rajbhandari et al. 2020, arXiv:1910.02054.)
 *
 * Plans do not change once they are made: any thread. */
#ifndef TRAIN_SHARD_H
#define TRAIN_SHARD_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include <train/status.h>

#ifdef __cplusplus
extern "C" {
#endif

typedef struct train_shard_plan train_shard_plan_t;

/* How a model is spread over the ranks of a group. */
typedef enum train_strategy {
    TRAIN_NO_SHARD = 0,      /* each rank has all; gradients are summed by one
                                call after the backward */
    TRAIN_DDP = 1,           /* the same, but each flat unit's gradients are
                                summed while the backward goes on */
    TRAIN_SHARD_GRAD_OP = 2, /* masters, moments and gradients are sharded;
                                weights are whole from forward to backward */
    TRAIN_FULL_SHARD = 3, /* weights too: a unit is whole while it computes */
} train_strategy_t;

typedef enum train_wrap {
    TRAIN_WRAP_UNIT = 0, /* a flat unit for each unit of the model */
    TRAIN_WRAP_SIZE = 1, /* consecutive units until they have [least] elements;
                            the last one may have less */
} train_wrap_t;

typedef struct train_shard_param {
    const char *name; /* copied */
    size_t count;     /* elements; 0 is legal */
    int unit;         /* 0, 1, ..: never less than the parameter's before it */
    int tied;         /* index of the earlier parameter whose elements these
                         are, of the same count and itself not tied; -1: its
                         own. Tied elements are stored and counted once */
    bool still;       /* it is frozen: it lies in a flat unit without any that
                         train, and in a shard behind all that do */
} train_shard_param_t;

typedef struct train_shard_layout {
    size_t size; /* sizeof (train_shard_layout_t) */
    int world;   /* ranks, >= 1 */
    train_wrap_t wrap;
    size_t least; /* of TRAIN_WRAP_SIZE, >= 1 */
    size_t align; /* chunks are whole multiples of it; 0 = 1 */
} train_shard_layout_t;

/* One flat unit. */
typedef struct train_shard_unit {
    int first, last;        /* units of the model, both included */
    size_t param, n_params; /* its parameters: from [param] on */
    size_t count;           /* elements */
    size_t chunk;           /* of each rank: world * chunk >= count */
    size_t at;              /* of its chunk in a shard, in elements */
    bool still;             /* all its parameters are */
    size_t
        bundle; /* consecutive flat units of one number are what a wrap policy
                      joined, cut where parameters are still; each goes up by 1 */
} train_shard_unit_t;

/* A parameter's elements on one rank: always one run, maybe empty. */
typedef struct train_shard_range {
    size_t begin, count; /* elements of the parameter, row-major */
    size_t at;           /* of the first in the rank's shard */
} train_shard_range_t;

/* train_shard_plan_create - lay out [n] parameters.
 *   ret_plan   end with train_shard_plan_destroy
 * TRAIN_EINVAL names the option or parameter that is wrong (two of one name,
 * order of units, ties, sizes that overflow); TRAIN_ENOMEM. */
train_status_t train_shard_plan_create (const train_shard_layout_t *layout,
                                        const train_shard_param_t *params,
                                        size_t n, train_shard_plan_t **ret_plan,
                                        train_error_t *err);
void train_shard_plan_destroy (train_shard_plan_t *plan); /* NULL is fine */

const train_shard_layout_t *train_shard_plan_layout (
    const train_shard_plan_t *plan);
size_t train_shard_n_params (const train_shard_plan_t *plan);
/* NULL when [index] is too large. Names live with the plan. */
const train_shard_param_t *train_shard_param (const train_shard_plan_t *plan,
                                              size_t index);
size_t train_shard_n_units (const train_shard_plan_t *plan); /* flat ones */
const train_shard_unit_t *train_shard_unit (const train_shard_plan_t *plan,
                                            size_t index);
/* train_shard_unit_of - the first flat unit that has unit [unit] of the model;
 * -1 when there is none. */
int train_shard_unit_of (const train_shard_plan_t *plan, int unit);
size_t train_shard_numel (const train_shard_plan_t *plan); /* without padding */
/* train_shard_size - elements of a shard, padding included: alike on all
 * ranks. */
size_t train_shard_size (const train_shard_plan_t *plan);
/* train_shard_moving - of these the ones before what is still. */
size_t train_shard_moving (const train_shard_plan_t *plan);

/* train_shard_range - what of parameter [param] rank [rank] holds; of a tied
 * one, what it holds of the other. [param] and [rank] are legal. */
train_shard_range_t train_shard_range (const train_shard_plan_t *plan,
                                       size_t param, int rank);
/* train_shard_offset - where a parameter begins in its flat unit. */
size_t train_shard_offset (const train_shard_plan_t *plan, size_t param);

/* A run of elements that goes from a shard of one plan to a shard of another. */
typedef struct train_shard_move {
    size_t param;   /* in the new plan */
    size_t begin;   /* first element of the parameter */
    int from_rank;  /* of the old plan */
    size_t from_at; /* in that rank's shard */
    size_t to_at;   /* in the new rank's shard */
    size_t count;   /* elements, >= 1 */
} train_shard_move_t;

/* train_shard_moves - how rank [to_rank] of plan [to] is filled from the
 * shards of plan [from], whatever the two worlds, wraps and orders are.
 * Parameters are the same by their names; every element that the rank holds is
 * in one move, in rising order of to_at, and padding is in none. A parameter
 * that was tied may now be its own; one that is tied now is the other's.
 *   ret     malloc'ed, to be freed; NULL when there is none
 * TRAIN_EINVAL names a parameter that [from] has not, or in another size;
 * TRAIN_ENOMEM. */
train_status_t train_shard_moves (const train_shard_plan_t *from,
                                  const train_shard_plan_t *to, int to_rank,
                                  train_shard_move_t **ret, size_t *ret_n,
                                  train_error_t *err);

#ifdef __cplusplus
}
#endif
#endif
