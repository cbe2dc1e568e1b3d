/* SPDX-License-Identifier: Apache-2.0
 * fsdp_pass.c - what each visit of a pass needs, and what it leaves
 *
 * Every decision here follows from the visits and the options alone, never from
 * whether a collective has ended: so all ranks issue the same calls. */
#include "err.h"
#include "fsdp_impl.h"

static size_t visit_of (const struct fsdp *f, bool backward, size_t at)
{
    return backward ? f->n_visits - 1 - at : at;
}

/* Hand the visited unit its place. Gradients apart are found from the bundle's
 * beginning on. */
static void place (const struct fsdp *f, size_t unit, size_t u, bool backward)
{
    char *weights = f->units[u].weights;
    size_t at = f->offset_of[unit];

    f->set_unit (f->arg, unit, weights ? weights + at * f->wsize : NULL,
                 backward ? f->now + (f->apart ? 0 : at) * f->esize : NULL);
}

/* Does a visit of the stay read weights? */
static bool reads (const struct fsdp *f, size_t stay, bool backward)
{
    return !backward || stay > 0 || !f->bare;
}

/* Stays behind this one in the direction of the pass, as far as there is room. */
static train_status_t look_ahead (struct fsdp *f, size_t stay, bool backward,
                                  train_error_t *err)
{
    for (size_t k = 1; k <= (size_t)f->opts.prefetch; k++) {
        size_t next = backward ? stay - k : stay + k;

        if (backward ? stay < k : stay + k >= f->n_stays)
            break;
        if (reads (f, next, backward))
            TRY (fsdp_gather (f, next, false, err));
    }
    return TRAIN_OK;
}

static train_status_t enter (struct fsdp *f, size_t stay, bool backward,
                             train_error_t *err)
{
    size_t u = f->stays[stay].unit;

    if (backward)
        TRY (fsdp_room (f, stay, err));
    if (reads (f, stay, backward))
        TRY (fsdp_gather (f, stay, true, err));
    TRY (look_ahead (f, stay, backward, err));
    return fsdp_gather_wait (f, u, err);
}

/* FULL_SHARD lets weights go after each stay, but for the one where the pass
 * turns. GRAD_OP does when the last pass is through with them. */
static train_status_t leave (struct fsdp *f, size_t stay, bool backward,
                             train_error_t *err)
{
    const struct fsdp_stay *s = &f->stays[stay];
    bool full = f->opts.strategy == TRAIN_FULL_SHARD;

    if (backward)
        TRY (fsdp_reduce (f, s->unit, s->again, err));
    if (full ? backward || stay + 1 < f->n_stays
             : backward && f->last_pass && !s->again)
        return fsdp_release (f, s->unit, err);
    return TRAIN_OK;
}

/* Has a forward been through its visits? It may leave out the last one where
 * that is in a unit that it has seen: a head that is tied makes its logits in
 * the backward alone. */
static bool is_through (const struct fsdp *f)
{
    size_t last = f->n_visits - 1;

    return f->phase == FSDP_FORWARD && !f->inside
           && (f->at == f->n_visits
               || (f->at == last && f->tail && f->n_visits > 1));
}

/* Which visit is this? */
static train_status_t turn (struct fsdp *f, size_t unit, bool backward,
                            train_error_t *err)
{
    enum fsdp_phase phase = backward ? FSDP_BACKWARD : FSDP_FORWARD;
    size_t want;

    if (!f->inside && f->phase != phase
        && (backward ? is_through (f) : f->phase == FSDP_IDLE)) {
        f->phase = phase;
        f->at = 0;
    }
    want = visit_of (f, backward, f->at);
    if (f->inside || f->phase != phase || f->at >= f->n_visits
        || f->visits[want] != unit)
        return err_set (err, TRAIN_ESTATE,
                        "fsdp: unit %zu is visited %s out of turn, at visit "
                        "%zu of %zu",
                        unit, backward ? "backward" : "forward", f->at,
                        f->n_visits);
    return TRAIN_OK;
}

