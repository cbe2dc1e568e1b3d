/* SPDX-License-Identifier: Apache-2.0
 * fsdp.c - the engine's life: plan, shard, room for what is whole for a while
 */
#include <stdlib.h>
#include <string.h>

#include "err.h"
#include "fsdp_impl.h"
#include "kernels/kernels.h"

#define ALIGN ((size_t)64)

train_status_t fsdp_view (const struct fsdp *f, train_tensor_t *t, void *data,
                          train_dtype_t dtype, size_t n, train_error_t *err)
{
    int64_t shape[1] = {(int64_t)n};

    TRY (train_tensor_view (t, data, dtype, 1, shape, err));
    if (f->gpu)
        t->t.device = (DLDevice){kDLCUDA, f->device};
    return TRAIN_OK;
}

train_status_t fsdp_alloc (const struct fsdp *f, void *ret, size_t bytes,
                           const char *what, train_error_t *err)
{
    void *data = NULL;
    train_status_t status;

    bytes = (bytes + ALIGN - 1) / ALIGN * ALIGN;
    bytes = bytes ? bytes : ALIGN;
    status = f->ops->alloc (f->device, bytes, &data, err);
    if (status != TRAIN_OK)
        return err_prefix (err, status, "%s of %zu bytes", what, bytes);
    memcpy (ret, &data, sizeof (data));
    return fsdp_clear (f, data, bytes, err);
}

static train_dtype_t real_of (train_dtype_t dtype)
{
    return dtype == TRAIN_F64 ? TRAIN_F64 : TRAIN_F32;
}

static train_status_t check_types (const struct fsdp_options *o,
                                   const struct fsdp_model *m, bool sharded,
                                   train_error_t *err)
{
    train_dtype_t real = real_of (m->dtype);

    if (m->dtype != TRAIN_F32 && m->dtype != TRAIN_F64 && m->dtype != TRAIN_BF16
        && m->dtype != TRAIN_F16)
        return err_set (err, TRAIN_ENOTSUP, "fsdp: a model of %s",
                        train_dtype_name (m->dtype));
    if (o->reduce == real
        || (sharded && o->reduce == TRAIN_BF16 && real == TRAIN_F32))
        return TRAIN_OK;
    return err_set (err, TRAIN_ENOTSUP,
                    "fsdp: gradients of %s cannot be reduced as %s%s",
                    train_dtype_name (real), train_dtype_name (o->reduce),
                    sharded ? "" : " where nothing is sharded");
}

static train_status_t check (const struct fsdp_options *o,
                             const struct fsdp_model *m, train_error_t *err)
{
    bool sharded = o->strategy >= TRAIN_SHARD_GRAD_OP;

    if (o->strategy > TRAIN_FULL_SHARD)
        return err_set (err, TRAIN_EINVAL, "fsdp: no strategy %d", o->strategy);
    if (o->prefetch < 0)
        return err_set (err, TRAIN_EINVAL, "fsdp: prefetch %d is below 0",
                        o->prefetch);
    TRY (check_types (o, m, sharded, err));
    if ((o->offload || o->offload_weights) && !m->ops)
        return err_set (err, TRAIN_EINVAL,
                        "fsdp: offload%s, and the model is on the host already",
                        o->offload ? "" : "_weights");
    if (o->round_late && (!sharded || o->offload || o->offload_weights))
        return err_set (err, TRAIN_EINVAL,
                        "fsdp: round_late is instead of a rounded shard "
                        "where the model is; %s",
                        !sharded     ? "nothing is sharded"
                        : o->offload ? "offload has them in host memory"
                                     : "offload_weights keeps no rounded "
                                       "shard there either");
    if (o->offload_weights && !sharded)
        return err_set (err, TRAIN_EINVAL,
                        "fsdp: offload_weights, and nothing is sharded; "
                        "TRAIN_FULL_SHARD would do, of one rank too");
    if (m->ops && m->dtype == TRAIN_F64)
        return err_set (err, TRAIN_ENOTSUP, "fsdp: F64 on a GPU");
    if (m->n_visits == 0)
        return err_set (err, TRAIN_EINVAL, "fsdp: the model visits no unit");
    if (sharded ? !m->set_unit : !m->weights || !m->grads)
        return err_set (err, TRAIN_EINVAL, "fsdp: no way to place the weights");
    return TRAIN_OK;
}

