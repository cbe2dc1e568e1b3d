/* SPDX-License-Identifier: Apache-2.0
 * fsdp_whole.c - shards to one rank's whole and back; gradients of nothing */
#include <stdio.h>
#include <stdlib.h>

#include "decoder_impl.h"
#include "err.h"
#include "fsdp_gpu.h"

/* Flat units between a shard and a whole, which is in the root's host memory.
 */
struct passage {
    struct fsdp *f;
    char *padded; /* of root, for the largest flat unit */
    char *part;   /* this rank's, where the shard is not where the group's
                   tensors are; or NULL */
    char *shard, *whole;
    int root;
};

static bool is_far (const struct fsdp *f, const DLTensor *shard)
{
    return f->gpu && shard->device.device_type != kDLCUDA;
}

static train_status_t open_passage (struct passage *p, struct fsdp *f,
                                    const DLTensor *shard,
                                    const DLTensor *whole, int root,
                                    train_error_t *err)
{
    size_t most = f->esize, all;
    void *data = NULL;

    *p = (struct passage){.f = f, .root = root, .shard = shard->data};
    for (size_t r = 0; r < f->n_flats; r++) {
        all = f->flats[r].plan->chunk * f->world * f->esize;
        most = all > most ? all : most;
    }
    if (is_far (f, shard)) {
        TRY (f->ops->alloc (f->device, most / f->world + f->esize, &data, err));
        p->part = data;
    }
    if (train_group_rank (f->group) != root)
        return TRAIN_OK;
    p->whole = whole->data;
    TRY (f->ops->alloc (f->device, most, &data, err));
    p->padded = data;
    return TRAIN_OK;
}

static void close_passage (const struct passage *p)
{
    p->f->ops->free (p->padded);
    p->f->ops->free (p->part);
}

static train_status_t views (const struct passage *p, size_t r,
                             train_tensor_t *part, train_tensor_t *all,
                             train_error_t *err)
{
    const struct fsdp *f = p->f;
    const train_shard_unit_t *plan = f->flats[r].plan;

    TRY (fsdp_view (f, part, p->part ? p->part : p->shard + plan->at * f->esize,
                    f->dtype, plan->chunk, err));
    if (!p->padded)
        return TRAIN_OK;
    return fsdp_view (f, all, p->padded, f->dtype, plan->chunk * f->world, err);
}

static train_status_t give_unit (const struct passage *p, size_t r, size_t at,
                                 train_error_t *err)
{
    const struct fsdp *f = p->f;
    const train_shard_unit_t *plan = f->flats[r].plan;
    train_tensor_t part, all;

    if (p->part)
        TRY (fsdp_copy (f, p->part, p->shard + plan->at * f->esize,
                        plan->chunk * f->esize, err));
    TRY (views (p, r, &part, &all, err));
    TRY (train_gather (f->group, &part.t, p->padded ? &all.t : NULL, p->root,
                       err));
    if (!p->padded)
        return TRAIN_OK;
    return fsdp_copy (f, p->whole + at * f->esize, p->padded,
                      plan->count * f->esize, err);
}

static train_status_t take_unit (const struct passage *p, size_t r, size_t at,
                                 train_error_t *err)
{
    const struct fsdp *f = p->f;
    const train_shard_unit_t *plan = f->flats[r].plan;
    size_t bytes = plan->count * f->esize;
    train_tensor_t part, all;

    TRY (views (p, r, &part, &all, err));
    if (p->padded) {
        TRY (fsdp_clear (f, p->padded + bytes,
                         plan->chunk * f->world * f->esize - bytes, err));
        TRY (fsdp_copy (f, p->padded, p->whole + at * f->esize, bytes, err));
    }
    TRY (train_scatter (f->group, p->padded ? &all.t : NULL, &part.t, p->root,
                        err));
    if (!p->part)
        return TRAIN_OK;
    return fsdp_copy (f, p->shard + plan->at * f->esize, p->part,
                      plan->chunk * f->esize, err);
}

static train_status_t pass_units (struct fsdp *f, const DLTensor *shard,
                                  const DLTensor *whole, int root,
                                  train_status_t (*one) (const struct passage *,
                                                         size_t, size_t,
                                                         train_error_t *),
                                  train_error_t *err)
{
    struct passage p;
    size_t at = 0;
    train_status_t status = open_passage (&p, f, shard, whole, root, err);

    for (size_t r = 0; r < f->n_flats && status == TRAIN_OK; r++) {
        if (f->flats[r].plan->chunk)
            status = one (&p, r, at, err);
        at += f->flats[r].plan->count;
    }
    close_passage (&p);
    return status;
}

/* A replica's arena and the whole, either way. */
static train_status_t copy_whole (struct fsdp *f, const DLTensor *to,
                                  const DLTensor *from, int root,
                                  train_error_t *err)
{
    if (train_group_rank (f->group) != root || to->data == from->data)
        return TRAIN_OK;
    return fsdp_copy (f, to->data, from->data,
                      (size_t)train_tensor_bytes (from), err);
}

