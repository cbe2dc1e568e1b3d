/* SPDX-License-Identifier: Apache-2.0
 * forecast.c - when a job would start, by our own backfill of a snapshot
 */
#include "plan/forecast.h"

#include <stdlib.h>
#include <string.h>

#include "plan/feature.h"
#include "plan/forecast_impl.h"

#define VISITS_MAX ((uint64_t)64 << 20) /* less than a second */

static uint32_t job_tier (const struct strategy_cluster *c,
                          const struct strategy_job *job)
{
    uint32_t tier = 0;

    for (size_t p = 0; p < c->n_parts; p++)
        if (c->part[p].tier > tier
            && feature_list_has (job->partition, c->part[p].name,
                                 strlen (c->part[p].name)))
            tier = c->part[p].tier;
    return tier;
}

static int compare_turns (const void *a, const void *b)
{
    const struct forecast_turn *x = a, *y = b;

    if (x->tier != y->tier)
        return x->tier > y->tier ? -1 : 1;
    if (x->priority != y->priority)
        return x->priority > y->priority ? -1 : 1;
    return x->job_id < y->job_id ? -1 : x->job_id > y->job_id;
}

/* Inside a reservation are its jobs alone, and outside are none of them. */
static bool competes (const struct strategy_cluster *c,
                      const struct strategy_job *job)
{
    if (!c->inside || !job->resv)
        return !c->inside && !job->resv;
    return strcmp (c->inside, job->resv) == 0;
}

static void make_order (struct forecast *f)
{
    for (size_t i = 0; i < f->cluster->n_jobs; i++) {
        const struct strategy_job *job = &f->cluster->job[i];

        if (!job->running && competes (f->cluster, job))
            f->order[f->n_order++] = (struct forecast_turn){
                job->priority, job_tier (f->cluster, job), job->job_id,
                (uint32_t)i};
    }
    qsort (f->order, f->n_order, sizeof (*f->order), compare_turns);
}

struct forecast *forecast_new (const struct strategy_cluster *c)
{
    struct forecast *f = calloc (1, sizeof (*f));

    if (!f)
        return NULL;
    f->cluster = c;
    f->lane = calloc (c->n_nodes + 1, sizeof (*f->lane));
    f->opens = calloc (FORECAST_KINDS * c->n_nodes + 1, sizeof (*f->opens));
    f->low = calloc (FORECAST_KINDS * forecast_groups (c->n_nodes) + 1,
                     sizeof (*f->low));
    f->fresh = calloc (FORECAST_KINDS * c->n_nodes + 1, sizeof (*f->fresh));
    f->when = calloc (c->n_nodes + 1, sizeof (*f->when));
    f->both = calloc (c->n_nodes + 1, sizeof (*f->both));
    f->left = calloc (c->n_nodes + 1, sizeof (*f->left));
    f->pick = calloc (c->n_nodes + 1, sizeof (*f->pick));
    f->near = calloc (c->n_nodes + 1, sizeof (*f->near));
    f->found = calloc (c->n_nodes + 1, sizeof (*f->found));
    f->order = calloc (c->n_jobs + 1, sizeof (*f->order));
    f->waiting = calloc (c->n_parts + 1, sizeof (*f->waiting));
    if (!f->lane || !f->opens || !f->low || !f->fresh || !f->when || !f->both
        || !f->left || !f->pick || !f->near || !f->found || !f->order
        || !f->waiting || forecast_build (f)) {
        forecast_free (f);
        return NULL;
    }
    make_order (f);
    return f;
}

void forecast_free (struct forecast *f)
{
    if (!f)
        return;
    for (size_t i = 0; f->lane && i < f->cluster->n_nodes; i++)
        free (f->lane[i].part);
    for (size_t i = 0; i < f->n_filters; i++)
        free (f->filter[i].node);
    free (f->lane);
    free (f->opens);
    free (f->low);
    free (f->has);
    free (f->fresh);
    free (f->when);
    free (f->both);
    free (f->left);
    free (f->pick);
    free (f->near);
    free (f->found);
    free (f->order);
    free (f->waiting);
    free (f);
}

bool forecast_cut (const struct forecast *f)
{
    return f->cut;
}

size_t forecast_waiting (const struct forecast *f,
                         const struct strategy_partition *part)
{
    return f->waiting[part - f->cluster->part];
}

static struct lane_need need_of (const struct forecast *f,
                                 const struct forecast_need *need)
{
    int type = forecast_type (f, need->type);

    return (struct lane_need){.type = type,
                              .slice = type >= 0 && f->slice[type],
                              .gpus = need->gpus,
                              .cpus = need->cpus,
                              .mem_mb =
                                  f->cluster->memory_shared ? 0 : need->mem_mb,
                              .whole = need->whole || need->part->exclusive};
}

int64_t forecast_start (struct forecast *f, const struct forecast_need *need)
{
    struct lane_need one = need_of (f, need);

    return forecast_find (f, need, &one, f->cluster->now_s, FORECAST_NEVER);
}

