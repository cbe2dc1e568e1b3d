/* SPDX-License-Identifier: Apache-2.0
 * cluster.c - what rv asks of Slurm: nodes and partitions
 *
 * The functions named ask_* run in the child and turn Slurm's records into
 * JSON; the others read that JSON in the parent. */
#ifdef HAVE_CONFIG_H
#include "config.h"
#endif
#include "cluster.h"

#include <errno.h>
#include <slurm/slurm.h>
#include <slurm/slurm_errno.h>
#include <stdlib.h>
#include <string.h>

static json_t *text (const char *s)
{
    /* Slurm's strings are bytes; what is not UTF-8 is not shown. */
    json_t *value = json_string (s ? s : "");

    return value ? value : json_string ("?");
}

static bool node_usable (const node_info_t *node)
{
    uint32_t base = node->node_state & NODE_STATE_BASE;

    return base != NODE_STATE_DOWN && base != NODE_STATE_ERROR
           && !(node->node_state & (NODE_STATE_DRAIN | NODE_STATE_FAIL));
}

static json_t *pack_node (const node_info_t *node)
{
    uint64_t mem = node->real_memory;
    uint32_t base = node->node_state & NODE_STATE_BASE;

    mem = mem > node->mem_spec_limit ? mem - node->mem_spec_limit : 0;
    return json_pack (
        "{s:o, s:o, s:o, s:i, s:i, s:I, s:b}", "name", text (node->name),
        "features",
        text (node->features_act ? node->features_act : node->features), "gres",
        text (base == NODE_STATE_FUTURE ? "" : node->gres), "cpus",
        base == NODE_STATE_FUTURE ? 0
        : node->cpus_efctv        ? node->cpus_efctv
                                  : node->cpus,
        "threads", node->threads, "mem_mb", (json_int_t)mem, "usable",
        node_usable (node));
}

static json_t *pack_indices (const int32_t *inx)
{
    json_t *list = json_array ();

    for (size_t i = 0; inx && inx[i] >= 0; i += 2)
        for (int32_t n = inx[i]; n <= inx[i + 1]; n++)
            json_array_append_new (list, json_integer (n));
    return list;
}

static bool no_limit (uint32_t value)
{
    return value == INFINITE || value == NO_VAL;
}

static json_t *pack_partition (const partition_info_t *part)
{
    uint64_t mem = part->max_mem_per_cpu;
    bool per_cpu = mem != INFINITE64 && mem != NO_VAL64 && (mem & MEM_PER_CPU);

    if (mem == INFINITE64 || mem == NO_VAL64)
        mem = 0;
    mem &= ~MEM_PER_CPU;
    return json_pack (
        "{s:o, s:b, s:b, s:I, s:I, s:I, s:I, s:I, s:I, s:o}", "name",
        text (part->name), "default", (part->flags & PART_FLAG_DEFAULT) != 0,
        "up", part->state_up == PARTITION_UP, "max_time_s",
        no_limit (part->max_time) ? (json_int_t)STRATEGY_UNLIMITED
                                  : (json_int_t)part->max_time * 60,
        "min_nodes", (json_int_t)part->min_nodes, "max_nodes",
        no_limit (part->max_nodes) ? (json_int_t)0
                                   : (json_int_t)part->max_nodes,
        "max_cpus_node",
        no_limit (part->max_cpus_per_node)
            ? (json_int_t)0
            : (json_int_t)part->max_cpus_per_node,
        "max_mem_node_mb", per_cpu ? (json_int_t)0 : (json_int_t)mem,
        "max_mem_cpu_mb", per_cpu ? (json_int_t)mem : (json_int_t)0, "nodes",
        pack_indices (part->node_inx));
}

static json_t *ask_cluster (const void *arg)
{
    node_info_msg_t *nodes = NULL;
    partition_info_msg_t *parts = NULL;
    json_t *node_list, *part_list;

    (void)arg;
    /* The node list needs SHOW_ALL: indices of partitions count every node. */
    if (slurm_load_node (0, &nodes, SHOW_ALL)
        || slurm_load_partitions (0, &parts, 0))
        return NULL;
    node_list = json_array ();
    part_list = json_array ();
    for (uint32_t i = 0; i < nodes->record_count; i++)
        json_array_append_new (node_list, pack_node (&nodes->node_array[i]));
    for (uint32_t i = 0; i < parts->record_count; i++)
        if (!(parts->partition_array[i].flags & PART_FLAG_ROOT_ONLY))
            json_array_append_new (part_list,
                                   pack_partition (&parts->partition_array[i]));
    return json_pack ("{s:o, s:o}", "nodes", node_list, "partitions",
                      part_list);
}

