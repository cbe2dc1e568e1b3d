/* SPDX-License-Identifier: Apache-2.0
 * fsdp_finish.c - the end of a step on a GPU: norm, clipping, update and what
 * the ranks sum, enqueued; then the one wait */
#include <math.h>
#include <string.h>

#include "err.h"
#include "fsdp_gpu.h"
#include "optim.h"

/* [n] numbers of the GPU, of all ranks, in the order of the passes. */
static train_status_t sum_up (struct fsdp *f, double *x, size_t n,
                              train_error_t *err)
{
    train_tensor_t t;

    TRY (fsdp_view (f, &t, x, TRAIN_F64, n, err));
    TRY (f->way->sum (f, &t.t, &f->whole, err));
    return f->way->wait (f, &f->whole, err);
}

/* Replicas have the whole gradient, each of them. */
static train_status_t judge (struct fsdp *f, double clip, double inv_scale,
                             train_error_t *err)
{
    struct fsdp_numbers *n = f->on->numbers;
    int before = f->ops->enter (f->device);

    f->ops->flat->sumsq (&n->sumsq, n->parts, f->grads.t.data,
                         (size_t)train_tensor_numel (&f->grads.t), f->stream);
    f->ops->leave (before);
    if (f->sharded)
        TRY (sum_up (f, &n->sumsq, 1, err));
    before = f->ops->enter (f->device);
    f->ops->flat->clip_factor (&n->factor, &n->norm, &n->sumsq, inv_scale, clip,
                               f->stream);
    f->ops->leave (before);
    return TRAIN_OK;
}

/* The kernel writes a copy of BF16 itself; of what is offloaded AdamW does any. */
static train_status_t update (struct fsdp *f, train_adamw_t *adamw, double lr,
                              train_error_t *err)
{
    bool there = f->low && (f->brings || f->wdtype == TRAIN_BF16);

    if (train_adamw_masters (adamw))
        return adamw_enqueue (adamw, &f->weights.t, &f->grads.t, lr,
                              &f->on->numbers->factor, f->stream, err);

    TRY (adamw_enqueue_copy (adamw, &f->weights.t, there ? f->low : NULL,
                             &f->grads.t, lr, &f->on->numbers->factor,
                             f->stream, err));
    if (f->low && !there)
        fsdp_cast (f, f->low, f->wdtype, f->weights.t.data, f->dtype,
                   train_shard_moving (f->plan), f->stream);
    return TRAIN_OK;
}

static train_status_t sum_own (struct fsdp *f, const double *own, size_t n,
                               train_error_t *err)
{
    struct fsdp_numbers *at = f->on->numbers;
    struct fsdp_read *read = f->on->read;

    if (n)
        memcpy (read->own, own, n * sizeof (*own));
    TRY (fsdp_clear (f, at->sums, sizeof (at->sums), err));
    if (f->loss) {
        TRY (f->ops->copy (at->sums, f->loss, sizeof (*f->loss), f->stream,
                           err));
        TRY (fsdp_clear (f, f->loss, sizeof (*f->loss), err));
    }
    TRY (f->ops->copy (at->sums + 1, read->own, n * sizeof (*own), f->stream,
                       err));
    TRY (sum_up (f, at->sums, n + 1, err));
    TRY (f->ops->copy (read->sums, at->sums, sizeof (read->sums), f->stream,
                       err));
    return f->ops->copy (&read->norm, &at->norm, sizeof (read->norm), f->stream,
                         err);
}

static train_status_t close_step (struct fsdp *f, train_error_t *err)
{
    TRY (fsdp_settle (f, err));
    f->on->step = false;
    return train_step_end (f->group, err);
}

train_status_t fsdp_stop (struct fsdp *f, train_error_t *err)
{
    TRY (fsdp_end (f, err));
    return f->on && f->on->step ? close_step (f, err) : TRAIN_OK;
}

train_status_t fsdp_finish (struct fsdp *f, train_adamw_t *adamw,
                            const struct fsdp_update *o, const double *own,
                            size_t n, struct fsdp_report *ret,
                            train_error_t *err)
{
    if (!f->on || !f->on->step || n > FSDP_SUMS)
        return err_set (err, TRAIN_ESTATE,
                        "fsdp: no step is open on a GPU, or %zu numbers are "
                        "more than %d",
                        n, FSDP_SUMS);
    TRY (fsdp_end (f, err));
    TRY (judge (f, o->clip, o->inv_scale, err));
    TRY (update (f, adamw, o->lr, err));
    TRY (sum_own (f, own, n, err));
    TRY (close_step (f, err));
    ret->loss = f->on->read->sums[0];
    ret->norm = f->on->read->norm;
    ret->skipped = !isfinite (ret->norm);
    if (n)
        memcpy (ret->sums, f->on->read->sums + 1, n * sizeof (*ret->sums));
    if (!ret->skipped)
        train_adamw_set_updates (adamw, train_adamw_updates (adamw) + 1);
    return TRAIN_OK;
}
