/* SPDX-License-Identifier: Apache-2.0
 * fsdp_all.c - all of a sharded model on every rank for a while, between steps
 *
 * Passes whose number is not the same on all ranks, as where texts are written,
 * cannot gather as they go. */
#include "err.h"
#include "fsdp_impl.h"

#define ALIGN ((size_t)256)

/* Is there room for each unit in passes, which is as good? */
static bool has_slots (const struct fsdp *f)
{
    return f->one_each;
}

/* Kernels ask for weights that begin at whole lines. */
static size_t bytes_of (const struct fsdp *f, size_t u)
{
    size_t bytes = f->units[u].whole * f->wsize;

    return (bytes + ALIGN - 1) / ALIGN * ALIGN;
}

size_t fsdp_all_bytes (const struct fsdp *f)
{
    size_t n = 0;

    for (size_t u = 0; f->sharded && !has_slots (f) && u < f->n_units; u++)
        n += bytes_of (f, u);
    return n;
}

/* Every rank has the room, or none begins to gather. */
static train_status_t make_room (struct fsdp *f, train_group_t *group,
                                 train_error_t *err)
{
    train_status_t status =
        f->ops->alloc (f->device, fsdp_all_bytes (f), &f->all, err);
    int32_t worst = status;
    int64_t shape[1] = {1};
    train_tensor_t view;

    if (status != TRAIN_OK)
        err_prefix (err, status,
                    "fsdp: the whole model's weights, %zu bytes beside this "
                    "rank's shard of %zu elements, are needed between steps; "
                    "more memory, weights of fewer bits, or offload of "
                    "the optimizer would make room",
                    fsdp_all_bytes (f), train_shard_size (f->plan));
    TRY (train_tensor_view (&view, &worst, TRAIN_I32, 1, shape, err));
    TRY (train_all_reduce (group, &view.t, TRAIN_MAX, err));
    if (worst == TRAIN_OK || status != TRAIN_OK)
        return status;
    return err_set (err, (train_status_t)worst,
                    "fsdp: another rank has no room for the whole model");
}

/* This rank's block, of itself or in its place at [to]. */
static char *block (const struct fsdp *f, size_t r, char *to)
{
    return fsdp_in_place (f, r)
               ? to + (size_t)f->rank * f->flats[r].plan->chunk * f->wsize
               : fsdp_block (f, r);
}

/* Flat unit [r] to [to], behind the one before it. */
static train_status_t gather (struct fsdp *f, size_t r, char *to,
                              train_error_t *err)
{
    const train_shard_unit_t *plan = f->flats[r].plan;
    train_tensor_t in, out;

    if (plan->chunk == 0)
        return TRAIN_OK;
    if (fsdp_in_place (f, r)) {
        TRY (fsdp_fill_block (f, r, block (f, r, to), f->stream, err));
        TRY (f->ops->sync (f->stream, err));
    }
    TRY (fsdp_view (f, &in, block (f, r, to), f->wdtype, plan->chunk, err));
    TRY (fsdp_view (f, &out, to, f->wdtype, plan->chunk * f->world, err));
    return train_all_gather (f->group, &in.t, &out.t, err);
}

static train_status_t gather_all (struct fsdp *f, train_error_t *err)
{
    char *to = f->all;

    TRY (f->ops->sync (f->stream, err)); /* weights may be rounded there yet */
    for (size_t u = 0; u < f->n_units; u++) {
        f->units[u].weights = to;
        to += bytes_of (f, u);
        for (size_t r = f->units[u].first; r < f->units[u].end; r++)
            TRY (gather (f, r, f->units[u].weights + f->flats[r].at * f->wsize,
                         err));
    }
    return TRAIN_OK;
}

/* As passes do. */
static train_status_t fill_slots (struct fsdp *f, train_error_t *err)
{
    for (size_t i = 0; i < f->n_stays; i++)
        TRY (fsdp_gather (f, i, true, err));
    for (size_t u = 0; u < f->n_units; u++)
        TRY (fsdp_gather_wait (f, u, err));
    return fsdp_settle (f, err);
}

train_status_t fsdp_all (struct fsdp *f, train_group_t *group,
                         train_error_t *err)
{
    if (!f->sharded || f->all_on)
        return TRAIN_OK;
    if (f->phase != FSDP_IDLE)
        return err_set (err, TRAIN_ESTATE, "fsdp: within a pass");
    if (!has_slots (f))
        TRY (make_room (f, group, err));
    f->all_on = true;
    TRY (has_slots (f) ? fill_slots (f, err) : gather_all (f, err));
    for (size_t i = 0; i < f->n_visits; i++)
        f->set_unit (f->arg, f->visits[i],
                     f->units[f->stays[f->stay_of[i]].unit].weights
                         + f->offset_of[f->visits[i]] * f->wsize,
                     NULL);
    return TRAIN_OK;
}

void fsdp_all_end (struct fsdp *f)
{
    if (!f->all_on)
        return;
    for (size_t i = 0; i < f->n_visits; i++)
        f->set_unit (f->arg, f->visits[i], NULL, NULL);
    for (size_t u = 0; u < f->n_units; u++)
        if (has_slots (f))
            (void)fsdp_release (f, u, NULL); /* a broken group says so later */
        else
            f->units[u].weights = NULL;
    f->ops->free (f->all);
    f->all = NULL;
    f->all_on = false;
}