static int read_node (const json_t *json, struct strategy_node *node,
                      struct rv_error *err)
{
    const char *name, *features, *gres;
    int cpus, threads, usable;
    json_int_t mem;

    if (json_unpack ((json_t *)json, "{s:s, s:s, s:s, s:i, s:i, s:I, s:b}",
                     "name", &name, "features", &features, "gres", &gres,
                     "cpus", &cpus, "threads", &threads, "mem_mb", &mem,
                     "usable", &usable))
        return error_set (err, RV_EFORMAT, "a node record is malformed");
    node->cpus = (uint32_t)cpus;
    node->threads = threads > 0 ? (uint32_t)threads : 1;
    node->mem_mb = (uint64_t)mem;
    node->usable = usable;
    node->name = strdup (name);
    node->features = strdup (features);
    if (!node->name || !node->features)
        return error_set (err, RV_ENOMEM, "out of memory");
    if (gres_parse (gres, &node->gres, err) != RV_OK) {
        error_prefix (err, "node %s", name);
        return RV_EFORMAT;
    }
    return RV_OK;
}

static int read_partition (const json_t *json, size_t n_nodes,
                           struct strategy_partition *part,
                           struct rv_error *err)
{
    const char *name;
    int is_default, up;
    json_int_t max_time, min_nodes, max_nodes, max_cpus, mem_node, mem_cpu;
    json_t *nodes;

    if (json_unpack ((json_t *)json,
                     "{s:s, s:b, s:b, s:I, s:I, s:I, s:I, s:I, s:I, s:o}",
                     "name", &name, "default", &is_default, "up", &up,
                     "max_time_s", &max_time, "min_nodes", &min_nodes,
                     "max_nodes", &max_nodes, "max_cpus_node", &max_cpus,
                     "max_mem_node_mb", &mem_node, "max_mem_cpu_mb", &mem_cpu,
                     "nodes", &nodes))
        return error_set (err, RV_EFORMAT, "a partition record is malformed");
    part->is_default = is_default;
    part->up = up;
    part->max_time_s = max_time;
    part->min_nodes = (uint32_t)min_nodes;
    part->max_nodes = (uint32_t)max_nodes;
    part->max_cpus_node = (uint32_t)max_cpus;
    part->max_mem_node_mb = (uint64_t)mem_node;
    part->max_mem_cpu_mb = (uint64_t)mem_cpu;
    part->name = strdup (name);
    part->node = calloc (json_array_size (nodes) + 1, sizeof (*part->node));
    if (!part->name || !part->node)
        return error_set (err, RV_ENOMEM, "out of memory");
    for (size_t i = 0; i < json_array_size (nodes); i++) {
        json_int_t inx = json_integer_value (json_array_get (nodes, i));

        if (inx >= 0 && (size_t)inx < n_nodes)
            part->node[part->n_nodes++] = (uint32_t)inx;
    }
    return RV_OK;
}

static int read_cluster (const json_t *json, struct strategy_cluster *out,
                         struct rv_error *err)
{
    json_t *nodes = json_object_get (json, "nodes");
    json_t *parts = json_object_get (json, "partitions");
    int status = RV_OK;

    out->node = calloc (json_array_size (nodes) + 1, sizeof (*out->node));
    out->part = calloc (json_array_size (parts) + 1, sizeof (*out->part));
    if (!out->node || !out->part)
        return error_set (err, RV_ENOMEM, "out of memory");
    for (size_t i = 0; i < json_array_size (nodes) && status == RV_OK; i++)
        status = read_node (json_array_get (nodes, i),
                            &out->node[out->n_nodes++], err);
    for (size_t i = 0; i < json_array_size (parts) && status == RV_OK; i++)
        status = read_partition (json_array_get (parts, i), out->n_nodes,
                                 &out->part[out->n_parts++], err);
    return status;
}

int cluster_load (struct strategy_cluster *ret, struct rv_error *err)
{
    struct strategy_cluster out = {0};
    json_t *json = NULL;
    int status = slurm_ask_wait (ask_cluster, NULL, &json, err);

    if (status == RV_OK)
        status = read_cluster (json, &out, err);
    json_decref (json);
    if (status != RV_OK) {
        strategy_cluster_fini (&out);
        return status;
    }
    *ret = out;
    return RV_OK;
}