train_status_t fsdp_before (struct fsdp *f, size_t unit, bool backward,
                            train_error_t *err)
{
    size_t visit, stay;

    TRY (turn (f, unit, backward, err));
    visit = visit_of (f, backward, f->at);
    stay = f->stay_of[visit];
    f->inside = true;
    if (!f->sharded)
        return TRAIN_OK;
    if (visit == (backward ? f->stays[stay].last : f->stays[stay].first))
        TRY (enter (f, stay, backward, err));
    place (f, unit, f->stays[stay].unit, backward);
    return TRAIN_OK;
}

train_status_t fsdp_after (struct fsdp *f, size_t unit, bool backward,
                           train_error_t *err)
{
    size_t visit = visit_of (f, backward, f->at), stay;

    if (!f->inside || f->visits[visit] != unit
        || backward != (f->phase == FSDP_BACKWARD))
        return err_set (err, TRAIN_ESTATE,
                        "fsdp: unit %zu ends a visit that has not begun", unit);
    stay = f->stay_of[visit];
    f->inside = false;
    f->at++;
    if (backward && f->at == f->n_visits)
        f->phase = FSDP_IDLE;
    if (f->sharded)
        f->set_unit (f->arg, unit, NULL, NULL);
    if (visit != (backward ? f->stays[stay].first : f->stays[stay].last))
        return TRAIN_OK;
    if (f->sharded)
        return leave (f, stay, backward, err);
    return backward
               ? fsdp_reduce (f, f->stays[stay].unit, f->stays[stay].again, err)
               : TRAIN_OK;
}

train_status_t fsdp_pass (struct fsdp *f, bool last, train_error_t *err)
{
    if (f->phase != FSDP_IDLE)
        TRY (fsdp_drop (f, err));
    f->last_pass = last;
    fsdp_spend (f);
    return TRAIN_OK;
}

train_status_t fsdp_begin (struct fsdp *f, train_error_t *err)
{
    TRY (fsdp_drop (f, err));
    TRY (fsdp_step_open (f, err));
    f->fresh = true;
    for (size_t r = 0; r < f->n_flats; r++)
        f->flats[r].summed = false;
    if (!f->gpu || (!f->sharded && !f->spend))
        TRY (fsdp_clear (f, f->grads.t.data,
                         (size_t)train_tensor_bytes (&f->grads.t), err));
    return f->kept ? fsdp_clear (f, f->kept, f->kept_bytes, err) : TRAIN_OK;
}

static train_status_t visit_all (struct fsdp *f, train_error_t *err)
{
    for (int backward = 0; backward < 2; backward++) {
        for (size_t i = 0; i < f->n_visits; i++) {
            size_t unit = f->visits[visit_of (f, backward, i)];

            TRY (fsdp_before (f, unit, backward, err));
            TRY (fsdp_after (f, unit, backward, err));
        }
    }
    return TRAIN_OK;
}

train_status_t fsdp_empty_pass (struct fsdp *f, train_error_t *err)
{
    train_status_t status;

    if (f->spend)
        TRY (f->settle (f->arg, err));
    f->blank = true;
    status = visit_all (f, err);
    f->blank = false;
    return status;
}

train_status_t fsdp_drop (struct fsdp *f, train_error_t *err)
{
    if (f->inside || (f->phase != FSDP_IDLE && !is_through (f)))
        return err_set (err, TRAIN_ESTATE, "fsdp: within a pass");
    f->phase = FSDP_IDLE;
    for (size_t u = 0; u < f->n_units && f->sharded; u++)
        TRY (fsdp_release (f, u, err));
    return TRAIN_OK;
}

train_status_t fsdp_end (struct fsdp *f, train_error_t *err)
{
    TRY (fsdp_drop (f, err));
    if (f->opts.strategy == TRAIN_NO_SHARD) {
        TRY (f->way->sum (f, &f->grads.t, &f->whole, err));
        TRY (f->way->wait (f, &f->whole, err));
    } else {
        TRY (fsdp_reduce_wait (f, err));
    }
    TRY (fsdp_clear_rest (f, err));
    return fsdp_still (f, err);
}
