/* SPDX-License-Identifier: Apache-2.0
 * scaler.c - the loss scale: unscale, agree, grow, shrink */
#include <train/scaler.h>

#include <math.h>
#include <stdlib.h>

#include "err.h"
#include "opts.h"
#include "scaler.h"

struct train_scaler {
    train_scaler_options_t opts;
    float scale;
    int64_t good, budget, stuck;
    bool unscaled, found; /* in this step */
};

static void fill_defaults (train_scaler_options_t *o)
{
    if (o->init == 0)
        o->init = 65536;
    if (o->growth == 0)
        o->growth = 2;
    if (o->backoff == 0)
        o->backoff = 0.5;
    if (o->interval == 0)
        o->interval = 2000;
    if (o->hysteresis == 0)
        o->hysteresis = 1;
    if (o->floor == 0)
        o->floor = 1;
    if (o->patience == 0)
        o->patience = 10;
}

static bool is_scale (double x)
{
    return x > 0 && isfinite ((float)x) && (float)x > 0;
}

static train_status_t check (const train_scaler_options_t *o,
                             train_error_t *err)
{
    if (!is_scale (o->init) || !is_scale (o->floor) || o->floor > o->init)
        return err_set (err, TRAIN_EINVAL,
                        "scaler: init %g and floor %g are not two floats above "
                        "0 with the floor below",
                        o->init, o->floor);
    if (!isfinite (o->growth) || o->growth <= 1)
        return err_set (err, TRAIN_EINVAL, "scaler: growth %g is not above 1",
                        o->growth);
    if (!(o->backoff > 0 && o->backoff < 1))
        return err_set (err, TRAIN_EINVAL,
                        "scaler: backoff %g is not above 0 and below 1",
                        o->backoff);
    if (o->interval < 1 || o->hysteresis < 1 || o->patience < 1)
        return err_set (err, TRAIN_EINVAL,
                        "scaler: interval %lld, hysteresis %d or patience %d "
                        "is below 1",
                        (long long)o->interval, o->hysteresis, o->patience);
    return TRAIN_OK;
}

train_status_t train_scaler_create (const train_scaler_options_t *opts,
                                    train_scaler_t **ret_scaler,
                                    train_error_t *err)
{
    train_scaler_options_t o;
    train_scaler_t *s;

    if (!ret_scaler)
        return err_set (err, TRAIN_EINVAL, "scaler: ret_scaler is NULL");
    TRY (opts_read (&o, sizeof (o), opts, "scaler", err));
    fill_defaults (&o);
    TRY (check (&o, err));
    if (!(s = calloc (1, sizeof (*s))))
        return err_set (err, TRAIN_ENOMEM, "no memory for a scaler");
    s->opts = o;
    s->scale = (float)o.init;
    s->budget = o.hysteresis;
    *ret_scaler = s;
    return TRAIN_OK;
}

void train_scaler_destroy (train_scaler_t *s)
{
    free (s);
}

double train_scaler_scale (const train_scaler_t *s)
{
    return s->scale;
}

static bool unscale_f32 (float *g, int64_t n, float inverse)
{
    bool found = false;

    for (int64_t i = 0; i < n; i++) {
        found |= !isfinite (g[i]);
        if (inverse != 1)
            g[i] *= inverse;
    }
    return found;
}

static bool unscale_f64 (double *g, int64_t n, float inverse)
{
    bool found = false;

    for (int64_t i = 0; i < n; i++) {
        found |= !isfinite (g[i]);
        if (inverse != 1)
            g[i] *= inverse;
    }
    return found;
}

static train_status_t check_grads (DLTensor *const *grads, size_t n,
                                   train_error_t *err)
{
    for (size_t i = 0; i < n; i++) {
        train_dtype_t dtype;

        TRY (train_dtype_of (grads[i]->dtype, &dtype, err));
        if (dtype == TRAIN_F16 || dtype == TRAIN_BF16)
            return err_set (err, TRAIN_EINVAL,
                            "scaler: gradient %zu is %s, where unscaled ones "
                            "would be rounded away; widen them to F32 first",
                            i, train_dtype_name (dtype));
        if ((dtype != TRAIN_F32 && dtype != TRAIN_F64)
            || !train_tensor_is_compact (grads[i])
            || grads[i]->device.device_type != kDLCPU)
            return err_set (err, TRAIN_ENOTSUP,
                            "scaler: gradient %zu is not a compact F32 or F64 "
                            "in host memory",
                            i);
    }
    return TRAIN_OK;
}

