/* SPDX-License-Identifier: Apache-2.0
 * fsdp_lend.c - gradients of a GPU that a pass writes rather than adds to, and
 * the shard's memory until they come
 *
 * A flat unit's part of the shard is written when its last stay has been
 * through its backward, and read when the step ends. From the forward until
 * then it is lent: backwards go from the last unit to the first, so the shard is
 * free from its beginning to the unit whose backward is on. */
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

/* Where the gradients of a visit's bundle and of those before it end: those of
 * bundles lie in their order, and what is still has none. */
static size_t end_of (const struct fsdp_lender *l, size_t visit)
{
    int own = train_shard_unit_of (l->plan, (int)l->visits[visit]);
    size_t bundle = train_shard_unit (l->plan, (size_t)own)->bundle, end = 0;

    for (size_t i = 0; i < train_shard_n_units (l->plan); i++) {
        const train_shard_unit_t *u = train_shard_unit (l->plan, i);

        if (!u->still && u->bundle <= bundle)
            end = (u->at + u->chunk) * l->esize;
    }
    return end;
}

bool fsdp_lendable (const struct fsdp_lender *l, size_t *ret_at, size_t *until)
{
    size_t at = l->tail ? end_of (l, l->n_visits - 1) : 0;
    size_t n = l->n_visits - l->tail, past;
    bool any = false;

    past = (l->base + at) % DECODER_ALIGN;
    at += past ? DECODER_ALIGN - past : 0;
    for (size_t v = 1; v < n; v++) {
        size_t end = end_of (l, v);

        until[v - 1] = end > at ? end - at : 0;
        any |= end > at;
    }
    *ret_at = at;
    return any;
}

train_status_t fsdp_loan (struct fsdp *f, const struct fsdp_model *m,
                          train_error_t *err)
{
    char *grads = f->grads.t.data;
    struct fsdp_lender l = {f->plan, f->visits,        f->n_visits,
                            f->tail, (uintptr_t)grads, f->esize};
    size_t at, *until;

    f->lends = f->spend != NULL;
    if (!f->lends || !f->sharded || !m->lend)
        return TRAIN_OK;
    if (!(until = calloc (f->n_visits, sizeof (*until))))
        return err_set (err, TRAIN_ENOMEM, "no memory for %zu visits",
                        f->n_visits);
    f->lends = fsdp_lendable (&l, &at, until);
    m->lend (f->arg, f->lends ? grads + at : NULL, until);
    free (until);
    return TRAIN_OK;
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

/* Of flat unit [r] what is at [data] behind the first [written] bytes. */
static train_status_t clear_flat (struct fsdp *f, size_t r, char *data,
                                  size_t written, train_error_t *err)
{
    const train_shard_unit_t *plan = f->flats[r].plan;
    size_t whole = plan->still ? 0 : plan->chunk * f->world * f->esize;

    return written >= whole
               ? TRAIN_OK
               : fsdp_clear (f, data + written, whole - written, err);
}

/* A bundle that a pass visits twice is added to the second time. */
train_status_t fsdp_clear_room (struct fsdp *f, size_t u, char *data,
                                train_error_t *err)
{
    bool written = f->spend && !f->blank && !is_twice (f, u);

    for (size_t r = f->units[u].first; r < f->units[u].end; r++)
        TRY (clear_flat (f, r, data + f->flats[r].room_at * f->esize,
                         written ? f->flats[r].plan->count * f->esize : 0,
                         err));
    return TRAIN_OK;
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
    for (size_t r = 0; r < f->n_flats; r++) {
        const struct fsdp_flat *flat = &f->flats[r];

        if (!flat->summed && flat->n_grads > 0)
            TRY (fsdp_clear (f,
                             (char *)f->grads.t.data + flat->grads * f->esize,
                             flat->n_grads * f->esize, err));
    }
    return TRAIN_OK;
}
