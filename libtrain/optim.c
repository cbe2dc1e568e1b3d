/* SPDX-License-Identifier: Apache-2.0
 * optim.c - AdamW over ranges of one arena, and global-norm clipping */
#include <train/optim.h>

#include <math.h>
#include <stdlib.h>

#include "err.h"
#include "opts.h"
#include "kernels/kernels.h"

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
    void *arena; /* m, then v */
    train_tensor_t m, v;
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

static train_status_t add_moments (train_adamw_t *a, train_error_t *err)
{
    size_t bytes = train_dtype_size (a->dtype);
    int64_t shape[1] = {(int64_t)a->numel};
    train_status_t status;

    if (a->numel > SIZE_MAX / 2 / bytes
        || !(a->arena = calloc (2 * a->numel, bytes)))
        return err_set (err, TRAIN_ENOMEM,
                        "no memory for the moments of %zu parameters",
                        a->numel);
    status = train_tensor_view (&a->m, a->arena, a->dtype, 1, shape, err);
    if (status == TRAIN_OK)
        status = train_tensor_view (&a->v, (char *)a->arena + a->numel * bytes,
                                    a->dtype, 1, shape, err);
    return status;
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
    if (dtype != TRAIN_F32 && dtype != TRAIN_F64)
        return err_set (err, TRAIN_EINVAL,
                        "adamw: dtype is neither TRAIN_F32 nor TRAIN_F64");
    if (numel == 0 || !ret_adamw || (n && !params))
        return err_set (err, TRAIN_EINVAL,
                        "adamw: no element, or params or ret_adamw is NULL");
    if (!(a = calloc (1, sizeof (*a))))
        return err_set (err, TRAIN_ENOMEM, "no memory for an optimizer");
    a->opts = o;
    a->dtype = dtype;
    a->numel = numel;
    if ((status = add_ranges (a, params, n, err)) == TRAIN_OK)
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
    free (a->range);
    free (a->arena);
    free (a);
}

static train_status_t check_tensor (const train_adamw_t *a, const DLTensor *t,
                                    const char *what, train_error_t *err)
{
    train_dtype_t dtype;

    if (!t || !train_tensor_is_compact (t)
        || train_tensor_numel (t) != (int64_t)a->numel)
        return err_set (err, TRAIN_EINVAL,
                        "adamw: %s is not a compact tensor of %zu elements",
                        what, a->numel);
    if (train_dtype_of (t->dtype, &dtype, NULL) != TRAIN_OK
        || dtype != a->dtype)
        return err_set (err, TRAIN_EINVAL, "adamw: %s is not %s", what,
                        train_dtype_name (a->dtype));
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

train_status_t train_adamw_step (train_adamw_t *a, DLTensor *weights,
                                 const DLTensor *grads, double lr,
                                 double grad_scale, train_error_t *err)
{
    const train_adamw_options_t *o = &a->opts;
    train_status_t status = check_tensor (a, weights, "weights", err);

    if (status == TRAIN_OK)
        status = check_tensor (a, grads, "grads", err);
    if (status != TRAIN_OK)
        return status;
    if (!isfinite (lr) || lr < 0 || !isfinite (grad_scale))
        return err_set (err, TRAIN_EINVAL,
                        "adamw: lr %g or grad_scale %g is no usable number", lr,
                        grad_scale);
    for (size_t i = 0; i < a->n_ranges; i++) {
        const struct range *r = &a->range[i];

        if (a->dtype == TRAIN_F64)
            UPDATE (double, f64);
        else
            UPDATE (float, f32);
    }
    a->updates++;
    return TRAIN_OK;
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
