/* SPDX-License-Identifier: Apache-2.0
 * strategy.c - which partition, GPU type and node count serve a request
 *
 * A candidate is a partition, a type and a rule of rv.conf for that type. Its nodes are filtered by what one
 * node must give, the divisors of the GPU count are tried from the fewest
 * nodes up, and the first fit is the plan. When nothing fits, the request is
 * tried again with one wish dropped at a time, so that the error names the
 * wish that cannot be met. */
#include "plan/strategy.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <strings.h>

#include "plan/duration.h"
#include "plan/feature.h"
#include "plan/mig.h"
#include "plan/strategy_explain.h"

#define TYPES_MAX 64 /* distinct types of one partition */

static bool list_has (const char *list, const char *name)
{
    return feature_list_has (list, name, strlen (name));
}

bool strategy_partition_asked (const struct strategy_request *req,
                               const struct strategy_partition *part)
{
    if (!req->partition || !req->partition[0])
        return true;
    return list_has (req->partition, part->name);
}

/* The CPUs of a node that a job in this partition can have. */
static uint32_t usable_cpus (const struct strategy_node *node,
                             const struct strategy_partition *part)
{
    if (part->max_cpus_node && part->max_cpus_node < node->cpus)
        return part->max_cpus_node;
    return node->cpus;
}

/* Whole cores for one task that has [gpus] of the node's [total] GPUs. */
static uint32_t share_cpus (uint32_t cpus, uint32_t threads, uint32_t gpus,
                            uint32_t total)
{
    uint64_t share = (uint64_t)cpus * gpus / total;

    if (threads > 1 && share >= threads)
        share -= share % threads;
    return share ? (uint32_t)share : 1;
}

static const struct strategy_rule no_rule = {.type = "", .cost = -1};

const struct strategy_rule *strategy_rule_next (
    const struct strategy_cluster *cluster, const char *type,
    const struct strategy_rule *last)
{
    size_t i = last ? (size_t)(last - cluster->rule) + 1 : 0;

    for (; i < cluster->n_rules; i++)
        if (!strcasecmp (cluster->rule[i].type, type))
            return &cluster->rule[i];
    return NULL;
}

uint64_t strategy_vram_mb (const struct strategy_rule *rule, const char *type)
{
    const char *profile = rule && rule->vram_mb ? NULL : mig_profile (type);
    const char *dot = profile ? strchr (profile, '.') : NULL;

    /* "1c.3g.20gb": the memory stands behind the last '.'. */
    while (dot && strchr (dot + 1, '.'))
        dot = strchr (dot + 1, '.');
    if (dot)
        return strtoull (dot + 1, NULL, 10) * 1024;
    return rule ? rule->vram_mb : 0;
}

/* What the k GPUs of a task set get on one node. */
struct share {
    uint32_t cpus_per_task;
    uint64_t mem_mb;
};

static uint32_t rule_cpus (const struct strategy_rule *rule, uint32_t cpus,
                           uint32_t tasks, uint32_t k)
{
    uint64_t want = (uint64_t)rule->cpus_per_gpu * (k / tasks);

    return want > cpus / tasks ? cpus / tasks : (uint32_t)want;
}

static uint64_t rule_memory (const struct strategy_rule *rule,
                             const struct strategy_node *node, uint32_t k)
{
    uint64_t want = rule->mem_per_gpu_mb * k;

    return node->mem_mb > 1 && want > node->mem_mb ? node->mem_mb : want;
}

