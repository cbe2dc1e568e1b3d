/* SPDX-License-Identifier: Apache-2.0
 * copy_batch.c - many small tensors as one string of bytes: two lists of
 * pieces, which the kernels of both ends read */
#include "copy_impl.h"

#include "err.h"
#include "opts.h"

#define ALIGN 16 /* of a piece on the wire, so that 16 bytes go at a time */

static train_status_t check_pair (const DLTensor *dst, const DLTensor *src,
                                  size_t i, train_error_t *err)
{
    train_dtype_t to, from;
    const DLTensor *both[] = {dst, src};

    for (int k = 0; k < 2; k++) {
        const DLTensor *t = both[k];

        if (!t || t->ndim < 0 || (t->ndim > 0 && !t->shape)
            || !train_tensor_is_compact (t)
            || (!t->data && train_tensor_numel (t) != 0))
            return err_set (err, TRAIN_EINVAL,
                            "copy: %s %zu of the batch is not compact",
                            k ? "source" : "destination", i);
    }
    TRY (train_dtype_of (dst->dtype, &to, err));
    TRY (train_dtype_of (src->dtype, &from, err));
    if (to != from || train_tensor_numel (dst) != train_tensor_numel (src))
        return err_set (err, TRAIN_EINVAL,
                        "copy: types or sizes of pair %zu of the batch differ",
                        i);
    return TRAIN_OK;
}

/* One device for all tensors of an end. */
static train_status_t check_device (const DLTensor *t, const DLTensor *first,
                                    size_t i, train_error_t *err)
{
    if (t->device.device_type == first->device.device_type
        && t->device.device_id == first->device.device_id)
        return TRAIN_OK;
    return err_set (err, TRAIN_EINVAL,
                    "copy: tensor %zu of the batch is on another device than "
                    "the first",
                    i);
}

/* Adds the pieces of one pair; none crosses the end of a chunk. */
static train_status_t add_pair (struct train_copy *job, DLTensor *dst,
                                const DLTensor *src, train_error_t *err)
{
    struct kern_piece *d = copier_pieces (job->copier, job->table, true);
    struct kern_piece *s = copier_pieces (job->copier, job->table, false);
    uint64_t chunk = job->copier->chunk, bytes = train_tensor_bytes (src);
    char *to = (char *)dst->data + dst->byte_offset;
    char *from = (char *)src->data + src->byte_offset;

    for (uint64_t done = 0; done < bytes;) {
        uint64_t room = chunk - job->bytes % chunk, n = bytes - done;

        n = n < room ? n : room;
        if (job->n_pieces == COPY_PIECES)
            return err_set (err, TRAIN_EINVAL,
                            "copy: the batch has more than %d pieces; give "
                            "large tensors by themselves",
                            COPY_PIECES);
        s[job->n_pieces] = (struct kern_piece){from + done, job->bytes, n};
        d[job->n_pieces] = (struct kern_piece){to + done, job->bytes, n};
        job->n_pieces++;
        job->bytes += (n + ALIGN - 1) / ALIGN * ALIGN;
        done += n;
    }
    return TRAIN_OK;
}

static train_status_t take_table (struct train_copy *job, train_error_t *err)
{
    for (int i = 0; i < COPY_TABLES; i++) {
        if (job->copier->table_used[i])
            continue;
        job->table = i;
        job->copier->table_used[i] = true;
        return TRAIN_OK;
    }
    return err_set (err, TRAIN_ESTATE,
                    "copy: %d batches are under way; wait for one of them",
                    COPY_TABLES);
}

static train_status_t fill_job (struct train_copy *job, DLTensor *const *dst,
                                const DLTensor *const *src, size_t n,
                                const train_copy_options_t *opts,
                                train_error_t *err)
{
    train_copy_options_t o;

    for (size_t i = 0; i < n; i++) {
        TRY (check_pair (dst[i], src[i], i, err));
        TRY (check_device (dst[i], dst[0], i, err));
        TRY (check_device (src[i], src[0], i, err));
        TRY (add_pair (job, dst[i], src[i], err));
    }
    TRY (copy_device (job->copier, dst[0], "the destination", &job->dst, err));
    TRY (copy_device (job->copier, src[0], "the source", &job->src, err));
    job->dst.pieces = copier_pieces (job->copier, job->table, true);
    job->src.pieces = copier_pieces (job->copier, job->table, false);
    job->dst.view.wire_size = job->src.view.wire_size = 1;
    TRY (opts_read (&o, sizeof (o), opts, "copy", err));
    if (o.count_nonfinite)
        return err_set (err, TRAIN_ENOTSUP,
                        "copy: NaN are not counted in a batch");
    return copy_options (job, &o, err);
}

train_status_t train_copy_batch_start (
    train_copier_t *copier, DLTensor *const *dst, train_stream_t dst_stream,
    const DLTensor *const *src, train_stream_t src_stream, size_t n,
    const train_copy_options_t *opts, train_copy_t **ret_copy,
    train_error_t *err)
{
    struct train_copy *job = NULL;
    train_status_t status;

    if (!copier || !ret_copy || n == 0 || n > COPY_BATCH || !dst || !src)
        return err_set (err, TRAIN_EINVAL,
                        "copy: a batch is of 1 to %d tensors, with a handle",
                        COPY_BATCH);
    pthread_mutex_lock (&copier->lock);
    job = copy_take (copier, err);
    status = job ? take_table (job, err) : TRAIN_ESTATE;
    if (status == TRAIN_OK)
        status = fill_job (job, dst, src, n, opts, err);
    if (status == TRAIN_OK)
        status = copy_submit (job, dst_stream, src_stream, false, err);
    if (status == TRAIN_OK)
        *ret_copy = job;
    else if (job && job->table >= 0)
        copier->table_used[job->table] = false;
    pthread_mutex_unlock (&copier->lock);
    return status;
}
