/* SPDX-License-Identifier: Apache-2.0
 * optim.c - AdamW over ranges of one arena: options, state, and what it tells */
#include "config.h"

#include <math.h>
#include <stdlib.h>
#include <string.h>

#include "err.h"
#include "optim_state.h"
#include "opts.h"

static train_status_t check_options (const train_adamw_options_t *opts,
                                     train_adamw_options_t *o,
                                     train_error_t *err)
{
    if (!opts)
        return err_set (err, TRAIN_EINVAL, "adamw: no options");
    TRY (opts_read (o, sizeof (*o), opts, "adamw", err));
    if (!(o->beta1 >= 0 && o->beta1 < 1))
        return err_set (err, TRAIN_EINVAL,
                        "adamw: beta1 %g is not within 0 and below 1",
                        o->beta1);
    if (!(o->beta2 >= 0 && o->beta2 < 1))
        return err_set (err, TRAIN_EINVAL,
                        "adamw: beta2 %g is not within 0 and below 1",
                        o->beta2);
    if (!isfinite (o->eps) || o->eps <= 0)
        return err_set (err, TRAIN_EINVAL,
                        "adamw: eps %g is not a number above 0", o->eps);
    if (!isfinite (o->weight_decay) || o->weight_decay < 0)
        return err_set (err, TRAIN_EINVAL,
                        "adamw: weight_decay %g is not a number from 0 on",
                        o->weight_decay);
    return TRAIN_OK;
}

static train_status_t add_ranges (train_adamw_t *a, const train_param_t *params,
                                  const uint64_t *first, size_t n,
                                  train_error_t *err)
{
    size_t end = 0;

    if (!(a->range = calloc (n ? n : 1, sizeof (*a->range))))
        return err_set (err, TRAIN_ENOMEM, "no memory for %zu ranges", n);
    for (size_t i = 0; i < n; i++) {
        const train_param_t *p = &params[i];
        struct adamw_range *last =
            a->n_ranges ? &a->range[a->n_ranges - 1] : NULL;
        uint64_t number = first ? first[i] : p->offset;

        if (p->offset < end || p->offset > a->numel
            || p->count > a->numel - p->offset)
            return err_set (err, TRAIN_EINVAL,
                            "adamw: parameter %zu (%zu elements from %zu) "
                            "overlaps the one before it or the end at %zu",
                            i, p->count, p->offset, a->numel);
        end = p->offset + p->count;
        if (last && last->decay == p->decay
            && last->offset + last->count == p->offset
            && (!a->opts.stochastic || last->first + last->count == number))
            last->count += p->count;
        else
            a->range[a->n_ranges++] = (struct adamw_range){.offset = p->offset,
                                                           .count = p->count,
                                                           .decay = p->decay,
                                                           .first = number};
    }
    return TRAIN_OK;
}

/* Moments and masters of the ranges, side by side, or as the parameters lie, as far
 * as these go. Of pieces that pass through a GPU all arrays have one order. */
static void place_moments (train_adamw_t *a)
{
    size_t sum = 0;

    a->state = a->n_grads = a->numel;
    for (size_t i = 0; i < a->n_ranges; i++) {
        a->range[i].at = a->range[i].grad = a->range[i].offset;
        sum += a->range[i].count;
    }
    if (!(a->how & ADAMW_OWN) || sum == a->numel)
        return;
    a->state = 0;
    for (size_t i = 0; i < a->n_ranges; i++) {
        if (!a->opts.offload || !(a->how & ADAMW_ORDER))
            a->range[i].at = a->state;
        a->state = a->range[i].at + a->range[i].count;
    }
    if (a->state == 0)
        a->state = 1; /* a shard without what trains */
}

void adamw_place_grads (train_adamw_t *a, size_t n,
                        size_t (*at) (const void *arg, size_t offset),
                        const void *arg)
{
    a->n_grads = n;
    for (size_t i = 0; i < a->n_ranges; i++)
        a->range[i].grad = at (arg, a->range[i].offset);
}

train_status_t adamw_settle (const train_adamw_t *a, train_error_t *err)
{
    int before = a->ops->enter (a->device);
    train_status_t status = a->ops->sync (NULL, err);

    a->ops->leave (before);
    return status;
}

/* [n] elements from the [first] of the arena on. */
static train_status_t view (const train_adamw_t *a, train_tensor_t *t,
                            size_t first, size_t n, train_error_t *err)
{
    int64_t shape[1] = {(int64_t)n};

    TRY (train_tensor_view (t, (char *)a->arena + first * a->esize,
                            a->dtype == TRAIN_F64 ? TRAIN_F64 : TRAIN_F32, 1,
                            shape, err));
    if (a->gpu && !a->opts.offload)
        t->t.device = (DLDevice){kDLCUDA, a->device};
    return TRAIN_OK;
}

static train_status_t add_arena (train_adamw_t *a, train_error_t *err)
{
    if (!a->opts.offload) {
        TRY (a->ops->alloc (a->device, a->bytes, &a->arena, err));
        TRY (a->ops->fill (a->device, a->arena, 0, a->bytes, NULL, err));
        return adamw_settle (a, err); /* updates are on another stream */
    }
    TRY (a->ops->pin (a->device, a->bytes, &a->arena, err));
    memset (a->arena, 0, a->bytes);
    return TRAIN_OK;
}

