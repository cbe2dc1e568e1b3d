/* SPDX-License-Identifier: Apache-2.0
 * fsdp_decoder.c - the engine over a decoder: its units, visits and hooks */
#include <stdlib.h>

#include "decoder_impl.h"
#include "err.h"
#include "fsdp_impl.h"
#include "group_impl.h"

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
    decoder_set_wait (arg, NULL, NULL);
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

/* What the engine asks of a decoder. */
struct parts {
    train_shard_param_t *params;
    size_t n_params, *visits, n_visits;
    struct fsdp_rules rules;
};

/* Always free_parts. */
static train_status_t read_parts (const struct fsdp_options *opts,
                                  train_decoder_t *d, struct parts *p,
                                  train_error_t *err)
{
    TRY (fsdp_read_params (d, &p->params, &p->n_params, err));
    TRY (list_visits (d, &p->visits, &p->n_visits, err));
    return fsdp_make_rules (opts, d, p->params, p->n_params, &p->rules, err);
}

static void free_parts (struct parts *p)
{
    fsdp_free_rules (&p->rules);
    free (p->params);
    free (p->visits);
}

/* Where its passes are enqueued, and what they may borrow meanwhile. */
static void put_on_gpu (struct fsdp_model *model, const train_decoder_t *d)
{
    model->ops = d->ops;
    model->device = d->device;
    model->stream = d->stream;
    model->loss = d->sum;
    model->spend = spend;
    model->settle = settle;
    model->lend = lend;
}

/* The decoder as the engine sees it, which has gradients by now. */
static struct fsdp_model model_of (train_decoder_t *d, const struct parts *p,
                                   bool sharded)
{
    struct fsdp_model model = {
        .dtype = train_decoder_config (d)->dtype,
        .params = p->params,
        .n_params = p->n_params,
        .visits = p->visits,
        .n_visits = p->n_visits,
        .set_unit = set_unit,
        .forget = forget,
        .bare = true,
        .arg = d,
        .weights = sharded ? NULL : train_decoder_weights (d)->data,
        .grads = sharded ? NULL : train_decoder_grads (d)->data,
        .no_decay = p->rules.no_decay,
        .frozen = p->rules.frozen,
        .sink = decoder_widest_vector (d),
        .grad_at = p->rules.grad_at,
        .n_grads = d->grad_numel,
    };

    if (train_decoder_config (d)->device.device_type == kDLCUDA)
        put_on_gpu (&model, d);
    return model;
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

/* After a failure *ret_fsdp may be set: it is to be destroyed. */
static train_status_t create (const struct fsdp_options *opts,
                              train_group_t *group, train_decoder_t *d,
                              const struct parts *p, struct fsdp **ret_fsdp,
                              train_error_t *err)
{
    struct decoder_hooks hooks = {before, after, NULL};
    struct fsdp_model model;

    TRY (decoder_want_grads (d, err));
    TRY (check_place (group, d, err));
    model = model_of (d, p, opts->strategy >= TRAIN_SHARD_GRAD_OP);
    TRY (fsdp_create (opts, group, &model, ret_fsdp, err));
    hooks.arg = *ret_fsdp;
    decoder_set_hooks (d, &hooks);
    decoder_set_wait (d, wait, *ret_fsdp);
    return place_grads (*ret_fsdp, d, err);
}

train_status_t fsdp_of_decoder (const struct fsdp_options *opts,
                                train_group_t *group, train_decoder_t *d,
                                struct fsdp **ret_fsdp, train_error_t *err)
{
    struct parts parts = {0};
    struct fsdp *f = NULL;
    train_status_t status = read_parts (opts, d, &parts, err);

    if (status == TRAIN_OK)
        status = create (opts, group, d, &parts, &f, err);
    if (status != TRAIN_OK) {
        fsdp_destroy (f);
        (void)decoder_freeze (d, NULL, false, NULL);
    } else {
        *ret_fsdp = f;
    }
    free_parts (&parts);
    return status;
}
