/* SPDX-License-Identifier: Apache-2.0
 * decoder.c - a Llama-shaped decoder: life, arenas, checked passes */
#include <train/decoder.h>

#include <stdlib.h>
#include <string.h>

#include "decoder_impl.h"
#include "err.h"
#include "opts.h"

#include "kernels/kernels.h"

static size_t element_size (const train_decoder_t *m)
{
    return train_dtype_size (m->config.dtype);
}

/* A zeroed arena seen as a 1-D tensor. */
static train_status_t make_arena (train_decoder_t *m, train_tensor_t *t,
                                  train_error_t *err)
{
    size_t bytes = m->numel * element_size (m);
    int64_t shape[1] = {(int64_t)m->numel};
    void *data;

    bytes = (bytes + DECODER_ALIGN - 1) & ~(DECODER_ALIGN - 1);
    data = aligned_alloc (DECODER_ALIGN, bytes);
    if (!data)
        return err_set (err, TRAIN_ENOMEM,
                        "no memory for %zu parameters (%zu bytes)", m->numel,
                        bytes);
    memset (data, 0, bytes);
    return train_tensor_view (t, data, m->config.dtype, 1, shape, err);
}

static train_status_t make_arenas (train_decoder_t *m, train_error_t *err)
{
    TRY (make_arena (m, &m->weights, err));
    TRY (make_arena (m, &m->grads, err));
    for (size_t u = 0; u < decoder_n_units (m); u++)
        decoder_set_unit (m, u, NULL, NULL);
    return TRAIN_OK;
}

static train_status_t create (const train_decoder_config_t *config, bool bare,
                              train_decoder_t **ret_decoder, train_error_t *err)
{
    train_decoder_config_t own;
    train_decoder_t *m;
    train_status_t status;

    if (!config || !ret_decoder)
        return err_set (err, TRAIN_EINVAL, "decoder: config or ret is NULL");
    TRY (opts_read (&own, sizeof (own), config, "decoder", err));
    m = calloc (1, sizeof (*m));
    if (!m)
        return err_set (err, TRAIN_ENOMEM, "no memory for a decoder");
    status = decoder_layout (m, &own, err);
    if (status == TRAIN_OK && !bare)
        status = make_arenas (m, err);
    if (status != TRAIN_OK) {
        train_decoder_destroy (m);
        return status;
    }
    *ret_decoder = m;
    return TRAIN_OK;
}

train_status_t train_decoder_create (const train_decoder_config_t *config,
                                     train_decoder_t **ret_decoder,
                                     train_error_t *err)
{
    return create (config, false, ret_decoder, err);
}

train_status_t decoder_create_bare (const train_decoder_config_t *config,
                                    train_decoder_t **ret_decoder,
                                    train_error_t *err)
{
    return create (config, true, ret_decoder, err);
}

void train_decoder_destroy (train_decoder_t *m)
{
    if (!m)
        return;
    free (m->acts);
    free (m->weights.t.data);
    free (m->grads.t.data);
    free (m->places);
    free (m->units);
    free (m->blocks);
    free (m->names);
    free (m->params);
    free (m);
}

size_t train_decoder_n_params (const train_decoder_t *m)
{
    return m->n_params;
}

const train_param_t *train_decoder_param (const train_decoder_t *m,
                                          size_t index)
{
    return index < m->n_params ? &m->params[index] : NULL;
}

size_t train_decoder_numel (const train_decoder_t *m)
{
    return m->numel;
}

const train_decoder_config_t *train_decoder_config (const train_decoder_t *m)
{
    return &m->config;
}

DLTensor *train_decoder_weights (train_decoder_t *m)
{
    return &m->weights.t;
}

DLTensor *train_decoder_grads (train_decoder_t *m)
{
    return &m->grads.t;
}

/* Every id in low..vocab-1. */
static train_status_t check_ids (const char *what, const int32_t *ids, int low,
                                 int vocab, int B, int T, train_error_t *err)
{
    for (int b = 0; b < B; b++) {
        for (int t = 0; t < T; t++) {
            int32_t id = ids[(size_t)b * (size_t)T + (size_t)t];

            if (id < low || id >= vocab)
                return err_set (err, TRAIN_EINVAL,
                                "%s %d of sequence %d, position %d: must be "
                                "in %d..%d",
                                what, (int)id, b, t, low, vocab - 1);
        }
    }
    return TRAIN_OK;
}

