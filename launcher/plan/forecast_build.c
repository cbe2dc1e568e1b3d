/* SPDX-License-Identifier: Apache-2.0
 * forecast_build.c - what each node has free, from a snapshot */
#include <stdlib.h>
#include <string.h>
#include <strings.h>

#include "plan/feature.h"
#include "plan/forecast_impl.h"

#define GPUS_MAX 8192 /* of a slot; the sum of all fits 16 bits */

int forecast_type (const struct forecast *f, const char *type)
{
    if (!type || !type[0])
        return LANE_ANY;
    for (int i = 0; i < f->n_types; i++)
        if (!strcasecmp (f->type[i], type))
            return i;
    return LANE_NONE;
}

/* As forecast_type, and "" is a type of its own. */
static int type_number (struct forecast *f, const char *type)
{
    int i = 0;

    while (i < f->n_types && strcasecmp (f->type[i], type))
        i++;
    if (i == f->n_types && i < FORECAST_TYPES) {
        f->slice[i] = gres_is_mig (type);
        f->type[f->n_types++] = type;
    }
    return i < FORECAST_TYPES ? i : LANE_NONE;
}

static void add_gpus (struct forecast *f, struct lane *lane,
                      const struct gres_entry *gres)
{
    int type = type_number (f, gres->type);

    for (int i = 0; i < LANE_SLOTS; i++)
        if (lane->type[i] == type || lane->type[i] == LANE_NONE) {
            uint64_t sum = lane->all.gpu[i] + gres->count;

            lane->type[i] = (int16_t)type;
            lane->slice[i] = type >= 0 && f->slice[type];
            lane->all.gpu[i] = sum > GPUS_MAX ? GPUS_MAX : (uint16_t)sum;
            return;
        }
}

static int lane_init (struct forecast *f, struct lane *lane,
                      const struct strategy_node *node)
{
    lane->part = calloc (4, sizeof (*lane->part));
    if (!lane->part)
        return -1;
    lane->room = 4;
    lane->n = 1;
    lane->threads = node->threads;
    for (int i = 0; i < LANE_SLOTS; i++)
        lane->type[i] = LANE_NONE;
    for (size_t i = 0; i < node->gres.n; i++)
        if (!strcmp (node->gres.entry[i].name, "gpu"))
            add_gpus (f, lane, &node->gres.entry[i]);
    for (int i = 0; i < LANE_SLOTS; i++)
        if (!lane->slice[i])
            lane->all.gpu[LANE_SLOTS] =
                (uint16_t)(lane->all.gpu[LANE_SLOTS] + lane->all.gpu[i]);
    lane->all.cpus = node->cpus;
    /* A site that set no memory shares none out. */
    lane->all.mem_mb = node->mem_mb > 1 ? node->mem_mb : UINT64_MAX;
    lane->part[0] = lane->all;
    if (!node->usable) {
        memset (&lane->part[0], 0, sizeof (lane->part[0]));
        memset (&lane->all, 0xff, sizeof (lane->all)); /* never whole */
    }
    lane->part[0].from = f->cluster->now_s;
    return 0;
}

/* What the node itself says is in use: for ever, because the jobs are hidden.
 */
static int take_used (struct forecast *f, uint32_t i)
{
    const struct strategy_node *node = &f->cluster->node[i];
    struct lane_need need = {
        .type = LANE_ANY, .cpus = node->cpus_used, .mem_mb = node->mem_used_mb};
    int failed = lane_take (&f->lane[i], &need, f->cluster->now_s, -1);

    need.cpus = 0;
    need.mem_mb = 0;
    for (size_t j = 0; j < node->used.n && !failed; j++) {
        const struct gres_entry *gres = &node->used.entry[j];

        if (strcmp (gres->name, "gpu"))
            continue;
        need.type = forecast_type (f, gres->type);
        need.gpus = gres->count > GPUS_MAX ? GPUS_MAX : (uint32_t)gres->count;
        failed = lane_take (&f->lane[i], &need, f->cluster->now_s, -1);
    }
    return failed;
}

/* A job that has passed its limit ends any moment. */
static int64_t time_left (const struct forecast *f, int64_t end_s)
{
    if (end_s == 0)
        return -1;
    return end_s > f->cluster->now_s ? end_s - f->cluster->now_s : 1;
}

static int take_running (struct forecast *f, const struct strategy_job *job)
{
    const struct lane_need need = {.type = forecast_type (f, job->type),
                                   .gpus = job->gpus,
                                   .cpus = job->cpus,
                                   .mem_mb = job->mem_mb,
                                   .whole = job->exclusive};

    for (size_t i = 0; i < job->n_nodes; i++)
        if (job->node[i] < f->cluster->n_nodes
            && lane_take (&f->lane[job->node[i]], &need, f->cluster->now_s,
                          time_left (f, job->end_s)))
            return -1;
    return 0;
}

static int take_reservation (struct forecast *f,
                             const struct strategy_reservation *resv)
{
    const struct lane_need need = {.whole = true};
    int64_t now = f->cluster->now_s;
    int64_t start = resv->start_s > now ? resv->start_s : now;
    bool ends = resv->end_s != STRATEGY_UNLIMITED;

    for (size_t i = 0; i < resv->n_nodes && (!ends || resv->end_s > start); i++)
        if (resv->node[i] < f->cluster->n_nodes
            && lane_take (&f->lane[resv->node[i]], &need, start,
                          ends ? resv->end_s - start : -1))
            return -1;
    return 0;
}

