/* SPDX-License-Identifier: Apache-2.0
 * optim_update.c - an update of AdamW: on the host, enqueued on a GPU, of halves
 * by their masters */
#include <math.h>

#include "err.h"
#include "kernels/kernels.h"
#include "optim_state.h"

static train_status_t check_tensor (const train_adamw_t *a, const DLTensor *t,
                                    size_t n, train_dtype_t want,
                                    bool may_be_far, const char *what,
                                    train_error_t *err)
{
    train_dtype_t dtype;

    if (!t || !train_tensor_is_compact (t)
        || train_tensor_numel (t) != (int64_t)n)
        return err_set (err, TRAIN_EINVAL,
                        "adamw: %s is not a compact tensor of %zu elements",
                        what, n);
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

/* NULL where it is not there, as masters are not of F32. */
static void *start (const DLTensor *t)
{
    return t->data ? (char *)t->data + t->byte_offset : NULL;
}

#define UPDATE(real, suffix)                                                   \
    kern_adamw_##suffix##_host (                                               \
        (real *)start (weights) + r->offset, (real *)start (&a->m.t) + r->at,  \
        (real *)start (&a->v.t) + r->at,                                       \
        (const real *)start (grads) + r->grad, r->count, lr, o->beta1,         \
        o->beta2, o->eps, r->decay ? o->weight_decay : 0, grad_scale,          \
        a->updates + 1, NULL)

static void update_plain (train_adamw_t *a, DLTensor *weights,
                          const DLTensor *grads, double lr, double grad_scale)
{
    const train_adamw_options_t *o = &a->opts;

    for (size_t i = 0; i < a->n_ranges; i++) {
        const struct adamw_range *r = &a->range[i];

        if (a->dtype == TRAIN_F64)
            UPDATE (double, f64);
        else
            UPDATE (float, f32);
    }
}

/* Where of [r] the update's weights are: masters beside the moments, or the
 * weights themselves. */
static size_t master_at (const train_adamw_t *a, const struct adamw_range *r)
{
    return adamw_is_half (a) ? r->at : r->offset;
}

static void take_masters (train_adamw_t *a, const DLTensor *weights,
                          void *stream)
{
    float *masters = start (&a->masters.t);
    const uint16_t *from = start (weights);

    if (!adamw_is_half (a) || a->has_masters)
        return;
    a->has_masters = true;
    if (a->state == a->numel) {
        backend_cast (a->ops, masters, TRAIN_F32, from, a->dtype, a->numel,
                      stream);
        return;
    }
    for (size_t i = 0; i < a->n_ranges; i++) {
        const struct adamw_range *r = &a->range[i];

        backend_cast (a->ops, masters + r->at, TRAIN_F32, from + r->offset,
                      a->dtype, r->count, stream);
    }
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
        const struct adamw_range *r = &a->range[i];

        a->ops->flat->round (copy + r->offset, p + master_at (a, r), r->count,
                             a->updates, r->first, key.word, stream);
    }
    a->ops->leave (before);
}

/* An update of halves, or of a GPU. */
struct update {
    const train_adamw_t *adamw;
    float *weights; /* (numel) or, of halves, the masters */
    uint16_t *copy; /* (numel) what they are rounded to; NULL: nothing */
    bool f16;       /* that is F16; else BF16 */
    const float *grads, *factor;
    double lr;
    void *stream;
};

/* Elements from number [behind] on, of a range. */
struct part {
    float *p, *m, *v;
    uint16_t *copy;
    size_t behind, n;
};

