/* SPDX-License-Identifier: Apache-2.0
 * fsdp_wide.c - weights that are frozen have no masters: written and read, and
 * put beside what trains for a checkpoint */
#include <stdlib.h>
#include <string.h>

#include "err.h"
#include "fsdp_impl.h"
#include "kernels/kernels.h"
#include "optim.h"

#define PIECE ((size_t)1 << 20)

/* Is the shard in two: masters of what trains, rounded weights of the rest? */
static bool is_split (const struct fsdp *f)
{
    return f->own_base;
}

static void round_host (const struct fsdp *f, uint16_t *to, const float *from,
                        size_t n)
{
    (f->wdtype == TRAIN_BF16 ? kern_cast_f32_bf16_host
                             : kern_cast_f32_f16_host) (to, from, n, NULL);
}

static void widen_host (const struct fsdp *f, float *to, const uint16_t *from,
                        size_t n)
{
    (f->wdtype == TRAIN_BF16 ? kern_cast_bf16_f32_host
                             : kern_cast_f16_f32_host) (to, from, n, NULL);
}

/* [n] halves at [there] from [wide], or [back]. */
static train_status_t move_halves (const struct fsdp *f, uint16_t *there,
                                   float *wide, size_t n, bool back,
                                   train_error_t *err)
{
    uint16_t *half = malloc (PIECE * sizeof (*half));
    train_status_t status = TRAIN_OK;

    if (!half)
        return err_set (err, TRAIN_ENOMEM, "no memory for rounded weights");
    for (size_t at = 0, k; at < n && status == TRAIN_OK; at += k) {
        k = n - at < PIECE ? n - at : PIECE;
        if (!back)
            round_host (f, half, wide + at, k);
        status = fsdp_copy (f, back ? half : there + at,
                            back ? there + at : half, k * sizeof (*half), err);
        if (back && status == TRAIN_OK)
            widen_host (f, wide + at, half, k);
    }
    free (half);
    return status;
}

static uint16_t *base_at (const struct fsdp *f, size_t at)
{
    return (uint16_t *)(void *)f->base + (at - train_shard_moving (f->plan));
}

train_status_t fsdp_put (struct fsdp *f, train_adamw_t *adamw, size_t param,
                         const void *from, train_error_t *err)
{
    train_shard_range_t r = train_shard_range (f->plan, param, f->rank);
    float *wide = (float *)(uintptr_t)from;

    if (f->apart && !f->sharded && f->wdtype != f->dtype)
        return adamw
                   ? adamw_put (adamw, &f->weights.t, from, r.at, r.count, err)
                   : move_halves (f, (uint16_t *)f->weights.t.data + r.at, wide,
                                  r.count, false, err);
    if (is_split (f) && train_shard_param (f->plan, param)->still)
        return move_halves (f, base_at (f, r.at), wide, r.count, false, err);
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

    w->m = calloc (all, f->esize);
    w->v = calloc (all, f->esize);
    w->masters = malloc (all * sizeof (*w->masters));
    if (!w->m || !w->v || !w->masters)
        return err_set (err, TRAIN_ENOMEM,
                        "no memory for the moments of %zu parameters", all);
    TRY (spread_own (f, adamw, w, err));
    return move_halves (f, base_at (f, own), w->masters + own, all - own, true,
                        err);
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

    if (!is_split (f) || adamw_is_own (adamw))
        TRY (adamw_gather (adamw, &f->weights.t, w, err));
    else
        TRY (move_own (f, adamw, w, true, err));
    return is_split (f) ? move_halves (f, base_at (f, own), w->masters + own,
                                       all - own, false, err)
                        : TRAIN_OK;
}