/* Can this node give k GPUs of [type] to the request? */
static bool node_fits (const struct strategy_node *node,
                       const struct strategy_partition *part,
                       const struct strategy_request *req,
                       const struct strategy_rule *rule, const char *type,
                       uint32_t k, struct share *ret)
{
    uint32_t have = k ? strategy_node_gpus (node, type) : 0;
    uint32_t cpus = usable_cpus (node, part), tasks;

    if (node->left_out || have < k || cpus == 0)
        return false;
    if (k && node->features
        && !feature_match (rule->constraint, node->features))
        return false;
    if (node->features && !feature_match (req->constraint, node->features))
        return false;
    if (req->mem_bytes > 0
        && (uint64_t)req->mem_bytes > node->mem_mb * 1024 * 1024)
        return false;
    tasks = k == 0 || req->launch == COMMAND_PER_NODE ? 1 : k;
    if (tasks > cpus)
        return false;
    ret->mem_mb = 0;
    if (k == 0) {
        ret->cpus_per_task = 1;
        return true;
    }
    ret->cpus_per_task = share_cpus (cpus, node->threads, k / tasks, have);
    if (rule->cpus_per_gpu)
        ret->cpus_per_task = rule_cpus (rule, cpus, tasks, k);
    if (node->mem_mb > 1)
        ret->mem_mb = node->mem_mb * k / have;
    if (rule->mem_per_gpu_mb)
        ret->mem_mb = rule_memory (rule, node, k);
    return true;
}

static uint64_t cap_memory (uint64_t mem_mb,
                            const struct strategy_partition *part,
                            uint32_t cpus_on_node)
{
    if (part->max_mem_node_mb && mem_mb > part->max_mem_node_mb)
        mem_mb = part->max_mem_node_mb;
    if (part->max_mem_cpu_mb && mem_mb > part->max_mem_cpu_mb * cpus_on_node)
        mem_mb = part->max_mem_cpu_mb * cpus_on_node;
    return mem_mb;
}

/* Bytes asked for become mebibytes, rounded up. */
static uint64_t asked_mb (const struct strategy_request *req)
{
    return ((uint64_t)req->mem_bytes + 1048575) / 1048576;
}

static void fill_plan (const struct strategy_request *req,
                       const struct strategy_partition *part, const char *type,
                       uint32_t nodes, uint32_t k, struct share share,
                       struct strategy_plan *plan)
{
    memset (plan, 0, sizeof (*plan));
    plan->partition = part->name;
    plan->found_type = k ? type : "";
    snprintf (plan->type, sizeof (plan->type), "%s", k ? type : "");
    plan->gpus = req->gpus;
    plan->nodes = nodes;
    plan->gpus_per_node = k;
    plan->tasks_per_node = k == 0 || req->launch == COMMAND_PER_NODE ? 1 : k;
    plan->tasks = nodes * plan->tasks_per_node;
    plan->cpus_per_task = share.cpus_per_task;
    plan->mem_mb =
        req->mem_bytes > 0
            ? asked_mb (req)
            : cap_memory (share.mem_mb, part,
                          plan->tasks_per_node * plan->cpus_per_task);
    plan->time_s = req->time_s;
    if (part->max_time_s != STRATEGY_UNLIMITED
        && (plan->time_s == STRATEGY_UNLIMITED
            || plan->time_s > part->max_time_s))
        plan->time_s = part->max_time_s;
}

/* What a search needs everywhere, and where its plans go. */
struct search {
    const struct strategy_cluster *cluster;
    const struct strategy_request *req;
    unsigned flags; /* STRATEGY_... */
    strategy_each_f found;
    void *arg;
};

/* Try [nodes] nodes with k GPUs each. True ends the search. */
static bool try_split (const struct search *s,
                       const struct strategy_partition *part, const char *type,
                       const struct strategy_rule *rule, uint32_t nodes,
                       uint32_t k)
{
    struct share least = {UINT32_MAX, UINT64_MAX}, share;
    struct strategy_plan plan;
    uint32_t fit = 0;

    for (size_t i = 0; i < part->n_nodes; i++) {
        const struct strategy_node *node = &s->cluster->node[part->node[i]];

        if ((!(s->flags & STRATEGY_DOWN) && !node->usable)
            || !node_fits (node, part, s->req, rule ? rule : &no_rule, type, k,
                           &share))
            continue;
        fit++;
        if (share.cpus_per_task < least.cpus_per_task)
            least.cpus_per_task = share.cpus_per_task;
        if (share.mem_mb < least.mem_mb)
            least.mem_mb = share.mem_mb;
    }
    if (fit < nodes)
        return false;
    fill_plan (s->req, part, type, nodes, k, least, &plan);
    plan.rule = rule;
    plan.constraint = rule ? rule->constraint : NULL;
    plan.waits_for_node = s->flags & STRATEGY_DOWN;
    return s->found (&plan, part, s->arg);
}

