/* SPDX-License-Identifier: Apache-2.0
 * fsdp_each.c - forwards between steps that gather each unit for its visit, of
 * which ranks have not equally many
 *
 * Ranks meet: each says how many passes it has now, and all visit units as often
 * as the one that has most. Who has fewer makes up the rest when it meets again,
 * so it may fail in the midst of a pass and the others go on until they hear of
 * it. What is gathered ahead is by the visits alone, and goes round from the
 * last to the first. */
#include <stdlib.h>

#include "err.h"
#include "fsdp_impl.h"

/* [n] passes of this rank, or what it failed with; the most to [ret]. */
static train_status_t agree (struct fsdp *f, int n, train_status_t own,
                             int *ret, train_error_t *err)
{
    int32_t all[2] = {n, own};
    int64_t shape[1] = {2};
    train_tensor_t view;

    TRY (train_tensor_view (&view, all, TRAIN_I32, 1, shape, err));
    TRY (train_all_reduce (f->each.group, &view.t, TRAIN_MAX, err));
    *ret = all[0];
    if (all[1] == TRAIN_OK)
        return TRAIN_OK;
    f->each.over = true;
    if (own != TRAIN_OK)
        return own;
    return err_set (err, (train_status_t)all[1],
                    "another rank failed, while units are gathered one by "
                    "one: %s",
                    train_status_name ((train_status_t)all[1]));
}

static size_t next_stay (const struct fsdp *f, size_t stay)
{
    return stay + 1 < f->n_stays ? stay + 1 : 0;
}

/* Units of a bundle that is not here will have come anew. */
static train_status_t bring (struct fsdp *f, size_t stay, bool must,
                             train_error_t *err)
{
    const struct fsdp_unit *unit = &f->units[f->stays[stay].unit];

    if (unit->weights || (!must && fsdp_meets (f, stay)))
        return TRAIN_OK;
    for (int i = f->flats[unit->first].plan->first;
         i <= f->flats[unit->end - 1].plan->last; i++)
        f->each.seen[i] = false;
    return fsdp_gather (f, stay, must, err);
}

static train_status_t enter (struct fsdp *f, size_t stay, train_error_t *err)
{
    size_t ahead = stay;

    TRY (bring (f, stay, true, err));
    for (int k = 0; k < f->opts.prefetch; k++) {
        ahead = next_stay (f, ahead);
        TRY (bring (f, ahead, false, err));
        if (!f->units[f->stays[ahead].unit].weights)
            break; /* none comes before it, which might be in its way */
    }
    return fsdp_gather_wait (f, f->stays[stay].unit, err);
}

/* Does a pass look like the one before it to who makes its calls? Of a GPU:
 * they are learnt then. */
static train_status_t open_pass (struct fsdp *f, train_error_t *err)
{
    if (!f->gpu || f->each.step)
        return TRAIN_OK;
    TRY (train_step_begin (f->group, err));
    f->each.step = true;
    return TRAIN_OK;
}

static train_status_t close_pass (struct fsdp *f, train_error_t *err)
{
    f->each.at = 0;
    f->each.due--;
    if (!f->each.step)
        return TRAIN_OK;
    f->each.step = false;
    return train_step_end (f->group, err);
}

static train_status_t arrive (struct fsdp *f, size_t unit, bool empty,
                              train_error_t *err)
{
    struct fsdp_each *e = &f->each;
    size_t u = f->stays[f->stay_of[e->at]].unit;

    f->set_unit (f->arg, unit,
                 f->units[u].weights + f->offset_of[unit] * f->wsize, NULL);
    if (empty || e->seen[unit])
        return TRAIN_OK;
    e->seen[unit] = true;
    return e->fresh ? e->fresh (e->arg, unit, err) : TRAIN_OK;
}

static train_status_t begin (struct fsdp *f, size_t unit, bool empty,
                             train_error_t *err)
{
    struct fsdp_each *e = &f->each;
    size_t stay = f->stay_of[e->at];

    if (!e->on || e->due < 1 || e->inside || f->visits[e->at] != unit)
        return err_set (err, TRAIN_ESTATE,
                        "fsdp: unit %zu is visited out of turn, at visit %zu "
                        "of %zu, with %d passes to come",
                        unit, e->at, f->n_visits, e->due);
    if (e->at == 0)
        TRY (open_pass (f, err));
    if (e->at == f->stays[stay].first)
        TRY (enter (f, stay, err));
    e->inside = true;
    return arrive (f, unit, empty, err);
}

