/* SPDX-License-Identifier: Apache-2.0
 * gpu_step.c - a training step of one GPU: what the update needs to know stays
 * there, and the host reads it when all is enqueued */
#include "gpu_step.h"

#include <math.h>
#include <stdlib.h>

#include "decoder_impl.h"
#include "err.h"
#include "optim.h"

#include "kernels/kernels.h"

/* On the GPU, but for [read]. */
struct numbers {
    double norm, sumsq, parts[KERN_SUMSQ_PARTS];
    float factor;
};

struct gpu_step {
    train_decoder_t *decoder;
    train_adamw_t *adamw;
    struct numbers *numbers;
    double *read; /* pinned: the norm */
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

train_status_t gpu_step_begin (struct gpu_step *s, train_error_t *err)
{
    train_decoder_t *m = s->decoder;

    return m->ops->fill (m->device, m->grads.t.data, 0,
                         (size_t)train_tensor_bytes (&m->grads.t), m->stream,
                         err);
}

static void judge (struct gpu_step *s, double clip)
{
    train_decoder_t *m = s->decoder;
    struct numbers *n = s->numbers;
    int before = m->ops->enter (m->device);

    kern_sumsq_f32_cuda (&n->sumsq, n->parts, m->grads.t.data, m->numel,
                         m->stream);
    kern_clip_factor_cuda (&n->factor, &n->norm, &n->sumsq, 1, clip, m->stream);
    m->ops->leave (before);
}

train_status_t gpu_step_end (struct gpu_step *s, double lr, double clip,
                             struct gpu_step_report *ret, train_error_t *err)
{
    train_decoder_t *m = s->decoder;
    double loss = 0;

    judge (s, clip);
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