/* The counts of nodes that a job may have. */
static void node_range (const struct strategy_partition *part, uint32_t *least,
                        size_t *most)
{
    *least = part->min_nodes ? part->min_nodes : 1;
    *most = part->n_nodes;
    if (part->max_nodes && part->max_nodes < *most)
        *most = part->max_nodes;
}

static bool rule_allows (const struct search *s, const char *type,
                         const struct strategy_rule *rule,
                         const struct strategy_partition *part)
{
    const struct strategy_request *req = s->req;

    if (req->vram_mb && strategy_vram_mb (rule, type) < req->vram_mb)
        return false;
    if (!part->own_qos && limits_of_type (&s->cluster->limits, type, req->gpus))
        return false;
    if (!rule)
        return !req->rule;
    if (req->rule && strcasecmp (req->rule, strategy_rule_name (rule)))
        return false;
    return (!rule->max_per_job || req->gpus <= rule->max_per_job)
           && (!rule->max_per_user || req->gpus <= rule->max_per_user)
           && (!rule->partition || (req->partition && req->partition[0])
               || list_has (rule->partition, part->name));
}

static bool try_rule (const struct search *s,
                      const struct strategy_partition *part, const char *type,
                      const struct strategy_rule *rule)
{
    const struct strategy_request *req = s->req;
    uint32_t nodes;
    size_t most;

    if (!rule_allows (s, type, rule, part))
        return false;
    for (node_range (part, &nodes, &most); nodes <= most && nodes <= req->gpus;
         nodes++) {
        uint32_t k = req->gpus / nodes;

        if (req->gpus % nodes || (req->nodes && nodes != req->nodes)
            || (req->nproc && k != req->nproc))
            continue;
        if (try_split (s, part, type, rule, nodes, k))
            return true;
    }
    return false;
}

static bool try_type (const struct search *s,
                      const struct strategy_partition *part, const char *type)
{
    const struct strategy_rule *rule = NULL;

    do {
        rule = strategy_rule_next (s->cluster, type, rule);
        if (try_rule (s, part, type, rule))
            return true;
    } while (rule && strategy_rule_next (s->cluster, type, rule));
    return false;
}

static bool try_no_gpu (const struct search *s,
                        const struct strategy_partition *part)
{
    uint32_t nodes = s->req->nodes, least;
    size_t most;

    node_range (part, &least, &most);
    if (nodes == 0)
        nodes = least;
    return nodes >= least && nodes <= most
           && try_split (s, part, "", NULL, nodes, 0);
}

/* Of the type that was asked for; slices only where it is one of theirs. */
bool strategy_type_asked (const struct strategy_request *req,
                          const struct gres_entry *gres)
{
    if (strcmp (gres->name, "gpu") || gres->count == 0)
        return false;
    if (!req->type || !req->type[0])
        return !gres_is_mig (gres->type);
    return !strcasecmp (req->type, gres->type);
}

/* The types of a partition's nodes that the request may have, in their order;
 * returns how many. More than TYPES_MAX are left out. */
static size_t list_types (const struct search *s,
                          const struct strategy_partition *part,
                          const char *types[TYPES_MAX])
{
    size_t n = 0;

    for (size_t i = 0; i < part->n_nodes; i++) {
        const struct strategy_node *node = &s->cluster->node[part->node[i]];
        const struct gres_list *gres = &node->gres;

        for (size_t j = 0; j < gres->n && !node->left_out; j++) {
            size_t k = 0;

            if (!strategy_type_asked (s->req, &gres->entry[j]))
                continue;
            while (k < n && strcasecmp (types[k], gres->entry[j].type))
                k++;
            if (k == n && n < TYPES_MAX)
                types[n++] = gres->entry[j].type;
        }
    }
    return n;
}

static bool time_allowed (const struct strategy_request *req,
                          const struct strategy_partition *part)
{
    int64_t least = req->time_min_s ? req->time_min_s : req->time_s;

    if (part->max_time_s == STRATEGY_UNLIMITED
        || (!req->time_fixed && !req->time_min_s) || req->segments)
        return true;
    return least != STRATEGY_UNLIMITED && least <= part->max_time_s;
}

