/* SPDX-License-Identifier: Apache-2.0
 * decoder_host.c - products and attention of a decoder on the host */
#include <math.h>

#include "decoder_impl.h"

#include "kernels/kernels.h"

static size_t op_foresee (const train_decoder_t *m, int B, int T)
{
    const struct decoder_dims *d = &m->dims;
    size_t t = (size_t)T;

    (void)B;
    return m->kern->elem_size == m->kern->real_size
               ? kern_attention_scratch (t) * m->kern->real_size
               : kern_attention_half_scratch (t, d->H, d->G, d->D)
                     * sizeof (float);
}

static train_status_t op_prepare (train_decoder_t *m, int B, int T,
                                  size_t *ret_scratch, train_error_t *err)
{
    (void)err;
    *ret_scratch = op_foresee (m, B, T);
    return TRAIN_OK;
}

static void op_destroy (train_decoder_t *m)
{
    (void)m;
}

static train_status_t op_linear (train_decoder_t *m, void *y, const void *x,
                                 const void *w, size_t N, size_t in, size_t out,
                                 train_error_t *err)
{
    (void)err;
    m->kern->matmul_fwd (y, x, w, N, in, out, NULL);
    return TRAIN_OK;
}

static train_status_t op_linear_dx (train_decoder_t *m, void *dx,
                                    const void *dy, const void *w, size_t N,
                                    size_t in, size_t out, train_error_t *err)
{
    (void)err;
    m->kern->matmul_bwd (dx, NULL, dy, NULL, w, N, in, out, NULL);
    return TRAIN_OK;
}

static train_status_t op_linear_dw (train_decoder_t *m, void *dw,
                                    const void *dy, const void *x, size_t N,
                                    size_t in, size_t out, train_error_t *err)
{
    (void)err;
    m->kern->matmul_bwd (NULL, dw, dy, x, NULL, N, in, out, NULL);
    return TRAIN_OK;
}

static double scale_of (const train_decoder_t *m)
{
    return 1.0 / sqrt ((double)m->dims.D);
}

static train_status_t op_attention (train_decoder_t *m, void *y, void *lse,
                                    const void *qkv, void *scratch,
                                    train_error_t *err)
{
    const struct decoder_dims *d = &m->dims;

    (void)err;
    m->kern->attention_fwd (y, lse, qkv, m->starts, scratch, (size_t)m->B,
                            (size_t)m->T, d->H, d->G, d->D, scale_of (m), NULL);
    return TRAIN_OK;
}

static train_status_t op_attention_bwd (train_decoder_t *m, void *dqkv,
                                        const void *dy, const void *y,
                                        const void *lse, const void *qkv,
                                        void *scratch, train_error_t *err)
{
    const struct decoder_dims *d = &m->dims;

    (void)err;
    m->kern->attention_bwd (dqkv, dy, y, lse, qkv, m->starts, scratch,
                            (size_t)m->B, (size_t)m->T, d->H, d->G, d->D,
                            scale_of (m), NULL);
    return TRAIN_OK;
}

static size_t op_head_scratch (const train_decoder_t *m, size_t N)
{
    size_t logits = kern_linear_ce_scratch (m->dims.V) * m->kern->elem_size;
    size_t logp = N * sizeof (float);

    return logits > logp ? logits : logp;
}

static train_status_t op_head_loss (train_decoder_t *m, void *dh, void *dw,
                                    const void *w, double scale,
                                    train_error_t *err)
{
    (void)err;
    m->kern->linear_ce (m->sum, NULL, dh, dw,
                        decoder_act (m, m->layout.norm_f, 0), w, m->targets,
                        (size_t)m->B * (size_t)m->T, m->dims.C, m->dims.V,
                        scale, decoder_act (m, m->layout.logits, 0), NULL);
    return TRAIN_OK;
}

static train_status_t op_logits_loss (train_decoder_t *m, void *logits,
                                      train_error_t *err)
{
    float *logp = decoder_act (m, m->layout.logits, 0);
    size_t N = (size_t)m->B * (size_t)m->T;

    (void)err;
    m->kern->logprob (logits, logp, NULL, m->targets, NULL, N, m->dims.V, 1,
                      NULL);
    for (size_t n = 0; n < N; n++)
        *m->sum -= (double)logp[n];
    return TRAIN_OK;
}

/* A chunk at a time, as kern_linear_ce does it. */
static train_status_t op_head_logprob (train_decoder_t *m, void *logp,
                                       void *entropy, void *dh, void *dw,
                                       const void *w, const int32_t *targets,
                                       const void *dlogp, size_t N,
                                       double inv_t, train_error_t *err)
{
    size_t C = m->dims.C, V = m->dims.V;
    size_t most = kern_linear_ce_scratch (V) / V, wide = C * m->kern->elem_size;
    char *logits = decoder_act (m, m->layout.logits, 0);
    const char *h = decoder_act (m, m->layout.norm_f, 0);

    (void)err;
    for (size_t from = 0; from < N; from += most) {
        size_t n = N - from < most ? N - from : most;

        m->kern->matmul_fwd (logits, h + from * wide, w, n, C, V, NULL);
        m->kern->logprob (
            logits, (float *)logp + from,
            entropy ? (float *)entropy + from : NULL, targets + from,
            dlogp ? (const float *)dlogp + from : NULL, n, V, inv_t, NULL);
        if (dlogp)
            m->kern->matmul_bwd ((char *)dh + from * wide, dw, logits,
                                 h + from * wide, w, n, C, V, NULL);
    }
    return TRAIN_OK;
}

const struct decoder_work decoder_work_host = {
    .prepare = op_prepare,
    .foresee = op_foresee,
    .destroy = op_destroy,
    .linear = op_linear,
    .linear_dx = op_linear_dx,
    .linear_dw = op_linear_dw,
    .attention = op_attention,
    .attention_bwd = op_attention_bwd,
    .head_scratch = op_head_scratch,
    .head_loss = op_head_loss,
    .logits_loss = op_logits_loss,
    .head_logprob = op_head_logprob,
};