static train_status_t end (struct fsdp *f, size_t unit, train_error_t *err)
{
    struct fsdp_each *e = &f->each;
    size_t stay = f->stay_of[e->at], u = f->stays[stay].unit;

    if (!e->inside || f->visits[e->at] != unit)
        return err_set (err, TRAIN_ESTATE,
                        "fsdp: unit %zu ends a visit that has not begun", unit);
    e->inside = false;
    f->set_unit (f->arg, unit, NULL, NULL);
    if (e->at == f->stays[stay].last && !f->one_each
        && f->stays[next_stay (f, stay)].unit != u)
        TRY (fsdp_release (f, u, err));
    return ++e->at < f->n_visits ? TRAIN_OK : close_pass (f, err);
}

train_status_t fsdp_each_before (struct fsdp *f, size_t unit,
                                 train_error_t *err)
{
    return begin (f, unit, false, err);
}

train_status_t fsdp_each_after (struct fsdp *f, size_t unit, train_error_t *err)
{
    return end (f, unit, err);
}

/* What is left of the passes that were agreed on, with nothing to do in them. */
static train_status_t make_up (struct fsdp *f, train_error_t *err)
{
    struct fsdp_each *e = &f->each;

    while (e->due > 0) {
        size_t unit = f->visits[e->at];

        if (!e->inside)
            TRY (begin (f, unit, true, err));
        TRY (end (f, unit, err));
    }
    return TRAIN_OK;
}

train_status_t fsdp_each_meet (struct fsdp *f, int n, train_error_t *err)
{
    TRY (make_up (f, err));
    TRY (agree (f, n, TRAIN_OK, &f->each.due, err));
    return n > 0 ? TRAIN_OK : make_up (f, err);
}

train_status_t fsdp_each (struct fsdp *f, train_group_t *group,
                          train_status_t (*fresh) (void *, size_t,
                                                   train_error_t *),
                          void *arg, train_error_t *err)
{
    struct fsdp_each *e = &f->each;
    size_t n = 0;

    if (!f->sharded || f->all_on || e->on || f->phase != FSDP_IDLE)
        return err_set (err, TRAIN_ESTATE,
                        "fsdp: units cannot be gathered one by one now");
    for (size_t i = 0; i < f->n_visits; i++)
        n = f->visits[i] > n ? f->visits[i] : n;
    if (!e->seen && !(e->seen = calloc (n + 1, sizeof (*e->seen))))
        return err_set (err, TRAIN_ENOMEM, "no memory for %zu units", n + 1);
    *e = (struct fsdp_each){.on = true,
                            .group = group,
                            .fresh = fresh,
                            .arg = arg,
                            .seen = e->seen};
    return TRAIN_OK;
}

/* Until no rank has a pass to make, or one has failed. */
static train_status_t see_out (struct fsdp *f, train_status_t status,
                               train_error_t *err)
{
    struct fsdp_each *e = &f->each;

    while (!e->over) {
        train_status_t s = make_up (f, status == TRAIN_OK ? err : NULL);

        status = status == TRAIN_OK ? s : status;
        s = agree (f, 0, status, &e->due, status == TRAIN_OK ? err : NULL);
        status = status == TRAIN_OK ? s : status;
        if (s != TRAIN_OK || e->due == 0)
            break;
    }
    return status;
}

train_status_t fsdp_each_end (struct fsdp *f, train_status_t status,
                              train_error_t *err)
{
    struct fsdp_each *e = &f->each;

    if (!e->on)
        return status;
    status = see_out (f, status, err);
    for (size_t i = 0; i < f->n_visits; i++)
        f->set_unit (f->arg, f->visits[i], NULL, NULL);
    for (size_t u = 0; u < f->n_units; u++) {
        train_status_t s = fsdp_release (f, u, status == TRAIN_OK ? err : NULL);

        status = status == TRAIN_OK ? s : status;
    }
    if (e->step)
        (void)train_step_end (f->group, NULL); /* within which it broke */
    *e = (struct fsdp_each){.seen = e->seen};
    return status;
}