static train_status_t make_plan (struct fsdp *f, const struct fsdp_model *m,
                                 train_error_t *err)
{
    train_shard_layout_t layout = {
        .size = sizeof (layout),
        .world = f->sharded ? train_group_size (f->group) : 1,
        .wrap = f->opts.wrap,
        .least = f->opts.least};

    f->world = (size_t)layout.world;
    f->rank = f->sharded ? train_group_rank (f->group) : 0;
    return train_shard_plan_create (&layout, m->params, m->n_params, &f->plan,
                                    err);
}

/* The bundle of a unit of the model; -1 when there is none. */
static int bundle_of (const struct fsdp *f, size_t unit)
{
    int flat = train_shard_unit_of (f->plan, (int)unit);

    return flat < 0 ? -1 : (int)f->flats[flat].plan->bundle;
}

/* Where each unit of the model begins in its bundle: at its first parameter that
 * has elements of its own. */
static train_status_t make_offsets (struct fsdp *f, const struct fsdp_model *m,
                                    train_error_t *err)
{
    size_t n = 1;

    for (size_t i = 0; i < m->n_params; i++)
        if ((size_t)m->params[i].unit >= n)
            n = (size_t)m->params[i].unit + 1;
    if (!(f->offset_of = calloc (n, sizeof (*f->offset_of))))
        return err_set (err, TRAIN_ENOMEM, "no memory for %zu units", n);
    for (size_t i = m->n_params; i-- > 0;) {
        size_t flat = 0;

        while (i >= f->flats[flat].plan->param + f->flats[flat].plan->n_params)
            flat++;
        if (m->params[i].tied < 0)
            f->offset_of[m->params[i].unit] =
                f->flats[flat].at + train_shard_offset (f->plan, i);
    }
    return TRAIN_OK;
}

static bool seen_before (const struct fsdp *f, size_t unit)
{
    for (size_t i = 0; i < f->n_stays; i++)
        if (f->stays[i].unit == unit)
            return true;
    return false;
}

static bool visited (const struct fsdp *f, size_t visit)
{
    for (size_t i = 0; i < visit; i++)
        if (f->visits[i] == f->visits[visit])
            return true;
    return false;
}

static train_status_t make_stays (struct fsdp *f, const struct fsdp_model *m,
                                  train_error_t *err)
{
    f->n_visits = m->n_visits;
    f->visits = calloc (m->n_visits, sizeof (*f->visits));
    f->stay_of = calloc (m->n_visits, sizeof (*f->stay_of));
    f->stays = calloc (m->n_visits, sizeof (*f->stays));
    if (!f->visits || !f->stay_of || !f->stays)
        return err_set (err, TRAIN_ENOMEM, "no memory for %zu visits",
                        m->n_visits);
    for (size_t i = 0; i < m->n_visits; i++) {
        int unit = bundle_of (f, m->visits[i]);
        struct fsdp_stay *last = f->n_stays ? &f->stays[f->n_stays - 1] : NULL;

        if (unit < 0)
            return err_set (err, TRAIN_EINVAL,
                            "fsdp: unit %zu is visited and has no parameter",
                            m->visits[i]);
        f->visits[i] = m->visits[i];
        f->tail = visited (f, i);
        if (!last || last->unit != (size_t)unit) {
            bool again = seen_before (f, (size_t)unit);

            last = &f->stays[f->n_stays++];
            *last = (struct fsdp_stay){(size_t)unit, i, i, again};
        }
        last->last = i;
        f->stay_of[i] = f->n_stays - 1;
    }
    f->bare = m->bare && f->stays[0].last == 0;
    return TRAIN_OK;
}

/* What the rules say of parameters. */
static train_status_t copy_rules (struct fsdp *f, const struct fsdp_model *m,
                                  train_error_t *err)
{
    size_t n = m->n_params;

    f->no_decay = calloc (n + 1, sizeof (*f->no_decay));
    f->frozen = calloc (n + 1, sizeof (*f->frozen));
    if (m->grad_at)
        f->grad_at = calloc (n + 1, sizeof (*f->grad_at));
    if (!f->no_decay || !f->frozen || (m->grad_at && !f->grad_at))
        return err_set (err, TRAIN_ENOMEM, "no memory for rules");
    for (size_t i = 0; i < n; i++) {
        f->no_decay[i] = m->no_decay && m->no_decay[i];
        f->frozen[i] = m->frozen && m->frozen[i];
        f->apart |= f->sharded && m->params[i].still;
        if (m->grad_at)
            f->grad_at[i] = m->grad_at[i];
    }
    f->apart |= f->grad_at != NULL;
    f->sink = m->sink;
    return TRAIN_OK;
}