static const int64_t time_steps[FORECAST_TIMES] = {0,     900,   3600,  7200,
                                                   14400, 43200, 86400, 172800};

void forecast_took (struct forecast *f, uint32_t node)
{
    for (size_t kind = 0; kind < FORECAST_KINDS; kind++)
        f->fresh[kind * f->cluster->n_nodes + node] = false;
}

size_t forecast_kind (const struct lane_need *one, int64_t time_s)
{
    size_t gpus = one->gpus < FORECAST_GPUS ? one->gpus : FORECAST_GPUS - 1;
    size_t step = FORECAST_TIMES - 1;

    /* Slices are not among the whole GPUs that are counted. */
    if (one->slice)
        gpus = 0;
    while (step && time_s >= 0 && time_s < time_steps[step])
        step--;
    return gpus * FORECAST_TIMES + step;
}

int64_t forecast_opens (struct forecast *f, size_t kind, uint32_t node)
{
    size_t i = kind * f->cluster->n_nodes + node;
    const struct lane_need least = {.type = LANE_ANY,
                                    .gpus = (uint32_t)(kind / FORECAST_TIMES)};

    if (!f->fresh[i]) {
        f->opens[i] =
            lane_earliest (&f->lane[node], &least, f->opens[i],
                           time_steps[kind % FORECAST_TIMES], LANE_NEVER);
        f->fresh[i] = true;
    }
    return f->opens[i];
}

const bool *forecast_has (const struct forecast *f, const struct lane_need *one)
{
    return one->type >= 0 && one->gpus
               ? &f->has[(size_t)one->type * f->cluster->n_nodes]
               : NULL;
}

/* Once all types are numbered. */
static int note_types (struct forecast *f)
{
    size_t n = f->cluster->n_nodes;

    f->has = calloc ((size_t)f->n_types * n + 1, sizeof (*f->has));
    if (!f->has)
        return -1;
    for (size_t i = 0; i < n; i++)
        for (int slot = 0; slot < LANE_SLOTS; slot++)
            if (f->lane[i].type[slot] >= 0)
                f->has[(size_t)f->lane[i].type[slot] * n + i] = true;
    return 0;
}

int forecast_build (struct forecast *f)
{
    const struct strategy_cluster *c = f->cluster;

    for (size_t i = 0; i < c->n_nodes; i++)
        if (lane_init (f, &f->lane[i], &c->node[i]))
            return -1;
    if (note_types (f))
        return -1;
    for (size_t i = 0; i < c->n_nodes && c->jobs_hidden; i++)
        if (take_used (f, (uint32_t)i))
            return -1;
    for (size_t i = 0; i < c->n_jobs && !c->jobs_hidden; i++)
        if (c->job[i].running && take_running (f, &c->job[i]))
            return -1;
    for (size_t i = 0; i < c->n_resv; i++)
        if (take_reservation (f, &c->resv[i]))
            return -1;
    for (size_t i = 0; i < FORECAST_KINDS * c->n_nodes; i++)
        f->opens[i] = c->now_s;
    for (size_t i = 0; i < FORECAST_KINDS * forecast_groups (c->n_nodes); i++)
        f->low[i] = c->now_s;
    return 0;
}

static const bool *filter_of (struct forecast *f, const char *expr)
{
    const struct strategy_cluster *c = f->cluster;
    struct forecast_filter *filter;
    size_t i = 0;

    if (!expr || !expr[0])
        return NULL;
    while (i < f->n_filters && strcmp (f->filter[i].expr, expr))
        i++;
    if (i < f->n_filters)
        return f->filter[i].node;
    /* The last place is made new for each further expression. */
    if (i == FORECAST_FEATURES)
        i--;
    else
        f->n_filters++;
    filter = &f->filter[i];
    filter->expr = expr;
    if (!filter->node)
        filter->node = calloc (c->n_nodes + 1, sizeof (*filter->node));
    for (size_t n = 0; filter->node && n < c->n_nodes; n++)
        filter->node[n] =
            !c->node[n].features || feature_match (expr, c->node[n].features);
    return filter->node;
}

/* [first] and [second] together; NULL is all. */
static const bool *both (struct forecast *f, const bool *first,
                         const bool *second)
{
    if (!first || !second)
        return first ? first : second;
    for (size_t i = 0; i < f->cluster->n_nodes; i++)
        f->both[i] = first[i] && second[i];
    return f->both;
}

/* The nodes that are not left out; NULL where none is. */
static const bool *not_left_out (struct forecast *f)
{
    const struct strategy_cluster *c = f->cluster;
    bool some = false;

    for (size_t i = 0; i < c->n_nodes; i++) {
        f->left[i] = !c->node[i].left_out;
        some = some || c->node[i].left_out;
    }
    return some ? f->left : NULL;
}

const bool *forecast_filter (struct forecast *f,
                             const struct forecast_need *need)
{
    const bool *first = filter_of (f, need->features);

    /* The place of the first may be made new for the second. */
    if (first && need->also && need->also[0]) {
        memcpy (f->both, first, f->cluster->n_nodes * sizeof (*first));
        first = f->both;
    }
    first = both (f, first, filter_of (f, need->also));
    return need->narrowed ? both (f, first, not_left_out (f)) : first;
}
