/* SPDX-License-Identifier: Apache-2.0
 * forecast_find.c - the earliest place of one job in the forecast
 *
 * A search for one node keeps the earliest start so far and passes over nodes
 * that open no earlier; for several it moves a moment forward until enough
 * nodes fit at it. Both are linear in the partition's nodes at worst, so the
 * whole is in nodes times waiting jobs. */
#include <string.h>

#include "plan/forecast_impl.h"

#define ROUNDS_MAX 64
#define NEAR       8 /* nodes that are looked at, for each that is needed */

/* A search for one node: what it looks for, and the best so far. */
struct search {
    struct forecast *f;
    const struct forecast_need *need;
    const struct lane_need *one;
    const bool *allowed, *has; /* NULL = all */
    size_t kind;
    int64_t from, best;
};

static void look (struct search *s, uint32_t node)
{
    struct forecast *f = s->f;
    int64_t start = f->opens[s->kind * f->cluster->n_nodes + node];

    if (start >= s->best || (s->allowed && !s->allowed[node])
        || (s->has && !s->has[node]))
        return;
    start = forecast_opens (f, s->kind, node);
    start = lane_earliest (&f->lane[node], s->one,
                           start > s->from ? start : s->from, s->need->time_s,
                           s->best);
    if (start < s->best) {
        s->best = start;
        f->found[0] = node;
    }
}

/* Is a whole group of nodes [i] and those behind it in the list? */
static bool is_group (const struct strategy_partition *part, size_t i)
{
    return part->node[i] % FORECAST_GROUP == 0
           && i + FORECAST_GROUP <= part->n_nodes
           && part->node[i + FORECAST_GROUP - 1]
                  == part->node[i] + FORECAST_GROUP - 1;
}

static void look_at_group (struct search *s, uint32_t node)
{
    size_t n_nodes = s->f->cluster->n_nodes;
    int64_t *low =
        &s->f->low[s->kind * forecast_groups (n_nodes) + node / FORECAST_GROUP];
    const int64_t *opens = &s->f->opens[s->kind * n_nodes + node];
    int64_t least = INT64_MAX;

    if (*low >= s->best)
        return;
    for (uint32_t i = 0; i < FORECAST_GROUP; i++) {
        if (opens[i] < s->best)
            look (s, node + i);
        least = opens[i] < least ? opens[i] : least;
    }
    *low = least;
}

/* A job that many nodes could serve, at one look each, or one at several that
 * all open too late. */
static int64_t find_one (struct forecast *f, const struct forecast_need *need,
                         const struct lane_need *one, const bool *allowed,
                         int64_t from, int64_t limit)
{
    struct search s = {.f = f,
                       .need = need,
                       .one = one,
                       .allowed = allowed,
                       .has = forecast_has (f, one),
                       .kind = forecast_kind (one, need->time_s),
                       .from = from,
                       .best = limit};

    for (size_t i = 0; i < need->part->n_nodes && s.best > from;)
        if (is_group (need->part, i)) {
            look_at_group (&s, need->part->node[i]);
            i += FORECAST_GROUP;
        } else
            look (&s, need->part->node[i++]);
    return s.best < limit ? s.best : FORECAST_NEVER;
}

int64_t forecast_nth (int64_t *v, size_t n, size_t k)
{
    size_t low = 0, high = n - 1;

    while (low < high) {
        int64_t pivot = v[low + (high - low) / 2];
        size_t i = low, j = high;

        for (;; i++, j--) {
            int64_t swap;

            while (v[i] < pivot)
                i++;
            while (v[j] > pivot)
                j--;
            if (i >= j)
                break;
            swap = v[i];
            v[i] = v[j];
            v[j] = swap;
        }
        if (k <= j)
            high = j;
        else
            low = j + 1;
    }
    return v[k];
}

/* f->when has twice the moment from which a node fits; one less where it cannot
 * fit before, and may not fit then. Both sort as they should. */
static int64_t exactly (int64_t at)
{
    return at == FORECAST_NEVER ? FORECAST_NEVER : 2 * at;
}

static int64_t not_before (int64_t at)
{
    return at == FORECAST_NEVER ? FORECAST_NEVER : 2 * at - 1;
}

static int64_t moment_of (int64_t when)
{
    return when == FORECAST_NEVER ? FORECAST_NEVER : (when + 1) / 2;
}