static bool unscale (const train_scaler_t *s, DLTensor *t)
{
    void *data = (char *)t->data + t->byte_offset;
    float inverse = (float)(1 / (double)s->scale);

    if (t->dtype.bits == 64)
        return unscale_f64 (data, train_tensor_numel (t), inverse);
    return unscale_f32 (data, train_tensor_numel (t), inverse);
}

/* Before anyone acts on it: else one rank skips and the others wait. */
static train_status_t agree (train_group_t *group, bool *found,
                             train_error_t *err)
{
    int32_t any = *found;
    int64_t shape[1] = {1};
    train_tensor_t view;

    if (!group)
        return TRAIN_OK;
    TRY (train_tensor_view (&view, &any, TRAIN_I32, 1, shape, err));
    TRY (train_all_reduce (group, &view.t, TRAIN_MAX, err));
    *found = any != 0;
    return TRAIN_OK;
}

train_status_t train_scaler_unscale (train_scaler_t *s, train_group_t *group,
                                     DLTensor *const *grads, size_t n,
                                     bool *ret_found, train_error_t *err)
{
    bool found = false;

    if (s->unscaled)
        return err_set (err, TRAIN_ESTATE,
                        "scaler: the gradients are unscaled already; end the "
                        "step with train_scaler_update, or with "
                        "train_scaler_cancel if it is given up");
    if (!ret_found || (n && !grads))
        return err_set (err, TRAIN_EINVAL, "scaler: an argument is NULL");
    TRY (check_grads (grads, n, err));
    for (size_t i = 0; i < n; i++)
        found |= unscale (s, grads[i]);
    TRY (agree (group, &found, err));
    s->unscaled = true;
    s->found = found;
    *ret_found = found;
    return TRAIN_OK;
}

void scaler_found (train_scaler_t *s, bool found)
{
    s->unscaled = true;
    s->found = found;
}

static train_status_t shrink (train_scaler_t *s, train_error_t *err)
{
    float low = (float)s->opts.floor;
    float less = (float)((double)s->scale * s->opts.backoff);

    s->good = 0;
    s->stuck = s->scale <= low ? s->stuck + 1 : 0;
    if (--s->budget <= 0) {
        s->scale = less > low ? less : low;
        s->budget = 1;
    }
    if (s->stuck < s->opts.patience)
        return TRAIN_OK;
    return err_set (err, TRAIN_ENONFINITE,
                    "scaler: gradients are not finite in %lld steps in a row "
                    "with the scale at its floor of %g; a smaller scale will "
                    "not help: look at the loss, or use a lower lr or bf16",
                    (long long)s->stuck, (double)s->scale);
}

static void grow (train_scaler_t *s)
{
    float more = (float)((double)s->scale * s->opts.growth);

    s->stuck = 0;
    if (++s->good < s->opts.interval)
        return;
    if (isfinite (more))
        s->scale = more;
    s->good = 0;
    s->budget = s->opts.hysteresis;
}

train_status_t train_scaler_update (train_scaler_t *s, train_error_t *err)
{
    if (!s->unscaled)
        return err_set (err, TRAIN_ESTATE,
                        "scaler: update without train_scaler_unscale before");
    s->unscaled = false;
    if (s->found)
        return shrink (s, err);
    grow (s);
    return TRAIN_OK;
}

void train_scaler_cancel (train_scaler_t *s)
{
    s->unscaled = false;
}

void train_scaler_get (const train_scaler_t *s, train_scaler_state_t *ret)
{
    *ret = (train_scaler_state_t){.size = sizeof (*ret),
                                  .scale = s->scale,
                                  .good = s->good,
                                  .budget = s->budget,
                                  .stuck = s->stuck};
}

train_status_t train_scaler_set (train_scaler_t *s,
                                 const train_scaler_state_t *state,
                                 train_error_t *err)
{
    train_scaler_state_t v;

    if (!state)
        return err_set (err, TRAIN_EINVAL, "scaler: state is NULL");
    TRY (opts_read (&v, sizeof (v), state, "scaler", err));
    if (s->unscaled)
        return err_set (err, TRAIN_ESTATE,
                        "scaler: set within a step; end it with "
                        "train_scaler_update or train_scaler_cancel");
    if (!is_scale (v.scale) || v.good < 0 || v.budget < 1 || v.stuck < 0)
        return err_set (err, TRAIN_EINVAL,
                        "scaler: no scaler has scale %g, good %lld, budget "
                        "%lld, stuck %lld",
                        v.scale, (long long)v.good, (long long)v.budget,
                        (long long)v.stuck);
    s->scale = (float)v.scale;
    s->good = v.good;
    s->budget = v.budget;
    s->stuck = v.stuck;
    return TRAIN_OK;
}
