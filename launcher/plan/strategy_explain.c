/* SPDX-License-Identifier: Apache-2.0
 * strategy_explain.c - why no plan exists, and what would work */
#include "plan/strategy_explain.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <strings.h>

#include "plan/duration.h"
#include "plan/request.h"

#define TYPES_MAX 32 /* distinct types that a message lists */

struct seen {
    const char *type[TYPES_MAX];
    uint64_t total[TYPES_MAX], most[TYPES_MAX]; /* GPUs; on one node */
    size_t n;
};

static void seen_add (struct seen *seen, const char *type, uint64_t count)
{
    size_t i;

    for (i = 0; i < seen->n && strcasecmp (seen->type[i], type); i++)
        ;
    if (i == TYPES_MAX)
        return;
    if (i == seen->n) {
        seen->type[seen->n++] = type;
        seen->total[i] = seen->most[i] = 0;
    }
    seen->total[i] += count;
    if (count > seen->most[i])
        seen->most[i] = count;
}

/* What the asked partitions have; of any type when [any]. */
static void look (const struct strategy_cluster *cluster,
                  const struct strategy_request *req, bool any,
                  struct seen *seen)
{
    struct strategy_request all = *req;

    memset (seen, 0, sizeof (*seen));
    if (any)
        all.type = NULL;
    /* A node in two partitions counts once. */
    for (size_t n = 0; n < cluster->n_nodes; n++) {
        bool inside = false;

        if (cluster->node[n].left_out)
            continue;

        for (size_t p = 0; p < cluster->n_parts && !inside; p++)
            if (strategy_partition_asked (req, &cluster->part[p]))
                for (size_t i = 0; i < cluster->part[p].n_nodes && !inside; i++)
                    inside = cluster->part[p].node[i] == n;
        for (size_t j = 0; inside && j < cluster->node[n].gres.n; j++)
            if (strategy_type_asked (&all, &cluster->node[n].gres.entry[j]))
                seen_add (seen, cluster->node[n].gres.entry[j].type,
                          cluster->node[n].gres.entry[j].count);
    }
}

/* "a100 (4 in all, 2 a node), v100 (...)" */
static const char *list_types (const struct seen *seen, char *buf, size_t size)
{
    size_t used = 0;

    buf[0] = '\0';
    for (size_t i = 0; i < seen->n && used < size; i++) {
        int n = snprintf (buf + used, size - used,
                          "%s%s (%llu in all, %llu a node)", used ? ", " : "",
                          seen->type[i][0] ? seen->type[i] : "GPUs of no type",
                          (unsigned long long)seen->total[i],
                          (unsigned long long)seen->most[i]);

        if (n < 0)
            break;
        used += (size_t)n;
    }
    return buf;
}

static const char *list_partitions (const struct strategy_cluster *cluster,
                                    char *buf, size_t size)
{
    size_t used = 0;

    buf[0] = '\0';
    for (size_t i = 0; i < cluster->n_parts && used < size; i++) {
        int n = snprintf (buf + used, size - used, "%s%s", used ? ", " : "",
                          cluster->part[i].name);

        if (n < 0)
            break;
        used += (size_t)n;
    }
    return buf;
}

static bool asked_any (const char *text)
{
    return text && text[0];
}

static const struct strategy_partition *partition_find (
    const struct strategy_cluster *cluster, const char *name, size_t len)
{
    for (size_t i = 0; i < cluster->n_parts; i++)
        if (!strncmp (cluster->part[i].name, name, len)
            && cluster->part[i].name[len] == '\0')
            return &cluster->part[i];
    return NULL;
}

/* A name of the list that no partition has, or a list of which none is up. */
int strategy_check_partitions (const struct strategy_cluster *cluster,
                               const struct strategy_request *req,
                               struct rv_error *err)
{
    bool up = !asked_any (req->partition);
    char buf[256];

    for (const char *p = req->partition; asked_any (p); p += *p == ',') {
        size_t n = strcspn (p, ",");
        const struct strategy_partition *part = partition_find (cluster, p, n);

        if (!part)
            return error_set (
                err, RV_ENOTFOUND, "there is no partition '%.*s'; there is %s",
                (int)n, p, list_partitions (cluster, buf, sizeof (buf)));
        up = up || part->up;
        p += n;
    }
    if (up)
        return RV_OK;
    return error_set (err, RV_EINVAL,
                      "partition '%s' is not up; wait, or name another with -p",
                      req->partition);
}

