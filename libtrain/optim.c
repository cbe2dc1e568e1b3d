/* SPDX-License-Identifier: Apache-2.0
 * optim.c - AdamW over ranges of one arena, and global-norm clipping */
#include "config.h"

#include <train/optim.h>

#include <math.h>
#include <stdlib.h>

#include "backend.h"
#include "err.h"
#include "kernels/kernels.h"
#include "optim.h"
#include "opts.h"

#ifndef HAVE_CUDA
#define HAVE_CUDA 0
#endif

/* Neighbours of the same decay are one range: one pass of the kernel. */
struct range {
    size_t offset, count;
    bool decay;
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
    void *arena;  /* m, v, then masters */
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
                                  size_t n, train_error_t *err)
{
    size_t end = 0;

    if (!(a->range = calloc (n ? n : 1, sizeof (*a->range))))
        return err_set (err, TRAIN_ENOMEM, "no memory for %zu ranges", n);
    for (size_t i = 0; i < n; i++) {
        const train_param_t *p = &params[i];
        struct range *last = a->n_ranges ? &a->range[a->n_ranges - 1] : NULL;

        if (p->offset < end || p->offset > a->numel
            || p->count > a->numel - p->offset)
            return err_set (err, TRAIN_EINVAL,
                            "adamw: parameter %zu (%zu elements from %zu) "
                            "overlaps the one before it or the end at %zu",
                            i, p->count, p->offset, a->numel);
        end = p->offset + p->count;
        if (last && last->decay == p->decay
            && last->offset + last->count == p->offset)
            last->count += p->count;
        else
            a->range[a->n_ranges++] =
                (struct range){p->offset, p->count, p->decay};
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
    if (a->gpu)
        t->t.device = (DLDevice){kDLCUDA, a->device};
    return TRAIN_OK;
}

static train_status_t add_moments (train_adamw_t *a, train_error_t *err)
{
    size_t arrays = is_half (a) ? 3 : 2, bytes;
    train_status_t status = TRAIN_OK;
    void *factor = NULL;

    a->esize = a->dtype == TRAIN_F64 ? sizeof (double) : sizeof (float);
    if (a->numel > SIZE_MAX / 4 / a->esize)
        return err_set (err, TRAIN_ENOMEM,
                        "no memory for the moments of %zu parameters",
                        a->numel);
    bytes = arrays * a->numel * a->esize;
    status = a->ops->alloc (a->device, bytes, &a->arena, err);
    if (status != TRAIN_OK)
        return err_prefix (err, status, "moments of %zu parameters", a->numel);
    TRY (a->ops->fill (a->device, a->arena, 0, bytes, NULL, err));
    TRY (a->ops->alloc (a->device, sizeof (float), &factor, err));
    a->factor = factor;
    TRY (view (a, &a->m, 0, err));
    TRY (view (a, &a->v, 1, err));
    if (is_half (a))
        TRY (view (a, &a->masters, 2, err));
    return a->ops->sync (NULL, err);
}

static train_status_t check_place (const DLDevice *d, train_dtype_t dtype,
                                   train_error_t *err)
{
    bool gpu = d->device_type == kDLCUDA;

    if (dtype != TRAIN_F32 && dtype != TRAIN_F64 && dtype != TRAIN_BF16
        && dtype != TRAIN_F16)
        return err_set (err, TRAIN_EINVAL,
                        "adamw: dtype is none of F32, F64, BF16 and F16");
    if (gpu && dtype == TRAIN_F64)
        return err_set (err, TRAIN_EINVAL,
                        "adamw: dtype is F64: GPUs have F32, BF16 and F16");
    return TRAIN_OK;
}

train_status_t train_adamw_create (const train_adamw_options_t *opts,
                                   train_dtype_t dtype, size_t numel,
                                   const train_param_t *params, size_t n,
                                   train_adamw_t **ret_adamw,
                                   train_error_t *err)
{
    train_adamw_options_t o;
    train_status_t status = check_options (opts, &o, err);
    train_adamw_t *a;

    if (status != TRAIN_OK)
        return status;
    TRY (check_place (&o.device, dtype, err));
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
        status = add_ranges (a, params, n, err);
    if (status == TRAIN_OK)
        status = add_moments (a, err);
    if (status != TRAIN_OK)
        train_adamw_destroy (a);
    else
        *ret_adamw = a;
    return status;
}

void train_adamw_destroy (train_adamw_t *a)
{
    if (!a)
        return;
    if (a->ops) {
        a->ops->free (a->arena);
        a->ops->free (a->factor);
    }
    free (a->range);
    free (a);
}

static train_status_t check_tensor (const train_adamw_t *a, const DLTensor *t,
                                    train_dtype_t want, const char *what,
                                    train_error_t *err)
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

static void narrow (train_adamw_t *a, DLTensor *weights, size_t from, size_t n,
                    void *stream)
{
    void (*run) (uint16_t *, const float *, size_t, void *) =
        a->dtype == TRAIN_BF16 ? kern_cast_f32_bf16_host
                               : kern_cast_f32_f16_host;

#if HAVE_CUDA
    if (a->gpu)
        run = a->dtype == TRAIN_BF16 ? kern_cast_f32_bf16_cuda
                                     : kern_cast_f32_f16_cuda;
#endif
    run ((uint16_t *)start (weights) + from,
         (const float *)start (&a->masters.t) + from, n, stream);
}

/* Through the kernel that has masters and a factor: halves, and all of a GPU.
 * It writes the copy of bf16 itself.
 *   copy   NULL: none */
static void update_mixed (train_adamw_t *a, DLTensor *weights, uint16_t *copy,
                          const DLTensor *grads, double lr, const float *factor,
                          void *stream)
{
    const train_adamw_options_t *o = &a->opts;
    float *m = start (&a->m.t), *v = start (&a->v.t);
    const float *g = start (grads);
    float *p = is_half (a) ? start (&a->masters.t) : start (weights);

    for (size_t i = 0; i < a->n_ranges; i++) {
        const struct range *r = &a->range[i];

        a->ops->flat->adamw (p + r->offset, copy ? copy + r->offset : NULL,
                             m + r->offset, v + r->offset, g + r->offset,
                             factor, r->count, lr, o->beta1, o->beta2, o->eps,
                             r->decay ? o->weight_decay : 0, a->updates + 1,
                             r->offset, NULL, stream);
        if (a->dtype == TRAIN_F16)
            narrow (a, weights, r->offset, r->count, stream);
    }
}

static train_status_t check_step (const train_adamw_t *a,
                                  const DLTensor *weights,
                                  const DLTensor *grads, double lr,
                                  double grad_scale, train_error_t *err)
{
    train_dtype_t wide = a->dtype == TRAIN_F64 ? TRAIN_F64 : TRAIN_F32;

    TRY (check_tensor (a, weights, a->dtype, "weights", err));
    TRY (check_tensor (a, grads, wide, "grads", err));
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
    int before;

    TRY (check_step (a, weights, grads, lr, 1, err));
    before = a->ops->enter (a->device);
    take_masters (a, weights, stream);
    update_mixed (a, weights, a->dtype == TRAIN_BF16 ? start (weights) : NULL,
                  grads, lr, factor, stream);
    a->ops->leave (before);
    return TRAIN_OK;
}

train_status_t adamw_enqueue_copy (train_adamw_t *a, DLTensor *weights,
                                   uint16_t *copy, const DLTensor *grads,
                                   double lr, const float *factor, void *stream,
                                   train_error_t *err)
{
    int before;

    TRY (check_step (a, weights, grads, lr, 1, err));
    if (is_half (a) || a->dtype == TRAIN_F64)
        return err_set (err, TRAIN_EINVAL, "adamw: copies are of F32 weights");
    before = a->ops->enter (a->device);
    update_mixed (a, weights, copy, grads, lr, factor, stream);
    a->ops->leave (before);
    return TRAIN_OK;
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

    TRY (check_tensor (a, weights, a->dtype, "weights", err));
    before = a->ops->enter (a->device);
    take_masters (a, weights, NULL);
    a->ops->leave (before);
    return a->ops->sync (NULL, err);
}

train_status_t adamw_narrow (train_adamw_t *a, DLTensor *weights,
                             train_error_t *err)
{
    int before;

    TRY (check_tensor (a, weights, a->dtype, "weights", err));
    if (!is_half (a))
        return TRAIN_OK;
    a->has_masters = true;
    before = a->ops->enter (a->device);
    narrow (a, weights, 0, a->numel, NULL);
    a->ops->leave (before);
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

train_status_t train_norm (const DLTensor *t, double *ret_norm,
                           train_error_t *err)
{
    train_dtype_t dtype;
    double sum = 0;

    if (!t || !ret_norm || !train_tensor_is_compact (t))
        return err_set (err, TRAIN_EINVAL,
                        "norm: no result, or no compact tensor");
    if (t->device.device_type == kDLCUDA)
        return err_set (err, TRAIN_ENOTSUP, "norm: only of the host's memory");
    if (train_dtype_of (t->dtype, &dtype, NULL) != TRAIN_OK
        || (dtype != TRAIN_F32 && dtype != TRAIN_F64))
        return err_set (err, TRAIN_ENOTSUP, "norm: only of F32 and F64");
    if (dtype == TRAIN_F64)
        kern_sumsq_f64_host (&sum, start (t), (size_t)train_tensor_numel (t),
                             NULL);
    else
        kern_sumsq_f32_host (&sum, start (t), (size_t)train_tensor_numel (t),
                             NULL);
    *ret_norm = sqrt (sum);
    return TRAIN_OK;
}

double train_clip_scale (double norm, double max)
{
    double scale = max > 0 ? max / (norm + 1e-6) : 1;

    return scale < 1 ? scale : 1;
}
