/* SPDX-License-Identifier: Apache-2.0
 * fsdp_params.c - a decoder's parameters as a plan has them, and what rules and
 * kernels make of them: no decay, frozen, still */
#include <stdlib.h>

#include "decoder_impl.h"
#include "err.h"
#include "fsdp_impl.h"

void fsdp_free_rules (struct fsdp_rules *r)
{
    free (r->no_decay);
    free (r->frozen);
    free (r->still);
    free (r->grad_at);
}

static int unit_of (const train_decoder_t *d, size_t offset)
{
    size_t u = 0;

    while (offset >= decoder_unit (d, u)->first + decoder_unit (d, u)->count)
        u++;
    return (int)u;
}

train_status_t fsdp_read_params (const train_decoder_t *d,
                                 train_shard_param_t **ret, size_t *ret_n,
                                 train_error_t *err)
{
    size_t n = train_decoder_n_params (d);
    train_shard_param_t *params = calloc (n, sizeof (*params));

    if (!params)
        return err_set (err, TRAIN_ENOMEM, "no memory for %zu parameters", n);
    for (size_t i = 0; i < n; i++) {
        const train_param_t *p = train_decoder_param (d, i);

        params[i] = (train_shard_param_t){.name = p->name,
                                          .count = p->count,
                                          .unit = unit_of (d, p->offset),
                                          .tied = -1};
    }
    *ret = params;
    *ret_n = n;
    return TRAIN_OK;
}

static train_status_t plan_of (const struct fsdp_options *o,
                               const train_shard_param_t *params, size_t n,
                               int world, train_shard_plan_t **ret,
                               train_error_t *err)
{
    train_shard_layout_t layout = {.size = sizeof (layout),
                                   .world = world,
                                   .wrap = o->wrap,
                                   .least = o->least};

    return train_shard_plan_create (&layout, params, n, ret, err);
}

/* What is still once [d] knows what is frozen. */
static train_status_t find_still (const train_decoder_t *d,
                                  struct fsdp_rules *r, train_error_t *err)
{
    size_t n = train_decoder_n_params (d);

    if (!(r->still = calloc (n, sizeof (*r->still))))
        return err_set (err, TRAIN_ENOMEM, "no memory for %zu parameters", n);
    for (size_t i = 0; i < n; i++)
        r->still[i] = decoder_is_still (d, train_decoder_param (d, i)->offset);
    return TRAIN_OK;
}

/* Replicas' gradients, where the decoder has those of what trains alone. */
static train_status_t find_grads (const train_decoder_t *d,
                                  struct fsdp_rules *r, train_error_t *err)
{
    size_t n = train_decoder_n_params (d);

    if (!d->grad_at)
        return TRAIN_OK;
    if (!(r->grad_at = calloc (n, sizeof (*r->grad_at))))
        return err_set (err, TRAIN_ENOMEM, "no memory for %zu parameters", n);
    for (size_t i = 0; i < n; i++)
        r->grad_at[i] = r->still[i] ? SIZE_MAX : d->grad_at[i];
    return TRAIN_OK;
}

static void mark_still (train_shard_param_t *params, size_t n,
                        const struct fsdp_rules *r)
{
    for (size_t i = 0; i < n; i++)
        params[i].still = r->still[i];
}

train_status_t fsdp_make_rules (const struct fsdp_options *o,
                                train_decoder_t *d, train_shard_param_t *params,
                                size_t n, struct fsdp_rules *r,
                                train_error_t *err)
{
    bool sharded = o->strategy >= TRAIN_SHARD_GRAD_OP;
    train_shard_plan_t *names = NULL;
    train_status_t status = plan_of (o, params, n, 1, &names, err);

    if (status == TRAIN_OK)
        status = fsdp_match (names, o->no_decay, o->frozen, &r->no_decay,
                             &r->frozen, err);
    train_shard_plan_destroy (names);
    if (status != TRAIN_OK)
        return status;
    TRY (decoder_freeze (d, r->frozen, !sharded, err));
    TRY (find_still (d, r, err));
    if (!sharded)
        return find_grads (d, r, err);
    mark_still (params, n, r);
    return TRAIN_OK;
}

train_status_t fsdp_plan_of_decoder (const struct fsdp_options *o,
                                     const train_decoder_t *d, int world,
                                     train_shard_plan_t **ret,
                                     train_error_t *err)
{
    train_shard_param_t *params = NULL;
    struct fsdp_rules rules = {0};
    size_t n;
    train_status_t status = fsdp_read_params (d, &params, &n, err);

    if (status == TRAIN_OK)
        status = find_still (d, &rules, err);
    if (status == TRAIN_OK) {
        mark_still (params, n, &rules);
        status = plan_of (o, params, n, world, ret, err);
    }
    fsdp_free_rules (&rules);
    free (params);
    return status;
}
