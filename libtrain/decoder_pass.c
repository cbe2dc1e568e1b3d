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

/* Is SwiGLU part of its product, and are norms and activations made again as what
 * the backward's kernels write beside gradients? An adapter's part needs what is
 * between. */
static bool is_within (const train_decoder_t *m)
{
    return m->dims.lora.rank == 0;
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
    TRY (m->work->attention (m, ACT (att), ACT (lse), qkv, ACT (attention),
                             err));
    TRY (m->work->linear (m, ACT (tmp), ACT (att), W (out), N, HD, d->C, err));
    TRY (decoder_lora_fwd (m, l, DECODER_OUT, ACT (tmp), ACT (att), err));
    if (decoder_drops (m))
        decoder_drop (m, l, DECODER_ATTENTION, ACT (tmp), ACT (tmp));
    m->kern->addnorm_fwd (ACT (norm2), ACT (mid), ACT (rstd2), ACT (x),
                          ACT (tmp), W (norm2), N, d->C, m->config.norm_eps,
                          m->stream);
    return TRAIN_OK;
}

/* Gate and up, and unless [again] the activation. An adapter adds to gate and up
 * before it. */
static train_status_t gate_up_fwd (train_decoder_t *m, size_t l, bool again,
                                   train_error_t *err)
{
    const struct decoder_dims *d = &m->dims;
    size_t N = rows (m);
    bool done = false;

    if (!again && is_within (m) && m->work->glu)
        TRY (m->work->glu (m, ACT (act), ACT (gate_up), ACT (norm2),
                           W (gate_up), N, &done, err));
    if (done)
        return TRAIN_OK;
    TRY (m->work->linear (m, ACT (gate_up), ACT (norm2), W (gate_up), N, d->C,
                          2 * d->F, err));
    TRY (decoder_lora_fwd (m, l, DECODER_GATE_UP, ACT (gate_up), ACT (norm2),
                           err));
    if (!again)
        m->kern->swiglu_fwd (ACT (act), ACT (gate_up), N, d->F, m->stream);
    return TRAIN_OK;
}