static int check_type (const struct strategy_cluster *cluster,
                       const struct strategy_request *req, struct rv_error *err)
{
    struct strategy_request anywhere = *req;
    struct seen here, all;
    char buf[256];

    if (req->gpus == 0)
        return RV_OK;
    look (cluster, req, false, &here);
    if (here.n)
        return RV_OK;
    look (cluster, req, true, &here);
    anywhere.partition = NULL;
    look (cluster, &anywhere, false, &all);
    if (all.n && asked_any (req->partition))
        return error_set (err, RV_ENOTFOUND,
                          "partition '%s' has no such GPU; others do: leave "
                          "out -p",
                          req->partition);
    if (!here.n)
        return error_set (
            err, RV_ENOTFOUND, "%s has no GPUs; -g 0 runs one task without",
            asked_any (req->partition) ? "that partition" : "this cluster");
    return error_set (err, RV_ENOTFOUND,
                      "there is no GPU type '%s'; there is %s", req->type,
                      list_types (&here, buf, sizeof (buf)));
}

/* "a100 80G, v100 32G": what is known of the memory of types. */
static const char *list_vram (const struct strategy_cluster *cluster, char *buf,
                              size_t size)
{
    size_t used = 0;

    buf[0] = '\0';
    for (size_t i = 0; i < cluster->n_rules && used < size; i++) {
        const struct strategy_rule *rule = &cluster->rule[i];
        uint64_t mb = strategy_vram_mb (rule, rule->type);
        int n = 0;

        if (mb)
            n = snprintf (buf + used, size - used, "%s%s %lluM",
                          used ? ", " : "", strategy_rule_name (rule),
                          (unsigned long long)mb);
        if (n < 0)
            break;
        used += (size_t)n;
    }
    return used ? buf : "the memory of none";
}

static int check_vram (const struct strategy_cluster *cluster,
                       const struct strategy_request *req, struct rv_error *err)
{
    struct strategy_request any = *req;
    struct strategy_plan plan;
    char buf[256];

    any.vram_mb = 0;
    if (!req->vram_mb || !strategy_try (cluster, &any, false, &plan))
        return RV_OK;
    return error_set (err, RV_EINVAL,
                      "no GPU that could serve is known to have %lluM; rv.conf "
                      "knows %s",
                      (unsigned long long)req->vram_mb,
                      list_vram (cluster, buf, sizeof (buf)));
}

/* Would it work without rv.conf's limits? */
static int check_rules (const struct strategy_cluster *cluster,
                        const struct strategy_request *req,
                        struct rv_error *err)
{
    struct strategy_cluster free = *cluster;
    struct strategy_request any = *req;
    const struct strategy_rule *rule;
    struct strategy_plan plan;
    uint32_t most;

    free.n_rules = 0;
    any.rule = NULL;
    any.vram_mb = 0;
    if (!cluster->n_rules || !strategy_try (&free, &any, false, &plan))
        return RV_OK;
    rule = strategy_rule_next (cluster, plan.type, NULL);
    while (rule && req->rule
           && strcasecmp (strategy_rule_name (rule), req->rule))
        rule = strategy_rule_next (cluster, plan.type, rule);
    if (!rule)
        return RV_OK;
    most = rule->max_per_job;
    if (rule->max_per_user && (!most || rule->max_per_user < most))
        most = rule->max_per_user;
    if (most && req->gpus > most)
        return error_set (err, RV_EINVAL,
                          "rv.conf allows at most %u %s GPUs a %s; -g %u would "
                          "work",
                          most, plan.type,
                          most == rule->max_per_job ? "job" : "user", most);
    if (rule->partition)
        return error_set (err, RV_EINVAL,
                          "rv.conf has %s GPUs in partition '%s' alone, which "
                          "cannot serve this; name a partition with -p",
                          plan.type, rule->partition);
    return error_set (err, RV_EINVAL,
                      "rv.conf has %s GPUs on nodes with the features '%s' "
                      "alone, which cannot serve this",
                      strategy_rule_name (rule),
                      rule->constraint ? rule->constraint : "");
}

/* Would it work without this wish? Then the wish is the reason. */
static int check_time (const struct strategy_cluster *cluster,
                       const struct strategy_request *req, struct rv_error *err)
{
    struct strategy_request longest = *req;
    struct strategy_plan plan;
    char buf[32];

    longest.time_fixed = false;
    longest.time_min_s = 0;
    longest.time_s = STRATEGY_UNLIMITED;
    if ((!req->time_fixed && !req->time_min_s)
        || !strategy_try (cluster, &longest, false, &plan))
        return RV_OK;
    return error_set (
        err, RV_EINVAL, "partition '%s' allows at most %s; give %s=%s or less",
        plan.partition, duration_format_slurm (plan.time_s, buf, sizeof (buf)),
        req->time_min_s ? "--time-min" : "--time", buf);
}

static int check_memory (const struct strategy_cluster *cluster,
                         const struct strategy_request *req,
                         struct rv_error *err)
{
    struct strategy_request any = *req;
    struct strategy_plan plan;
    uint64_t most = 0;

