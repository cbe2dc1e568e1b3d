/* SPDX-License-Identifier: Apache-2.0
 * plans_rank.c - the order of strategies, and which of them are worth a line */
#include <stdlib.h>
#include <string.h>

#include "plan/plans_impl.h"

/* Orders below: negative when the first is better. */
static int order_of (double a, double b)
{
    return a < b ? -1 : a > b;
}

/* Seconds of wait, with all that is soon the same; unknown behind known, never
 * last. */
static double wait_of (const struct plans_item *item, int64_t now)
{
    double wait = (double)(item->start_s - now);

    if (item->known == PLANS_NEVER)
        return 3e18;
    if (item->known == PLANS_UNKNOWN)
        return item->fits_now ? 1e18 : 2e18;
    return wait <= PLANS_SOON_S ? 0 : wait;
}

static int order_wait (const struct plans_item *a, const struct plans_item *b,
                       int64_t now)
{
    double x = wait_of (a, now), y = wait_of (b, now);

    if (x < 1e18 && y < 1e18 && x - y < PLANS_SOON_S && y - x < PLANS_SOON_S)
        return 0;
    return order_of (x, y);
}

static int order_cost (const struct plans_item *a, const struct plans_item *b)
{
    return order_of (a->cost < 0 ? 1e300 : a->cost,
                     b->cost < 0 ? 1e300 : b->cost);
}

static int order_time (const struct plans_item *a, const struct plans_item *b)
{
    int64_t x = plans_sure_time (a), y = plans_sure_time (b);

    return order_of (y == STRATEGY_UNLIMITED ? 1e300 : (double)y,
                     x == STRATEGY_UNLIMITED ? 1e300 : (double)x);
}

/* The first of its sections in rv.conf. */
static double rule_order (const struct strategy_cluster *c,
                          const struct plans_item *item)
{
    double first = 1e9;

    for (size_t i = 0; i < item->n_members; i++)
        if (item->member[i].rule
            && (double)(item->member[i].rule - c->rule) < first)
            first = (double)(item->member[i].rule - c->rule);
    return first;
}

/* A job that starts now is better off with a type that is known; one that
 * waits, with more places to wait for. */
static int order_places (const struct plans_item *a, const struct plans_item *b)
{
    int types = order_of ((double)a->n_types, (double)b->n_types);

    if (types)
        return a->fits_now && b->fits_now ? types : -types;
    return order_of ((double)b->n_members, (double)a->n_members);
}

static int compare (const struct strategy_cluster *c,
                    const struct plans_item *a, const struct plans_item *b)
{
    int order = order_wait (a, b, c->now_s);

    order = order ? order : order_cost (a, b);
    order = order ? order : order_time (a, b);
    order = order ? order : order_of (rule_order (c, a), rule_order (c, b));
    order = order ? order : order_of ((double)a->order, (double)b->order);
    return order ? order : order_places (a, b);
}

bool plans_covers (const struct plans_item *a, const struct plans_item *b)
{
    for (size_t i = 0; i < b->n_members; i++) {
        bool found = false;

        for (size_t j = 0; j < a->n_members && !found; j++)
            found = a->member[j].part == b->member[i].part
                    && a->member[j].rule == b->member[i].rule
                    && !strcmp (a->member[j].type, b->member[i].type);
        if (!found)
            return false;
    }
    return true;
}

/* Is [b] no better than [a] in anything, and either worse in something or a
 * part of it, or more places where one is free? */
static bool dominates (const struct plans_item *a, const struct plans_item *b,
                       int64_t now)
{
    const int order[] = {
        order_wait (a, b, now), order_cost (a, b), order_time (a, b),
        order_of ((double)a->plan.nodes, (double)b->plan.nodes)};
    bool better = false;

    for (size_t i = 0; i < sizeof (order) / sizeof (order[0]); i++) {
        if (order[i] > 0)
            return false;
        better = better || order[i] < 0;
    }
    return better || plans_covers (a, b)
           || (a->fits_now && b->fits_now && plans_covers (b, a));
}

/* Insertion: starts within a minute are the same, so the order is not one that
 * a library's sort may rely on. The list is short. */
static void sort (const struct strategy_cluster *c, struct plans_item **item,
                  size_t n)
{
    for (size_t i = 1; i < n; i++) {
        struct plans_item *this = item[i];
        size_t j = i;

        for (; j > 0 && compare (c, this, item[j - 1]) < 0; j--)
            item[j] = item[j - 1];
        item[j] = this;
    }
}

void plans_rank (const struct strategy_cluster *cluster, struct plans *plans)
{
    struct plans_item *sorted[PLANS_SEARCHED], kept[PLANS_MAX];
    size_t n = 0;

    for (size_t i = 0; i < plans->n; i++)
        sorted[i] = &plans->item[i];
    sort (cluster, sorted, plans->n);
    for (size_t i = 0; i < plans->n; i++) {
        bool dominated = false;

        for (size_t j = 0; j < n && !dominated; j++)
            dominated = dominates (&kept[j], sorted[i], cluster->now_s);
        if (dominated)
            plans->dominated++;
        else if (n < PLANS_MAX)
            kept[n++] = *sorted[i];
        else
            plans->beyond++;
    }
    memcpy (plans->item, kept, n * sizeof (*kept));
    plans->n = n;
}
