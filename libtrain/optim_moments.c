/* SPDX-License-Identifier: Apache-2.0
 * optim_moments.c - moments of what trains alone, and as a checkpoint has them
 *
 * Beside adapters (Hu et al. 2021, arXiv:2106.09685) nearly all weights are
 * frozen; files have zeros for them, so that they do not hang on what trained. */
#include <stdlib.h>

#include "err.h"
#include "optim_state.h"

/* From the moments at [own] to [wide], or back. */
static train_status_t move (const train_adamw_t *a, char *own, char *wide,
                            bool back, train_error_t *err)
{
    for (size_t i = 0; i < a->n_ranges; i++) {
        const struct adamw_range *r = &a->range[i];
        char *near = own + r->at * a->esize, *far = wide + r->offset * a->esize;

        TRY (a->ops->copy (back ? near : far, back ? far : near,
                           r->count * a->esize, NULL, err));
    }
    return a->ops->sync (NULL, err);
}

train_status_t adamw_spread (train_adamw_t *a, void **ret_m, void **ret_v,
                             train_error_t *err)
{
    char *m = NULL, *v = NULL;
    train_status_t status;

    *ret_m = *ret_v = NULL;
    if (a->state == a->numel)
        return TRAIN_OK;
    m = calloc (a->numel, a->esize);
    v = calloc (a->numel, a->esize);
    status = m && v ? move (a, a->m.t.data, m, false, err)
                    : err_set (err, TRAIN_ENOMEM,
                               "no memory for the moments of %zu parameters",
                               a->numel);
    if (status == TRAIN_OK)
        status = move (a, a->v.t.data, v, false, err);
    if (status != TRAIN_OK) {
        free (m);
        free (v);
        return status;
    }
    *ret_m = m;
    *ret_v = v;
    return TRAIN_OK;
}

train_status_t adamw_gather (train_adamw_t *a, const void *m, const void *v,
                             train_error_t *err)
{
    TRY (move (a, a->m.t.data, (char *)(uintptr_t)m, true, err));
    return move (a, a->v.t.data, (char *)(uintptr_t)v, true, err);
}
