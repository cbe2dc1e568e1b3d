/* SPDX-License-Identifier: Apache-2.0
 * gpu_step.c - a training step of one GPU: what the update needs to know stays
 * there, and the host reads it when all is enqueued */
#include "config.h"

#include "gpu_step.h"

#include <math.h>
#include <stdlib.h>

#include "decoder_impl.h"
#include "err.h"
#include "optim.h"

#include "kernels/kernels.h"

/* Of the decoder's memory. */
struct numbers {
    double norm, sumsq, parts[KERN_SUMSQ_PARTS];
    float factor;
};

struct gpu_step {
    train_decoder_t *decoder;
    train_adamw_t *adamw;
    struct numbers *numbers;
    double *read; /* pinned: the norm */
    bool lend;
};

train_status_t gpu_step_create (train_decoder_t *m, train_adamw_t *adamw,
                                struct gpu_step **ret_step, train_error_t *err)
{
    struct gpu_step *s = calloc (1, sizeof (*s));
    train_status_t status;
    void *numbers = NULL, *read = NULL;

    if (!s)
        return err_set (err, TRAIN_ENOMEM, "no memory for a step");
    s->decoder = m;
    s->adamw = adamw;
    status = m->ops->alloc (m->device, sizeof (*s->numbers), &numbers, err);
    s->numbers = numbers;
    if (status == TRAIN_OK)
        status = m->ops->pin (m->device, sizeof (*s->read), &read, err);
    s->read = read;
    if (status != TRAIN_OK)
        gpu_step_destroy (s);
    else
        *ret_step = s;
    return status;
}

void gpu_step_destroy (struct gpu_step *s)
{
    if (!s)
        return;
    if (s->read)
        s->decoder->ops->unpin (s->read, sizeof (*s->read));
    s->decoder->ops->free (s->numbers);
    free (s);
}

void gpu_step_begin (struct gpu_step *s, int passes)
{
    s->lend = passes == 1;
    decoder_spend_grads (s->decoder, s->lend);
}

static void sumsq (struct gpu_step *s, double *ret, const float *x, size_t n)
{
#if HAVE_CUDA
    if (s->decoder->gpu) {
        kern_sumsq_f32_cuda (ret, s->numbers->parts, x, n, s->decoder->stream);
        return;
    }
#endif
    kern_sumsq_f32_host (ret, x, n, s->decoder->stream);
}

static void judge (struct gpu_step *s, double clip, double inv_scale)
{
    train_decoder_t *m = s->decoder;
    struct numbers *n = s->numbers;
    int before = m->ops->enter (m->device);

    sumsq (s, &n->sumsq, m->grads.t.data, m->grad_numel);
#if HAVE_CUDA
    if (m->gpu)
        kern_clip_factor_cuda (&n->factor, &n->norm, &n->sumsq, inv_scale, clip,
                               m->stream);
#endif
    if (!m->gpu)
        kern_clip_factor_host (&n->factor, &n->norm, &n->sumsq, inv_scale, clip,
                               NULL);
    m->ops->leave (before);
}

train_status_t gpu_step_end (struct gpu_step *s, double lr, double clip,
                             double inv_scale, struct gpu_step_report *ret,
                             train_error_t *err)
{
    train_decoder_t *m = s->decoder;
    double loss = 0;

    TRY (decoder_settle_grads (m, err));
    judge (s, clip, inv_scale);
    TRY (adamw_enqueue (s->adamw, &m->weights.t, &m->grads.t, lr,
                        &s->numbers->factor, m->stream, err));
    TRY (m->ops->copy (s->read, &s->numbers->norm, sizeof (*s->read), m->stream,
                       err));
    TRY (decoder_loss_read (m, &loss, err)); /* waits */
    *ret = (struct gpu_step_report){loss, *s->read, !isfinite (*s->read)};
    if (!ret->skipped)
        train_adamw_set_updates (s->adamw, train_adamw_updates (s->adamw) + 1);
    return TRAIN_OK;
}

/* Has it no gradient? Arrays that are not of what trains alone have zeros. */
static bool is_none (const train_decoder_t *m, size_t param)
{
    return m->grad_at && decoder_is_still (m, m->params[param].offset);
}

train_status_t gpu_step_sums (struct gpu_step *s, double *sums,
                              train_error_t *err)
{
    train_decoder_t *m = s->decoder;
    size_t bytes = m->n_params * sizeof (*sums);
    void *memory = NULL;
    double *there;
    train_status_t status = m->ops->alloc (m->device, bytes, &memory, err);
    int before;

    if (status != TRAIN_OK)
        return status;
    there = memory;
    before = m->ops->enter (m->device);
    for (size_t i = 0; i < m->n_params; i++)
        sumsq (s, &there[i],
               (const float *)m->grads.t.data
                   + decoder_grad_at (m, m->params[i].offset),
               is_none (m, i) ? 0 : m->params[i].count);
    m->ops->leave (before);
    status = m->ops->copy (sums, there, bytes, m->stream, err);
    if (status == TRAIN_OK)
        status = m->ops->sync (m->stream, err);
    m->ops->free (there);
    return status;
}
