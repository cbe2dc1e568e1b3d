/* SPDX-License-Identifier: Apache-2.0
 * decoder_pass.c - forward and backward through the blocks, for every dtype and
 * device
 *
 * A block's last sum is made by the norm that follows it, in the next block or
 * behind the last: [mid] and [tmp] are what is to be added. In the backward, dx
 * is the gradient of the residual stream: each half of a block adds to it
 * through its norm, and the sum x + f (x) passes it on unchanged. */
#include <math.h>

#include "decoder_impl.h"
#include "err.h"

#define ACT(name) decoder_act (m, m->layout.name, l)
#define W(name)   decoder_weight (m, l + 1, m->blocks[l].name)
#define G(name)   decoder_grad (m, l + 1, m->blocks[l].name)

static size_t rows (const train_decoder_t *m)
{
    return (size_t)m->B * (size_t)m->T;
}

/* The stream into block [l] and its norm; [again]: the stream is there. */
static void first_norm (train_decoder_t *m, size_t l, bool again)
{
    const struct decoder_acts *a = &m->layout;
    size_t N = rows (m), C = m->dims.C;

    if (l == 0 || again)
        m->kern->rmsnorm_fwd (ACT (norm1), ACT (rstd1), ACT (x), W (norm1), N,
                              C, m->config.norm_eps, m->stream);
    else
        m->kern->addnorm_fwd (ACT (norm1), ACT (x), ACT (rstd1),
                              decoder_act (m, a->mid, l - 1), ACT (tmp),
                              W (norm1), N, C, m->config.norm_eps, m->stream);
}

static train_status_t attention_half (train_decoder_t *m, size_t l, bool again,
                                      train_error_t *err)
{
    const struct decoder_dims *d = &m->dims;
    size_t N = rows (m), HD = d->H * d->D;
    void *qkv = ACT (qkv);

    first_norm (m, l, again);
    TRY (m->work->linear (m, qkv, ACT (norm1), W (qkv), N, d->C, d->Q, err));
    TRY (decoder_lora_fwd (m, l, DECODER_QKV, qkv, ACT (norm1), err));
    if (d->bias)
        m->kern->bias_fwd (qkv, W (bias), N, d->Q, m->stream);
    if (d->norm)
        m->kern->headnorm_fwd (qkv, ACT (raw), ACT (rstd_qk), W (q_norm),
                               W (k_norm), N, d->H, d->G, d->D,
                               m->config.norm_eps, m->stream);
    decoder_turn_fwd (m, qkv);
    TRY (m->work->attention (m, ACT (att), ACT (lse), qkv, err));
    TRY (m->work->linear (m, ACT (tmp), ACT (att), W (out), N, HD, d->C, err));
    TRY (decoder_lora_fwd (m, l, DECODER_OUT, ACT (tmp), ACT (att), err));
    if (decoder_drops (m))
        decoder_drop (m, l, DECODER_ATTENTION, ACT (tmp), ACT (tmp));
    m->kern->addnorm_fwd (ACT (norm2), ACT (mid), ACT (rstd2), ACT (x),
                          ACT (tmp), W (norm2), N, d->C, m->config.norm_eps,
                          m->stream);
    return TRAIN_OK;
}

/* [again]: what follows the activation is not needed. */
static train_status_t ffn_half (train_decoder_t *m, size_t l, bool again,
                                train_error_t *err)
{
    const struct decoder_dims *d = &m->dims;
    size_t N = rows (m);

    TRY (m->work->linear (m, ACT (gate_up), ACT (norm2), W (gate_up), N, d->C,
                          2 * d->F, err));
    TRY (decoder_lora_fwd (m, l, DECODER_GATE_UP, ACT (gate_up), ACT (norm2),
                           err));
    m->kern->swiglu_fwd (ACT (act), ACT (gate_up), N, d->F, m->stream);
    if (again)
        return TRAIN_OK;
    TRY (m->work->linear (m, ACT (tmp), ACT (act), W (down), N, d->F, d->C,
                          err));
    TRY (decoder_lora_fwd (m, l, DECODER_DOWN, ACT (tmp), ACT (act), err));
    if (decoder_drops (m))
        decoder_drop (m, l, DECODER_FFN, ACT (tmp), ACT (tmp));
    return TRAIN_OK;
}

