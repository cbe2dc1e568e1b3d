/* SPDX-License-Identifier: Apache-2.0
 * fsdp_comm.c - gather weights, reduce gradients, hold buffers until the end
 */
#include <string.h>

#include "err.h"
#include "fsdp_impl.h"

static train_status_t take_slot (struct fsdp *f, size_t stay,
                                 train_error_t *err)
{
    struct fsdp_unit *unit = &f->units[f->stays[stay].unit];
    size_t slot = f->one_each ? f->stays[stay].unit : stay % f->n_slots;

    if (f->slot_taken[slot])
        return err_set (err, TRAIN_ESTATE, "fsdp: no room for unit %zu",
                        f->stays[stay].unit);
    f->slot_taken[slot] = true;
    unit->slot = slot;
    unit->weights = f->slots + f->slot_at[stay] * f->wsize;
    return TRAIN_OK;
}

static void count (size_t *now, size_t *most, size_t n)
{
    *now += n;
    if (*now > *most)
        *most = *now;
}

char *fsdp_block (const struct fsdp *f, size_t u)
{
    return (char *)(f->low ? f->low : f->weights.t.data)
           + f->units[u].plan->at * f->wsize;
}

train_status_t fsdp_gather (struct fsdp *f, size_t stay, bool must,
                            train_error_t *err)
{
    size_t u = f->stays[stay].unit;
    struct fsdp_unit *unit = &f->units[u];
    size_t chunk = unit->plan->chunk;
    train_tensor_t in, out;
    char *own;

    if (unit->weights)
        return TRAIN_OK;
    if (take_slot (f, stay, must ? err : NULL) != TRAIN_OK)
        return must ? TRAIN_ESTATE : TRAIN_OK;
    count (&f->held.weights, &f->held.most_weights, chunk * f->world);
    if (chunk == 0)
        return TRAIN_OK;
    own = fsdp_in_place (f) ? unit->weights + (size_t)f->rank * chunk * f->wsize
                            : fsdp_block (f, u);
    TRY (fsdp_view (f, &in, own, f->wdtype, chunk, err));
    TRY (fsdp_view (f, &out, unit->weights, f->wdtype, chunk * f->world, err));
    return f->way->gather (f, u, &in.t, &out.t, err);
}

train_status_t fsdp_gather_wait (struct fsdp *f, size_t u, train_error_t *err)
{
    return f->way->wait (f, &f->units[u].gather, err);
}

train_status_t fsdp_release (struct fsdp *f, size_t u, train_error_t *err)
{
    struct fsdp_unit *unit = &f->units[u];

    if (!unit->weights)
        return TRAIN_OK;
    TRY (f->way->wait (f, &unit->gather, err));
    TRY (f->way->release (f, unit->slot, err));
    f->slot_taken[unit->slot] = false;
    unit->weights = NULL;
    f->held.weights -= unit->plan->chunk * f->world;
    return TRAIN_OK;
}

/* Until the room's reduction has ended nobody touches its buffers. */
static train_status_t empty (struct fsdp *f, struct fsdp_grads *g,
                             train_error_t *err)
{
    size_t n = f->units[g->unit].plan->chunk * f->world;
    char *whole;

    if (!g->taken)
        return TRAIN_OK;
    whole = g->data ? g->data : f->kept + fsdp_whole_at (f, g->unit);
    TRY (f->way->joined (f, g->unit, whole, g->wire, &g->work, err));
    g->taken = false;
    if (g->data)
        f->held.grads -= n;
    return TRAIN_OK;
}

/* The room of a stay. The other one's may lie across it where the stays are no
 * neighbours, as from one pass to the next. */
static train_status_t take_room (struct fsdp *f, size_t stay,
                                 struct fsdp_grads **ret, train_error_t *err)
{
    size_t u = f->stays[stay].unit, size = train_dtype_size (f->opts.reduce);
    struct fsdp_grads *g = &f->room[stay % FSDP_N_GRADS];
    char *data = f->rooms + f->room_at[stay] * f->esize;