/* Where another partition may go beyond them, limits do not end the request. */
static bool limits_allow (const struct search *s,
                          const struct strategy_partition *part)
{
    int64_t time_s = s->req->time_s;

    return part->own_qos
           || limits_check (&s->cluster->limits, s->req->gpus, &time_s,
                            s->req->time_fixed && !s->req->segments,
                            s->req->time_min_s, NULL)
                  == RV_OK;
}

static bool try_partition (const struct search *s,
                           const struct strategy_partition *part)
{
    const struct strategy_request *req = s->req;
    const char *types[TYPES_MAX];
    size_t n;

    if (!time_allowed (req, part) || !limits_allow (s, part))
        return false;
    if (req->mem_bytes > 0 && part->max_mem_node_mb
        && asked_mb (req) > part->max_mem_node_mb)
        return false;
    if (req->gpus == 0)
        return try_no_gpu (s, part);
    n = list_types (s, part, types);
    for (size_t i = 0; i < n; i++)
        if (try_type (s, part, types[i]))
            return true;
    return false;
}

bool strategy_each (const struct strategy_cluster *cluster,
                    const struct strategy_request *req, unsigned flags,
                    strategy_each_f found, void *arg)
{
    const struct search s = {cluster, req, flags, found, arg};
    bool named = req->partition && req->partition[0];

    /* The default partition first, then the others in Slurm's order. */
    for (int pass = 0; pass < 2; pass++)
        for (size_t i = 0; i < cluster->n_parts; i++) {
            const struct strategy_partition *part = &cluster->part[i];

            if (part->is_default == (pass == 0) && part->up
                && strategy_partition_asked (req, part)
                && (named || part->is_default || !part->on_request
                    || flags & STRATEGY_ON_REQUEST)
                && try_partition (&s, part))
                return true;
        }
    return false;
}

static bool take_first (const struct strategy_plan *plan,
                        const struct strategy_partition *part, void *arg)
{
    (void)part;
    *(struct strategy_plan *)arg = *plan;
    return true;
}

bool strategy_try (const struct strategy_cluster *cluster,
                   const struct strategy_request *req, bool usable_only,
                   struct strategy_plan *plan)
{
    unsigned flags = usable_only ? 0 : STRATEGY_DOWN;

    return strategy_each (cluster, req, flags, take_first, plan)
           || strategy_each (cluster, req, flags | STRATEGY_ON_REQUEST,
                             take_first, plan);
}

int strategy_check (const struct strategy_cluster *cluster,
                    const struct strategy_request *req, struct rv_error *err)
{
    if (!cluster || !req || req->mem_bytes < 0
        || (req->time_s <= 0 && req->time_s != STRATEGY_UNLIMITED)
        || req->time_min_s < 0)
        return error_set (err, RV_EINVAL, "not a request");
    if (req->time_s != STRATEGY_UNLIMITED && req->time_min_s > req->time_s)
        return error_set (err, RV_EINVAL,
                          "--time-min is longer than the limit; give a longer "
                          "--time");
    if (req->nproc && req->gpus && req->gpus % req->nproc)
        return error_set (err, RV_EINVAL,
                          "the command starts %u processes a node, which does "
                          "not divide %u GPUs; ask for a multiple of %u",
                          req->nproc, req->gpus, req->nproc);
    return strategy_check_partitions (cluster, req, err);
}

int strategy_choose (const struct strategy_cluster *cluster,
                     const struct strategy_request *req,
                     struct strategy_plan *ret, struct rv_error *err)
{
    struct strategy_plan plan;
    int status = ret ? strategy_check (cluster, req, err)
                     : error_set (err, RV_EINVAL, "no result");

    if (status != RV_OK)
        return status;
    if (!strategy_try (cluster, req, true, &plan)
        && !strategy_try (cluster, req, false, &plan))
        return strategy_explain (cluster, req, err);
    *ret = plan;
    return RV_OK;
}