train_status_t decoder_body (train_decoder_t *m, train_error_t *err)
{
    const struct decoder_dims *d = &m->dims;

    TRY (decoder_enter (m, 0, false, err));
    m->kern->embedding_fwd (decoder_act (m, m->layout.x, 0),
                            decoder_weight (m, 0, m->embed), m->tokens,
                            rows (m), d->C, m->stream);
    TRY (decoder_leave (m, 0, false, err));
    for (size_t l = 0; l < d->L; l++) {
        TRY (decoder_enter (m, l + 1, false, err));
        TRY (attention_half (m, l, false, err));
        TRY (ffn_half (m, l, false, err));
        TRY (decoder_leave (m, l + 1, false, err));
    }
    return TRAIN_OK;
}

/* The gradient of what a half added to the stream: dx, or what is kept of it, in
 * tmp, which nobody else needs before the half's norm. */
static const void *added (train_decoder_t *m, size_t l, enum decoder_half half)
{
    if (!decoder_drops (m))
        return ACT (dx);
    decoder_drop (m, l, half, ACT (tmp), ACT (dx));
    return ACT (tmp);
}

/* Beside adapters the weights themselves stay as they are. */
static train_status_t weight_bwd (train_decoder_t *m, void *dw, const void *dy,
                                  const void *x, size_t in, size_t out,
                                  train_error_t *err)
{
    if (m->dims.lora.rank > 0)
        return TRAIN_OK;
    return m->work->linear_dw (m, dw, dy, x, rows (m), in, out, err);
}

static train_status_t ffn_half_bwd (train_decoder_t *m, size_t l,
                                    train_error_t *err)
{
    const struct decoder_dims *d = &m->dims;
    size_t N = rows (m);
    void *dx = ACT (dx), *tmp = ACT (tmp), *dact = ACT (dact);
    void *gate_up = ACT (gate_up); /* becomes its own gradient */
    const void *dy = added (m, l, DECODER_FFN);

    TRY (m->work->linear_dx (m, dact, dy, W (down), N, d->F, d->C, err));
    TRY (weight_bwd (m, G (down), dy, ACT (act), d->F, d->C, err));
    TRY (decoder_lora_bwd (m, l, DECODER_DOWN, dact, dy, ACT (act), err));
    m->kern->swiglu_bwd (gate_up, dact, gate_up, N, d->F, m->stream);
    TRY (m->work->linear_dx (m, tmp, gate_up, W (gate_up), N, d->C, 2 * d->F,
                             err));
    TRY (
        weight_bwd (m, G (gate_up), gate_up, ACT (norm2), d->C, 2 * d->F, err));
    TRY (decoder_lora_bwd (m, l, DECODER_GATE_UP, tmp, gate_up, ACT (norm2),
                           err));
    m->kern->rmsnorm_bwd (dx, G (norm2), tmp, ACT (mid), W (norm2), ACT (rstd2),
                          N, d->C, decoder_scratch (m), m->stream);
    return TRAIN_OK;
}

/* Of the queries, keys and values as they left their product. */
static train_status_t qkv_bwd (train_decoder_t *m, size_t l, train_error_t *err)
{
    const struct decoder_dims *d = &m->dims;
    size_t N = rows (m);
    void *dqkv = ACT (dqkv);

    TRY (m->work->attention_bwd (m, dqkv, ACT (datt), ACT (att), ACT (lse),
                                 ACT (qkv), err));
    decoder_turn_bwd (m, dqkv);
    if (d->norm)
        m->kern->headnorm_bwd (dqkv, G (q_norm), G (k_norm), ACT (raw),
                               ACT (rstd_qk), W (q_norm), W (k_norm), N, d->H,
                               d->G, d->D, decoder_scratch (m), m->stream);
    if (d->bias)
        m->kern->bias_bwd (G (bias), dqkv, N, d->Q, decoder_scratch (m),
                           m->stream);
    return TRAIN_OK;
}

