/* SPDX-License-Identifier: Apache-2.0
 * optim.c - AdamW over ranges of one arena */
#include "config.h"

#include <train/optim.h>

#include <math.h>
#include <stdlib.h>
#include <string.h>

#include "backend.h"
#include "err.h"
#include "kernels/kernels.h"
#include "optim.h"
#include "optim_far.h"
#include "opts.h"

#ifndef HAVE_CUDA
#define HAVE_CUDA 0
#endif

/* Neighbours of the same decay are one range: one pass of the kernel. */
struct range {
    size_t offset, count;
    bool decay;
    uint64_t first; /* number of its first element in the model */
};

struct train_adamw {
    train_adamw_options_t opts;
    train_dtype_t dtype;
    size_t numel;
    struct range *range;
    size_t n_ranges;
    const struct backend_ops *ops;
    int device; /* as [ops] counts */
    bool gpu;
    size_t esize; /* of moments, gradients, masters */
    void *arena;  /* m, v, then masters; with [far] pinned memory of the host */
    size_t bytes; /* of it */
    struct adamw_far *far; /* NULL: it is where the weights are */
    train_tensor_t m, v, masters;
    bool has_masters;
    float *factor; /* of a GPU: what grad_scale is given by */
    int64_t updates;
};

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
        struct range *last = a->n_ranges ? &a->range[a->n_ranges - 1] : NULL;
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
            a->range[a->n_ranges++] =
                (struct range){p->offset, p->count, p->decay, number};
    }
    return TRAIN_OK;
}

static bool is_half (const train_adamw_t *a)
{
    return a->dtype == TRAIN_BF16 || a->dtype == TRAIN_F16;
}