/* [again]: the activation and what follows it are not needed. */
static train_status_t ffn_half (train_decoder_t *m, size_t l, bool again,
                                train_error_t *err)
{
    const struct decoder_dims *d = &m->dims;
    size_t N = rows (m);

    TRY (gate_up_fwd (m, l, again, err));
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

/* Beside adapters the weights themselves stay as they are; others where [dw] is
 * NULL. */
static train_status_t weight_bwd (train_decoder_t *m, void *dw, const void *dy,
                                  const void *x, size_t in, size_t out,
                                  train_error_t *err)
{
    if (m->dims.lora.rank > 0 || !dw)
        return TRAIN_OK;
    return m->work->linear_dw (m, dw, dy, x, rows (m), in, out, err);
}

/* The gradient of gate and up in their place, from dy. An activation that was not
 * kept takes the place of its own gradient. */
static train_status_t gate_up_bwd (train_decoder_t *m, size_t l, const void *dy,
                                   train_error_t *err)
{
    const struct decoder_dims *d = &m->dims;
    size_t N = rows (m);
    void *dact = ACT (dact), *gate_up = ACT (gate_up), *act = ACT (act);
    bool again = m->config.recompute != TRAIN_RECOMPUTE_NOTHING, done = false;

    if (is_within (m) && m->work->glu_bwd)
        TRY (m->work->glu_bwd (m, gate_up, again ? act : NULL, dy, W (down), N,
                               &done, err));
    if (done)
        return TRAIN_OK;
    if (again && !is_within (m))
        m->kern->swiglu_fwd (act, gate_up, N, d->F, m->stream);
    TRY (m->work->linear_dx (m, dact, dy, W (down), N, d->F, d->C, err));
    TRY (decoder_lora_bwd (m, l, DECODER_DOWN, dact, dy, act, err));
    if (again && is_within (m))
        m->kern->swiglu_again_bwd (gate_up, act, dact, gate_up, N, d->F,
                                   m->stream);
    else
        m->kern->swiglu_bwd (gate_up, dact, gate_up, N, d->F, m->stream);
    return TRAIN_OK;
}

/* And of the product below. */
static train_status_t act_bwd (train_decoder_t *m, size_t l, train_error_t *err)
{
    const struct decoder_dims *d = &m->dims;
    const void *dy = added (m, l, DECODER_FFN);

    TRY (gate_up_bwd (m, l, dy, err));
    return weight_bwd (m, G (down), dy, ACT (act), d->F, d->C, err);
}

/* Of a half: its norm and the product behind it. */
struct half {
    const void *x, *w, *weight; /* x is what is normed */
    void *rstd, *norm, *dnorm_w, *dweight;
    const void *dy; /* gradient of what the product gave, (N,out) */
    size_t out;
    enum decoder_product product;
};

/* dx += what comes through the half's product and norm; both weights' gradients. */
static train_status_t in_bwd (train_decoder_t *m, size_t l,
                              const struct half *h, train_error_t *err)
{
    size_t N = rows (m), C = m->dims.C;
    bool again = m->config.recompute == TRAIN_RECOMPUTE_CHEAP;
    bool within = again && is_within (m);
    void *dx = ACT (dx), *tmp = ACT (tmp);

    if (again && !within)
        m->kern->rmsnorm_fwd (h->norm, h->rstd, h->x, h->w, N, C,
                              m->config.norm_eps, m->stream);
    TRY (m->work->linear_dx (m, tmp, h->dy, h->weight, N, C, h->out, err));
    TRY (decoder_lora_bwd (m, l, h->product, tmp, h->dy, h->norm, err));
    if (within)
        m->kern->addnorm_again_bwd (dx, tmp, h->dnorm_w, tmp, dx, h->x, h->w,
                                    h->rstd, N, C, decoder_scratch (m),
                                    m->stream);
    else
        m->kern->rmsnorm_bwd (dx, h->dnorm_w, tmp, h->x, h->w, h->rstd, N, C,
                              decoder_scratch (m), m->stream);
    return weight_bwd (m, h->dweight, h->dy, within ? tmp : h->norm, C, h->out,
                       err);
}

static train_status_t ffn_half_bwd (train_decoder_t *m, size_t l,
                                    train_error_t *err)
{
    const struct decoder_dims *d = &m->dims;
    const struct half h = {
        .x = ACT (mid),
        .w = W (norm2),
        .rstd = ACT (rstd2),
        .weight = W (gate_up),
        .norm = ACT (norm2),
        .dnorm_w = G (norm2),
        .dweight = G (gate_up),
        .dy = ACT (gate_up),
        .out = 2 * d->F,
        .product = DECODER_GATE_UP,
    };

    TRY (act_bwd (m, l, err));
    return in_bwd (m, l, &h, err);
}

/* Of the queries, keys and values as they left their product. */
static train_status_t qkv_bwd (train_decoder_t *m, size_t l, train_error_t *err)
{
    const struct decoder_dims *d = &m->dims;
    size_t N = rows (m);
    void *dqkv = ACT (dqkv);

    TRY (m->work->attention_bwd (m, dqkv, ACT (datt), ACT (att), ACT (lse),
                                 ACT (qkv), ACT (attention), err));
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
    const struct half h = {
        .x = ACT (x),
        .w = W (norm1),
        .rstd = ACT (rstd1),
        .weight = W (qkv),
        .norm = ACT (norm1),
        .dnorm_w = G (norm1),
        .dweight = G (qkv),
        .dy = ACT (dqkv),
        .out = d->Q,
        .product = DECODER_QKV,
    };
    const void *dy = added (m, l, DECODER_ATTENTION);

    TRY (m->work->linear_dx (m, ACT (datt), dy, W (out), N, HD, d->C, err));
    TRY (weight_bwd (m, G (out), dy, ACT (att), HD, d->C, err));
    TRY (decoder_lora_bwd (m, l, DECODER_OUT, ACT (datt), dy, ACT (att), err));
    TRY (qkv_bwd (m, l, err));
    return in_bwd (m, l, &h, err);
}

/* What the forward left out of a block, but for its last activation. */
static train_status_t again (train_decoder_t *m, size_t l, train_error_t *err)
{
    if (m->config.recompute != TRAIN_RECOMPUTE_BLOCKS)
        return TRAIN_OK;
    TRY (attention_half (m, l, true, err));
    return ffn_half (m, l, true, err);
}

train_status_t decoder_body_bwd (train_decoder_t *m, train_error_t *err)
{
    const struct decoder_dims *d = &m->dims;

    for (size_t l = d->L; l-- > 0;) {
        TRY (decoder_enter (m, l + 1, true, err));
        TRY (decoder_clear_unit (m, l + 1, err));
        TRY (again (m, l, err));
        TRY (ffn_half_bwd (m, l, err));
        TRY (attention_half_bwd (m, l, err));
        TRY (decoder_leave (m, l + 1, true, err));
    }
    TRY (decoder_enter_embed_bwd (m, err));
    if (!m->config.tie)
        TRY (decoder_clear_unit (m, 0, err));
    if (d->lora.rank == 0 && !decoder_is_still (m, m->embed))
        m->kern->embedding_bwd (
            decoder_grad (m, 0, m->embed), decoder_act (m, m->layout.dx, 0),
            m->tokens, rows (m), d->C, d->V, decoder_scratch (m), m->stream);
    return decoder_leave (m, 0, true, err);
}
