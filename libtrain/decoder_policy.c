/* SPDX-License-Identifier: Apache-2.0
 * decoder_policy.c - log-probabilities of given tokens, and the gradient that
 * comes back through them
 *
 * The forward keeps what the backward needs but for the logits, unless they are
 * whole (f32 and f64 on the host): those are made again, a piece of the rows at
 * a time. The head is of the rows that have a target alone, which move to the
 * front of their arrays, and what comes of them back. */
#include <train/policy.h>

#include <math.h>
#include <stdlib.h>
#include <string.h>

#include "decoder_impl.h"
#include "err.h"

#define ACT(name) decoder_act (m, m->layout.name, 0)

static size_t rows (const train_decoder_t *m)
{
    return (size_t)m->B * (size_t)m->T;
}

static const void *head_weight (const train_decoder_t *m)
{
    return decoder_weight (m, decoder_head_unit (m), m->head);
}

static const int32_t *targets_of (const train_decoder_t *m)
{
    return m->front.n < rows (m) ? m->front.targets : m->targets;
}

/* Of whole logits, which stay, or with [dlogp] become their gradient. */
static void of_logits (train_decoder_t *m, void *logp, void *entropy,
                       const void *dlogp)
{
    m->kern->logprob (ACT (logits), logp, entropy, targets_of (m), dlogp,
                      m->front.n, m->dims.V, m->inv_t, NULL);
}

static train_status_t front_fwd (train_decoder_t *m, void *logp, void *entropy,
                                 train_error_t *err)
{
    const struct decoder_dims *d = &m->dims;
    size_t n = m->front.n;

    TRY (decoder_front (m, ACT (norm_f), d->C * m->kern->elem_size, err));
    if (n == 0 || (!m->layout.whole && !logp))
        return TRAIN_OK;
    if (!m->layout.whole)
        return m->work->head_logprob (m, logp, entropy, NULL, NULL,
                                      head_weight (m), targets_of (m), NULL, n,
                                      m->inv_t, err);
    TRY (m->work->linear (m, ACT (logits), ACT (norm_f), head_weight (m), n,
                          d->C, d->V, err));
    if (logp)
        of_logits (m, logp, entropy, NULL);
    return TRAIN_OK;
}

/* [logp] NULL: what the backward makes is left to it. */
static train_status_t head_fwd (train_decoder_t *m, void *logp, void *entropy,
                                train_error_t *err)
{
    size_t real = m->kern->real_size;

    TRY (front_fwd (m, logp, entropy, err));
    TRY (decoder_back (m, logp, real, err));
    return decoder_back (m, logp ? entropy : NULL, real, err);
}

train_status_t decoder_logps (train_decoder_t *m, void *logp, void *entropy,
                              double temperature, train_error_t *err)
{
    size_t last = m->dims.L + 1, head = decoder_head_unit (m);

    m->inv_t = 0;
    if (!m->gpu)
        TRY (decoder_front_host (m, err));
    TRY (decoder_body (m, err));
    TRY (decoder_enter (m, last, false, err));
    decoder_last_norm (m);
    if (head != last)
        TRY (decoder_turn (m, last, head, false, err));
    m->inv_t = 1 / temperature;
    TRY (head_fwd (m, logp, entropy, err));
    return decoder_leave (m, head, false, err);
}

static train_status_t front_bwd (train_decoder_t *m, const void *dlogp,
                                 void *logp, void *entropy, train_error_t *err)
{
    const struct decoder_dims *d = &m->dims;
    size_t n = m->front.n;
    void *dw = d->lora.rank > 0
                   ? NULL
                   : decoder_grad (m, decoder_head_unit (m), m->head);

    if (n == 0)
        return TRAIN_OK;
    if (!m->layout.whole)
        return m->work->head_logprob (m, logp, entropy, ACT (tmp), dw,
                                      head_weight (m), targets_of (m), dlogp, n,
                                      m->inv_t, err);
    of_logits (m, logp, entropy, dlogp);
    TRY (m->work->linear_dx (m, ACT (tmp), ACT (logits), head_weight (m), n,
                             d->C, d->V, err));
    if (!dw)
        return TRAIN_OK;
    return m->work->linear_dw (m, dw, ACT (logits), ACT (norm_f), n, d->C, d->V,
                               err);
}

static train_status_t head_bwd (train_decoder_t *m, const void *dlogp,
                                void *logp, void *entropy, train_error_t *err)
{
    const struct decoder_front *f = &m->front;
    size_t real = m->kern->real_size;

    if (f->n < rows (m)) {
        m->kern->rows (f->dlogp, dlogp, f->rows, f->n, real, m->stream);
        dlogp = f->dlogp;
    }
    TRY (front_bwd (m, dlogp, logp, entropy, err));
    TRY (decoder_back (m, ACT (tmp), m->dims.C * m->kern->elem_size, err));
    TRY (decoder_back (m, logp, real, err));
    return decoder_back (m, entropy, real, err);
}

