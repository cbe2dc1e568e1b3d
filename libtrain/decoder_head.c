/* SPDX-License-Identifier: Apache-2.0
 * decoder_head.c - the last norm, the head and the loss
 *
 * f32 and f64 on the host hold the logits of all rows. Elsewhere a piece of the
 * rows is brought through head, loss and both gradients before the next, so
 * that the logits are never whole. */
#include "decoder_impl.h"
#include "err.h"

#include "kernels/kernels.h"

#define ACT(name) decoder_act (m, m->layout.name, 0)

static size_t rows (const train_decoder_t *m)
{
    return (size_t)m->B * (size_t)m->T;
}

static size_t head_unit (const train_decoder_t *m)
{
    return m->config.tie ? 0 : m->dims.L + 1;
}

static const void *head_weight (const train_decoder_t *m)
{
    return decoder_weight (m, head_unit (m), m->head);
}

/* Needs unit L + 1. */
static void last_norm (train_decoder_t *m)
{
    const struct decoder_dims *d = &m->dims;
    const struct decoder_acts *a = &m->layout;

    m->kern->addnorm_fwd (ACT (norm_f), decoder_act (m, a->x, d->L),
                          ACT (rstd_f), decoder_act (m, a->mid, d->L - 1),
                          ACT (tmp), decoder_weight (m, d->L + 1, m->norm_f),
                          rows (m), d->C, m->config.norm_eps, m->stream);
}

static train_status_t all_logits (train_decoder_t *m, void *logits,
                                  train_error_t *err)
{
    const struct decoder_dims *d = &m->dims;
    size_t last = d->L + 1, head = head_unit (m);

    TRY (decoder_enter (m, last, false, err));
    last_norm (m);
    if (head != last)
        TRY (decoder_turn (m, last, head, false, err));
    TRY (m->work->linear (m, logits, ACT (norm_f), head_weight (m), rows (m),
                          d->C, d->V, err));
    return decoder_leave (m, head, false, err);
}

/* Losses of f32 and f64 on the host, to the bits of one pass in double. */
static void whole_loss (train_decoder_t *m, void *logits)
{
    double sum = 0;
    int64_t n;

    if (m->config.dtype == TRAIN_F32)
        kern_cross_entropy_fwd_f32_host (&sum, &n, logits, m->targets, rows (m),
                                         m->dims.V, NULL);
    else
        kern_cross_entropy_fwd_f64_host (&sum, &n, logits, m->targets, rows (m),
                                         m->dims.V, NULL);
    *m->sum += sum;
}

static void whole_loss_bwd (train_decoder_t *m, void *logits, double scale)
{
    double sum = 0;
    int64_t n;

    if (m->config.dtype == TRAIN_F32)
        kern_cross_entropy_bwd_f32_host (logits, &sum, &n, m->targets, rows (m),
                                         m->dims.V, scale, NULL);
    else
        kern_cross_entropy_bwd_f64_host (logits, &sum, &n, m->targets, rows (m),
                                         m->dims.V, scale, NULL);
    *m->sum += sum;
}

/* Where row [n] of an (N,C) array begins. */
static void *row (const train_decoder_t *m, void *array, size_t n)
{
    return (char *)array + n * m->dims.C * m->kern->elem_size;
}

/* Rows [first] and on through head and loss; [grad]: and back, into tmp and the
 * head's gradient. */
static train_status_t piece (train_decoder_t *m, size_t first, size_t n,
                             bool grad, train_error_t *err)
{
    const struct decoder_dims *d = &m->dims;
    size_t head = head_unit (m);
    void *x = row (m, ACT (norm_f), first), *logits = ACT (logits);
    float *logp = ACT (logp), *dlogp = ACT (dlogp);

    TRY (m->work->linear (m, logits, x, head_weight (m), n, d->C, d->V, err));
    m->kern->pick (logits, logp + first, m->targets + first,
                   grad ? dlogp + first : NULL, n, d->V, m->stream);
    if (!grad)
        return TRAIN_OK;
    TRY (m->work->linear_dx (m, row (m, ACT (tmp), first), logits,
                             head_weight (m), n, d->C, d->V, err));
    return m->work->linear_dw (m, decoder_grad (m, head, m->head), logits, x, n,
                               d->C, d->V, err);
}

