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

/* A flat unit whose second visit is in the head is reduced before its blocks'
 * backward. */
static bool is_twice (const struct fsdp *f, size_t u)
{
    return f->tail && f->stays[f->n_stays - 1].unit == u;
}

/* The flat unit of a visit. */
static int flat_of (const struct fsdp_lender *l, size_t visit)
{
    return train_shard_unit_of (l->plan, (int)l->visits[visit]);
}

/* The visits in flat unit [u], but for the first visit and a second one. */
static size_t tenants (const struct fsdp_lender *l, int u)
{
    size_t n = 0;

    for (size_t v = 1; v < l->n_visits - l->tail; v++)
        n += flat_of (l, v) == u;
    return n;
}

/* Where a flat unit's rooms begin, and bytes of each, in whole lines. */
static uintptr_t rooms_of (const struct fsdp_lender *l, int u, size_t *each)
{
    const train_shard_unit_t *plan = train_shard_unit (l->plan, (size_t)u);
    uintptr_t from = l->base + plan->at * l->esize;
    uintptr_t end = from + plan->chunk * l->esize;
    bool twice = l->tail && flat_of (l, l->n_visits - 1) == u;

    from = (from + DECODER_ALIGN - 1) / DECODER_ALIGN * DECODER_ALIGN;
    *each = end > from && !twice
                ? (end - from) / tenants (l, u) / DECODER_ALIGN * DECODER_ALIGN
                : 0;
    return from;
}

size_t fsdp_lendable (const struct fsdp_lender *l, uintptr_t *at)
{
    size_t least = SIZE_MAX, seen = 0, each;

    for (size_t v = 1; v < l->n_visits - l->tail; v++) {
        int u = flat_of (l, v);
        uintptr_t from = rooms_of (l, u, &each);

        seen = v > 1 && flat_of (l, v - 1) == u ? seen + 1 : 0;
        if (at)
            at[v] = from + seen * each;
        /* a tied head's norm is small, and takes none */
        if (each < least && !(l->tail && v == l->n_visits - 2))
            least = each;
    }
    return least == SIZE_MAX ? 0 : least;
}

/* The same as pointers. */
static train_status_t divide (const struct fsdp *f, void **at, size_t *bytes,
                              train_error_t *err)
{
    struct fsdp_lender l = {
        f->plan, f->visits, f->n_visits, f->tail, (uintptr_t)f->grads.t.data,
        f->esize};
    uintptr_t *where = calloc (f->n_visits, sizeof (*where));

    if (!where)
        return err_set (err, TRAIN_ENOMEM, "no memory for %zu rooms",
                        f->n_visits);
    *bytes = fsdp_lendable (&l, where);
    for (size_t v = 1; v < f->n_visits - f->tail; v++)
        at[v] = (char *)f->grads.t.data + (where[v] - l.base);
    free (where);
    return TRAIN_OK;
}

train_status_t fsdp_rooms (struct fsdp *f, const struct fsdp_model *m,
                           train_error_t *err)
{
    train_status_t status;
    void **at;
    size_t bytes = 0;

    f->lends = f->spend != NULL;
    if (!f->sharded || !f->spend || !m->rooms)
        return TRAIN_OK;
    if (!(at = calloc (f->n_visits + 1, sizeof (*at))))
        return err_set (err, TRAIN_ENOMEM, "no memory for %zu rooms",
                        f->n_visits);
    status = divide (f, at, &bytes, err);
    if (status == TRAIN_OK) {
        f->lends = bytes > 0;
        m->rooms (f->arg, at, bytes);
    }
    free (at);
    return status;
}

bool fsdp_lends (const struct fsdp *f)
{
    return f->lends;
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
