/* SPDX-License-Identifier: Apache-2.0
 * reference_local.c - a reference that is a decoder of this process: one that
 * the caller has, or a frozen copy of what it is now */
#include "reference.h"

#include <stdlib.h>
#include <string.h>

#include <train/policy.h>

#include "decoder_hash.h"
#include "decoder_impl.h"
#include "err.h"

struct local {
    train_decoder_t *decoder;
    void *weights; /* of a copy, with its decoder; NULL: both are borrowed */
    bool base;     /* adapters of [decoder] are left out */
    uint64_t hash; /* of weights, when they were copied or first asked */
    bool hashed;
    int32_t *room; /* (B,T) tokens, then targets */
    float *logp;   /* (B,T) */
    size_t has;    /* elements of either */
};

static train_status_t grow (struct local *l, size_t n, train_error_t *err)
{
    if (n <= l->has)
        return TRAIN_OK;
    free (l->room);
    free (l->logp);
    l->has = 0;
    l->room = calloc (2 * n, sizeof (*l->room));
    l->logp = calloc (n, sizeof (*l->logp));
    if (!l->room || !l->logp)
        return err_set (err, TRAIN_ENOMEM, "no memory for %zu tokens", n);
    l->has = n;
    return TRAIN_OK;
}

/* Place [t] of a row has the target that stands at t + 1. */
static void fill_row (const int32_t *ids, int32_t prompt, int32_t total, int T,
                      int32_t *tokens, int32_t *targets)
{
    memcpy (tokens, ids, (size_t)T * sizeof (*tokens));
    for (int t = 0; t < T; t++)
        targets[t] = t + 1 >= prompt && t + 1 < total ? ids[t + 1] : -1;
}

/* Without adapters, which a base is without. */
static train_status_t hash_weights (const struct local *l, uint64_t *ret,
                                    train_error_t *err)
{
    return decoder_hash (l->decoder, l->weights, false, ret, err);
}

/* A base is first asked before anything has trained what is beside it. */
static train_status_t note_base (struct local *l, train_error_t *err)
{
    if (!l->base || l->hashed || !l->decoder->weights.t.data)
        return TRAIN_OK;
    TRY (hash_weights (l, &l->hash, err));
    l->hashed = true;
    return TRAIN_OK;
}

static train_status_t op_logps (void *self, const int32_t *ids,
                                const int32_t *prompt_len,
                                const int32_t *total_len, int B, int T,
                                double temperature, float *ret,
                                train_error_t *err)
{
    struct local *l = self;
    size_t row = (size_t)T, n = (size_t)B * row;

    bool plain = l->decoder->plain;
    train_status_t status;

    TRY (note_base (l, err));
    TRY (grow (l, n, err));
    for (int b = 0; b < B; b++)
        fill_row (ids + (size_t)b * row, prompt_len[b], total_len[b], T,
                  l->room + (size_t)b * row, l->room + n + (size_t)b * row);
    decoder_leave_out (l->decoder, plain || l->base);
    status = train_decoder_logps (l->logp, NULL, l->decoder, l->room,
                                  l->room + n, B, T, temperature, err);
    decoder_leave_out (l->decoder, plain);
    if (status != TRAIN_OK)
        return status;
    for (int b = 0; b < B; b++) {
        ret[(size_t)b * row] = 0;
        memcpy (ret + (size_t)b * row + 1, l->logp + (size_t)b * row,
                (row - 1) * sizeof (*ret));
    }
    return TRAIN_OK;
}

/* The decoder may be one whose passes ranks make together. */
static train_status_t op_join (void *self, train_error_t *err)
{
    struct local *l = self;

    return decoder_meet (l->decoder, 0, err);
}

static void op_close (void *self)
{
    struct local *l = self;

    if (l->weights) {
        l->decoder->ops->free (l->weights);
        train_decoder_destroy (l->decoder);
    }
    free (l->room);
    free (l->logp);
    free (l);
}

static train_status_t op_check (void *self, train_error_t *err)
{
    struct local *l = self;
    uint64_t now = 0;

    if (!l->hashed)
        return TRAIN_OK;
    TRY (hash_weights (l, &now, err));
    if (now == l->hash)
        return TRAIN_OK;
    return err_set (err, TRAIN_ECORRUPT,
                    "reference: its weights are not those that it had");
}