/* Zeros of the host's memory. */
static train_status_t far_room (const struct fsdp *f, void **ret, size_t bytes,
                                const char *what, train_error_t *err)
{
    train_status_t status = f->ops->pin (f->device, bytes, ret, err);

    if (status != TRAIN_OK)
        return err_prefix (err, status, "%s of %zu bytes", what, bytes);
    memset (*ret, 0, bytes);
    return TRAIN_OK;
}

/* Elements that are weights and masters in one, or masters alone. */
static size_t n_masters (const struct fsdp *f)
{
    return f->wdtype == f->dtype ? train_shard_size (f->plan)
                                 : train_shard_moving (f->plan);
}

/* Masters of their own, of a shard or of halves: with the gradients, or in the
 * host's memory; where they begin goes to [ret], NULL: the model's are they, or
 * the optimizer has them. */
static train_status_t make_masters (struct fsdp *f, void **ret,
                                    train_error_t *err)
{
    bool low = f->wdtype != f->dtype;
    bool own = f->sharded || (low && !f->apart);
    bool far = own && (low ? f->opts.offload : f->brings);
    size_t bytes = n_masters (f) * f->esize;
    size_t all = (own && !far ? bytes : 0)
                 + (f->sharded ? train_shard_moving (f->plan) * f->esize : 0);

    if (all)
        TRY (fsdp_alloc (f, &f->arena, all, "a shard", err));
    *ret = own ? f->arena : NULL;
    if (!far)
        return TRAIN_OK;
    TRY (far_room (f, &f->far, bytes, "masters", err));
    *ret = f->far;
    return TRAIN_OK;
}

/* Bytes of weights that are still in the model's type. */
static size_t base_bytes (const struct fsdp *f)
{
    return (train_shard_size (f->plan) - train_shard_moving (f->plan))
           * f->wsize;
}

/* What is still of the shard has no masters: of halves it is in memory of its
 * own, else behind the [weights] that train. */
static train_status_t make_base (struct fsdp *f, void *weights,
                                 train_error_t *err)
{
    void *base = NULL;

    if (!f->sharded || !f->apart)
        return TRAIN_OK;
    f->own_base = f->wdtype != f->dtype;
    if (f->own_base && f->brings)
        TRY (far_room (f, &base, base_bytes (f), "frozen weights", err));
    else if (f->own_base)
        TRY (fsdp_alloc (f, &base, base_bytes (f), "frozen weights", err));
    else
        base = (char *)weights + train_shard_moving (f->plan) * f->esize;
    f->base = base;
    return TRAIN_OK;
}

/* What the masters are rounded to, where they are. */
static train_status_t make_low (struct fsdp *f, const struct fsdp_model *m,
                                train_error_t *err)
{
    size_t bytes = train_shard_moving (f->plan) * f->wsize;
    void *low = m->weights;

    f->late = f->opts.round_late && f->wdtype != f->dtype;
    if (f->wdtype == f->dtype || f->late || (f->apart && !f->sharded))
        return TRAIN_OK;
    f->own_low = f->sharded;
    if (f->brings)
        TRY (far_room (f, &low, bytes, "rounded weights", err));
    else if (f->sharded)
        TRY (fsdp_alloc (f, &low, bytes, "rounded weights", err));
    f->low = low;
    return TRAIN_OK;
}

static train_status_t make_shard (struct fsdp *f, const struct fsdp_model *m,
                                  train_error_t *err)
{
    size_t n = n_masters (f);
    void *weights = NULL, *grads = m->grads;
    bool model = f->apart && !f->sharded;

    f->held.shard = train_shard_size (f->plan);
    TRY (make_masters (f, &weights, err));
    TRY (make_base (f, weights, err));
    TRY (make_low (f, m, err));
    if (f->sharded) {
        grads = (char *)f->arena + (f->far ? 0 : n * f->esize);
        TRY (fsdp_rooms_make (f, err));
    }
    TRY (fsdp_view (f, &f->weights, weights ? weights : m->weights,
                    model ? f->wdtype : f->dtype, n, err));
    if (f->far)
        f->weights.t.device = (DLDevice){kDLCPU, 0};
    TRY (fsdp_view (f, &f->grads, grads, f->dtype,
                    model ? m->n_grads : train_shard_moving (f->plan), err));
    if (!f->sharded)
        fsdp_widen (f);
    return TRAIN_OK;
}

