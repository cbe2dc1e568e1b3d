/* SPDX-License-Identifier: Apache-2.0
 * fsdp_decoder.c - the engine over a decoder: its units, visits and hooks */
#include <stdlib.h>

#include "decoder_impl.h"
#include "err.h"
#include "optim.h"
#include "fsdp_impl.h"
#include "group_impl.h"
#include "hf_impl.h"

train_status_t train_decoder_create_bare (const train_decoder_config_t *config,
                                          train_decoder_t **ret_decoder,
                                          train_error_t *err)
{
    return decoder_create_bare (config, ret_decoder, err);
}

static void set_unit (void *arg, size_t unit, void *weights, void *grads)
{
    decoder_set_unit (arg, unit, weights, grads);
}

static void forget (void *arg)
{
    decoder_set_hooks (arg, NULL);
    decoder_set_loan (arg, NULL, NULL);
    (void)decoder_freeze (arg, NULL, false, NULL);
}

static void spend (void *arg, bool lend)
{
    decoder_spend_grads (arg, lend);
}

static train_status_t settle (void *arg, train_error_t *err)
{
    return decoder_settle_grads (arg, err);
}

/* The visit behind the first is block 0's. */
static void lend (void *arg, void *at, const size_t *until)
{
    decoder_set_loan (arg, at, until);
}

static train_status_t before (void *arg, size_t unit, bool backward,
                              train_error_t *err)
{
    return fsdp_before (arg, unit, backward, err);
}

static train_status_t after (void *arg, size_t unit, bool backward,
                             train_error_t *err)
{
    return fsdp_after (arg, unit, backward, err);
}

static train_status_t before_each (void *arg, size_t unit, bool backward,
                                   train_error_t *err)
{
    (void)backward; /* there is none */
    return fsdp_each_before (arg, unit, err);
}

static train_status_t after_each (void *arg, size_t unit, bool backward,
                                  train_error_t *err)
{
    (void)backward;
    return fsdp_each_after (arg, unit, err);
}

static train_status_t meet (void *arg, int n, train_error_t *err)
{
    return fsdp_each_meet (arg, n, err);
}

static train_status_t wait (void *arg, train_error_t *err)
{
    return fsdp_settle (arg, err);
}

void fsdp_each_hooks (struct fsdp *f, struct decoder_hooks *hooks,
                      struct decoder_together *together)
{
    *hooks = (struct decoder_hooks){before_each, after_each, f};
    *together = (struct decoder_together){meet, wait, f};
}

/* Embedding, blocks, the last norm and head; a tied head visits 0 again. */
static train_status_t list_visits (const train_decoder_t *d, size_t **ret,
                                   size_t *ret_n, train_error_t *err)
{
    size_t n = decoder_n_units (d), *visits = calloc (n + 1, sizeof (*visits));

    if (!visits)
        return err_set (err, TRAIN_ENOMEM, "no memory for %zu visits", n);
    for (size_t u = 0; u < n; u++)
        visits[u] = u;
    *ret = visits;
    *ret_n = train_decoder_config (d)->tie ? n + 1 : n;
    return TRAIN_OK;
}

train_status_t fsdp_lends_decoder (const struct fsdp_options *o,
                                   const train_decoder_t *d, int world,
                                   bool *ret_lends, size_t *until,
                                   train_error_t *err)
{
    bool low = d->kern->elem_size != d->kern->real_size;
    bool far = low ? o->offload : o->offload_weights;
    struct fsdp_lender l = {.tail = d->config.tie, .esize = d->kern->real_size};
    train_shard_plan_t *plan = NULL;
    size_t *visits = NULL, at;
    train_status_t status = fsdp_plan_of_decoder (o, d, world, &plan, err);

    if (status == TRAIN_OK)
        status = list_visits (d, &visits, &l.n_visits, err);
    if (status == TRAIN_OK) {
        l.plan = plan;
        l.visits = visits;
        l.base = far   ? 0
                 : low ? train_shard_moving (plan) * l.esize
                       : train_shard_size (plan) * l.esize;
        *ret_lends = fsdp_lendable (&l, &at, until) && !o->no_sync;
    }
    train_shard_plan_destroy (plan);
    free (visits);
    return status;
}