/* Make room for a batch; keeps what is there when the shape is the last. */
static train_status_t prepare (train_decoder_t *m, int B, int T,
                               train_error_t *err)
{
    struct decoder_acts layout;
    train_status_t status;

    if (m->acts && m->B == B && m->T == T)
        return TRAIN_OK;
    status =
        decoder_acts_layout (&m->dims, B, T, element_size (m), &layout, err);
    if (status != TRAIN_OK)
        return status;
    if (layout.bytes > m->acts_bytes) {
        void *acts = aligned_alloc (DECODER_ALIGN, layout.bytes);

        if (!acts)
            return err_set (err, TRAIN_ENOMEM,
                            "no memory for activations of %d sequences of %d "
                            "tokens (%zu bytes)",
                            B, T, layout.bytes);
        free (m->acts);
        m->acts = acts;
        m->acts_bytes = layout.bytes;
    }
    m->layout = layout;
    m->B = B;
    m->T = T;
    if (m->config.dtype == TRAIN_F32)
        decoder_rope_f32 (m);
    else
        decoder_rope_f64 (m);
    return TRAIN_OK;
}

static train_status_t check_batch (train_decoder_t *m, const int32_t *tokens,
                                   const int32_t *targets, int B, int T,
                                   train_error_t *err)
{
    train_status_t status;

    if (!tokens)
        return err_set (err, TRAIN_EINVAL, "decoder: tokens is NULL");
    status = prepare (m, B, T, err);
    if (status == TRAIN_OK)
        status = check_ids ("token", tokens, 0, m->config.vocab, B, T, err);
    if (status == TRAIN_OK && targets)
        status = check_ids ("target", targets, -1, m->config.vocab, B, T, err);
    return status;
}

train_status_t train_decoder_forward (train_decoder_t *m, void *logits,
                                      const int32_t *tokens,
                                      const int32_t *targets, int B, int T,
                                      double *ret_loss_sum, int64_t *ret_n,
                                      train_error_t *err)
{
    train_status_t status;
    size_t N;

    if (targets && (!ret_loss_sum || !ret_n))
        return err_set (err, TRAIN_EINVAL,
                        "decoder: targets without a place for the loss");
    status = check_batch (m, tokens, targets, B, T, err);
    if (status != TRAIN_OK)
        return status;
    N = (size_t)B * (size_t)T;
    if (m->config.dtype == TRAIN_F32)
        status = decoder_forward_f32 (m, logits, tokens, err);
    else
        status = decoder_forward_f64 (m, logits, tokens, err);
    if (status != TRAIN_OK)
        return status;
    if (!targets)
        return TRAIN_OK;
    if (!logits)
        logits = (char *)m->acts + m->layout.logits;
    if (m->config.dtype == TRAIN_F32)
        kern_cross_entropy_fwd_f32_host (ret_loss_sum, ret_n, logits, targets,
                                         N, m->dims.V, NULL);
    else
        kern_cross_entropy_fwd_f64_host (ret_loss_sum, ret_n, logits, targets,
                                         N, m->dims.V, NULL);
    return TRAIN_OK;
}

train_status_t train_decoder_step (train_decoder_t *m, const int32_t *tokens,
                                   const int32_t *targets, int B, int T,
                                   double scale, double *ret_loss_sum,
                                   int64_t *ret_n, train_error_t *err)
{
    train_status_t status;
    size_t N;
    void *logits;

    if (!targets || !ret_loss_sum || !ret_n)
        return err_set (err, TRAIN_EINVAL,
                        "decoder: targets or a place for the loss is NULL");
    status = check_batch (m, tokens, targets, B, T, err);
    if (status != TRAIN_OK)
        return status;
    N = (size_t)B * (size_t)T;
    logits = (char *)m->acts + m->layout.logits;
    if (m->config.dtype == TRAIN_F32) {
        TRY (decoder_forward_f32 (m, NULL, tokens, err));
        kern_cross_entropy_bwd_f32_host (logits, ret_loss_sum, ret_n, targets,
                                         N, m->dims.V, scale, NULL);
        TRY (decoder_backward_f32 (m, tokens, err));
    } else {
        TRY (decoder_forward_f64 (m, NULL, tokens, err));
        kern_cross_entropy_bwd_f64_host (logits, ret_loss_sum, ret_n, targets,
                                         N, m->dims.V, scale, NULL);
        TRY (decoder_backward_f64 (m, tokens, err));
    }
    return TRAIN_OK;
}
