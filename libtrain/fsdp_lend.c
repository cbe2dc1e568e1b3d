/* SPDX-License-Identifier: Apache-2.0
 * fsdp_lend.c - gradients of a GPU that a pass writes rather than adds to, and
 * the shard's memory until they come
 *
 * A flat unit's part of the shard is written when its last stay has been
 * through its backward, and read when the step ends. From the forward until
 * then it is room for what that unit keeps. */
#include <stdlib.h>

#include "decoder_impl.h"
#include "err.h"
#include "fsdp_impl.h"

/* The visits in flat unit [u], but for the first visit and a second one. */
static size_t tenants (const struct fsdp *f, size_t u)
{
    size_t n = 0;

    for (size_t v = 1; v < f->n_visits - f->tail; v++)
        n += f->stays[f->stay_of[v]].unit == u;
    return n;
}

/* A flat unit whose second visit is in the head is reduced before its blocks'
 * backward. */
static bool is_twice (const struct fsdp *f, size_t u)
{
    return f->tail && f->stays[f->n_stays - 1].unit == u;
}

/* Each visit's part of its flat unit, in whole lines; the least part goes to
 * [bytes]. */
static void divide (const struct fsdp *f, void **at, size_t *bytes)
{
    size_t seen = 0;

    *bytes = SIZE_MAX;
    for (size_t v = 1; v < f->n_visits - f->tail; v++) {
        size_t u = f->stays[f->stay_of[v]].unit, n = tenants (f, u), each;
        const train_shard_unit_t *plan = f->units[u].plan;
        uintptr_t from = (uintptr_t)f->grads.t.data + plan->at * f->esize;
        uintptr_t end = from + plan->chunk * f->esize;

        from = (from + DECODER_ALIGN - 1) / DECODER_ALIGN * DECODER_ALIGN;
        each = end > from && !is_twice (f, u)
                   ? (end - from) / n / DECODER_ALIGN * DECODER_ALIGN
                   : 0;
        seen = v > 1 && f->stays[f->stay_of[v - 1]].unit == u ? seen + 1 : 0;
        at[v] = (char *)f->grads.t.data + (from - (uintptr_t)f->grads.t.data)
                + seen * each;
        /* a tied head's norm is small, and takes none */
        if (each < *bytes && !(f->tail && v == f->n_visits - 2))
            *bytes = each;
    }
    if (*bytes == SIZE_MAX)
        *bytes = 0;
}

train_status_t fsdp_rooms (struct fsdp *f, const struct fsdp_model *m,
                           train_error_t *err)
{
    void **at;
    size_t bytes;

    f->lends = f->spend != NULL;
    if (!f->sharded || !f->spend || !m->rooms)
        return TRAIN_OK;
    if (!(at = calloc (f->n_visits + 1, sizeof (*at))))
        return err_set (err, TRAIN_ENOMEM, "no memory for %zu rooms",
                        f->n_visits);
    divide (f, at, &bytes);
    f->lends = bytes > 0;
    m->rooms (f->arg, at, bytes);
    free (at);
    return TRAIN_OK;
}

void fsdp_spend (struct fsdp *f)
{
    bool first = f->fresh;

    f->fresh = false;
    if (f->spend && (f->sharded || first))
        f->spend (f->arg, first && f->last_pass && f->lends);
}

/* A flat unit that a pass visits twice is added to the second time. */
train_status_t fsdp_clear_room (struct fsdp *f, size_t u, char *data,
                                train_error_t *err)
{
    const train_shard_unit_t *plan = f->units[u].plan;
    size_t whole = fsdp_whole_bytes (f, u), written = 0;

    if (f->spend && !f->blank && !is_twice (f, u))
        written = plan->count * f->esize;
    return written == whole
               ? TRAIN_OK
               : fsdp_clear (f, data + written, whole - written, err);
}

train_status_t fsdp_clear_rest (struct fsdp *f, train_error_t *err)
{
    if (!f->gpu)
        return TRAIN_OK;
    if (!f->sharded) {
        bool none = f->fresh && f->spend;

        f->fresh = false;
        return none ? fsdp_clear (f, f->grads.t.data,
                                  (size_t)train_tensor_bytes (&f->grads.t), err)
                    : TRAIN_OK;
    }
    for (size_t u = 0; u < f->n_units; u++) {
        const train_shard_unit_t *plan = f->units[u].plan;

        if (!f->units[u].summed)
            TRY (fsdp_clear (f, (char *)f->grads.t.data + plan->at * f->esize,
                             plan->chunk * f->esize, err));
    }
    return TRAIN_OK;
}