/* The kernel writes the copy of bf16 itself. */
static void update_part (const struct update *u, const struct adamw_range *r,
                         const struct part *x)
{
    const train_adamw_t *a = u->adamw;
    const train_adamw_options_t *o = &a->opts;
    const float *grads = u->grads + r->grad + x->behind;
    struct adamw_key key = key_of (a);

    a->ops->flat->adamw (x->p, u->f16 ? NULL : x->copy, x->m, x->v, grads,
                         u->factor, x->n, u->lr, o->beta1, o->beta2, o->eps,
                         r->decay ? o->weight_decay : 0, a->updates + 1,
                         r->first + x->behind, o->stochastic ? key.word : NULL,
                         u->stream);
    if (u->f16)
        backend_cast (a->ops, x->copy, TRAIN_F16, x->p, TRAIN_F32, x->n,
                      u->stream);
}

/* Elements of range [r] from number [behind] on. What was brought of it begins
 * [piece] elements from [at]; the rest is where it is. */
static struct part part_of (const struct update *u, const struct adamw_range *r,
                            void *const at[], size_t piece, size_t behind)
{
    const train_adamw_t *a = u->adamw;
    struct part x = {u->weights + master_at (a, r) + behind,
                     (float *)start (&a->m.t) + r->at + behind,
                     (float *)start (&a->v.t) + r->at + behind,
                     u->copy ? u->copy + r->offset + behind : NULL,
                     behind,
                     0};

    if (at[ADAMW_FAR_P])
        x.p = (float *)at[ADAMW_FAR_P] + piece;
    if (at[ADAMW_FAR_M])
        x.m = (float *)at[ADAMW_FAR_M] + piece;
    if (at[ADAMW_FAR_V])
        x.v = (float *)at[ADAMW_FAR_V] + piece;
    if (at[ADAMW_FAR_COPY])
        x.copy = (uint16_t *)at[ADAMW_FAR_COPY] + piece;
    return x;
}

/* Beside adapters there is next to nothing that trains. */
static bool trains_in (const void *arg, size_t first, size_t n)
{
    const struct update *u = arg;

    for (size_t i = 0; i < u->adamw->n_ranges; i++) {
        const struct adamw_range *r = &u->adamw->range[i];
        size_t at = adamw_far_at (u->adamw, r);

        if (at < first + n && first < at + r->count)
            return true;
    }
    return false;
}

/* What of the ranges lies in [first, first + n). */
static void update_piece (void *arg, void *const at[], size_t first, size_t n)
{
    const struct update *u = arg;
    const train_adamw_t *a = u->adamw;

    for (size_t i = 0; i < a->n_ranges; i++) {
        const struct adamw_range *r = &a->range[i];
        size_t at_far = adamw_far_at (a, r), end = at_far + r->count;
        size_t from = at_far > first ? at_far : first;
        struct part x;

        if (end > first + n)
            end = first + n;
        if (from >= end)
            continue;
        x = part_of (u, r, at, from - first, from - at_far);
        x.n = end - from;
        update_part (u, r, &x);
    }
}

static train_status_t update_mixed (train_adamw_t *a, DLTensor *weights,
                                    uint16_t *copy, const DLTensor *grads,
                                    double lr, const float *factor,
                                    void *stream, train_error_t *err)
{
    DLTensor *p = adamw_is_half (a) ? &a->masters.t : weights;
    struct update u = {a,
                       start (p),
                       copy,
                       a->dtype == TRAIN_F16 || a->how & ADAMW_FAR_F16,
                       start (grads),
                       factor,
                       lr,
                       stream};
    void *arrays[ADAMW_FAR_ARRAYS] = {NULL};

    if (!a->far) {
        update_piece (&u, arrays, 0, adamw_far_numel (a));
        return TRAIN_OK;
    }
    if (p->device.device_type != kDLCUDA)
        arrays[ADAMW_FAR_P] = u.weights;
    if (a->opts.offload) {
        arrays[ADAMW_FAR_M] = start (&a->m.t);
        arrays[ADAMW_FAR_V] = start (&a->v.t);
    }
    if (a->how & (ADAMW_FAR_BF16 | ADAMW_FAR_F16))
        arrays[ADAMW_FAR_COPY] = copy;
    return adamw_far_run (a->far, arrays, adamw_far_numel (a), stream,
                          trains_in, update_piece, &u, err);
}

