/* SPDX-License-Identifier: Apache-2.0
 * optim_moments.c - moments and masters of what trains alone, and as a
 * checkpoint has them
 *
 * Beside adapters (Hu et al. 2021, arXiv:2106.09685) nearly all weights are
 * frozen; files have zeros for their moments and the weights themselves for
 * their masters, so that they do not hang on what trained. */
#include <stdlib.h>

#include "err.h"
#include "halves.h"
#include "optim_state.h"

/* Copies here are given without a stream, in the queue of the optimizer's own GPU,
 * which is the present one meanwhile. */

/* What of [first, first + n) is of [r]: in the arrays, and behind [first]. */
struct part {
    size_t at, behind, count;
};

static struct part part_of (const struct adamw_range *r, size_t first, size_t n)
{
    size_t from = r->offset > first ? r->offset : first;
    size_t end = r->offset + r->count;

    if (end > first + n)
        end = first + n;
    if (from >= end)
        return (struct part){0};
    return (struct part){r->at + (from - r->offset), from - first, end - from};
}

/* Of elements [first, first + n), which begin at [wide]: what is in [own]
 * there, or back. */
static train_status_t move (const train_adamw_t *a, char *own, char *wide,
                            size_t first, size_t n, bool back,
                            train_error_t *err)
{
    for (size_t i = 0; i < a->n_ranges; i++) {
        struct part p = part_of (&a->range[i], first, n);
        char *near = own + p.at * a->esize, *far = wide + p.behind * a->esize;

        if (p.count > 0)
            TRY (a->ops->copy (back ? near : far, back ? far : near,
                               p.count * a->esize, NULL, err));
    }
    return a->ops->sync (NULL, err);
}

/* Weights [first, first + n) rounded, and the masters of what trains. */
static train_status_t put_weights (const train_adamw_t *a, DLTensor *weights,
                                   const float *from, size_t first, size_t n,
                                   train_error_t *err)
{
    struct halves to = {a->ops, NULL, a->dtype,
                        (uint16_t *)weights->data + first};

    TRY (halves_put (&to, from, n, err));
    return move (a, a->masters.t.data, (char *)(uintptr_t)from, first, n, true,
                 err);
}

/* All weights, those that train as their masters have them. */
static train_status_t get_weights (const train_adamw_t *a,
                                   const DLTensor *weights, float *wide,
                                   train_error_t *err)
{
    struct halves from = {a->ops, NULL, a->dtype, weights->data};

    TRY (halves_get (&from, wide, a->numel, err));
    return move (a, a->masters.t.data, (char *)wide, 0, a->numel, false, err);
}

static train_status_t spread (train_adamw_t *a, DLTensor *weights,
                              struct adamw_wide *w, train_error_t *err)
{
    w->m = calloc (a->numel, a->esize);
    w->v = calloc (a->numel, a->esize);
    if (adamw_is_half (a))
        w->masters = malloc (a->numel * sizeof (*w->masters));
    if (!w->m || !w->v || (adamw_is_half (a) && !w->masters))
        return err_set (err, TRAIN_ENOMEM,
                        "no memory for the moments of %zu parameters",
                        a->numel);
    TRY (move (a, a->m.t.data, w->m, 0, a->numel, false, err));
    TRY (move (a, a->v.t.data, w->v, 0, a->numel, false, err));
    return w->masters ? get_weights (a, weights, w->masters, err) : TRAIN_OK;
}

bool adamw_is_own (const train_adamw_t *a)
{
    return a->state != a->numel;
}

train_status_t adamw_spread (train_adamw_t *a, DLTensor *weights,
                             struct adamw_wide *ret, train_error_t *err)
{
    train_status_t status;
    int before;

    *ret = (struct adamw_wide){0};
    if (!adamw_is_own (a))
        return TRAIN_OK;
    before = a->ops->enter (a->device);
    status = spread (a, weights, ret, err);
    a->ops->leave (before);
    if (status != TRAIN_OK)
        adamw_wide_free (ret);
    return status;
}

static train_status_t put (train_adamw_t *a, DLTensor *weights,
                           const float *from, size_t first, size_t n,
                           train_error_t *err)
{
    if (adamw_is_half (a)) {
        a->has_masters = true;
        return put_weights (a, weights, from, first, n, err);
    }
    TRY (a->ops->copy ((float *)weights->data + first, from, n * sizeof (*from),
                       NULL, err));
    return a->ops->sync (NULL, err);
}

static train_status_t gather (train_adamw_t *a, DLTensor *weights,
                              const struct adamw_wide *w, train_error_t *err)
{
    TRY (move (a, a->m.t.data, w->m, 0, a->numel, true, err));
    TRY (move (a, a->v.t.data, w->v, 0, a->numel, true, err));
    return w->masters ? put (a, weights, w->masters, 0, a->numel, err)
                      : TRAIN_OK;
}

train_status_t adamw_gather (train_adamw_t *a, DLTensor *weights,
                             const struct adamw_wide *w, train_error_t *err)
{
    int before = a->ops->enter (a->device);
    train_status_t status = gather (a, weights, w, err);

    a->ops->leave (before);
    return status;
}

void adamw_wide_free (struct adamw_wide *w)
{
    free (w->m);
    free (w->v);
    free (w->masters);
    *w = (struct adamw_wide){0};
}

train_status_t adamw_put (train_adamw_t *a, DLTensor *weights,
                          const float *from, size_t first, size_t n,
                          train_error_t *err)
{
    int before = a->ops->enter (a->device);
    train_status_t status = put (a, weights, from, first, n, err);

    a->ops->leave (before);
    return status;
}