static train_status_t set_up (struct fsdp *f, const struct fsdp_model *m,
                              train_error_t *err)
{
    TRY (make_plan (f, m, err));
    if (train_shard_numel (f->plan) == 0)
        return err_set (err, TRAIN_EINVAL, "fsdp: the model has no element");
    TRY (copy_rules (f, m, err));
    TRY (fsdp_flats_make (f, err));
    TRY (make_offsets (f, m, err));
    TRY (make_stays (f, m, err));
    TRY (make_shard (f, m, err));
    return fsdp_loan (f, m, err);
}

static void set_place (struct fsdp *f, const struct fsdp_model *m)
{
    f->gpu = m->ops != NULL;
    f->ops = m->ops ? m->ops : &backend_host;
    f->way = m->ops ? &fsdp_way_gpu : &fsdp_way_host;
    f->device = m->device;
    f->stream = m->stream;
    f->loss = m->loss;
}

train_status_t fsdp_create (const struct fsdp_options *opts,
                            train_group_t *group,
                            const struct fsdp_model *model,
                            struct fsdp **ret_fsdp, train_error_t *err)
{
    struct fsdp *f;
    train_status_t status;

    TRY (check (opts, model, err));
    if (!(f = calloc (1, sizeof (*f))))
        return err_set (err, TRAIN_ENOMEM, "no memory for an engine");
    f->opts = *opts;
    f->group = group;
    f->sharded = opts->strategy >= TRAIN_SHARD_GRAD_OP;
    f->brings = opts->offload_weights;
    f->wdtype = model->dtype;
    f->dtype = real_of (model->dtype);
    f->wsize = train_dtype_size (f->wdtype);
    f->esize = train_dtype_size (f->dtype);
    f->set_unit = model->set_unit;
    f->forget = model->forget;
    f->arg = model->arg;
    f->spend = model->ops && !opts->no_sync ? model->spend : NULL;
    f->settle = model->settle;
    set_place (f, model);
    f->last_pass = true;
    status = set_up (f, model, err);
    if (status == TRAIN_OK)
        status = f->way->open (f, err);
    /* What is loaded comes behind the zeros. */
    if (status == TRAIN_OK && f->gpu)
        status = f->ops->sync (f->stream, err);
    if (status != TRAIN_OK)
        fsdp_destroy (f);
    else
        *ret_fsdp = f;
    return status;
}

void fsdp_destroy (struct fsdp *f)
{
    if (!f)
        return;
    f->way->drain (f);
    if (f->forget)
        f->forget (f->arg);
    fsdp_rooms_free (f);
    f->way->close (f);
    if (f->own_low && !f->brings)
        f->ops->free (f->low);
    else if (f->own_low && f->low)
        f->ops->unpin (f->low, train_shard_moving (f->plan) * f->wsize);
    f->ops->free (f->all);
    if (f->own_base && !f->brings)
        f->ops->free (f->base);
    else if (f->own_base && f->base)
        f->ops->unpin (f->base, base_bytes (f));
    f->ops->free (f->arena);
    if (f->far)
        f->ops->unpin (f->far, n_masters (f) * f->esize);
    fsdp_flats_free (f);
    free (f->stays);
    free (f->stay_of);
    free (f->visits);
    free (f->offset_of);
    free (f->no_decay);
    free (f->frozen);
    free (f->grad_at);
    free (f->each.seen);
    train_shard_plan_destroy (f->plan);
    free (f);
}

const train_shard_plan_t *fsdp_plan (const struct fsdp *f)
{
    return f->plan;
}

int fsdp_rank (const struct fsdp *f)
{
    return f->rank;
}

bool fsdp_is_sharded (const struct fsdp *f)
{
    return f->sharded;
}

train_dtype_t fsdp_real (const struct fsdp *f)
{
    return f->dtype;
}

DLTensor *fsdp_weights (struct fsdp *f)
{
    return &f->weights.t;
}

DLTensor *fsdp_grads (struct fsdp *f)
{
    return &f->grads.t;
}

struct fsdp_held fsdp_held (const struct fsdp *f)
{
    return f->held;
}

double fsdp_sumsq (const struct fsdp *f)
{
    size_t n = (size_t)train_tensor_numel (&f->grads.t);
    double sum = 0;

    if (!f->sharded && train_group_rank (f->group) != 0)
        return 0;
    if (f->dtype == TRAIN_F64)
        kern_sumsq_f64_host (&sum, f->grads.t.data, n, NULL);
    else
        kern_sumsq_f32_host (&sum, f->grads.t.data, n, NULL);
    return sum;
}
