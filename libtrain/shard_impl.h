/* SPDX-License-Identifier: Apache-2.0
 * shard_impl.h - what a shard plan is made of, for its own files. */
#ifndef TRAIN_SHARD_IMPL_H
#define TRAIN_SHARD_IMPL_H

#include <train/shard.h>

/* Where a parameter lies; of a tied one, where the other does. */
struct shard_place {
    size_t unit;   /* flat unit */
    size_t offset; /* of its first element in that */
};

struct train_shard_plan {
    train_shard_layout_t layout;
    train_shard_param_t *params; /* (n_params), names owned */
    struct shard_place *places;  /* (n_params) */
    size_t n_params;
    train_shard_unit_t *units; /* (n_units) */
    size_t n_units;
    size_t numel, shard; /* elements of the model, of a shard */
    size_t moving;       /* of a shard, before what is still */
};

#endif
