/* SPDX-License-Identifier: Apache-2.0
 * fsdp_comm.c - gather weights, reduce gradients, hold buffers until the end
 */
#include <string.h>

#include "err.h"
#include "fsdp_impl.h"
#include "kernels/kernels.h"

static train_status_t wait_for (train_work_t **work, train_error_t *err)
{
    train_work_t *w = *work;

    *work = NULL; /* the wait frees it, also when it fails */
    return w ? train_work_wait (w, -1, err) : TRAIN_OK;
}

static train_status_t take_slot (struct fsdp *f, size_t u, train_error_t *err)
{
    bool full = f->opts.strategy == TRAIN_FULL_SHARD;

    for (size_t i = full ? 0 : u; i < (full ? f->n_slots : u + 1); i++) {
        if (f->slot_taken[i])
            continue;
        f->slot_taken[i] = true;
        f->units[u].slot = i;
        f->units[u].weights = f->slots[i];
        return TRAIN_OK;
    }
    return err_set (err, TRAIN_ESTATE, "fsdp: no room for unit %zu", u);
}

static void count (size_t *now, size_t *most, size_t n)
{
    *now += n;
    if (*now > *most)
        *most = *now;
}

train_status_t fsdp_gather (struct fsdp *f, size_t u, bool must,
                            train_error_t *err)
{
    struct fsdp_unit *unit = &f->units[u];
    size_t chunk = unit->plan->chunk;
    train_tensor_t in, out;

    if (unit->weights)
        return TRAIN_OK;
    if (take_slot (f, u, must ? err : NULL) != TRAIN_OK)
        return must ? TRAIN_ESTATE : TRAIN_OK;
    count (&f->held.weights, &f->held.most_weights, chunk * f->world);
    if (chunk == 0)
        return TRAIN_OK;
    TRY (fsdp_view (f, &in,
                    (char *)(f->low ? f->low : f->weights.t.data)
                        + unit->plan->at * f->wsize,
                    f->wdtype, chunk, err));
    TRY (fsdp_view (f, &out, unit->weights, f->wdtype, chunk * f->world, err));
    return train_all_gather_async (f->group, &in.t, &out.t, &unit->gather, err);
}

train_status_t fsdp_gather_wait (struct fsdp *f, size_t u, train_error_t *err)
{
    return wait_for (&f->units[u].gather, err);
}

train_status_t fsdp_release (struct fsdp *f, size_t u, train_error_t *err)
{
    struct fsdp_unit *unit = &f->units[u];

    if (!unit->weights)
        return TRAIN_OK;
    TRY (wait_for (&unit->gather, err));
    f->slot_taken[unit->slot] = false;
    unit->weights = NULL;
    f->held.weights -= unit->plan->chunk * f->world;
    return TRAIN_OK;
}

/* This rank's block of the reduced gradients joins the shard's. */
static void add_block (const struct fsdp *f, size_t u, const char *whole)
{
    const train_shard_unit_t *plan = f->units[u].plan;
    size_t n = plan->chunk, block = (size_t)f->rank * n;

    if (f->opts.reduce == TRAIN_BF16) {
        const uint16_t *from = (const uint16_t *)whole + block;
        float *to = (float *)f->grads.t.data + plan->at;

        for (size_t i = 0; i < n; i++) {
            float x;

            kern_cast_bf16_f32_host (&x, from + i, 1, NULL);
            to[i] += x;
        }
    } else if (f->dtype == TRAIN_F64) {
        const double *from = (const double *)whole + block;
        double *to = (double *)f->grads.t.data + plan->at;

        for (size_t i = 0; i < n; i++)
            to[i] += from[i];
    } else {
        const float *from = (const float *)whole + block;
        float *to = (float *)f->grads.t.data + plan->at;

        for (size_t i = 0; i < n; i++)
            to[i] += from[i];
    }
}

