/* SPDX-License-Identifier: Apache-2.0
 * decoder_head.c - the last norm, the head and the loss
 *
 * f32 and f64 on the host hold the logits of all rows. Elsewhere head_loss
 * brings a piece of the rows through head, loss and both gradients before the
 * next, so that the logits are never whole. */
#include "decoder_impl.h"
#include "err.h"

#include "kernels/kernels.h"

#define ACT(name) decoder_act (m, m->layout.name, 0)

static size_t rows (const train_decoder_t *m)
{
    return (size_t)m->B * (size_t)m->T;
}

size_t decoder_head_unit (const train_decoder_t *m)
{
    return m->config.tie ? 0 : m->dims.L + 1;
}

static const void *head_weight (const train_decoder_t *m)
{
    return decoder_weight (m, decoder_head_unit (m), m->head);
}

void decoder_last_norm (train_decoder_t *m)
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
    size_t last = d->L + 1, head = decoder_head_unit (m);

    TRY (decoder_enter (m, last, false, err));
    decoder_last_norm (m);
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

static train_status_t forward_pieces (train_decoder_t *m, bool loss,
                                      train_error_t *err)
{
    size_t last = m->dims.L + 1, head = decoder_head_unit (m);

    TRY (decoder_enter (m, last, false, err));
    decoder_last_norm (m);
    if (!loss)
        return decoder_leave (m, last, false, err);
    if (head != last)
        TRY (decoder_turn (m, last, head, false, err));
    TRY (m->work->head_loss (m, NULL, NULL, head_weight (m), 0, err));
    return decoder_leave (m, head, false, err);
}

train_status_t decoder_forward (train_decoder_t *m, void *logits, bool loss,
                                train_error_t *err)
{
    bool whole = m->layout.whole;

    TRY (decoder_body (m, err));
    if (!logits && !whole)
        return forward_pieces (m, loss, err);
    if (!logits)
        logits = ACT (logits);
    TRY (all_logits (m, logits, err));
    if (loss && whole)
        whole_loss (m, logits);
    if (loss && !whole)
        return m->work->logits_loss (m, logits, err);
    return TRAIN_OK;
}

/* The head's two gradients, in pieces or from whole logits' own. */
static train_status_t head_bwd (train_decoder_t *m, double scale,
                                train_error_t *err)
{
    const struct decoder_dims *d = &m->dims;
    void *dw = d->lora.rank > 0
                   ? NULL
                   : decoder_grad (m, decoder_head_unit (m), m->head);
    size_t N = rows (m);

    if (!m->layout.whole)
        return m->work->head_loss (m, ACT (tmp), dw, head_weight (m), scale,
                                   err);
    TRY (m->work->linear_dx (m, ACT (tmp), ACT (logits), head_weight (m), N,
                             d->C, d->V, err));
    if (!dw)
        return TRAIN_OK;
    return m->work->linear_dw (m, dw, ACT (logits), ACT (norm_f), N, d->C, d->V,
                               err);
}

train_status_t decoder_last_norm_bwd (train_decoder_t *m, train_error_t *err)
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
    size_t last = m->dims.L + 1, head = decoder_head_unit (m);
    bool whole = m->layout.whole;

    TRY (decoder_body (m, err));
    if (whole) {
        TRY (all_logits (m, ACT (logits), err));
        whole_loss_bwd (m, ACT (logits), scale);
    } else {
        TRY (forward_pieces (m, false, err));
    }
    TRY (decoder_enter (m, head, true, err));
    TRY (decoder_clear_unit (m, head, err));
    TRY (head_bwd (m, scale, err));
    if (head != last) {
        TRY (decoder_turn (m, head, last, true, err));
        TRY (decoder_clear_unit (m, last, err));
    }
    TRY (decoder_last_norm_bwd (m, err));
    return decoder_body_bwd (m, err);
}
