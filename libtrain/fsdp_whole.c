/* SPDX-License-Identifier: Apache-2.0
 * fsdp_whole.c - shards to one rank's whole and back; gradients of nothing */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "err.h"
#include "fsdp_impl.h"
#include "kernels/kernels.h"

/* A flat unit between a shard and a whole. */
struct passage {
    struct fsdp *f;
    char *padded; /* of root, for the largest flat unit */
    char *shard, *whole;
    int root;
};

static train_status_t open_passage (struct passage *p, struct fsdp *f,
                                    const DLTensor *shard,
                                    const DLTensor *whole, int root,
                                    train_error_t *err)
{
    size_t most = 1;

    *p = (struct passage){.f = f, .root = root, .shard = shard->data};
    if (train_group_rank (f->group) != root)
        return TRAIN_OK;
    p->whole = whole->data;
    for (size_t u = 0; u < f->n_units; u++)
        if (fsdp_whole_bytes (f, u) > most)
            most = fsdp_whole_bytes (f, u);
    if (!(p->padded = calloc (1, most)))
        return err_set (err, TRAIN_ENOMEM, "no memory for a whole unit");
    return TRAIN_OK;
}

static train_status_t views (const struct passage *p, size_t u,
                             train_tensor_t *part, train_tensor_t *all,
                             train_error_t *err)
{
    const struct fsdp *f = p->f;
    const train_shard_unit_t *plan = f->units[u].plan;

    TRY (fsdp_view (f, part, p->shard + plan->at * f->esize, f->dtype,
                    plan->chunk, err));
    if (!p->padded)
        return TRAIN_OK;
    return fsdp_view (f, all, p->padded, f->dtype, plan->chunk * f->world, err);
}

static train_status_t give_unit (const struct passage *p, size_t u, size_t at,
                                 train_error_t *err)
{
    const struct fsdp *f = p->f;
    train_tensor_t part, all;

    TRY (views (p, u, &part, &all, err));
    TRY (train_gather (f->group, &part.t, p->padded ? &all.t : NULL, p->root,
                       err));
    if (p->padded)
        memcpy (p->whole + at * f->esize, p->padded,
                f->units[u].plan->count * f->esize);
    return TRAIN_OK;
}

static train_status_t take_unit (const struct passage *p, size_t u, size_t at,
                                 train_error_t *err)
{
    const struct fsdp *f = p->f;
    size_t bytes = f->units[u].plan->count * f->esize;
    train_tensor_t part, all;

    TRY (views (p, u, &part, &all, err));
    if (p->padded) {
        memcpy (p->padded, p->whole + at * f->esize, bytes);
        memset (p->padded + bytes, 0, fsdp_whole_bytes (f, u) - bytes);
    }
    return train_scatter (f->group, p->padded ? &all.t : NULL, &part.t, p->root,
                          err);
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

    for (size_t u = 0; u < f->n_units && status == TRAIN_OK; u++) {
        if (f->units[u].plan->chunk)
            status = one (&p, u, at, err);
        at += f->units[u].plan->count;
    }
    free (p.padded);
    return status;
}

train_status_t fsdp_give (struct fsdp *f, const DLTensor *shard,
                          DLTensor *whole, int root, train_error_t *err)
{
    if (f->sharded)
        return pass_units (f, shard, whole, root, give_unit, err);
    if (train_group_rank (f->group) == root && whole->data != shard->data)
        memcpy (whole->data, shard->data, train_tensor_bytes (shard));
    return TRAIN_OK;
}

train_status_t fsdp_take (struct fsdp *f, DLTensor *shard,
                          const DLTensor *whole, int root, train_error_t *err)
{
    if (f->sharded)
        return pass_units (f, shard, whole, root, take_unit, err);
    if (train_group_rank (f->group) == root && whole->data != shard->data)
        memcpy (shard->data, whole->data, train_tensor_bytes (shard));
    return train_broadcast (f->group, shard, root, err);
}

static double param_sumsq (const struct fsdp *f, size_t param)
{
    train_shard_range_t r = train_shard_range (f->plan, param, f->rank);
    double sum = 0;

    if (r.count == 0)
        return 0;
    if (f->dtype == TRAIN_F64)
        kern_sumsq_f64_host (&sum, (double *)f->grads.t.data + r.at, r.count,
                             NULL);
    else
        kern_sumsq_f32_host (&sum, (float *)f->grads.t.data + r.at, r.count,
                             NULL);
    return sum;
}

static void name_zeros (const struct fsdp *f, const double *sums, char *text,
                        size_t size)
{
    size_t used = 0;

    text[0] = '\0';
    for (size_t i = 0; i < train_shard_n_params (f->plan); i++) {
        const train_shard_param_t *p = train_shard_param (f->plan, i);

        if (f->frozen && f->frozen[i])
            continue;
        if (sums[i] == 0 && p->count > 0 && used < size)
            used += (size_t)snprintf (text + used, size - used, "%s%s",
                                      used ? ", " : "", p->name);
    }
}

train_status_t fsdp_unused (struct fsdp *f, char *text, size_t size,
                            train_error_t *err)
{
    size_t n = train_shard_n_params (f->plan);
    double *sums = calloc (n ? n : 1, sizeof (*sums));
    train_tensor_t t;
    train_status_t status;

    if (!sums)
        return err_set (err, TRAIN_ENOMEM, "no memory for %zu sums", n);
    for (size_t i = 0; i < n; i++)
        sums[i] = param_sumsq (f, i);
    status = fsdp_view (f, &t, sums, TRAIN_F64, n, err);
    if (status == TRAIN_OK)
        status = train_all_reduce (f->group, &t.t, TRAIN_SUM, err);
    if (status == TRAIN_OK)
        name_zeros (f, sums, text, size);
    free (sums);
    return status;
}