static train_status_t check_step (const train_adamw_t *a,
                                  const DLTensor *weights,
                                  const DLTensor *grads, double lr,
                                  double grad_scale, train_error_t *err)
{
    train_dtype_t wide = a->dtype == TRAIN_F64 ? TRAIN_F64 : TRAIN_F32;

    TRY (check_tensor (a, weights, a->numel, a->dtype, !adamw_is_half (a),
                       "weights", err));
    TRY (check_tensor (a, grads, a->n_grads, wide, false, "grads", err));
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
    status =
        update_mixed (a, weights, adamw_is_half (a) ? start (weights) : NULL,
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
    if (adamw_is_half (a) || a->dtype == TRAIN_F64)
        return err_set (err, TRAIN_EINVAL, "adamw: copies are of F32 weights");
    before = a->ops->enter (a->device);
    status = update_mixed (a, weights, copy, grads, lr, factor, stream, err);
    a->ops->leave (before);
    return status;
}

/* In the queue of the optimizer's own GPU, and awaited there. */
static train_status_t step_there (train_adamw_t *a, DLTensor *weights,
                                  const DLTensor *grads, double lr,
                                  double grad_scale, train_error_t *err)
{
    float factor = (float)grad_scale;

    TRY (a->ops->copy (a->factor, &factor, sizeof (factor), NULL, err));
    TRY (adamw_enqueue (a, weights, grads, lr, a->factor, NULL, err));
    return adamw_settle (a, err);
}

train_status_t train_adamw_step (train_adamw_t *a, DLTensor *weights,
                                 const DLTensor *grads, double lr,
                                 double grad_scale, train_error_t *err)
{
    train_status_t status;
    int before;

    TRY (check_step (a, weights, grads, lr, grad_scale, err));
    if (!a->gpu && !adamw_is_half (a)) {
        update_plain (a, weights, grads, lr, grad_scale);
        a->updates++;
        return TRAIN_OK;
    }
    before = a->ops->enter (a->device);
    status = step_there (a, weights, grads, lr, grad_scale, err);
    a->ops->leave (before);
    if (status != TRAIN_OK)
        return status;
    a->updates++;
    return TRAIN_OK;
}

train_status_t adamw_widen (train_adamw_t *a, const DLTensor *weights,
                            train_error_t *err)
{
    int before;

    TRY (check_tensor (a, weights, a->numel, a->dtype, !adamw_is_half (a),
                       "weights", err));
    before = a->ops->enter (a->device);
    take_masters (a, weights, NULL);
    a->ops->leave (before);
    return adamw_settle (a, err);
}

/* Weights without masters stay as they are. */
static void narrow_all (const train_adamw_t *a, uint16_t *weights)
{
    const float *masters = start (&a->masters.t);

    if (a->state == a->numel) {
        backend_cast (a->ops, weights, a->dtype, masters, TRAIN_F32, a->numel,
                      NULL);
        return;
    }
    for (size_t i = 0; i < a->n_ranges; i++)
        backend_cast (a->ops, weights + a->range[i].offset, a->dtype,
                      masters + a->range[i].at, TRAIN_F32, a->range[i].count,
                      NULL);
}

train_status_t adamw_narrow (train_adamw_t *a, DLTensor *weights,
                             train_error_t *err)
{
    int before;

    TRY (check_tensor (a, weights, a->numel, a->dtype, !adamw_is_half (a),
                       "weights", err));
    if (!adamw_is_half (a))
        return TRAIN_OK;
    a->has_masters = true;
    before = a->ops->enter (a->device);
    narrow_all (a, start (weights));
    a->ops->leave (before);
    if (a->dtype == TRAIN_BF16)
        adamw_round (a, start (&a->masters.t), start (weights), NULL);
    return adamw_settle (a, err);
}