static train_status_t attention_half_bwd (train_decoder_t *m, size_t l,
                                          train_error_t *err)
{
    const struct decoder_dims *d = &m->dims;
    size_t N = rows (m), HD = d->H * d->D;
    void *dx = ACT (dx), *tmp = ACT (tmp), *dqkv = ACT (dqkv);
    const void *dy = added (m, l, DECODER_ATTENTION);

    TRY (m->work->linear_dx (m, ACT (datt), dy, W (out), N, HD, d->C, err));
    TRY (weight_bwd (m, G (out), dy, ACT (att), HD, d->C, err));
    TRY (decoder_lora_bwd (m, l, DECODER_OUT, ACT (datt), dy, ACT (att), err));
    TRY (qkv_bwd (m, l, err));
    TRY (m->work->linear_dx (m, tmp, dqkv, W (qkv), N, d->C, d->Q, err));
    TRY (weight_bwd (m, G (qkv), dqkv, ACT (norm1), d->C, d->Q, err));
    TRY (decoder_lora_bwd (m, l, DECODER_QKV, tmp, dqkv, ACT (norm1), err));
    m->kern->rmsnorm_bwd (dx, G (norm1), tmp, ACT (x), W (norm1), ACT (rstd1),
                          N, d->C, decoder_scratch (m), m->stream);
    return TRAIN_OK;
}

/* What the forward left out: one norm or activation at a time before it is
 * used, or the whole block. */
static train_status_t again (train_decoder_t *m, size_t l, train_error_t *err)
{
    if (m->config.recompute != TRAIN_RECOMPUTE_BLOCKS)
        return TRAIN_OK;
    TRY (attention_half (m, l, true, err));
    return ffn_half (m, l, true, err);
}

static void again_ffn (train_decoder_t *m, size_t l)
{
    const struct decoder_dims *d = &m->dims;

    if (m->config.recompute != TRAIN_RECOMPUTE_CHEAP)
        return;
    m->kern->swiglu_fwd (ACT (act), ACT (gate_up), rows (m), d->F, m->stream);
    m->kern->rmsnorm_fwd (ACT (norm2), ACT (rstd2), ACT (mid), W (norm2),
                          rows (m), d->C, m->config.norm_eps, m->stream);
}

static void again_attention (train_decoder_t *m, size_t l)
{
    if (m->config.recompute == TRAIN_RECOMPUTE_CHEAP)
        m->kern->rmsnorm_fwd (ACT (norm1), ACT (rstd1), ACT (x), W (norm1),
                              rows (m), m->dims.C, m->config.norm_eps,
                              m->stream);
}

train_status_t decoder_body_bwd (train_decoder_t *m, train_error_t *err)
{
    const struct decoder_dims *d = &m->dims;

    for (size_t l = d->L; l-- > 0;) {
        TRY (decoder_enter (m, l + 1, true, err));
        TRY (decoder_clear_unit (m, l + 1, err));
        TRY (again (m, l, err));
        again_ffn (m, l);
        TRY (ffn_half_bwd (m, l, err));
        again_attention (m, l);
        TRY (attention_half_bwd (m, l, err));
        TRY (decoder_leave (m, l + 1, true, err));
    }
    TRY (decoder_enter (m, 0, true, err));
    if (!m->config.tie)
        TRY (decoder_clear_unit (m, 0, err));
    if (d->lora.rank == 0)
        m->kern->embedding_bwd (
            decoder_grad (m, 0, m->embed), decoder_act (m, m->layout.dx, 0),
            m->tokens, rows (m), d->C, d->V, decoder_scratch (m), m->stream);
    return decoder_leave (m, 0, true, err);
}