/* The group moves what is where the decoder is. */
static train_status_t check_place (const train_group_t *group,
                                   const train_decoder_t *d, train_error_t *err)
{
    bool gpu = train_decoder_config (d)->device.device_type == kDLCUDA;

    if (gpu == group->ops->gpu && (!gpu || group->where.device == d->device))
        return TRAIN_OK;
    return err_set (err, TRAIN_EINVAL,
                    "a decoder %s and a group of backend %s do not go "
                    "together; nccl moves memory of its GPU, host and mpi the "
                    "host's",
                    gpu ? "on a GPU" : "in host memory", group->ops->name);
}

static train_status_t create (const struct fsdp_options *opts,
                              train_group_t *group, train_decoder_t *d,
                              train_shard_param_t *params, size_t n_params,
                              size_t *visits, size_t n_visits,
                              const struct fsdp_rules *rules,
                              struct fsdp **ret_fsdp, train_error_t *err)
{
    bool sharded = opts->strategy >= TRAIN_SHARD_GRAD_OP;
    train_status_t status = decoder_want_grads (d, err);
    struct fsdp_model model = {
        .dtype = train_decoder_config (d)->dtype,
        .params = params,
        .n_params = n_params,
        .visits = visits,
        .n_visits = n_visits,
        .set_unit = set_unit,
        .forget = forget,
        .bare = true,
        .arg = d,
        .weights = sharded ? NULL : train_decoder_weights (d)->data,
        .grads = sharded ? NULL : train_decoder_grads (d)->data,
        .no_decay = rules->no_decay,
        .frozen = rules->frozen,
        .sink = decoder_widest_vector (d),
        .grad_at = rules->grad_at,
        .n_grads = d->grad_numel,
    };
    struct decoder_hooks hooks = {before, after, NULL};

    if (train_decoder_config (d)->device.device_type == kDLCUDA) {
        model.ops = d->ops;
        model.device = d->device;
        model.stream = d->stream;
        model.loss = d->sum;
        model.spend = spend;
        model.settle = settle;
        model.lend = lend;
    }
    if (status != TRAIN_OK)
        return status;
    TRY (check_place (group, d, err));
    TRY (fsdp_create (opts, group, &model, ret_fsdp, err));
    hooks.arg = *ret_fsdp;
    decoder_set_hooks (d, &hooks);
    return TRAIN_OK;
}

/* The decoder finds gradients apart where the engine has them. */
static train_status_t place_grads (const struct fsdp *f, train_decoder_t *d,
                                   train_error_t *err)
{
    size_t n = train_decoder_n_params (d), *at;
    train_status_t status;

    if (!fsdp_is_sharded (f) || !fsdp_apart (f))
        return TRAIN_OK;
    if (!(at = calloc (n, sizeof (*at))))
        return err_set (err, TRAIN_ENOMEM, "no memory for %zu places", n);
    for (size_t i = 0; i < n; i++)
        at[i] = fsdp_room_at (f, i);
    status = decoder_place_grads (d, at, err);
    free (at);
    return status;
}

train_status_t fsdp_of_decoder (const struct fsdp_options *opts,
                                train_group_t *group, train_decoder_t *d,
                                struct fsdp **ret_fsdp, train_error_t *err)
{
    train_shard_param_t *params = NULL;
    size_t *visits = NULL, n_params = 0, n_visits = 0;
    struct fsdp_rules rules = {0};
    struct fsdp *f = NULL;
    train_status_t status;

    status = fsdp_read_params (d, &params, &n_params, err);
    if (status == TRAIN_OK)
        status = list_visits (d, &visits, &n_visits, err);
    if (status == TRAIN_OK)
        status = fsdp_make_rules (opts, d, params, n_params, &rules, err);
    if (status == TRAIN_OK)
        status = create (opts, group, d, params, n_params, visits, n_visits,
                         &rules, &f, err);
    if (status == TRAIN_OK)
        status = place_grads (f, d, err);
    if (status != TRAIN_OK) {
        fsdp_destroy (f);
        (void)decoder_freeze (d, NULL, false, NULL);
    } else {
        *ret_fsdp = f;
    }
    fsdp_free_rules (&rules);
    free (params);
    free (visits);
    return status;
}

/* This rank's part of unit [unit], whose whole is [drawn]. */
static train_status_t keep (struct fsdp *f, train_adamw_t *adamw,
                            const train_decoder_t *d, size_t unit,
                            const char *drawn, train_error_t *err)
{
    size_t first = decoder_unit (d, unit)->first;

    for (size_t i = 0; i < train_decoder_n_params (d); i++) {
        const train_param_t *p = train_decoder_param (d, i);
        train_shard_range_t r = train_shard_range (f->plan, i, f->rank);

        if (train_shard_param (f->plan, i)->unit != (int)unit)
            continue;
        TRY (fsdp_put (f, adamw, i,
                       drawn + (p->offset - first + r.begin) * f->esize, err));
    }
    return TRAIN_OK;
}

