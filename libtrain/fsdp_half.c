/* SPDX-License-Identifier: Apache-2.0
 * fsdp_half.c - weights that are shorter than their masters, and memory of
 * either place */
#include "fsdp_impl.h"

#include "err.h"
#include "optim.h"

void fsdp_cast (const struct fsdp *f, void *dst, train_dtype_t to,
                const void *src, train_dtype_t from, size_t n, void *stream)
{
    int before = f->ops->enter (f->device);

    backend_cast (f->ops, dst, to, src, from, n, stream);
    f->ops->leave (before);
}

train_status_t fsdp_clear (const struct fsdp *f, void *data, size_t bytes,
                           train_error_t *err)
{
    return f->ops->fill (f->device, data, 0, bytes, f->stream, err);
}

train_status_t fsdp_copy (const struct fsdp *f, void *dst, const void *src,
                          size_t bytes, train_error_t *err)
{
    TRY (f->ops->copy (dst, src, bytes, f->stream, err));
    return f->ops->sync (f->stream, err);
}

bool fsdp_in_place (const struct fsdp *f, size_t r)
{
    return f->brings || (f->late && !f->flats[r].plan->still);
}

train_status_t fsdp_fill_block (const struct fsdp *f, size_t r, void *to,
                                void *stream, train_error_t *err)
{
    const train_shard_unit_t *plan = f->flats[r].plan;

    if (f->brings)
        return f->ops->copy (to, fsdp_block (f, r), plan->chunk * f->wsize,
                             stream, err);
    if (f->late && !plan->still)
        fsdp_cast (f, to, f->wdtype,
                   (const char *)f->weights.t.data + plan->at * f->esize,
                   f->dtype, plan->chunk, stream);
    return TRAIN_OK;
}

unsigned fsdp_far (const struct fsdp *f)
{
    if (!f->brings)
        return 0;
    return f->wdtype == TRAIN_BF16  ? ADAMW_FAR_BF16
           : f->wdtype == TRAIN_F16 ? ADAMW_FAR_F16
                                    : ADAMW_FAR_F32;
}

void fsdp_updated (struct fsdp *f)
{
    if (f->low)
        fsdp_cast (f, f->low, f->wdtype, f->weights.t.data, f->dtype,
                   train_shard_moving (f->plan), f->stream);
}

void fsdp_round (struct fsdp *f, train_adamw_t *adamw)
{
    if (f->low && f->wdtype == TRAIN_BF16)
        adamw_round (adamw, f->weights.t.data, f->low, f->stream);
}

void fsdp_widen (struct fsdp *f)
{
    if (f->low)
        fsdp_cast (f, f->weights.t.data, f->dtype, f->low, f->wdtype,
                   train_shard_size (f->plan), f->stream);
}