/* To all replicas; on a GPU by way of the memory that gradients have. */
static train_status_t spread (struct fsdp *f, DLTensor *shard, int root,
                              train_error_t *err)
{
    size_t bytes = (size_t)train_tensor_bytes (shard);

    if (!is_far (f, shard))
        return train_broadcast (f->group, shard, root, err);
    TRY (fsdp_copy (f, f->grads.t.data, shard->data, bytes, err));
    TRY (train_broadcast (f->group, &f->grads.t, root, err));
    return fsdp_copy (f, shard->data, f->grads.t.data, bytes, err);
}

static train_status_t check_whole (const struct fsdp *f, const DLTensor *shard,
                                   train_error_t *err)
{
    size_t n = (size_t)train_tensor_numel (shard);
    train_dtype_t dtype = f->dtype;

    train_dtype_of (shard->dtype, &dtype, NULL);
    if (n == train_shard_size (f->plan) && dtype == f->dtype)
        return TRAIN_OK;
    return err_set (err, TRAIN_EINVAL,
                    "fsdp: a shard of %zu elements of %s, and this one has %zu "
                    "of %s: what is frozen has no masters",
                    train_shard_size (f->plan), train_dtype_name (f->dtype), n,
                    train_dtype_name (dtype));
}

train_status_t fsdp_give (struct fsdp *f, const DLTensor *shard,
                          DLTensor *whole, int root, train_error_t *err)
{
    TRY (check_whole (f, shard, err));
    if (f->sharded)
        return pass_units (f, shard, whole, root, give_unit, err);
    return copy_whole (f, whole, shard, root, err);
}

train_status_t fsdp_take (struct fsdp *f, DLTensor *shard,
                          const DLTensor *whole, int root, train_error_t *err)
{
    TRY (check_whole (f, shard, err));
    if (f->sharded)
        return pass_units (f, shard, whole, root, take_unit, err);
    TRY (copy_whole (f, shard, whole, root, err));
    return spread (f, shard, root, err);
}

static void host_sumsq (const struct fsdp *f, size_t param, double *ret)
{
    train_shard_range_t r = fsdp_grad_range (f, param);

    if (f->dtype == TRAIN_F64)
        kern_sumsq_f64_host (ret, (double *)f->grads.t.data + r.at, r.count,
                             NULL);
    else
        kern_sumsq_f32_host (ret, (float *)f->grads.t.data + r.at, r.count,
                             NULL);
}

/* Of each parameter's part here, [sums] of where the gradients are. */
static train_status_t param_sums (struct fsdp *f, double *sums, size_t n,
                                  train_error_t *err)
{
    int before;

    TRY (fsdp_clear (f, sums, n * sizeof (*sums), err));
    before = f->ops->enter (f->device);
    for (size_t i = 0; i < n; i++) {
        train_shard_range_t r = fsdp_grad_range (f, i);

        if (r.count == 0)
            continue;
        if (!f->gpu)
            host_sumsq (f, i, &sums[i]);
        else
            f->ops->flat->sumsq (&sums[i], f->on->numbers->parts,
                                 (float *)f->grads.t.data + r.at, r.count,
                                 f->stream);
    }
    f->ops->leave (before);
    return f->ops->sync (f->stream, err);
}

static void name_zeros (const struct fsdp *f, const double *sums, char *text,
                        size_t size)
{
    size_t used = 0;

    text[0] = '\0';
    for (size_t i = 0; i < train_shard_n_params (f->plan); i++) {
        const train_shard_param_t *p = train_shard_param (f->plan, i);

        if (f->frozen[i] || decoder_waits (p->name))
            continue;
        if (sums[i] == 0 && p->count > 0 && used < size)
            used += (size_t)snprintf (text + used, size - used, "%s%s",
                                      used ? ", " : "", p->name);
    }
}

/* Sums over all ranks, for the host. */
static train_status_t sum_params (struct fsdp *f, double *ret, double *sums,
                                  size_t n, train_error_t *err)
{
    train_tensor_t t;

    TRY (param_sums (f, sums, n, err));
    TRY (fsdp_view (f, &t, sums, TRAIN_F64, n, err));
    TRY (train_all_reduce (f->group, &t.t, TRAIN_SUM, err));
    return fsdp_copy (f, ret, sums, n * sizeof (*ret), err);
}

train_status_t fsdp_unused (struct fsdp *f, char *text, size_t size,
                            train_error_t *err)
{
    size_t n = train_shard_n_params (f->plan);
    double *sums = calloc (n ? n : 1, sizeof (*sums));
    void *there = NULL;
    train_status_t status;

    if (!sums)
        return err_set (err, TRAIN_ENOMEM, "no memory for %zu sums", n);
    status =
        f->ops->alloc (f->device, (n ? n : 1) * sizeof (*sums), &there, err);
    if (status == TRAIN_OK)
        status = sum_params (f, sums, there, n, err);
    if (status == TRAIN_OK)
        name_zeros (f, sums, text, size);
    f->ops->free (there);
    free (sums);
    return status;
}