train_status_t fsdp_init_decoder (struct fsdp *f, const train_decoder_t *d,
                                  const train_safetensors_t *files,
                                  uint64_t seed, train_adamw_t *adamw,
                                  train_error_t *err)
{
    train_decoder_config_t c = *train_decoder_config (d);
    train_decoder_t *draws = NULL; /* the same model, of the masters' type */
    train_status_t status;

    c.dtype = f->dtype;
    c.device = (DLDevice){kDLCPU, 0};
    status = decoder_create_bare (&c, &draws, err);
    for (size_t u = 0; u < decoder_n_units (d) && status == TRAIN_OK; u++) {
        char *drawn = malloc (decoder_unit (d, u)->count * f->esize);

        if (!drawn) {
            status =
                err_set (err, TRAIN_ENOMEM, "no memory to draw unit %zu", u);
            break;
        }
        if (files)
            hf_unit (draws, files, u, seed, drawn);
        else
            decoder_init_unit (draws, u, seed, drawn);
        status = keep (f, adamw, d, u, drawn, err);
        free (drawn);
    }
    train_decoder_destroy (draws);
    fsdp_updated (f);
    return status;
}

static size_t grad_of_shard (const void *arg, size_t offset)
{
    (void)arg;
    return offset;
}

static size_t grad_of_replica (const void *decoder, size_t offset)
{
    return decoder_grad_at (decoder, offset);
}

/* Gradients are of what trains alone, and so are masters that replicas have with
 * the moments. The decoder's stream may still be filling its weights. */
static train_status_t part (const struct fsdp *f, const train_decoder_t *d,
                            train_adamw_t *adamw, train_error_t *err)
{
    adamw_place_grads (adamw, (size_t)train_tensor_numel (&f->grads.t),
                       f->sharded ? grad_of_shard : grad_of_replica, d);
    if (f->sharded)
        return TRAIN_OK;
    TRY (f->ops->sync (f->stream, err));
    return adamw_widen (adamw, &f->weights.t, err);
}

train_status_t fsdp_adamw (const struct fsdp *f, const train_decoder_t *d,
                           const train_adamw_options_t *opts,
                           train_adamw_t **ret_adamw, train_error_t *err)
{
    size_t n = train_decoder_n_params (d), k = 0;
    train_dtype_t dtype = f->dtype;
    train_adamw_options_t o = *opts;
    train_param_t *params = calloc (n, sizeof (*params));
    uint64_t *first = calloc (n, sizeof (*first));
    train_adamw_t *adamw = NULL;
    train_status_t status;

    if (f->late && opts->stochastic) {
        free (params);
        free (first);
        return err_set (
            err, TRAIN_EINVAL,
            "fsdp: round_late rounds to the nearest at each gather; "
            "stochastic rounding needs a copy that stays");
    }
    if (!params || !first) {
        free (params);
        free (first);
        return err_set (err, TRAIN_ENOMEM, "no memory for %zu parameters", n);
    }
    for (size_t i = 0; i < n; i++) {
        train_shard_range_t r = train_shard_range (f->plan, i, f->rank);

        if (r.count == 0 || f->frozen[i])
            continue;
        params[k] = *train_decoder_param (d, i);
        params[k].decay &= !f->no_decay[i];
        first[k] = params[k].offset + r.begin;
        params[k].offset = r.at;
        params[k++].count = r.count;
    }
    o.device = f->grads.t.device;
    o.offload = f->opts.offload;
    train_dtype_of (f->weights.t.dtype, &dtype, NULL);
    status = adamw_create_at (
        &o, dtype, (size_t)train_tensor_numel (&f->weights.t), params, first, k,
        ADAMW_OWN | (f->sharded ? ADAMW_ORDER : 0) | fsdp_far (f), &adamw, err);
    free (first);
    free (params);
    if (status == TRAIN_OK && f->apart)
        status = part (f, d, adamw, err);
    if (status == TRAIN_OK)
        *ret_adamw = adamw;
    else
        train_adamw_destroy (adamw);
    return status;
}