/* The k-th array of the arena. */
static train_status_t view (const train_adamw_t *a, train_tensor_t *t, size_t k,
                            train_error_t *err)
{
    int64_t shape[1] = {(int64_t)a->numel};

    TRY (train_tensor_view (t, (char *)a->arena + k * a->numel * a->esize,
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
        return a->ops->fill (a->device, a->arena, 0, a->bytes, NULL, err);
    }
    TRY (a->ops->pin (a->device, a->bytes, &a->arena, err));
    memset (a->arena, 0, a->bytes);
    return adamw_far_create (a->ops, a->device, a->numel, &a->far, err);
}

static train_status_t add_moments (train_adamw_t *a, train_error_t *err)
{
    size_t arrays = is_half (a) ? 3 : 2;
    train_status_t status;
    void *factor = NULL;

    a->esize = a->dtype == TRAIN_F64 ? sizeof (double) : sizeof (float);
    if (a->numel > SIZE_MAX / 4 / a->esize)
        return err_set (err, TRAIN_ENOMEM,
                        "no memory for the moments of %zu parameters",
                        a->numel);
    a->bytes = arrays * a->numel * a->esize;
    if ((status = add_arena (a, err)) != TRAIN_OK)
        return err_prefix (err, status, "moments of %zu parameters", a->numel);
    TRY (a->ops->alloc (a->device, sizeof (float), &factor, err));
    a->factor = factor;
    TRY (view (a, &a->m, 0, err));
    TRY (view (a, &a->v, 1, err));
    if (is_half (a))
        TRY (view (a, &a->masters, 2, err));
    return a->ops->sync (NULL, err);
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
                                const uint64_t *first, size_t n,
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
    a->gpu = o.device.device_type == kDLCUDA;
    a->device = a->gpu ? o.device.device_id : 0;
    if ((status = backend_find (a->gpu ? "cuda" : "host", &a->ops, err))
        == TRAIN_OK)
        status = add_ranges (a, params, first, n, err);
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
    return adamw_create_at (opts, dtype, numel, params, NULL, n, ret_adamw,
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

static train_status_t check_tensor (const train_adamw_t *a, const DLTensor *t,
                                    train_dtype_t want, bool may_be_far,
                                    const char *what, train_error_t *err)
{
    train_dtype_t dtype;

    if (!t || !train_tensor_is_compact (t)
        || train_tensor_numel (t) != (int64_t)a->numel)
        return err_set (err, TRAIN_EINVAL,
                        "adamw: %s is not a compact tensor of %zu elements",
                        what, a->numel);
    if (train_dtype_of (t->dtype, &dtype, NULL) != TRAIN_OK || dtype != want)
        return err_set (err, TRAIN_EINVAL, "adamw: %s is not %s", what,
                        train_dtype_name (want));
    if (may_be_far && a->far && t->device.device_type == kDLCPU)
        return TRAIN_OK;
    if ((t->device.device_type == kDLCUDA) != a->gpu
        || (a->gpu && t->device.device_id != a->device))
        return err_set (err, TRAIN_EINVAL,
                        "adamw: %s is of another device than the moments",
                        what);
    return TRAIN_OK;
}

static void *start (const DLTensor *t)
{
    return (char *)t->data + t->byte_offset;
}

#define UPDATE(real, suffix)                                                   \
    kern_adamw_##suffix##_host ((real *)start (weights) + r->offset,           \
                                (real *)start (&a->m.t) + r->offset,           \
                                (real *)start (&a->v.t) + r->offset,           \
                                (const real *)start (grads) + r->offset,       \
                                r->count, lr, o->beta1, o->beta2, o->eps,      \
                                r->decay ? o->weight_decay : 0, grad_scale,    \
                                a->updates + 1, NULL)

static void update_plain (train_adamw_t *a, DLTensor *weights,
                          const DLTensor *grads, double lr, double grad_scale)
{
    const train_adamw_options_t *o = &a->opts;

    for (size_t i = 0; i < a->n_ranges; i++) {
        const struct range *r = &a->range[i];

        if (a->dtype == TRAIN_F64)
            UPDATE (double, f64);
        else
            UPDATE (float, f32);
    }
}

static void take_masters (train_adamw_t *a, const DLTensor *weights,
                          void *stream)
{
    void (*widen) (float *, const uint16_t *, size_t, void *) =
        a->dtype == TRAIN_BF16 ? kern_cast_bf16_f32_host
                               : kern_cast_f16_f32_host;

    if (!is_half (a) || a->has_masters)
        return;
    a->has_masters = true;
#if HAVE_CUDA
    if (a->gpu)
        widen = a->dtype == TRAIN_BF16 ? kern_cast_bf16_f32_cuda
                                       : kern_cast_f16_f32_cuda;
#endif
    widen (start (&a->masters.t), start (weights), a->numel, stream);
}

static void narrow (const train_adamw_t *a, uint16_t *to, const float *from,
                    size_t n, void *stream)
{
    void (*run) (uint16_t *, const float *, size_t, void *) =
        a->dtype == TRAIN_BF16 ? kern_cast_f32_bf16_host
                               : kern_cast_f32_f16_host;

#if HAVE_CUDA
    if (a->gpu)
        run = a->dtype == TRAIN_BF16 ? kern_cast_f32_bf16_cuda
                                     : kern_cast_f32_f16_cuda;
#endif
    run (to, from, n, stream);
}

struct adamw_key {
    uint32_t word[2];
};

static struct adamw_key key_of (const train_adamw_t *a)
{
    return (struct adamw_key){
        {(uint32_t)a->opts.seed, (uint32_t)(a->opts.seed >> 32)}};
}

void adamw_round (train_adamw_t *a, const float *p, uint16_t *copy,
                  void *stream)
{
    struct adamw_key key = key_of (a);
    int before = a->ops->enter (a->device);

    for (size_t i = 0; a->opts.stochastic && i < a->n_ranges; i++) {
        const struct range *r = &a->range[i];

        a->ops->flat->round (copy + r->offset, p + r->offset, r->count,
                             a->updates, r->first, key.word, stream);
    }
    a->ops->leave (before);
}

/* An update of halves, or of a GPU. */
struct update {
    const train_adamw_t *adamw;
    float *weights;   /* (numel) masters */
    uint16_t *copy;   /* (numel) their BF16; NULL: none */
    uint16_t *halves; /* (numel) F16 weights; NULL: none */
    const float *grads, *factor;
    double lr;
    void *stream;
};

/* Elements [first, first + n), whose p, m and v are [at]. The kernel writes the
 * copy of bf16 itself. */
static void update_part (const struct update *u, const struct range *r,
                         float *const at[], size_t first, size_t n)
{
    const train_adamw_options_t *o = &u->adamw->opts;
    struct adamw_key key = key_of (u->adamw);

    u->adamw->ops->flat->adamw (
        at[0], u->copy ? u->copy + first : NULL, at[1], at[2], u->grads + first,
        u->factor, n, u->lr, o->beta1, o->beta2, o->eps,
        r->decay ? o->weight_decay : 0, u->adamw->updates + 1,
        r->first + (first - r->offset), o->stochastic ? key.word : NULL,
        u->stream);
    if (u->halves)
        narrow (u->adamw, u->halves + first, at[0], n, u->stream);
}

/* What of the ranges lies in [first, first + n), which begins at [at]; weights
 * that were not brought are where they are. */
static void update_piece (void *arg, float *const at[], size_t first, size_t n)
{
    const struct update *u = arg;
    const train_adamw_t *a = u->adamw;

    for (size_t i = 0; i < a->n_ranges; i++) {
        const struct range *r = &a->range[i];
        size_t from = r->offset > first ? r->offset : first;
        size_t end = r->offset + r->count;
        float *part[ADAMW_FAR_ARRAYS];

        if (end > first + n)
            end = first + n;
        if (from >= end)
            continue;
        for (int k = 0; k < ADAMW_FAR_ARRAYS; k++)
            part[k] = at[k] ? at[k] + (from - first) : u->weights + from;
        update_part (u, r, part, from, end - from);
    }
}

static train_status_t update_mixed (train_adamw_t *a, DLTensor *weights,
                                    uint16_t *copy, const DLTensor *grads,
                                    double lr, const float *factor,
                                    void *stream, train_error_t *err)
{
    DLTensor *p = is_half (a) ? &a->masters.t : weights;
    struct update u = {a,
                       start (p),
                       copy,
                       a->dtype == TRAIN_F16 ? start (weights) : NULL,
                       start (grads),
                       factor,
                       lr,
                       stream};
    float *arrays[ADAMW_FAR_ARRAYS] = {u.weights, start (&a->m.t),
                                       start (&a->v.t)};

    if (!a->far) {
        update_piece (&u, arrays, 0, a->numel);
        return TRAIN_OK;
    }
    if (p->device.device_type == kDLCUDA)
        arrays[0] = NULL;
    return adamw_far_run (a->far, arrays, a->numel, stream, update_piece, &u,
                          err);
}

static train_status_t check_step (const train_adamw_t *a,
                                  const DLTensor *weights,
                                  const DLTensor *grads, double lr,
                                  double grad_scale, train_error_t *err)
{
    train_dtype_t wide = a->dtype == TRAIN_F64 ? TRAIN_F64 : TRAIN_F32;

    TRY (check_tensor (a, weights, a->dtype, !is_half (a), "weights", err));
    TRY (check_tensor (a, grads, wide, false, "grads", err));
    if (!isfinite (lr) || lr < 0 || !isfinite (grad_scale))
        return err_set (err, TRAIN_EINVAL,
                        "adamw: lr %g or grad_scale %g is no usable number", lr,
                        grad_scale);
    return TRAIN_OK;
}

train_status_t adamw_enqueue (train_adamw_t *a, DLTensor *weights,
                              const DLTensor *grads, double lr,
                              const float *factor, void *stream,
                              train_error_t *err)
{
    train_status_t status;
    int before;

    TRY (check_step (a, weights, grads, lr, 1, err));
    before = a->ops->enter (a->device);
    take_masters (a, weights, stream);
    status = update_mixed (a, weights,
                           a->dtype == TRAIN_BF16 ? start (weights) : NULL,
                           grads, lr, factor, stream, err);
    a->ops->leave (before);
    return status;
}

train_status_t adamw_enqueue_copy (train_adamw_t *a, DLTensor *weights,
                                   uint16_t *copy, const DLTensor *grads,
                                   double lr, const float *factor, void *stream,
                                   train_error_t *err)
{
    train_status_t status;
    int before;

    TRY (check_step (a, weights, grads, lr, 1, err));
    if (is_half (a) || a->dtype == TRAIN_F64)
        return err_set (err, TRAIN_EINVAL, "adamw: copies are of F32 weights");
    before = a->ops->enter (a->device);
    status = update_mixed (a, weights, copy, grads, lr, factor, stream, err);
    a->ops->leave (before);
    return status;
}

train_status_t train_adamw_step (train_adamw_t *a, DLTensor *weights,
                                 const DLTensor *grads, double lr,
                                 double grad_scale, train_error_t *err)
{
    float factor = (float)grad_scale;

    TRY (check_step (a, weights, grads, lr, grad_scale, err));
    if (!a->gpu && !is_half (a)) {
        update_plain (a, weights, grads, lr, grad_scale);
    } else {
        TRY (a->ops->copy (a->factor, &factor, sizeof (factor), NULL, err));
        TRY (adamw_enqueue (a, weights, grads, lr, a->factor, NULL, err));
        TRY (a->ops->sync (NULL, err));
    }
    a->updates++;
    return TRAIN_OK;
}

DLTensor *train_adamw_masters (train_adamw_t *a)
{
    return is_half (a) ? &a->masters.t : NULL;
}

void train_adamw_set_masters (train_adamw_t *a)
{
    a->has_masters = true;
}

train_status_t adamw_widen (train_adamw_t *a, const DLTensor *weights,
                            train_error_t *err)
{
    int before;

    TRY (check_tensor (a, weights, a->dtype, !is_half (a), "weights", err));
    before = a->ops->enter (a->device);
    take_masters (a, weights, NULL);
    a->ops->leave (before);
    return a->ops->sync (NULL, err);
}

train_status_t adamw_narrow (train_adamw_t *a, DLTensor *weights,
                             train_error_t *err)
{
    int before;

    TRY (check_tensor (a, weights, a->dtype, !is_half (a), "weights", err));
    if (!is_half (a))
        return TRAIN_OK;
    a->has_masters = true;
    before = a->ops->enter (a->device);
    narrow (a, start (weights), start (&a->masters.t), a->numel, NULL);
    a->ops->leave (before);
    if (a->dtype == TRAIN_BF16)
        adamw_round (a, start (&a->masters.t), start (weights), NULL);
    return a->ops->sync (NULL, err);
}

DLTensor *train_adamw_m (train_adamw_t *a)
{
    return &a->m.t;
}

DLTensor *train_adamw_v (train_adamw_t *a)
{
    return &a->v.t;
}

int64_t train_adamw_updates (const train_adamw_t *a)
{
    return a->updates;
}

void train_adamw_set_updates (train_adamw_t *a, int64_t updates)
{
    a->updates = updates < 0 ? 0 : updates;
}
