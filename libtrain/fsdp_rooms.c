/* SPDX-License-Identifier: Apache-2.0
 * fsdp_rooms.c - room for what is whole for a while: gathered weights,
 * gradients before they are reduced
 *
 * Stays come in one order and go in the other, so a place that fits a stay's
 * neighbours fits both passes. Two stays in one flat unit may have two places:
 * it is let go between them. */
#include <stdlib.h>

#include "err.h"
#include "fsdp_fit.h"
#include "fsdp_impl.h"

/* Places of the stays, their elements to [ret_at]; returns the total. [grads]:
 * of their gradients, else of their weights. */
static size_t fit (const struct fsdp *f, bool grads, size_t ahead, size_t *size,
                   size_t *ret_at)
{
    for (size_t i = 0; i < f->n_stays; i++) {
        const struct fsdp_unit *u = &f->units[f->stays[i].unit];

        size[i] = grads ? u->room : u->whole;
    }
    return fsdp_fit (size, f->n_stays, ahead, ret_at);
}

/* Each flat unit has its own place. */
static size_t fit_each (const struct fsdp *f, size_t *size, size_t *ret_at)
{
    size_t n = f->n_units, total;

    for (size_t u = 0; u < n; u++)
        size[u] = f->units[u].whole;
    total = fsdp_fit (size, n, n, size);
    for (size_t i = 0; i < f->n_stays; i++)
        ret_at[i] = size[f->stays[i].unit];
    return total;
}

static train_status_t make_slots (struct fsdp *f, size_t *size,
                                  train_error_t *err)
{
    size_t ahead = (size_t)f->opts.prefetch, total;

    f->one_each =
        f->opts.strategy != TRAIN_FULL_SHARD || ahead + 1 >= f->n_units;
    f->n_slots = f->one_each ? f->n_units : ahead + 1;
    f->slot_taken = calloc (f->n_slots, sizeof (*f->slot_taken));
    if (!f->slot_taken)
        return err_set (err, TRAIN_ENOMEM, "no memory for %zu slots",
                        f->n_slots);
    total = f->one_each ? fit_each (f, size, f->slot_at)
                        : fit (f, false, ahead, size, f->slot_at);
    return fsdp_alloc (f, &f->slots, total * f->wsize, "gathered units", err);
}

/* Two stays' gradients, and the same as they are on the wire. */
static train_status_t make_pair (struct fsdp *f, size_t *size,
                                 train_error_t *err)
{
    size_t total = fit (f, true, 1, size, f->room_at);

    TRY (fsdp_alloc (f, &f->rooms, total * f->esize, "units' gradients", err));
    if (f->opts.reduce == f->dtype)
        return TRAIN_OK;
    return fsdp_alloc (f, &f->wires, total * train_dtype_size (f->opts.reduce),
                       "gradients on the wire", err);
}

/* no_sync: all are whole until the last pass; two are on the wire. */
static train_status_t make_kept (struct fsdp *f, train_error_t *err)
{
    size_t most = 0;

    for (size_t u = 0; u < f->n_units; u++) {
        most = f->units[u].room > most ? f->units[u].room : most;
        f->kept_bytes += fsdp_whole_bytes (f, u);
    }
    TRY (fsdp_alloc (f, &f->kept, f->kept_bytes, "gradients of all passes",
                     err));
    if (f->opts.reduce == f->dtype)
        return TRAIN_OK;
    most *= train_dtype_size (f->opts.reduce);
    TRY (fsdp_alloc (f, &f->wires, FSDP_N_GRADS * most, "gradients on the wire",
                     err));
    for (size_t i = 0; i < FSDP_N_GRADS; i++)
        f->room[i].wire = f->wires + i * most;
    return TRAIN_OK;
}

train_status_t fsdp_rooms_make (struct fsdp *f, train_error_t *err)
{
    size_t n = f->n_stays > f->n_units ? f->n_stays : f->n_units;
    size_t *size = calloc (n, sizeof (*size));
    train_status_t status;

    f->slot_at = calloc (f->n_stays, sizeof (*f->slot_at));
    f->room_at = calloc (f->n_stays, sizeof (*f->room_at));
    if (!size || !f->slot_at || !f->room_at) {
        free (size);
        return err_set (err, TRAIN_ENOMEM, "no memory for %zu stays", n);
    }
    status = make_slots (f, size, err);
    if (status == TRAIN_OK)
        status =
            f->opts.no_sync ? make_kept (f, err) : make_pair (f, size, err);
    free (size);
    return status;
}

void fsdp_rooms_free (struct fsdp *f)
{
    f->ops->free (f->slots);
    f->ops->free (f->rooms);
    f->ops->free (f->wires);
    f->ops->free (f->kept);
    free (f->slot_taken);
    free (f->slot_at);
    free (f->room_at);
}
