/* SPDX-License-Identifier: Apache-2.0
 * plans.c - all the ways to submit a request as one job, the best first
 *
 * The search of strategy.c gives every place, one partition and one type each;
 * plans_fold.c adds the jobs that name several; plans_start.c asks the forecast
 * for their starts; and plans_rank.c puts them in order. */
#include "plan/plans.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "plan/plans_impl.h"
#include "plan/strategy_explain.h"

/* The plan's borrowed texts move with the item. */
static void own_texts (struct plans_item *item)
{
    item->plan.partition = item->partition;
    item->plan.constraint = item->constraint[0] ? item->constraint : NULL;
}

void plans_add (struct plans *plans, const struct plans_item *item)
{
    if (plans->n == PLANS_SEARCHED) {
        plans->beyond++;
        return;
    }
    plans->item[plans->n] = *item;
    own_texts (&plans->item[plans->n++]);
}

int64_t plans_sure_time (const struct plans_item *item)
{
    return item->plan.time_min_s ? item->plan.time_min_s : item->plan.time_s;
}

/* Cost of the whole limit. */
static double cost_of (const struct strategy_plan *plan)
{
    if (plan->gpus == 0)
        return 0;
    if (!plan->rule || plan->rule->cost < 0
        || plan->time_s == STRATEGY_UNLIMITED)
        return -1;
    return plan->rule->cost * plan->gpus * (double)plan->time_s / 3600;
}

static bool take_place (const struct strategy_plan *plan,
                        const struct strategy_partition *part, void *arg)
{
    struct plans *plans = arg;
    struct plans_item item = {.plan = *plan, .kind = PLANS_DIRECT};
    const struct strategy_rule *rule = plan->rule;

    snprintf (item.partition, sizeof (item.partition), "%s", part->name);
    snprintf (item.constraint, sizeof (item.constraint), "%s",
              plan->constraint ? plan->constraint : "");
    snprintf (item.types, sizeof (item.types), "%s",
              rule ? strategy_rule_name (rule) : plan->type);
    /* A name or a constraint that was cut would ask for something else. */
    if (strlen (part->name) >= sizeof (item.partition)
        || (plan->constraint
            && strlen (plan->constraint) >= sizeof (item.constraint)))
        return false;
    item.order = plans->n;
    item.cost = cost_of (plan);
    item.n_members = item.n_types = 1;
    item.member[0] = (struct plans_member){part, rule, plan->found_type};
    plans_add (plans, &item);
    return false;
}

/* Nodes that are up and partitions for everybody; else whatever there is. */
static int search (const struct strategy_cluster *cluster,
                   const struct strategy_request *req, struct plans *plans,
                   struct rv_error *err)
{
    static const unsigned passes[] = {0, STRATEGY_ON_REQUEST, STRATEGY_DOWN,
                                      STRATEGY_DOWN | STRATEGY_ON_REQUEST};

    for (size_t i = 0; i < sizeof (passes) / sizeof (passes[0]); i++) {
        strategy_each (cluster, req, passes[i], take_place, plans);
        if (plans->n)
            return RV_OK;
    }
    return strategy_explain (cluster, req, err);
}

/* The same with a limit that Slurm may shorten. */
static void add_backfill (const struct strategy_request *req,
                          struct plans *plans)
{
    size_t n = plans->n;

    for (size_t i = 0; i < n; i++) {
        struct plans_item item = plans->item[i];

        if (item.plan.time_s != STRATEGY_UNLIMITED
            && item.plan.time_s <= req->time_min_s)
            continue;
        item.kind = req->segments ? PLANS_SEGMENTS : PLANS_BACKFILL;
        item.plan.time_min_s = req->time_min_s;
        plans_add (plans, &item);
    }
}

/* A partition's limit ends a segment, not the job. */
static void mark_segments (const struct strategy_request *req,
                           struct plans *plans)
{
    for (size_t i = 0; i < plans->n && req->segments && req->time_fixed; i++)
        if (plans->item[i].plan.time_s != req->time_s)
            plans->item[i].kind = PLANS_SEGMENTS;
}

/* May it go where the limits of its own QOS do not hold? */
static bool beyond_limits (const struct strategy_cluster *cluster,
                           const struct strategy_request *req)
{
    for (size_t i = 0; i < cluster->n_parts; i++)
        if (cluster->part[i].own_qos
            && strategy_partition_asked (req, &cluster->part[i]))
            return true;
    return false;
}

int plan_strategies (const struct strategy_cluster *cluster,
                     const struct strategy_request *req, struct plans *ret,
                     struct rv_error *err)
{
    struct plans plans = {0};
    struct strategy_request least;
    int status = ret ? strategy_check (cluster, req, err)
                     : error_set (err, RV_EINVAL, "no result");

    if (status == RV_OK) {
        /* A segment may be shorter than the whole. */
        least = *req;
        if (!beyond_limits (cluster, req))
            status = limits_check (&cluster->limits, req->gpus, &least.time_s,
                                   req->time_fixed && !req->segments,
                                   req->time_min_s, err);
    }
    if (status != RV_OK)
        return status;
    plans.item = calloc (PLANS_SEARCHED, sizeof (*plans.item));
    if (!plans.item)
        return error_set (err, RV_ENOMEM, "out of memory");
    status = search (cluster, &least, &plans, err);
    if (status == RV_OK) {
        mark_segments (req, &plans);
        plans_fold (cluster, req, &plans, plans.n);
        if (req->time_min_s)
            add_backfill (req, &plans);
        status = plans_forecast (cluster, req, &plans, err);
    }
    if (status != RV_OK) {
        plans_fini (&plans);
        return status;
    }
    plans_rank (cluster, &plans);
    for (size_t i = 0; i < plans.n; i++)
        own_texts (&plans.item[i]);
    *ret = plans;
    return RV_OK;
}

void plans_fini (struct plans *plans)
{
    if (!plans)
        return;
    free (plans->item);
    memset (plans, 0, sizeof (*plans));
}
