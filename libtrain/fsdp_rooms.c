/* SPDX-License-Identifier: Apache-2.0
 * fsdp_rooms.c - room for what is whole for a while: gathered weights,
 * gradients before they are reduced
 *
 * Both are in one memory, where each stay's have places of their own: two stays in
 * one flat unit may have two, for it is let go between them. */
#include <stdlib.h>

#include "err.h"
#include "fsdp_fit.h"
#include "fsdp_impl.h"

/* Bytes of the stays' weights and gradients; with no_sync gradients are not of
 * one stay. */
static void size_stays (const struct fsdp *f, size_t *weights, size_t *grads)
{
    for (size_t i = 0; i < f->n_stays; i++) {
        size_t u = f->stays[i].unit;

        weights[i] = f->units[u].whole * f->wsize;
        grads[i] = f->opts.no_sync ? 0 : fsdp_whole_bytes (f, u);
    }
}

/* Weights of each bundle have their own place; behind them are gradients. */
static size_t fit_each (struct fsdp *f, size_t *size, const size_t *grads)
{
    size_t n = f->n_units, total;

    for (size_t u = 0; u < n; u++)
        size[u] = f->units[u].whole * f->wsize;
    total = fsdp_fit (size, n, n, size);
    for (size_t i = 0; i < f->n_stays; i++)
        f->forth_at[i] = f->back_at[i] = size[f->stays[i].unit];
    n = fsdp_fit (grads, f->n_stays, 1, f->grads_at);
    for (size_t i = 0; i < f->n_stays; i++)
        f->grads_at[i] += total;
    return total + n;
}

static size_t fit_pass (struct fsdp *f, const size_t *weights,
                        const size_t *grads)
{
    const struct fsdp_pass pass = {.weights = weights,
                                   .grads = grads,
                                   .n = f->n_stays,
                                   .ahead = (size_t)f->opts.prefetch,
                                   .bare = f->bare,
                                   .behind = f->gpu};

    return fsdp_fit_pass (&pass, f->forth_at, f->back_at, f->grads_at);
}

static train_status_t make_rooms (struct fsdp *f, size_t *weights,
                                  size_t *grads, train_error_t *err)
{
    size_t total;

    f->one_each = f->opts.strategy != TRAIN_FULL_SHARD
                  || (size_t)f->opts.prefetch + 1 >= f->n_units;
    size_stays (f, weights, grads);
    total = f->one_each ? fit_each (f, weights, grads)
                        : fit_pass (f, weights, grads);
    if (total == 0)
        return err_set (err, TRAIN_ENOMEM, "no memory for places of %zu stays",
                        f->n_stays);
    return fsdp_alloc (f, &f->rooms, total, "whole units", err);
}

/* no_sync: all are whole until the last pass. */
static train_status_t make_kept (struct fsdp *f, train_error_t *err)
{
    for (size_t u = 0; u < f->n_units; u++)
        f->kept_bytes += fsdp_whole_bytes (f, u);
    return fsdp_alloc (f, &f->kept, f->kept_bytes, "gradients of all passes",
                       err);
}

/* Two stays' gradients as they are on the wire; of kept ones any two. */
static train_status_t make_wires (struct fsdp *f, size_t *size,
                                  train_error_t *err)
{
    size_t bytes = train_dtype_size (f->opts.reduce), most = 0, total;

    for (size_t i = 0; i < f->n_stays; i++) {
        size[i] = f->units[f->stays[i].unit].room;
        most = size[i] > most ? size[i] : most;
    }
    total = f->opts.no_sync ? FSDP_N_GRADS * most
                            : fsdp_fit (size, f->n_stays, 1, f->wire_at);
    TRY (
        fsdp_alloc (f, &f->wires, total * bytes, "gradients on the wire", err));
    for (size_t i = 0; f->opts.no_sync && i < FSDP_N_GRADS; i++)
        f->room[i].wire = f->wires + i * most * bytes;
    return TRAIN_OK;
}

/* [size]: twice [n]. */
static train_status_t make_all (struct fsdp *f, size_t *size, size_t n,
                                train_error_t *err)
{
    TRY (make_rooms (f, size, size + n, err));
    if (f->opts.no_sync)
        TRY (make_kept (f, err));
    return f->opts.reduce == f->dtype ? TRAIN_OK : make_wires (f, size, err);
}

train_status_t fsdp_rooms_make (struct fsdp *f, train_error_t *err)
{
    size_t n = f->n_stays > f->n_units ? f->n_stays : f->n_units;
    size_t *size = calloc (2 * n, sizeof (*size));
    train_status_t status;

    f->forth_at = calloc (n, sizeof (*f->forth_at));
    f->back_at = calloc (n, sizeof (*f->back_at));
    f->grads_at = calloc (n, sizeof (*f->grads_at));
    f->wire_at = calloc (n, sizeof (*f->wire_at));
    if (!size || !f->forth_at || !f->back_at || !f->grads_at || !f->wire_at) {
        free (size);
        return err_set (err, TRAIN_ENOMEM, "no memory for %zu stays", n);
    }
    status = make_all (f, size, n, err);
    free (size);
    return status;
}

void fsdp_rooms_free (struct fsdp *f)
{
    f->ops->free (f->rooms);
    f->ops->free (f->wires);
    f->ops->free (f->kept);
    free (f->forth_at);
    free (f->back_at);
    free (f->grads_at);
    free (f->wire_at);
}
