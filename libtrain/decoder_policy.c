/* SPDX-License-Identifier: Apache-2.0
 * decoder_policy.c - log-probabilities of given tokens, and the gradient that
 * comes back through them
 *
 * The forward keeps what the backward needs but for the logits, unless they are
 * whole (f32 and f64 on the host): those are made again, a piece of the rows at
 * a time. On the host the head is of the rows that have a target alone, which
 * move to the front of their arrays, and what comes of them back. */
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

/* Rows that the head is of. */
struct picked {
    size_t n;
    const int32_t *targets; /* (n) */
    void *dlogp;            /* (n), of the backward */
    int32_t *own;           /* memory of the two; NULL: it is all rows */
};

/* Rows with a target, to the front. */
static void gather (const train_decoder_t *m, void *to, const void *from,
                    size_t bytes)
{
    char *at = to;

    for (size_t n = 0; n < rows (m); n++)
        if (m->targets[n] >= 0) {
            memmove (at, (const char *)from + n * bytes, bytes);
            at += bytes;
        }
}

/* And back, with zeros between. */
static void spread (const train_decoder_t *m, const struct picked *p, void *x,
                    size_t bytes)
{
    const char *from;

    if (!p->own || !x)
        return;
    from = (char *)x + p->n * bytes;
    for (size_t n = rows (m); n-- > 0;) {
        char *at = (char *)x + n * bytes;

        if (m->targets[n] >= 0)
            memmove (at, from -= bytes, bytes);
        else
            memset (at, 0, bytes);
    }
}

static train_status_t pick (const train_decoder_t *m, const void *dlogp,
                            struct picked *p, train_error_t *err)
{
    size_t N = rows (m), real = m->kern->real_size;

    *p = (struct picked){N, m->targets, (void *)dlogp, NULL};
    for (size_t n = 0; n < N && !m->gpu; n++)
        p->n -= m->targets[n] < 0;
    if (p->n == N)
        return TRAIN_OK;
    /* reals first: they ask for more alignment */
    if (!(p->dlogp = malloc (N * (real + sizeof (*p->own)))))
        return err_set (err, TRAIN_ENOMEM, "no memory for %zu targets", N);
    p->own = (int32_t *)(void *)((char *)p->dlogp + N * real);
    p->targets = p->own;
    gather (m, p->own, m->targets, sizeof (*p->own));
    if (dlogp)
        gather (m, p->dlogp, dlogp, real);
    return TRAIN_OK;
}

static void drop (const struct picked *p)
{
    if (p->own)
        free (p->dlogp);
}

/* Of whole logits, which stay, or with [dlogp] become their gradient. */
static void of_logits (train_decoder_t *m, const struct picked *p, void *logp,
                       void *entropy, const void *dlogp)
{
    m->kern->logprob (ACT (logits), logp, entropy, p->targets, dlogp, p->n,
                      m->dims.V, m->inv_t, NULL);
}

static train_status_t picked_fwd (train_decoder_t *m, const struct picked *p,
                                  void *logp, void *entropy, train_error_t *err)
{
    const struct decoder_dims *d = &m->dims;

    if (p->own)
        gather (m, ACT (norm_f), ACT (norm_f), d->C * m->kern->elem_size);
    if (p->n == 0 || (!m->layout.whole && !logp))
        return TRAIN_OK;
    if (!m->layout.whole)
        return m->work->head_logprob (m, logp, entropy, NULL, NULL,
                                      head_weight (m), p->targets, NULL, p->n,
                                      m->inv_t, err);
    TRY (m->work->linear (m, ACT (logits), ACT (norm_f), head_weight (m), p->n,
                          d->C, d->V, err));
    if (logp)
        of_logits (m, p, logp, entropy, NULL);
    return TRAIN_OK;
}

/* [logp] NULL: what the backward makes is left to it. */
static train_status_t head_fwd (train_decoder_t *m, void *logp, void *entropy,
                                train_error_t *err)
{
    size_t real = m->kern->real_size;
    struct picked p;
    train_status_t status;

    TRY (pick (m, NULL, &p, err));
    status = picked_fwd (m, &p, logp, entropy, err);
    spread (m, &p, logp, real);
    spread (m, &p, logp ? entropy : NULL, real);
    drop (&p);
    return status;
}

train_status_t decoder_logps (train_decoder_t *m, void *logp, void *entropy,
                              double temperature, train_error_t *err)
{
    size_t last = m->dims.L + 1, head = decoder_head_unit (m);

    m->inv_t = 0;
    TRY (decoder_body (m, err));
    TRY (decoder_enter (m, last, false, err));
    decoder_last_norm (m);
    if (head != last)
        TRY (decoder_turn (m, last, head, false, err));
    m->inv_t = 1 / temperature;
    TRY (head_fwd (m, logp, entropy, err));
    return decoder_leave (m, head, false, err);
}

static train_status_t picked_bwd (train_decoder_t *m, const struct picked *p,
                                  void *logp, void *entropy, train_error_t *err)
{
    const struct decoder_dims *d = &m->dims;
    void *dw = d->lora.rank > 0
                   ? NULL
                   : decoder_grad (m, decoder_head_unit (m), m->head);

    if (p->n == 0)
        return TRAIN_OK;
    if (!m->layout.whole)
        return m->work->head_logprob (m, logp, entropy, ACT (tmp), dw,
                                      head_weight (m), p->targets, p->dlogp,
                                      p->n, m->inv_t, err);
    of_logits (m, p, logp, entropy, p->dlogp);
    TRY (m->work->linear_dx (m, ACT (tmp), ACT (logits), head_weight (m), p->n,
                             d->C, d->V, err));
    if (!dw)
        return TRAIN_OK;
    return m->work->linear_dw (m, dw, ACT (logits), ACT (norm_f), p->n, d->C,
                               d->V, err);
}

static train_status_t head_bwd (train_decoder_t *m, const void *dlogp,
                                void *logp, void *entropy, train_error_t *err)
{
    struct picked p;
    train_status_t status;

    TRY (pick (m, dlogp, &p, err));
    status = picked_bwd (m, &p, logp, entropy, err);
    spread (m, &p, ACT (tmp), m->dims.C * m->kern->elem_size);
    spread (m, &p, logp, m->kern->real_size);
    spread (m, &p, entropy, m->kern->real_size);
    drop (&p);
    return status;
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
