/* SPDX-License-Identifier: Apache-2.0
 * fsdp_own.c - a rank's part of a decoder: its first weights, and its optimizer */
#include <stdlib.h>

#include "decoder_impl.h"
#include "err.h"
#include "fsdp_impl.h"
#include "hf_impl.h"
#include "optim.h"

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

/* What this rank updates: its parts of parameters, as they lie in its shard. */
struct own {
    train_param_t *params;
    uint64_t *first; /* elements of the model that each begins with */
    size_t n;
};

/* [params] and [first] are to be freed, after a failure too. */
static train_status_t list_own (const struct fsdp *f, const train_decoder_t *d,
                                struct own *own, train_error_t *err)
{
    size_t n = train_decoder_n_params (d);

    own->params = calloc (n, sizeof (*own->params));
    own->first = calloc (n, sizeof (*own->first));
    if (!own->params || !own->first)
        return err_set (err, TRAIN_ENOMEM, "no memory for %zu parameters", n);
    for (size_t i = 0; i < n; i++) {
        train_shard_range_t r = train_shard_range (f->plan, i, f->rank);
        train_param_t *p = &own->params[own->n];

        if (r.count == 0 || f->frozen[i])
            continue;
        *p = *train_decoder_param (d, i);
        p->decay &= !f->no_decay[i];
        own->first[own->n++] = p->offset + r.begin;
        p->offset = r.at;
        p->count = r.count;
    }
    return TRAIN_OK;
}

static train_status_t create_adamw (const struct fsdp *f,
                                    const train_adamw_options_t *opts,
                                    const struct own *own,
                                    train_adamw_t **ret_adamw,
                                    train_error_t *err)
{
    train_adamw_options_t o = *opts;
    train_dtype_t dtype = f->dtype;

    o.device = f->grads.t.device;
    o.offload = f->opts.offload;
    train_dtype_of (f->weights.t.dtype, &dtype, NULL);
    return adamw_create_at (
        &o, dtype, (size_t)train_tensor_numel (&f->weights.t), own->params,
        own->first, own->n,
        ADAMW_OWN | (f->sharded ? ADAMW_ORDER : 0) | fsdp_far (f), ret_adamw,
        err);
}

train_status_t fsdp_adamw (const struct fsdp *f, const train_decoder_t *d,
                           const train_adamw_options_t *opts,
                           train_adamw_t **ret_adamw, train_error_t *err)
{
    train_adamw_t *adamw = NULL;
    struct own own = {0};
    train_status_t status;

    if (f->late && opts->stochastic)
        return err_set (
            err, TRAIN_EINVAL,
            "fsdp: round_late rounds to the nearest at each gather; "
            "stochastic rounding needs a copy that stays");
    status = list_own (f, d, &own, err);
    if (status == TRAIN_OK)
        status = create_adamw (f, opts, &own, &adamw, err);
    free (own.first);
    free (own.params);
    if (status == TRAIN_OK && f->apart)
        status = part (f, d, adamw, err);
    if (status == TRAIN_OK)
        *ret_adamw = adamw;
    else
        train_adamw_destroy (adamw);
    return status;
}
