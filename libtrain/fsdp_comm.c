/* SPDX-License-Identifier: Apache-2.0
 * fsdp_comm.c - gather weights, reduce gradients, hold buffers until the end
 */
#include <string.h>

#include "err.h"
#include "fsdp_impl.h"

/* Where a stay's weights come in this direction of the pass. */
static char *place_of (const struct fsdp *f, size_t stay)
{
    bool back = f->phase == FSDP_BACKWARD;

    return f->rooms + (back ? f->back_at[stay] : f->forth_at[stay]);
}

static bool cross (const char *a, size_t n, const char *b, size_t m)
{
    return a < b + m && b < a + n;
}

bool fsdp_meets (const struct fsdp *f, size_t stay)
{
    size_t n = f->units[f->stays[stay].unit].whole * f->wsize;
    const char *at = place_of (f, stay);

    for (size_t u = 0; u < f->n_units; u++) {
        const struct fsdp_unit *other = &f->units[u];

        if (other->weights
            && cross (at, n, other->weights, other->whole * f->wsize))
            return true;
    }
    return false;
}

bool fsdp_meets_room (const struct fsdp *f, const struct fsdp_grads *g,
                      const char *at, size_t bytes)
{
    return g->taken && g->data
           && cross (at, bytes, g->data, fsdp_whole_bytes (f, g->unit));
}

static void count (size_t *now, size_t *most, size_t n)
{
    *now += n;
    if (*now > *most)
        *most = *now;
}

char *fsdp_block (const struct fsdp *f, size_t r)
{
    const train_shard_unit_t *plan = f->flats[r].plan;

    if (plan->still)
        return f->base + (plan->at - train_shard_moving (f->plan)) * f->wsize;
    return (char *)(f->low ? f->low : f->weights.t.data) + plan->at * f->wsize;
}

static train_status_t gather_flat (struct fsdp *f, size_t u, size_t r,
                                   train_error_t *err)
{
    size_t chunk = f->flats[r].plan->chunk;
    char *to = f->units[u].weights + f->flats[r].at * f->wsize;
    train_tensor_t in, out;
    char *own;

    if (chunk == 0)
        return TRAIN_OK;
    own = fsdp_in_place (f, r) ? to + (size_t)f->rank * chunk * f->wsize
                               : fsdp_block (f, r);
    TRY (fsdp_view (f, &in, own, f->wdtype, chunk, err));
    TRY (fsdp_view (f, &out, to, f->wdtype, chunk * f->world, err));
    return f->way->gather (f, u, r, &in.t, &out.t, err);
}

/* Flat unit [r]'s part of its bundle's whole gradients. */
static char *part (const struct fsdp *f, size_t r, char *whole, size_t size)
{
    return whole + f->flats[r].room_at * size;
}

static char *wire_part (const struct fsdp *f, size_t r, char *wire)
{
    return wire ? part (f, r, wire, train_dtype_size (f->opts.reduce)) : NULL;
}

/* Until the room's reduction has ended nobody touches its buffers. */
static train_status_t empty (struct fsdp *f, struct fsdp_grads *g,
                             train_error_t *err)
{
    const struct fsdp_unit *unit = &f->units[g->unit];
    char *whole;

    if (!g->taken)
        return TRAIN_OK;
    whole = g->data ? g->data : f->kept + fsdp_whole_at (f, g->unit);
    for (size_t r = unit->first; r < unit->end; r++)
        TRY (f->way->joined (f, r, part (f, r, whole, f->esize),
                             wire_part (f, r, g->wire),
                             &g->works[r - unit->first], err));
    g->taken = false;
    if (g->data)
        f->held.grads -= unit->room;
    return TRAIN_OK;
}

/* The host does not begin before gradients that lie there are in the shard. */
static train_status_t clear_of (struct fsdp *f, const struct fsdp_unit *unit,
                                train_error_t *err)
{
    for (size_t i = 0; i < FSDP_N_GRADS; i++)
        if (fsdp_meets_room (f, &f->room[i], unit->weights,
                             unit->whole * f->wsize))
            TRY (empty (f, &f->room[i], err));
    return TRAIN_OK;
}

train_status_t fsdp_gather (struct fsdp *f, size_t stay, bool must,
                            train_error_t *err)
{
    size_t u = f->stays[stay].unit;
    struct fsdp_unit *unit = &f->units[u];

    if (unit->weights || (!must && fsdp_meets (f, stay)))
        return TRAIN_OK;
    if (fsdp_meets (f, stay))
        return err_set (err, TRAIN_ESTATE, "fsdp: no room for unit %zu", u);
    unit->weights = place_of (f, stay);
    TRY (f->gpu ? TRAIN_OK : clear_of (f, unit, err));
    count (&f->held.weights, &f->held.most_weights, unit->whole);
    for (size_t r = unit->first; r < unit->end; r++)
        TRY (gather_flat (f, u, r, err));
    return TRAIN_OK;
}