train_status_t decoder_logps_bwd (train_decoder_t *m, const void *dlogp,
                                  void *logp, void *entropy, train_error_t *err)
{
    size_t last = m->dims.L + 1, head = decoder_head_unit (m);
    train_status_t status;

    if (m->inv_t == 0)
        return err_set (err, TRAIN_ESTATE,
                        "policy: no log-probabilities were made right before");
    TRY (decoder_enter (m, head, true, err));
    TRY (decoder_clear_unit (m, head, err));
    status = head_bwd (m, dlogp, logp, entropy, err);
    m->inv_t = 0;
    if (status != TRAIN_OK)
        return status;
    if (head != last) {
        TRY (decoder_turn (m, head, last, true, err));
        TRY (decoder_clear_unit (m, last, err));
    }
    TRY (decoder_last_norm_bwd (m, err));
    TRY (decoder_body_bwd (m, err));
    m->spent = false;
    return TRAIN_OK;
}

/* Two arrays of a row's real number each, where the kernels are. */
static train_status_t take_two (train_decoder_t *m, size_t N, char **ret,
                                train_error_t *err)
{
    void *memory = NULL;

    TRY (m->ops->alloc (m->device, 2 * N * m->kern->real_size, &memory, err));
    *ret = memory;
    return TRAIN_OK;
}

/* From [real] of the device to float of the host. */
static train_status_t bring (train_decoder_t *m, float *to, const void *from,
                             size_t N, train_error_t *err)
{
    const double *wide = from;

    if (m->kern->real_size == sizeof (float))
        return m->ops->copy (to, from, N * sizeof (float), m->stream, err);
    for (size_t i = 0; i < N; i++)
        to[i] = (float)wide[i];
    return TRAIN_OK;
}

static train_status_t send (train_decoder_t *m, void *to, const float *from,
                            size_t N, train_error_t *err)
{
    double *wide = to;

    if (m->kern->real_size == sizeof (float))
        return m->ops->copy (to, from, N * sizeof (float), m->stream, err);
    for (size_t i = 0; i < N; i++)
        wide[i] = (double)from[i];
    return TRAIN_OK;
}

static train_status_t logps (train_decoder_t *m, float *ret_logp,
                             float *ret_entropy, double temperature,
                             train_error_t *err)
{
    size_t N = rows (m), step = N * m->kern->real_size;
    char *two = NULL;
    train_status_t status;

    TRY (take_two (m, N, &two, err));
    status = decoder_meet (m, 1, err);
    if (status == TRAIN_OK)
        status = decoder_logps (m, two, ret_entropy ? two + step : NULL,
                                temperature, err);
    if (status == TRAIN_OK)
        status = bring (m, ret_logp, two, N, err);
    if (status == TRAIN_OK && ret_entropy)
        status = bring (m, ret_entropy, two + step, N, err);
    if (status == TRAIN_OK)
        status = decoder_wait (m, err);
    m->ops->free (two);
    return status;
}

train_status_t train_decoder_logps (float *ret_logp, float *ret_entropy,
                                    train_decoder_t *m, const int32_t *tokens,
                                    const int32_t *targets, int B, int T,
                                    double temperature, train_error_t *err)
{
    train_status_t status;
    int before;

    if (!ret_logp || !m || !tokens || !targets)
        return err_set (err, TRAIN_EINVAL,
                        "logps: ret_logp, decoder, tokens or targets is NULL");
    if (!isfinite (temperature) || temperature <= 0)
        return err_set (err, TRAIN_EINVAL,
                        "logps: temperature %g is not above 0", temperature);
    before = m->ops->enter (m->device);
    status = decoder_prepare (m, B, T, err);
    if (status == TRAIN_OK)
        status = decoder_take_ids (m, tokens, targets, NULL, err);
    if (status == TRAIN_OK)
        status = logps (m, ret_logp, ret_entropy, temperature, err);
    m->ops->leave (before);
    return status;
}

static train_status_t backward (train_decoder_t *m, const float *dlogp,
                                train_error_t *err)
{
    size_t N = rows (m), step = N * m->kern->real_size;
    char *two = NULL;
    train_status_t status;

    TRY (take_two (m, N, &two, err));
    status = send (m, two, dlogp, N, err);
    if (status == TRAIN_OK)
        status = decoder_logps_bwd (m, two, two + step, NULL, err);
    if (status == TRAIN_OK)
        status = m->ops->sync (m->stream, err);
    m->ops->free (two);
    return status;
}

train_status_t train_decoder_policy_backward (train_decoder_t *m,
                                              const float *dlogp,
                                              train_error_t *err)
{
    train_status_t status;
    int before;

    if (!m || !dlogp)
        return err_set (err, TRAIN_EINVAL, "policy: decoder or dlogp is NULL");
    if (m->inv_t == 0)
        return err_set (err, TRAIN_ESTATE,
                        "policy: no log-probabilities were made right before");
    before = m->ops->enter (m->device);
    status = backward (m, dlogp, err);
    m->ops->leave (before);
    return status;
}