    any.mem_bytes = 0;
    if (req->mem_bytes == 0 || !strategy_try (cluster, &any, false, &plan))
        return RV_OK;
    for (size_t p = 0; p < cluster->n_parts; p++) {
        const struct strategy_partition *part = &cluster->part[p];

        if (strcmp (part->name, plan.partition))
            continue;
        for (size_t i = 0; i < part->n_nodes; i++)
            if (cluster->node[part->node[i]].mem_mb > most)
                most = cluster->node[part->node[i]].mem_mb;
        if (part->max_mem_node_mb && part->max_mem_node_mb < most)
            most = part->max_mem_node_mb;
    }
    return error_set (err, RV_EINVAL,
                      "a node of partition '%s' gives at most %lluM; give "
                      "--mem=%lluM or less",
                      plan.partition, (unsigned long long)most,
                      (unsigned long long)most);
}

static int check_nodes (const struct strategy_cluster *cluster,
                        const struct strategy_request *req,
                        struct rv_error *err)
{
    struct strategy_request any = *req;
    struct strategy_plan plan;

    any.nodes = any.nproc = 0;
    if ((!req->nodes && !req->nproc)
        || !strategy_try (cluster, &any, false, &plan))
        return RV_OK;
    if (req->nodes)
        return error_set (err, RV_EINVAL,
                          "%u GPUs do not go evenly on %u node%s here%s; "
                          "--nodes=%u would work",
                          req->gpus, req->nodes, req->nodes == 1 ? "" : "s",
                          req->nproc ? " with as many processes a node" : "",
                          plan.nodes);
    return error_set (err, RV_EINVAL,
                      "no nodes give %u GPUs each, as the command's processes "
                      "a node ask; %u nodes of %u would work",
                      req->nproc, plan.nodes, plan.gpus_per_node);
}

static int check_count (const struct strategy_cluster *cluster,
                        const struct strategy_request *req,
                        struct rv_error *err)
{
    struct strategy_request less = *req;
    struct strategy_plan plan;
    struct seen here;
    uint64_t most = 0;
    char buf[256];

    look (cluster, req, false, &here);
    list_types (&here, buf, sizeof (buf));
    for (size_t i = 0; i < here.n; i++)
        if (here.total[i] > most)
            most = here.total[i];
    less.gpus = req->gpus > most ? (uint32_t)most + 1 : req->gpus;
    while (less.gpus > 1) {
        less.gpus--;
        if (less.nproc && less.gpus % less.nproc)
            continue;
        if (strategy_try (cluster, &less, false, &plan))
            return error_set (
                err, RV_EINVAL,
                "no job can have %u%s%s GPUs%s: there is %s; -g %u would work",
                req->gpus, asked_any (req->type) ? " " : "",
                asked_any (req->type) ? req->type : "",
                req->gpus <= most ? " in equal parts a node" : "", buf,
                less.gpus);
    }
    return error_set (err, RV_EINVAL,
                      "no job here can have what is asked: there is %s", buf);
}

/* Without limits there is a plan: the limit on its type is why there is none. */
static int check_limits (const struct strategy_cluster *cluster,
                         const struct strategy_request *req,
                         struct rv_error *err)
{
    struct strategy_cluster free_of = *cluster;
    const struct limit *limit = NULL;
    struct strategy_plan plan;

    memset (&free_of.limits, 0, sizeof (free_of.limits));
    if (strategy_try (&free_of, req, false, &plan))
        limit = limits_of_type (&cluster->limits, plan.type, req->gpus);
    return limit ? limits_beyond (&cluster->limits, limit, req->gpus, err)
                 : RV_OK;
}

/* Would it work if all partitions were up? */
static int check_up (const struct strategy_cluster *cluster,
                     const struct strategy_request *req, struct rv_error *err)
{
    struct strategy_partition *part = calloc (cluster->n_parts, sizeof (*part));
    struct strategy_cluster up = *cluster;
    struct strategy_plan plan;
    int status = RV_OK;

    for (size_t i = 0; part && i < cluster->n_parts; i++) {
        part[i] = cluster->part[i];
        part[i].up = true;
    }
    up.part = part;
    if (part && strategy_try (&up, req, false, &plan))
        status = error_set (err, RV_EINVAL,
                            "partition '%s' could serve, but it is not up; "
                            "wait until it is",
                            plan.partition);
    free (part);
    return status;
}

int strategy_explain (const struct strategy_cluster *cluster,
                      const struct strategy_request *req, struct rv_error *err)
{
    int (*const checks[]) (const struct strategy_cluster *,
                           const struct strategy_request *,
                           struct rv_error *) = {
        check_limits, check_type,  check_vram, check_rules, check_time,
        check_memory, check_nodes, check_up,   check_count};
    int status = RV_OK;

    for (size_t i = 0;
         status == RV_OK && i < sizeof (checks) / sizeof (*checks); i++)
        status = checks[i](cluster, req, err);
    return status;
}