train_status_t fsdp_gather_wait (struct fsdp *f, size_t u, train_error_t *err)
{
    const struct fsdp_unit *unit = &f->units[u];

    for (size_t r = unit->first; r < unit->end; r++)
        TRY (f->way->wait (f, &f->flats[r].gather, err));
    return TRAIN_OK;
}

train_status_t fsdp_release (struct fsdp *f, size_t u, train_error_t *err)
{
    struct fsdp_unit *unit = &f->units[u];

    if (!unit->weights)
        return TRAIN_OK;
    TRY (fsdp_gather_wait (f, u, err));
    unit->weights = NULL;
    f->held.weights -= unit->whole;
    return TRAIN_OK;
}

/* Places of the wire, which are others than those of the gradients. */
static bool wires_cross (const struct fsdp *f, const struct fsdp_grads *g,
                         size_t stay)
{
    size_t size = train_dtype_size (f->opts.reduce);

    return g->taken && f->wires && g->wire
           && cross (f->wires + f->wire_at[stay] * size,
                     f->units[f->stays[stay].unit].room * size, g->wire,
                     f->units[g->unit].room * size);
}

/* The room of a stay. The other one's may lie across it where the stays are no
 * neighbours, as from one pass to the next. */
static train_status_t take_room (struct fsdp *f, size_t stay,
                                 struct fsdp_grads **ret, train_error_t *err)
{
    size_t u = f->stays[stay].unit, size = train_dtype_size (f->opts.reduce);
    struct fsdp_grads *g = &f->room[stay % FSDP_N_GRADS];
    char *data = f->rooms + f->grads_at[stay];

    TRY (empty (f, g, err));
    for (size_t i = 0; i < FSDP_N_GRADS; i++) {
        struct fsdp_grads *other = &f->room[i];

        if (fsdp_meets_room (f, other, data, fsdp_whole_bytes (f, u))
            || wires_cross (f, other, stay))
            TRY (empty (f, other, err));
    }
    g->data = data;
    g->wire = f->wires ? f->wires + f->wire_at[stay] * size : NULL;
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

static bool is_reduced (const struct fsdp *f, size_t r)
{
    return !f->flats[r].still && f->flats[r].n_grads > 0;
}

/* [wire]   of the room; NULL: of the gradients' type
 * [works]  of the bundle's flat units */
static train_status_t scatter (struct fsdp *f, size_t u, char *whole,
                               char *wire, struct fsdp_work *works,
                               train_error_t *err)
{
    const struct fsdp_unit *unit = &f->units[u];

    for (size_t r = unit->first; r < unit->end; r++)
        if (is_reduced (f, r))
            TRY (f->way->scatter (f, r, part (f, r, whole, f->esize),
                                  wire_part (f, r, wire),
                                  &works[r - unit->first], err));
    return TRAIN_OK;
}

/* Replicas: the unit's gradients are summed where they are. */
static train_status_t sum_in_place (struct fsdp *f, size_t u,
                                    train_error_t *err)
{
    size_t r = f->units[u].first; /* the only one */
    train_tensor_t t;

    if (!is_reduced (f, r))
        return TRAIN_OK;
    TRY (fsdp_view (f, &t,
                    (char *)f->grads.t.data + f->flats[r].grads * f->esize,
                    f->dtype, f->flats[r].n_grads, err));
    return f->way->sum (f, &t.t, &f->works[r], err);
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
        return scatter (f, u, whole, g->wire, g->works, err);
    }
    return scatter (f, u, whole, NULL, f->works + f->units[u].first, err);
}

train_status_t fsdp_reduce (struct fsdp *f, size_t u, bool again,
                            train_error_t *err)
{
    if (f->owner)
        return scatter (f, u, f->owner->data, f->owner->wire, f->owner->works,
                        err);
    if (again || !f->last_pass || f->opts.strategy == TRAIN_NO_SHARD)
        return TRAIN_OK;
    return f->sharded ? reduce_kept (f, u, err) : sum_in_place (f, u, err);
}

train_status_t fsdp_reduce_wait (struct fsdp *f, train_error_t *err)
{
    for (size_t i = 0; i < FSDP_N_GRADS; i++)
        TRY (empty (f, &f->room[(f->next_room + i) % FSDP_N_GRADS], err));
    for (size_t u = f->n_units; u-- > 0;)
        for (size_t r = f->units[u].first; r < f->units[u].end; r++)
            TRY (f->kept ? f->way->joined (
                     f, r,
                     part (f, r, f->kept + fsdp_whole_at (f, u), f->esize),
                     NULL, &f->works[r], err)
                         : f->way->wait (f, &f->works[r], err));
    if (f->kept)
        f->held.grads = 0;
    return TRAIN_OK;
}
