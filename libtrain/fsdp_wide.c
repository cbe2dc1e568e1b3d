/* SPDX-License-Identifier: Apache-2.0
 * fsdp_wide.c - weights that are frozen have no masters: written and read, and
 * put beside what trains for a checkpoint */
#include <stdlib.h>
#include <string.h>

#include "err.h"
#include "fsdp_impl.h"
#include "halves.h"
#include "optim.h"

/* Is the shard in two: masters of what trains, rounded weights of the rest? */
static bool is_split (const struct fsdp *f)
{
    return f->own_base;
}

static struct halves halves_at (const struct fsdp *f, uint16_t *at)
{
    return (struct halves){f->ops, f->stream, f->wdtype, at};
}

/* Of what is frozen, from [at] of the shard on. */
static struct halves base_at (const struct fsdp *f, size_t at)
{
    return halves_at (f, (uint16_t *)(void *)f->base
                             + (at - train_shard_moving (f->plan)));
}

train_status_t fsdp_put (struct fsdp *f, train_adamw_t *adamw, size_t param,
                         const void *from, train_error_t *err)
{
    train_shard_range_t r = train_shard_range (f->plan, param, f->rank);

    if (f->apart && !f->sharded && f->wdtype != f->dtype) {
        struct halves to = halves_at (f, (uint16_t *)f->weights.t.data + r.at);

        return adamw
                   ? adamw_put (adamw, &f->weights.t, from, r.at, r.count, err)
                   : halves_put (&to, from, r.count, err);
    }
    if (is_split (f) && train_shard_param (f->plan, param)->still) {
        struct halves to = base_at (f, r.at);

        return halves_put (&to, from, r.count, err);
    }
    return fsdp_copy (f, (char *)f->weights.t.data + r.at * f->esize, from,
                      r.count * f->esize, err);
}

/* The first [n] of the three arrays, whose [w] has room for the shard, or
 * back. */
static train_status_t move_own (const struct fsdp *f, train_adamw_t *adamw,
                                const struct adamw_wide *w, bool back,
                                train_error_t *err)
{
    void *there[3] = {train_adamw_m (adamw)->data, train_adamw_v (adamw)->data,
                      f->weights.t.data};
    void *here[3] = {w->m, w->v, w->masters};
    size_t bytes = train_shard_moving (f->plan) * f->esize;

    for (int i = 0; i < 3; i++)
        TRY (fsdp_copy (f, back ? there[i] : here[i], back ? here[i] : there[i],
                        bytes, err));
    return TRAIN_OK;
}

/* Moments side by side are spread over what trains first. */
static train_status_t spread_own (struct fsdp *f, train_adamw_t *adamw,
                                  const struct adamw_wide *w,
                                  train_error_t *err)
{
    size_t bytes = train_shard_moving (f->plan) * f->esize;
    struct adamw_wide own;

    if (!adamw_is_own (adamw))
        return move_own (f, adamw, w, false, err);
    TRY (adamw_spread (adamw, &f->weights.t, &own, err));
    memcpy (w->m, own.m, bytes);
    memcpy (w->v, own.v, bytes);
    adamw_wide_free (&own);
    return fsdp_copy (f, w->masters, f->weights.t.data, bytes, err);
}

static train_status_t spread (struct fsdp *f, train_adamw_t *adamw,
                              struct adamw_wide *w, train_error_t *err)
{
    size_t all = train_shard_size (f->plan), own = train_shard_moving (f->plan);
    struct halves still;

    w->m = calloc (all, f->esize);
    w->v = calloc (all, f->esize);
    w->masters = malloc (all * sizeof (*w->masters));
    if (!w->m || !w->v || !w->masters)
        return err_set (err, TRAIN_ENOMEM,
                        "no memory for the moments of %zu parameters", all);
    TRY (spread_own (f, adamw, w, err));
    still = base_at (f, own);
    return halves_get (&still, w->masters + own, all - own, err);
}

train_status_t fsdp_spread (struct fsdp *f, train_adamw_t *adamw,
                            struct adamw_wide *ret, train_error_t *err)
{
    train_status_t status;

    if (!is_split (f))
        return adamw_spread (adamw, &f->weights.t, ret, err);
    *ret = (struct adamw_wide){0};
    status = spread (f, adamw, ret, err);
    if (status != TRAIN_OK)
        adamw_wide_free (ret);
    return status;
}

train_status_t fsdp_collect (struct fsdp *f, train_adamw_t *adamw,
                             const struct adamw_wide *w, train_error_t *err)
{
    size_t all = train_shard_size (f->plan), own = train_shard_moving (f->plan);
    struct halves still;

    if (!is_split (f) || adamw_is_own (adamw))
        TRY (adamw_gather (adamw, &f->weights.t, w, err));
    else
        TRY (move_own (f, adamw, w, true, err));
    if (!is_split (f))
        return TRAIN_OK;
    still = base_at (f, own);
    return halves_put (&still, w->masters + own, all - own, err);
}