/* A base is in the policy's own checkpoint, and another decoder may change. */
static bool op_hash (void *self, uint64_t *ret)
{
    const struct local *l = self;

    *ret = l->hash;
    return l->weights && l->hashed;
}

static size_t op_bytes (const void *self, int B, int T)
{
    const struct local *l = self;

    return l->base ? 0 : decoder_acts_bytes (l->decoder, B, T);
}

static const struct reference_ops ops = {
    .name = "decoder",
    .bytes = op_bytes,
    .logps = op_logps,
    .close = op_close,
    .check = op_check,
    .join = op_join,
    .hash = op_hash,
};

static train_status_t give (struct local *l, train_reference_t **ret,
                            train_error_t *err)
{
    return reference_new (&ops, l, l->decoder->config.vocab, ret, err);
}

static train_status_t open_on (train_decoder_t *decoder, bool base,
                               train_reference_t **ret, train_error_t *err)
{
    struct local *l = calloc (1, sizeof (*l));

    if (!l)
        return err_set (err, TRAIN_ENOMEM, "no memory for a reference");
    l->decoder = decoder;
    l->base = base;
    return give (l, ret, err);
}

train_status_t reference_open_any (train_decoder_t *decoder,
                                   train_reference_t **ret, train_error_t *err)
{
    return open_on (decoder, false, ret, err);
}

train_status_t train_reference_open_base (train_decoder_t *decoder,
                                          train_reference_t **ret,
                                          train_error_t *err)
{
    if (!decoder || !ret)
        return err_set (err, TRAIN_EINVAL,
                        "reference: decoder or ret_reference is NULL");
    return open_on (decoder, true, ret, err);
}

train_status_t train_reference_open_decoder (train_decoder_t *decoder,
                                             train_reference_t **ret,
                                             train_error_t *err)
{
    if (!decoder || !ret)
        return err_set (err, TRAIN_EINVAL,
                        "reference: decoder or ret_reference is NULL");
    if (!decoder->weights.t.data)
        return err_set (err, TRAIN_ESTATE,
                        "reference: the decoder was made without weights");
    return reference_open_any (decoder, ret, err);
}

/* Without gradients, and with the least activations. */
static train_status_t copy_decoder (const train_decoder_t *from,
                                    struct local *l, train_error_t *err)
{
    train_decoder_config_t c = from->config;
    size_t bytes = from->numel * from->kern->elem_size;

    c.recompute = TRAIN_RECOMPUTE_BLOCKS;
    TRY (decoder_create_bare (&c, &l->decoder, err));
    TRY (from->ops->alloc (from->device, bytes, &l->weights, err));
    TRY (from->ops->copy (l->weights, from->weights.t.data, bytes, from->stream,
                          err));
    TRY (from->ops->sync (from->stream, err));
    for (size_t u = 0; u < decoder_n_units (l->decoder); u++)
        decoder_set_unit (l->decoder, u,
                          (char *)l->weights
                              + decoder_unit (l->decoder, u)->first
                                    * from->kern->elem_size,
                          NULL);
    TRY (hash_weights (l, &l->hash, err));
    l->hashed = true;
    return TRAIN_OK;
}

train_status_t train_reference_open_copy (train_decoder_t *decoder,
                                          train_reference_t **ret,
                                          train_error_t *err)
{
    struct local *l;
    train_status_t status;

    if (!decoder || !ret)
        return err_set (err, TRAIN_EINVAL,
                        "reference: decoder or ret_reference is NULL");
    if (!decoder->weights.t.data)
        return err_set (err, TRAIN_ESTATE,
                        "reference: the decoder was made without weights");
    if (!(l = calloc (1, sizeof (*l))))
        return err_set (err, TRAIN_ENOMEM, "no memory for a reference");
    if ((status = copy_decoder (decoder, l, err)) == TRAIN_OK)
        return give (l, ret, err);
    if (!l->weights)
        train_decoder_destroy (l->decoder);
    op_close (l);
    return status;
}