int64_t forecast_longest (struct forecast *f, const struct forecast_need *need)
{
    struct lane_need one = need_of (f, need);
    const bool *allowed = forecast_filter (f, need);
    int64_t now = f->cluster->now_s, until;
    size_t n = need->part->n_nodes;

    if (need->nodes == 0 || need->nodes > n || one.type == LANE_NONE)
        return 0;
    /* Negative, so that the longest come first. */
    for (size_t i = 0; i < n; i++) {
        uint32_t node = need->part->node[i];

        f->pick[i] = allowed && !allowed[node]
                         ? -now
                         : -lane_until (&f->lane[node], &one, now);
    }
    until = -forecast_nth (f->pick, n, need->nodes - 1);
    return until == LANE_NEVER ? STRATEGY_UNLIMITED : until - now;
}

/* FNV-1a, over text with its NUL and over numbers. */
static uint64_t mix (uint64_t key, const void *data, size_t len)
{
    for (const unsigned char *p = data; len; p++, len--)
        key = (key ^ *p) * 0x100000001b3;
    return key;
}

static uint64_t job_key (const struct strategy_job *job)
{
    const uint64_t wish[] = {job->nodes,     job->gpus,
                             job->cpus,      job->mem_mb,
                             job->exclusive, (uint64_t)job->time_s};
    const char *const text[] = {job->partition, job->type, job->features};
    uint64_t key = mix (0xcbf29ce484222325, wish, sizeof (wish));

    for (size_t i = 0; i < sizeof (text) / sizeof (text[0]); i++)
        key = mix (key, text[i] ? text[i] : "",
                   text[i] ? strlen (text[i]) + 1 : 1);
    return key ? key : 1;
}

/* The earliest start in any of the job's partitions; [ret] is that one's need.
 */
static int64_t place (struct forecast *f, const struct strategy_job *job,
                      const struct strategy_partition *const *part,
                      size_t n_parts, int64_t from, struct lane_need *ret,
                      struct forecast_need *need)
{
    int64_t best = FORECAST_NEVER;

    for (size_t p = 0; p < n_parts && best > from; p++) {
        struct forecast_need try = {.part = part[p],
                                    .type = job->type,
                                    .features = job->features,
                                    .nodes = job->nodes ? job->nodes : 1,
                                    .gpus = job->gpus,
                                    .cpus = job->cpus,
                                    .mem_mb = job->mem_mb,
                                    .time_s = job->time_s,
                                    .narrowed = f->cluster->inside != NULL};
        struct lane_need one = need_of (f, &try);
        int64_t start;

        one.whole = one.whole || job->exclusive;
        start = forecast_find (f, &try, &one, from, best);
        if (start >= best)
            continue;
        /* The nodes of this one stay in f->found: one that finds nothing
         * earlier may have written there. */
        best = start;
        *ret = one;
        *need = try;
    }
    if (n_parts > 1 && best != FORECAST_NEVER)
        best = forecast_find (f, need, ret, best, FORECAST_NEVER);
    return best;
}

static int queue_job (struct forecast *f, const struct strategy_job *job)
{
    const struct strategy_cluster *c = f->cluster;
    const struct strategy_partition *part[FORECAST_PARTS];
    uint64_t key = job_key (job);
    struct forecast_memo *memo = &f->memo[key & (FORECAST_MEMO - 1)];
    int64_t from = job->begin_s > c->now_s ? job->begin_s : c->now_s;
    uint32_t count = job->count ? job->count : 1;
    struct forecast_need need;
    struct lane_need one;
    size_t n_parts = 0;

    for (size_t p = 0; p < c->n_parts && n_parts < FORECAST_PARTS; p++)
        if (feature_list_has (job->partition, c->part[p].name,
                              strlen (c->part[p].name)))
            part[n_parts++] = &c->part[p];
    if (memo->key == key && memo->start > from)
        from = memo->start;
    for (; count && !f->cut; count--) {
        from = place (f, job, part, n_parts, from, &one, &need);
        if (from == FORECAST_NEVER)
            break;
        for (uint32_t i = 0; i < need.nodes; i++) {
            if (lane_take (&f->lane[f->found[i]], &one, from, job->time_s))
                return -1;
            forecast_took (f, f->found[i]);
        }
        for (size_t p = 0; p < n_parts && from > c->now_s; p++)
            f->waiting[part[p] - c->part]++;
        f->cut = f->visits > VISITS_MAX;
    }
    *memo = (struct forecast_memo){key, from};
    return 0;
}

int forecast_queue (struct forecast *f, uint32_t tier)
{
    if (f->cluster->jobs_hidden)
        return 0;
    for (; f->next < f->n_order && !f->cut; f->next++) {
        if (f->order[f->next].tier < tier)
            break;
        if (queue_job (f, &f->cluster->job[f->order[f->next].job]))
            return -1;
    }
    return 0;
}