/* Needs the head's unit. */
static train_status_t pieces (train_decoder_t *m, bool grad, train_error_t *err)
{
    size_t N = rows (m), step = m->layout.rows;

    for (size_t first = 0; first < N; first += step)
        TRY (piece (m, first, N - first < step ? N - first : step, grad, err));
    m->kern->loss_sum (m->sum, ACT (logp), N, m->stream);
    return TRAIN_OK;
}

static train_status_t forward_pieces (train_decoder_t *m, bool loss,
                                      train_error_t *err)
{
    size_t last = m->dims.L + 1, head = head_unit (m);

    TRY (decoder_enter (m, last, false, err));
    last_norm (m);
    if (!loss)
        return decoder_leave (m, last, false, err);
    if (head != last)
        TRY (decoder_turn (m, last, head, false, err));
    TRY (pieces (m, false, err));
    return decoder_leave (m, head, false, err);
}

train_status_t decoder_forward (train_decoder_t *m, void *logits, bool loss,
                                train_error_t *err)
{
    bool whole = m->layout.rows == 0;
    size_t N = rows (m);

    TRY (decoder_body (m, err));
    if (!logits && !whole)
        return forward_pieces (m, loss, err);
    if (!logits)
        logits = ACT (logits);
    TRY (all_logits (m, logits, err));
    if (loss && whole)
        whole_loss (m, logits);
    if (loss && !whole) {
        m->kern->pick (logits, ACT (logp), m->targets, NULL, N, m->dims.V,
                       m->stream);
        m->kern->loss_sum (m->sum, ACT (logp), N, m->stream);
    }
    return TRAIN_OK;
}

/* The head's two gradients from the logits' own, of all rows. */
static train_status_t head_bwd (train_decoder_t *m, train_error_t *err)
{
    const struct decoder_dims *d = &m->dims;
    size_t N = rows (m);

    TRY (m->work->linear_dx (m, ACT (tmp), ACT (logits), head_weight (m), N,
                             d->C, d->V, err));
    return m->work->linear_dw (m, decoder_grad (m, head_unit (m), m->head),
                               ACT (logits), ACT (norm_f), N, d->C, d->V, err);
}

static train_status_t last_norm_bwd (train_decoder_t *m, train_error_t *err)
{
    const struct decoder_dims *d = &m->dims;
    size_t last = d->L + 1;

    m->kern->addnorm_bwd (ACT (dx), decoder_grad (m, last, m->norm_f),
                          ACT (tmp), NULL, decoder_act (m, m->layout.x, d->L),
                          decoder_weight (m, last, m->norm_f), ACT (rstd_f),
                          rows (m), d->C, decoder_scratch (m), m->stream);
    return decoder_leave (m, last, true, err);
}

train_status_t decoder_step (train_decoder_t *m, double scale,
                             train_error_t *err)
{
    size_t last = m->dims.L + 1, head = head_unit (m);
    bool whole = m->layout.rows == 0;

    TRY (decoder_body (m, err));
    if (whole) {
        TRY (all_logits (m, ACT (logits), err));
        whole_loss_bwd (m, ACT (logits), scale);
    } else {
        TRY (forward_pieces (m, false, err));
        m->kern->fill (ACT (dlogp), (float)-scale, rows (m), m->stream);
    }
    TRY (decoder_enter (m, head, true, err));
    TRY (whole ? head_bwd (m, err) : pieces (m, true, err));
    if (head != last)
        TRY (decoder_turn (m, head, last, true, err));
    TRY (last_norm_bwd (m, err));
    return decoder_body_bwd (m, err);
}