unsigned adamw_far_arrays (bool offload, unsigned how)
{
    unsigned arrays = how & ADAMW_FAR_F32 ? 1U << ADAMW_FAR_P : 0;

    if (how & (ADAMW_FAR_BF16 | ADAMW_FAR_F16))
        arrays |= 1U << ADAMW_FAR_COPY;
    if (offload)
        arrays |= 1U << ADAMW_FAR_P | 1U << ADAMW_FAR_M | 1U << ADAMW_FAR_V;
    return arrays;
}

static train_status_t add_far (train_adamw_t *a, train_error_t *err)
{
    unsigned arrays = adamw_far_arrays (a->opts.offload, a->how);

    return arrays ? adamw_far_create (a->ops, a->device, adamw_far_numel (a),
                                      arrays, &a->far, err)
                  : TRAIN_OK;
}

static train_status_t add_moments (train_adamw_t *a, train_error_t *err)
{
    train_status_t status;
    void *factor = NULL;

    a->esize = a->dtype == TRAIN_F64 ? sizeof (double) : sizeof (float);
    if (a->numel > SIZE_MAX / 4 / a->esize)
        return err_set (err, TRAIN_ENOMEM,
                        "no memory for the moments of %zu parameters",
                        a->numel);
    a->bytes = (adamw_is_half (a) ? 3 : 2) * a->state * a->esize;
    if ((status = add_arena (a, err)) != TRAIN_OK
        || (status = add_far (a, err)) != TRAIN_OK)
        return err_prefix (err, status, "moments of %zu parameters", a->numel);
    TRY (a->ops->alloc (a->device, sizeof (float), &factor, err));
    a->factor = factor;
    TRY (view (a, &a->m, 0, a->state, err));
    TRY (view (a, &a->v, a->state, a->state, err));
    if (adamw_is_half (a))
        TRY (view (a, &a->masters, 2 * a->state, a->state, err));
    return adamw_settle (a, err);
}

static train_status_t check_place (const DLDevice *d, bool offload,
                                   train_dtype_t dtype, train_error_t *err)
{
    bool gpu = d->device_type == kDLCUDA;

    if (dtype != TRAIN_F32 && dtype != TRAIN_F64 && dtype != TRAIN_BF16
        && dtype != TRAIN_F16)
        return err_set (err, TRAIN_EINVAL,
                        "adamw: dtype is none of F32, F64, BF16 and F16");
    if (gpu && dtype == TRAIN_F64)
        return err_set (err, TRAIN_EINVAL,
                        "adamw: dtype is F64: GPUs have F32, BF16 and F16");
    if (offload && !gpu)
        return err_set (err, TRAIN_EINVAL,
                        "adamw: offload, and the device is the host already");
    return TRAIN_OK;
}

train_status_t adamw_create_at (const train_adamw_options_t *opts,
                                train_dtype_t dtype, size_t numel,
                                const train_param_t *params,
                                const uint64_t *first, size_t n, unsigned how,
                                train_adamw_t **ret_adamw, train_error_t *err)
{
    train_adamw_options_t o;
    train_status_t status = check_options (opts, &o, err);
    train_adamw_t *a;

    if (status != TRAIN_OK)
        return status;
    TRY (check_place (&o.device, o.offload, dtype, err));
    if (o.stochastic && dtype != TRAIN_BF16 && dtype != TRAIN_F32)
        return err_set (err, TRAIN_EINVAL,
                        "adamw: stochastic rounding is to BF16 alone");
    if (numel == 0 || !ret_adamw || (n && !params))
        return err_set (err, TRAIN_EINVAL,
                        "adamw: no element, or params or ret_adamw is NULL");
    if (!(a = calloc (1, sizeof (*a))))
        return err_set (err, TRAIN_ENOMEM, "no memory for an optimizer");
    a->opts = o;
    a->dtype = dtype;
    a->numel = numel;
    a->how = how;
    a->gpu = o.device.device_type == kDLCUDA;
    a->device = a->gpu ? o.device.device_id : 0;
    if ((status = backend_find (a->gpu ? "cuda" : "host", &a->ops, err))
        == TRAIN_OK)
        status = add_ranges (a, params, first, n, err);
    place_moments (a);
    if (status == TRAIN_OK)
        status = add_moments (a, err);
    if (status != TRAIN_OK)
        train_adamw_destroy (a);
    else
        *ret_adamw = a;
    return status;
}

train_status_t train_adamw_create (const train_adamw_options_t *opts,
                                   train_dtype_t dtype, size_t numel,
                                   const train_param_t *params, size_t n,
                                   train_adamw_t **ret_adamw,
                                   train_error_t *err)
{
    return adamw_create_at (opts, dtype, numel, params, NULL, n, 0, ret_adamw,
                            err);
}

void train_adamw_destroy (train_adamw_t *a)
{
    if (!a)
        return;
    if (a->ops) {
        adamw_far_destroy (a->far);
        if (!a->opts.offload)
            a->ops->free (a->arena);
        else if (a->arena)
            a->ops->unpin (a->arena, a->bytes);
        a->ops->free (a->factor);
    }
    free (a->range);
    free (a);
}

DLTensor *train_adamw_m (train_adamw_t *a)
{
    return &a->m.t;
}

DLTensor *train_adamw_v (train_adamw_t *a)
{
    return &a->v.t;
}

DLTensor *train_adamw_masters (train_adamw_t *a)
{
    return adamw_is_half (a) ? &a->masters.t : NULL;
}

void train_adamw_set_masters (train_adamw_t *a)
{
    a->has_masters = true;
}

int64_t train_adamw_updates (const train_adamw_t *a)
{
    return a->updates;
}

void train_adamw_set_updates (train_adamw_t *a, int64_t updates)
{
    a->updates = updates < 0 ? 0 : updates;
}
