/* SPDX-License-Identifier: Apache-2.0
 * fanout.c - which of a request's strategies are submitted side by side */
#include "plan/fanout.h"

#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "plan/plans_impl.h"

static void leave (struct fanout *f, size_t i, enum fanout_fate fate,
                   const char *fmt, ...)
    __attribute__ ((format (printf, 4, 5)));
static void leave (struct fanout *f, size_t i, enum fanout_fate fate,
                   const char *fmt, ...)
{
    va_list ap;

    va_start (ap, fmt);
    vsnprintf (f->why[i], sizeof (f->why[i]), fmt, ap);
    va_end (ap);
    f->fate[i] = fate;
}

/* Could the job of [a] start wherever that of [b] could, and as soon? */
static bool serves (const struct plans_item *a, const struct plans_item *b)
{
    int64_t x = plans_sure_time (a), y = plans_sure_time (b);

    return a->plan.nodes == b->plan.nodes
           && a->plan.gpus_per_node == b->plan.gpus_per_node
           && (y == STRATEGY_UNLIMITED || (x != STRATEGY_UNLIMITED && x <= y))
           && plans_covers (a, b);
}

/* A reason that holds whatever else is submitted. */
static bool is_idle (const struct plans *plans, struct fanout *f, size_t i)
{
    const struct plans_item *item = &plans->item[i];

    for (size_t k = 0; k < f->n; k++)
        if (serves (&plans->item[f->order[k]], item)) {
            leave (f, i, FANOUT_SPARE, "%zu may start there too",
                   f->order[k] + 1);
            return true;
        }
    if (item->known == PLANS_NEVER && plans->item[0].known != PLANS_NEVER) {
        leave (f, i, FANOUT_LEAVE, "not foreseen to start");
        return true;
    }
    return false;
}

/* Why there is one job, whatever the other strategies are. */
static void stay_alone (const struct plans *plans,
                        const struct fanout_wish *wish, struct fanout *f)
{
    const struct plans_item *first = &plans->item[0];

    if (wish->never)
        snprintf (f->alone, sizeof (f->alone), "%s", wish->never);
    else if (first->plan.gpus == 0)
        snprintf (f->alone, sizeof (f->alone), "it asks for no GPU");
    else if (plans->n == 1)
        snprintf (f->alone, sizeof (f->alone),
                  "one job says all that there is");
    else if (wish->most <= 1)
        snprintf (f->alone, sizeof (f->alone), "fanout is off");
    else if (first->known == PLANS_AT && first->fits_now)
        snprintf (f->alone, sizeof (f->alone), "the first can start now");
}

/* Where a request must be one job, a refusal of that one is the answer. */
static void add_spares (const struct plans *plans,
                        const struct fanout_wish *wish, struct fanout *f)
{
    size_t most = wish->never || wish->most <= 1 ? 0 : wish->most;

    for (size_t i = 0; i < plans->n && f->n_spare < most; i++)
        if (f->fate[i] == FANOUT_SPARE)
            f->order[f->n + f->n_spare++] = i;
}

void fanout_choose (const struct plans *plans, const struct fanout_wish *wish,
                    struct fanout *ret)
{
    size_t most = wish->most > 1 ? wish->most : 1;

    memset (ret, 0, sizeof (*ret));
    if (plans->n == 0)
        return;
    ret->n = 1; /* order[0] and fate[0] are 0 */
    stay_alone (plans, wish, ret);
    for (size_t i = 1; i < plans->n; i++) {
        if (ret->alone[0])
            leave (ret, i, FANOUT_SPARE, "no fan-out");
        else if (is_idle (plans, ret, i))
            continue;
        else if (ret->n >= most)
            leave (ret, i, FANOUT_SPARE, "%zu jobs are enough (fanout)", most);
        else if (wish->room >= 0 && ret->n >= (size_t)wish->room)
            leave (ret, i, FANOUT_SPARE, "the limit of submitted jobs");
        else
            ret->order[ret->n++] = i;
    }
    if (ret->n == 1 && !ret->alone[0])
        snprintf (ret->alone, sizeof (ret->alone), "%s",
                  wish->room >= 0 && wish->room <= 1
                      ? "the limit of submitted jobs leaves no room"
                      : "the first job is as good as any");
    add_spares (plans, wish, ret);
}

bool fanout_parse (const char *text, unsigned *ret)
{
    char *end;
    unsigned long n;

    if (!strcmp (text, "off") || !strcmp (text, "on")) {
        *ret = text[1] == 'n' ? FANOUT_ON : 1;
        return true;
    }
    n = text[0] >= '1' && text[0] <= '9' ? strtoul (text, &end, 10) : 0;
    if (n == 0 || *end || n > FANOUT_MOST)
        return false;
    *ret = (unsigned)n;
    return true;
}
