/* SPDX-License-Identifier: Apache-2.0
 * plans_start.c - when each strategy would start, and why not before */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "plan/duration.h"
#include "plan/forecast.h"
#include "plan/plans_impl.h"

/* One member of one item, to be asked for in the order of tiers. */
struct question {
    struct plans_item *item;
    const struct plans_member *member;
};

static int compare_questions (const void *a, const void *b)
{
    uint32_t x = ((const struct question *)a)->member->part->tier;
    uint32_t y = ((const struct question *)b)->member->part->tier;

    return x < y ? 1 : x > y ? -1 : 0;
}

static struct forecast_need need_of (const struct strategy_request *req,
                                     const struct question *q, int64_t time_s)
{
    const struct strategy_plan *plan = &q->item->plan;
    const struct strategy_rule *rule = q->member->rule;

    return (struct forecast_need){
        .part = q->member->part,
        .type = plan->gpus_per_node ? q->member->type : NULL,
        .features = rule ? rule->constraint : NULL,
        .also = req->constraint,
        .whole = req->exclusive,
        .narrowed = true,
        .nodes = plan->nodes,
        .gpus = plan->gpus_per_node,
        .cpus = plan->tasks_per_node * plan->cpus_per_task,
        .mem_mb = plan->mem_mb,
        .time_s = time_s,
    };
}

static void ask (struct forecast *f, const struct strategy_request *req,
                 const struct question *q, int64_t now, int64_t *longest)
{
    struct plans_item *item = q->item;
    const struct forecast_need need = need_of (req, q, plans_sure_time (item));
    int64_t start = forecast_start (f, &need), now_s;
    size_t waiting = forecast_waiting (f, q->member->part);

    if (start <= now)
        item->fits_now = true;
    if (start < item->start_s) {
        item->start_s = start;
        item->waiting = waiting;
    }
    if (item->n_members > 1 || item->plan.time_min_s)
        return;
    now_s = forecast_longest (f, &need);
    if (now_s == STRATEGY_UNLIMITED || now_s > *longest)
        *longest = now_s;
}

/* The running job that ends then; 0 = none. */
static uint32_t ends_at (const struct strategy_cluster *c, int64_t at)
{
    for (size_t i = 0; i < c->n_jobs; i++)
        if (c->job[i].running && c->job[i].end_s == at)
            return c->job[i].job_id;
    return 0;
}

static void explain_wait (const struct strategy_cluster *c,
                          struct plans_item *item)
{
    uint32_t job = ends_at (c, item->start_s);
    int n;

    if (job)
        n = snprintf (item->why, sizeof (item->why),
                      "when job %u ends at the "
                      "latest",
                      job);
    else
        n = snprintf (item->why, sizeof (item->why),
                      "when jobs that wait now have run");
    if (item->waiting && n > 0 && (size_t)n < sizeof (item->why))
        snprintf (item->why + n, sizeof (item->why) - (size_t)n,
                  "; %zu job%s wait%s before it", item->waiting,
                  item->waiting == 1 ? "" : "s", item->waiting == 1 ? "s" : "");
}

/* Of --gres; "" where the job leaves it open. */
static const char *type_asked (const struct plans_item *item)
{
    return item->n_types > 1 ? "" : item->plan.type;
}

static void explain (const struct strategy_cluster *c,
                     const struct strategy_request *req,
                     const struct forecast *f, struct plans_item *item)
{
    const char *why = NULL;

    item->known = item->start_s == FORECAST_NEVER ? PLANS_NEVER : PLANS_AT;
    if (item->plan.waits_for_node)
        why = "the nodes that could serve are down now";
    else if (req->unforeseen) {
        item->known = PLANS_UNKNOWN;
        snprintf (item->why, sizeof (item->why), "--%s decides",
                  req->unforeseen);
    } else if (item->known == PLANS_AT && !item->member[0].part->own_qos
               && limits_wait (&c->limits, type_asked (item), req->gpus,
                               item->why, sizeof (item->why)))
        item->known = PLANS_UNKNOWN;
    else if (c->jobs_hidden) {
        item->known = PLANS_UNKNOWN;
        why = item->fits_now ? "enough is free now, but other users' jobs are "
                               "hidden"
                             : "other users' jobs are hidden";
    } else if (item->known == PLANS_NEVER)
        why = c->inside ? "longer than what is left of the reservation"
                        : "what it needs is held without an end";
    else if (item->fits_now)
        why = "free now";
    else if (forecast_cut (f)) {
        item->known = PLANS_UNKNOWN;
        why = "the queue is too long to be foreseen";
    }
    if (item->known != PLANS_AT)
        item->start_s = 0;
    if (item->why[0])
        return;
    if (why)
        snprintf (item->why, sizeof (item->why), "%s", why);
    else
        explain_wait (c, item);
}

static int ask_all (const struct strategy_cluster *c,
                    const struct strategy_request *req, struct forecast *f,
                    struct question *q, size_t n, struct plans *plans)
{
    int64_t longest = 0;
    char why[160];
    bool soon = limits_wait (&c->limits, "", req->gpus, why, sizeof (why));

    qsort (q, n, sizeof (*q), compare_questions);
    for (size_t i = 0; i < n; i++) {
        if (forecast_queue (f, q[i].member->part->tier))
            return -1;
        ask (f, req, &q[i], c->now_s, &longest);
    }
    for (size_t i = 0; i < plans->n; i++) {
        explain (c, req, f, &plans->item[i]);
        soon = soon || plans->item[i].fits_now;
    }
    /* Whole minutes, as Slurm counts. */
    if (!soon && !c->jobs_hidden && !req->unforeseen && longest >= 60)
        plans->now_if_s = longest - longest % 60;
    return 0;
}

int plans_forecast (const struct strategy_cluster *cluster,
                    const struct strategy_request *req, struct plans *plans,
                    struct rv_error *err)
{
    struct forecast *f = forecast_new (cluster);
    struct question *q = calloc (plans->n * PLANS_MEMBERS + 1, sizeof (*q));
    size_t n = 0;
    int failed = !f || !q;

    for (size_t i = 0; i < plans->n && !failed; i++) {
        plans->item[i].start_s = FORECAST_NEVER;
        for (size_t m = 0; m < plans->item[i].n_members; m++)
            q[n++] =
                (struct question){&plans->item[i], &plans->item[i].member[m]};
    }
    failed = failed || ask_all (cluster, req, f, q, n, plans);
    forecast_free (f);
    free (q);
    return failed ? error_set (err, RV_ENOMEM, "out of memory") : RV_OK;
}
