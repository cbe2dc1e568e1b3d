/* SPDX-License-Identifier: Apache-2.0
 * made_units.h - a model for the engine of sharding: units of one parameter each,
 * visited in their order */
#ifndef MADE_UNITS_H
#define MADE_UNITS_H

#include "libtrain/fsdp.h"

#define MADE_UNITS 6 /* at most */

/* Of n units; params and visits, (n) written, stay with the model. */
static inline struct fsdp_model made_units (train_shard_param_t *params,
                                            size_t *visits,
                                            const size_t *counts, int n)
{
    static const char *const name[MADE_UNITS] = {"a", "b", "c", "d", "e", "f"};

    for (int u = 0; u < n; u++) {
        params[u] = (train_shard_param_t){
            .name = name[u], .count = counts[u], .unit = u, .tied = -1};
        visits[u] = (size_t)u;
    }
    return (struct fsdp_model){.dtype = TRAIN_F32,
                               .params = params,
                               .n_params = (size_t)n,
                               .visits = visits,
                               .n_visits = (size_t)n,
                               .bare = true};
}

#endif