/* Nodes of those in f->near that fit at [at], into f->found; others get the
 * moment from which they do. Returns how many, at most as many as are needed. */
static uint32_t fit_at (struct forecast *f, const struct forecast_need *need,
                        const struct lane_need *one, size_t n_near, int64_t at)
{
    size_t kind = forecast_kind (one, need->time_s);
    int64_t when = exactly (at);
    uint32_t n = 0;

    for (size_t i = 0; i < n_near && n < need->nodes; i++) {
        uint32_t node = f->near[i];
        int64_t opens;

        if (f->when[i] < when) {
            opens = forecast_opens (f, kind, node);
            f->when[i] = exactly (lane_earliest (&f->lane[node], one,
                                                 opens > at ? opens : at,
                                                 need->time_s, LANE_NEVER));
        }
        if (f->when[i] == when)
            f->found[n++] = node;
    }
    return n;
}

/* The nodes that may serve before [limit] into f->near, with the moment before
 * which they cannot, as far as it is known already. Returns how many. */
static size_t candidates (struct forecast *f, const struct forecast_need *need,
                          const struct lane_need *one, const bool *allowed,
                          int64_t from, int64_t limit)
{
    const bool *has = forecast_has (f, one);
    const int64_t *opens =
        &f->opens[forecast_kind (one, need->time_s) * f->cluster->n_nodes];
    size_t n = 0;

    for (size_t i = 0; i < need->part->n_nodes; i++) {
        uint32_t node = need->part->node[i];

        if (opens[node] >= limit || (allowed && !allowed[node])
            || (has && !has[node]))
            continue;
        f->near[n] = node;
        f->when[n++] = not_before (opens[node] > from ? opens[node] : from);
    }
    return n;
}

/* Keep those of the [n] that come first, [want] or more; what is left out comes
 * after [ret_last]. Returns how many. */
static size_t nearest (struct forecast *f, size_t n, size_t want,
                       int64_t *ret_last)
{
    size_t kept = 0;

    *ret_last = FORECAST_NEVER;
    if (n <= want)
        return n;
    memcpy (f->pick, f->when, n * sizeof (*f->pick));
    *ret_last = forecast_nth (f->pick, n, want - 1);
    for (size_t i = 0; i < n; i++)
        if (f->when[i] <= *ret_last) {
            f->when[kept] = f->when[i];
            f->near[kept++] = f->near[i];
        }
    return kept;
}

/* Move [at] forward until enough of the [n] nodes fit at it. false: at [at] others
 * would count, which come after [last]. */
static bool move (struct forecast *f, const struct forecast_need *need,
                  const struct lane_need *one, size_t n, int64_t last,
                  int64_t limit, int *rounds, int64_t *at)
{
    for (; *rounds < ROUNDS_MAX; ++*rounds) {
        int64_t when;

        memcpy (f->pick, f->when, n * sizeof (*f->pick));
        when = forecast_nth (f->pick, n, need->nodes - 1);
        if (when > last)
            return false;
        *at = moment_of (when);
        if (*at >= limit)
            break;
        if (fit_at (f, need, one, n, *at) == need->nodes)
            return true;
        f->visits += n;
    }
    *at = FORECAST_NEVER;
    return true;
}

/* Few of the nodes come first, and it is looked at the others only where those
 * are not enough. */
static int64_t find_many (struct forecast *f, const struct forecast_need *need,
                          const struct lane_need *one, const bool *allowed,
                          int64_t from, int64_t limit)
{
    int64_t at = from, last;
    int rounds = 0;
    size_t n;

    for (size_t want = NEAR * (size_t)need->nodes;; want *= NEAR) {
        n = candidates (f, need, one, allowed, at, limit);
        if (need->nodes == 0 || need->nodes > n)
            return FORECAST_NEVER;
        n = nearest (f, n, want, &last);
        if (move (f, need, one, n, last, limit, &rounds, &at))
            return at;
    }
}

int64_t forecast_find (struct forecast *f, const struct forecast_need *need,
                       const struct lane_need *one, int64_t from, int64_t limit)
{
    const bool *allowed = forecast_filter (f, need);

    if (one->type == LANE_NONE && one->gpus)
        return FORECAST_NEVER;
    f->visits += need->part->n_nodes;
    return need->nodes == 1 ? find_one (f, need, one, allowed, from, limit)
                            : find_many (f, need, one, allowed, from, limit);
}