/* Until the room's reduction has ended nobody touches its buffers. */
static train_status_t empty (struct fsdp *f, struct fsdp_grads *g,
                             train_error_t *err)
{
    size_t n = f->units[g->unit].plan->chunk * f->world;
    bool reduced = g->work;

    if (!g->taken)
        return TRAIN_OK;
    TRY (wait_for (&g->work, err));
    if (reduced)
        add_block (f, g->unit, g->wire ? g->wire : g->data);
    g->taken = false;
    if (g->data)
        f->held.grads -= n;
    return TRAIN_OK;
}

train_status_t fsdp_room (struct fsdp *f, size_t u, train_error_t *err)
{
    size_t bytes = fsdp_whole_bytes (f, u);
    struct fsdp_grads *g;

    f->owner = NULL;
    if (f->kept) {
        if (f->held.grads == 0)
            count (&f->held.grads, &f->held.most_grads,
                   f->kept_bytes / f->esize);
        f->now = f->kept + fsdp_whole_at (f, u);
        return TRAIN_OK;
    }
    g = &f->room[f->next_room++ % FSDP_N_GRADS];
    TRY (empty (f, g, err));
    g->taken = true;
    g->unit = u;
    memset (g->data, 0, bytes);
    count (&f->held.grads, &f->held.most_grads, bytes / f->esize);
    f->owner = g;
    f->now = g->data;
    return TRAIN_OK;
}

/* The unit's whole gradients become one block, in the middle of themselves. */
static train_status_t scatter (struct fsdp *f, size_t u, char *whole,
                               struct fsdp_grads *g, train_error_t *err)
{
    size_t n = f->units[u].plan->chunk;
    size_t size = train_dtype_size (f->opts.reduce);
    train_tensor_t in, out;

    if (n == 0)
        return TRAIN_OK;
    if (g->wire) {
        kern_cast_f32_bf16_host ((uint16_t *)(void *)g->wire,
                                 (const float *)(void *)whole, n * f->world,
                                 NULL);
        whole = g->wire;
    }
    TRY (fsdp_view (f, &in, whole, f->opts.reduce, n * f->world, err));
    TRY (fsdp_view (f, &out, whole + (size_t)f->rank * n * size, f->opts.reduce,
                    n, err));
    return train_reduce_scatter_async (f->group, &in.t, &out.t, TRAIN_SUM,
                                       &g->work, err);
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
    return train_all_reduce_async (f->group, &t.t, TRAIN_SUM, &f->works[u],
                                   err);
}

/* Kept gradients are reduced through the rooms, of which they use the work and
 * the wire, so that the order of waits is that of the others. */
static train_status_t reduce_kept (struct fsdp *f, size_t u, train_error_t *err)
{
    size_t n = f->units[u].plan->chunk;
    train_tensor_t in, out;
    char *whole = f->kept + fsdp_whole_at (f, u);

    if (f->opts.reduce != f->dtype) {
        struct fsdp_grads *g = &f->room[f->next_room++ % FSDP_N_GRADS];

        TRY (empty (f, g, err));
        g->taken = true;
        g->unit = u;
        return scatter (f, u, whole, g, err);
    }
    if (n == 0)
        return TRAIN_OK;
    TRY (fsdp_view (f, &in, whole, f->dtype, n * f->world, err));
    TRY (fsdp_view (f, &out, whole + (size_t)f->rank * n * f->esize, f->dtype,
                    n, err));
    return train_reduce_scatter_async (f->group, &in.t, &out.t, TRAIN_SUM,
                                       &f->works[u], err);
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
        bool kept = f->works[u] && f->kept;

        TRY (wait_for (&f->works[u], err));
        if (kept)
            add_block (f, u, f->kept + fsdp_whole_at (f, u));
    }
    if (f->kept)
        f->held.grads = 0;
    return TRAIN_OK;
}

void fsdp_wait_any (struct fsdp *f)
{
    for (size_t u = 0; u < f->n_units; u++) {
        if (f->units)
            wait_for (&f->units[u].gather, NULL);
        if (f->works)
            wait_for (&f->works[u], NULL);
    }
    for (size_t i = 0; i < FSDP_N_GRADS; i++)
        wait_for (&f->room[i].work, NULL);
}