    TRY (empty (f, g, err));
    for (size_t i = 0; i < FSDP_N_GRADS; i++) {
        struct fsdp_grads *other = &f->room[i];

        if (other->taken
            && data < other->data + fsdp_whole_bytes (f, other->unit)
            && other->data < data + fsdp_whole_bytes (f, u))
            TRY (empty (f, other, err));
    }
    g->data = data;
    g->wire = f->wires ? f->wires + f->room_at[stay] * size : NULL;
    g->unit = u;
    g->taken = true;
    f->next_room = stay + 1;
    *ret = g;
    return TRAIN_OK;
}

train_status_t fsdp_room (struct fsdp *f, size_t stay, train_error_t *err)
{
    size_t u = f->stays[stay].unit, bytes = fsdp_whole_bytes (f, u);
    struct fsdp_grads *g;

    f->owner = NULL;
    if (f->kept) {
        if (f->held.grads == 0)
            count (&f->held.grads, &f->held.most_grads,
                   f->kept_bytes / f->esize);
        f->now = f->kept + fsdp_whole_at (f, u);
        return TRAIN_OK;
    }
    TRY (take_room (f, stay, &g, err));
    TRY (fsdp_clear_room (f, u, g->data, err));
    count (&f->held.grads, &f->held.most_grads, bytes / f->esize);
    f->owner = g;
    f->now = g->data;
    return TRAIN_OK;
}

static train_status_t scatter (struct fsdp *f, size_t u, char *whole,
                               struct fsdp_grads *g, train_error_t *err)
{
    if (f->units[u].plan->chunk == 0)
        return TRAIN_OK;
    return f->way->scatter (f, u, whole, g->wire, &g->work, err);
}

/* Replicas: the unit's gradients are summed where they are. */
static train_status_t sum_in_place (struct fsdp *f, size_t u,
                                    train_error_t *err)
{
    const train_shard_unit_t *plan = f->units[u].plan;
    train_tensor_t t;

    if (plan->chunk == 0)
        return TRAIN_OK;
    TRY (fsdp_view (f, &t, (char *)f->grads.t.data + plan->at * f->esize,
                    f->dtype, plan->chunk, err));
    return f->way->sum (f, &t.t, &f->works[u], err);
}

/* Kept gradients are reduced through the rooms, of which they use the work and
 * the wire, so that the order of waits is that of the others. */
static train_status_t reduce_kept (struct fsdp *f, size_t u, train_error_t *err)
{
    char *whole = f->kept + fsdp_whole_at (f, u);

    if (f->opts.reduce != f->dtype) {
        struct fsdp_grads *g = &f->room[f->next_room++ % FSDP_N_GRADS];

        TRY (empty (f, g, err));
        g->taken = true;
        g->unit = u;
        return scatter (f, u, whole, g, err);
    }
    if (f->units[u].plan->chunk == 0)
        return TRAIN_OK;
    return f->way->scatter (f, u, whole, NULL, &f->works[u], err);
}

train_status_t fsdp_reduce (struct fsdp *f, size_t u, bool again,
                            train_error_t *err)
{
    if (f->units[u].still)
        return TRAIN_OK;
    if (f->owner)
        return scatter (f, u, f->owner->data, f->owner, err);
    if (again || !f->last_pass || f->opts.strategy == TRAIN_NO_SHARD)
        return TRAIN_OK;
    return f->sharded ? reduce_kept (f, u, err) : sum_in_place (f, u, err);
}

train_status_t fsdp_reduce_wait (struct fsdp *f, train_error_t *err)
{
    for (size_t i = 0; i < FSDP_N_GRADS; i++)
        TRY (empty (f, &f->room[(f->next_room + i) % FSDP_N_GRADS], err));
    for (size_t u = f->n_units; u-- > 0;) {
        if (f->kept)
            TRY (f->way->joined (f, u, f->kept + fsdp_whole_at (f, u), NULL,
                                 &f->works[u], err));
        else
            TRY (f->way->wait (f, &f->works[u], err));
    }
    if (f->kept)
        f->held.grads = 0;
    return TRAIN_OK;
}
