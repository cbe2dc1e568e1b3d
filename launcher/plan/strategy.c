/* SPDX-License-Identifier: Apache-2.0
 * strategy.c - which partition, GPU type and node count serve a request
 *
 * A candidate is a partition and a type. Its nodes are filtered by what one
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
#include "plan/strategy_explain.h"

/* GPUs of exactly [type] on a node; "" counts untyped ones alone. */
uint32_t strategy_node_gpus (const struct strategy_node *node, const char *type)
{
    uint64_t n = 0;

    for (size_t i = 0; i < node->gres.n; i++)
        if (!strcmp (node->gres.entry[i].name, "gpu")
            && !strcasecmp (node->gres.entry[i].type, type))
            n += node->gres.entry[i].count;
    return n > UINT32_MAX ? UINT32_MAX : (uint32_t)n;
}

/* Is [name] one of the comma separated [list]? */
static bool list_has (const char *list, const char *name)
{
    size_t n = strlen (name);

    for (const char *p = list; p; p = (p = strchr (p, ',')) ? p + 1 : NULL)
        if (!strncmp (p, name, n) && (p[n] == '\0' || p[n] == ','))
            return true;
    return false;
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

static const struct strategy_rule no_rule = {.type = ""};

const struct strategy_rule *strategy_rule_find (
    const struct strategy_cluster *cluster, const char *type)
{
    for (size_t i = 0; i < cluster->n_rules; i++)
        if (!strcasecmp (cluster->rule[i].type, type))
            return &cluster->rule[i];
    return &no_rule;
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

    if (have < k || cpus == 0)
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

/* Try [nodes] nodes with k GPUs each. */
static bool try_split (const struct strategy_cluster *cluster,
                       const struct strategy_partition *part,
                       const struct strategy_request *req, const char *type,
                       uint32_t nodes, uint32_t k, bool usable_only,
                       struct strategy_plan *plan)
{
    const struct strategy_rule *rule =
        k ? strategy_rule_find (cluster, type) : &no_rule;
    struct share least = {UINT32_MAX, UINT64_MAX}, share;
    uint32_t fit = 0;

    for (size_t i = 0; i < part->n_nodes; i++) {
        const struct strategy_node *node = &cluster->node[part->node[i]];

        if ((usable_only && !node->usable)
            || !node_fits (node, part, req, rule, type, k, &share))
            continue;
        fit++;
        if (share.cpus_per_task < least.cpus_per_task)
            least.cpus_per_task = share.cpus_per_task;
        if (share.mem_mb < least.mem_mb)
            least.mem_mb = share.mem_mb;
    }
    if (fit < nodes)
        return false;
    fill_plan (req, part, type, nodes, k, least, plan);
    plan->constraint = rule->constraint;
    return true;
}

static bool try_type (const struct strategy_cluster *cluster,
                      const struct strategy_partition *part,
                      const struct strategy_request *req, const char *type,
                      bool usable_only, struct strategy_plan *plan)
{
    const struct strategy_rule *rule;
    size_t most = part->n_nodes;

    if (part->max_nodes && part->max_nodes < most)
        most = part->max_nodes;
    if (req->gpus == 0) {
        uint32_t nodes = req->nodes ? req->nodes : 1;

        return nodes <= most
               && try_split (cluster, part, req, "", nodes, 0, usable_only,
                             plan);
    }
    rule = strategy_rule_find (cluster, type);
    if ((rule->max_per_job && req->gpus > rule->max_per_job)
        || (rule->partition && (!req->partition || !req->partition[0])
            && !list_has (rule->partition, part->name)))
        return false;
    for (uint32_t nodes = 1; nodes <= most && nodes <= req->gpus; nodes++) {
        uint32_t k = req->gpus / nodes;

        if (req->gpus % nodes || (req->nodes && nodes != req->nodes)
            || (req->nproc && k != req->nproc))
            continue;
        if (try_split (cluster, part, req, type, nodes, k, usable_only, plan))
            return true;
    }
    return false;
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

static bool try_partition (const struct strategy_cluster *cluster,
                           const struct strategy_partition *part,
                           const struct strategy_request *req, bool usable_only,
                           struct strategy_plan *plan)
{
    if (req->time_fixed && part->max_time_s != STRATEGY_UNLIMITED
        && (req->time_s == STRATEGY_UNLIMITED
            || req->time_s > part->max_time_s))
        return false;
    if (req->mem_bytes > 0 && part->max_mem_node_mb
        && asked_mb (req) > part->max_mem_node_mb)
        return false;
    if (req->gpus == 0)
        return try_type (cluster, part, req, "", usable_only, plan);
    /* Nodes of one kind follow each other: a type met just before is not
     * tried again. */
    for (size_t i = 0; i < part->n_nodes; i++) {
        const struct gres_list *gres = &cluster->node[part->node[i]].gres;
        const struct gres_list *before =
            i ? &cluster->node[part->node[i - 1]].gres : NULL;

        for (size_t j = 0; j < gres->n; j++) {
            if (!strategy_type_asked (req, &gres->entry[j]))
                continue;
            if (before && j < before->n
                && !strcmp (before->entry[j].type, gres->entry[j].type)
                && !strcmp (before->entry[j].name, "gpu"))
                continue;
            if (try_type (cluster, part, req, gres->entry[j].type, usable_only,
                          plan))
                return true;
        }
    }
    return false;
}

bool strategy_try (const struct strategy_cluster *cluster,
                   const struct strategy_request *req, bool usable_only,
                   struct strategy_plan *plan)
{
    /* The default partition first, then the others in Slurm's order. */
    for (int pass = 0; pass < 2; pass++)
        for (size_t i = 0; i < cluster->n_parts; i++) {
            const struct strategy_partition *part = &cluster->part[i];

            if (part->is_default == (pass == 0) && part->up
                && strategy_partition_asked (req, part)
                && try_partition (cluster, part, req, usable_only, plan))
                return true;
        }
    return false;
}

int strategy_choose (const struct strategy_cluster *cluster,
                     const struct strategy_request *req,
                     struct strategy_plan *ret, struct rv_error *err)
{
    struct strategy_plan plan;
    int status;

    if (!cluster || !req || !ret || req->mem_bytes < 0
        || (req->time_s <= 0 && req->time_s != STRATEGY_UNLIMITED))
        return error_set (err, RV_EINVAL, "not a request");
    if (req->nproc && req->gpus && req->gpus % req->nproc)
        return error_set (err, RV_EINVAL,
                          "the command starts %u processes a node, which does "
                          "not divide %u GPUs; ask for a multiple of %u",
                          req->nproc, req->gpus, req->nproc);
    if ((status = strategy_check_partitions (cluster, req, err)) != RV_OK)
        return status;
    if (strategy_try (cluster, req, true, &plan)) {
        *ret = plan;
        return RV_OK;
    }
    if (strategy_try (cluster, req, false, &plan)) {
        plan.waits_for_node = true;
        *ret = plan;
        return RV_OK;
    }
    return strategy_explain (cluster, req, err);
}

void strategy_cluster_fini (struct strategy_cluster *cluster)
{
    if (!cluster)
        return;
    for (size_t i = 0; i < cluster->n_nodes; i++) {
        free (cluster->node[i].name);
        gres_fini (&cluster->node[i].gres);
    }
    for (size_t i = 0; i < cluster->n_parts; i++) {
        free (cluster->part[i].name);
        free (cluster->part[i].node);
    }
    free (cluster->node);
    free (cluster->part);
    memset (cluster, 0, sizeof (*cluster));
}
