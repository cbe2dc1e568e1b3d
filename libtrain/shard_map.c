/* SPDX-License-Identifier: Apache-2.0
 * shard_map.c - a parameter's elements on a rank, and moves between layouts */
#include <stdlib.h>
#include <string.h>

#include "err.h"
#include "shard_impl.h"

static size_t least (size_t a, size_t b)
{
    return a < b ? a : b;
}

train_shard_range_t train_shard_range (const train_shard_plan_t *plan,
                                       size_t param, int rank)
{
    const struct shard_place *p = &plan->places[param];
    const train_shard_unit_t *u = &plan->units[p->unit];
    size_t begin = p->offset, end = begin + plan->params[param].count;
    size_t low = (size_t)rank * u->chunk, high = low + u->chunk;
    size_t from = begin > low ? begin : low, to = least (end, high);

    if (from >= to) /* an empty run, where it would lie */
        return (train_shard_range_t){
            .begin = least (from, end) - begin,
            .at = u->at + least (from > low ? from - low : 0, u->chunk)};
    return (train_shard_range_t){
        .begin = from - begin, .count = to - from, .at = u->at + from - low};
}

/* Index of the parameter [name], looked for at [hint] first; -1. */
static long find (const train_shard_plan_t *plan, const char *name, size_t hint)
{
    if (hint < plan->n_params && strcmp (plan->params[hint].name, name) == 0)
        return (long)hint;
    for (size_t i = 0; i < plan->n_params; i++)
        if (strcmp (plan->params[i].name, name) == 0)
            return (long)i;
    return -1;
}

struct moves {
    train_shard_move_t *list;
    size_t n, room;
};

static train_status_t append (struct moves *m, train_shard_move_t move,
                              train_error_t *err)
{
    if (m->n == m->room) {
        size_t room = m->room ? 2 * m->room : 64;
        train_shard_move_t *list = realloc (m->list, room * sizeof (*list));

        if (!list)
            return err_set (err, TRAIN_ENOMEM, "no memory for %zu moves", room);
        m->list = list;
        m->room = room;
    }
    m->list[m->n++] = move;
    return TRAIN_OK;
}

/* All old ranks that have some of the elements that [want] is. */
static train_status_t move_param (struct moves *m,
                                  const train_shard_plan_t *from, size_t old,
                                  size_t param, train_shard_range_t want,
                                  train_error_t *err)
{
    size_t chunk = from->units[from->places[old].unit].chunk;
    size_t begin = want.begin, end = want.begin + want.count;

    while (begin < end) {
        size_t rank = (from->places[old].offset + begin) / chunk;
        train_shard_range_t has = train_shard_range (from, old, (int)rank);
        size_t to = least (end, has.begin + has.count);

        TRY (append (m,
                     (train_shard_move_t){
                         .param = param,
                         .begin = begin,
                         .from_rank = (int)rank,
                         .from_at = has.at + begin - has.begin,
                         .to_at = want.at + begin - want.begin,
                         .count = to - begin,
                     },
                     err));
        begin = to;
    }
    return TRAIN_OK;
}

static train_status_t find_old (const train_shard_plan_t *from,
                                const train_shard_param_t *p, size_t hint,
                                size_t *ret, train_error_t *err)
{
    long old = find (from, p->name, hint);

    if (old < 0)
        return err_set (err, TRAIN_EINVAL, "shard: %s is not in the old layout",
                        p->name);
    if (from->params[old].count != p->count)
        return err_set (err, TRAIN_EINVAL,
                        "shard: %s has %zu elements in the old layout and %zu "
                        "in the new",
                        p->name, from->params[old].count, p->count);
    *ret = (size_t)old;
    return TRAIN_OK;
}

static train_status_t move_all (struct moves *m, const train_shard_plan_t *from,
                                const train_shard_plan_t *to, int to_rank,
                                train_error_t *err)
{
    for (size_t i = 0; i < to->n_params; i++) {
        size_t old = 0;

        TRY (find_old (from, &to->params[i], i, &old, err));
        if (to->params[i].tied < 0)
            TRY (move_param (m, from, old, i,
                             train_shard_range (to, i, to_rank), err));
    }
    return TRAIN_OK;
}

train_status_t train_shard_moves (const train_shard_plan_t *from,
                                  const train_shard_plan_t *to, int to_rank,
                                  train_shard_move_t **ret, size_t *ret_n,
                                  train_error_t *err)
{
    struct moves m = {0};
    train_status_t status;

    if (!from || !to || !ret || !ret_n)
        return err_set (err, TRAIN_EINVAL, "shard: a plan or ret is NULL");
    if (to_rank < 0 || to_rank >= to->layout.world)
        return err_set (err, TRAIN_EINVAL, "shard: no rank %d of %d", to_rank,
                        to->layout.world);
    status = move_all (&m, from, to, to_rank, err);
    if (status != TRAIN_OK) {
        free (m.list);
        return status;
    }
    *ret = m.list;
    *ret_n = m.n;
    return TRAIN_OK;
}
