/* SPDX-License-Identifier: Apache-2.0
 * cluster.c - what rv asks of Slurm: nodes and partitions
 *
 * The functions named ask_* run in the child and turn Slurm's records into
 * JSON; the others read that JSON in the parent. */
#ifdef HAVE_CONFIG_H
#include "config.h"
#endif
#include "cluster.h"
#include "cluster_queue.h"
#include "plan/feature.h"

#include <errno.h>
#include <slurm/slurm.h>
#include <slurm/slurm_errno.h>
#include <stdlib.h>
#include <string.h>
#include <strings.h>
#include <time.h>
#include <unistd.h>

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

/* AllocTRES: GPUs stand in it where the site accounts for them. */
static json_t *tres_used (const node_info_t *node)
{
    char *tres = NULL;

    /* The text is Slurm's own kind of memory, and the child ends soon. */
    slurm_get_select_nodeinfo (node->select_nodeinfo,
                               SELECT_NODEDATA_TRES_ALLOC_FMT_STR,
                               NODE_STATE_ALLOCATED, &tres);
    return text (tres);
}

static json_t *pack_node (const node_info_t *node)
{
    uint64_t mem = node->real_memory, mem_used = 0;
    uint16_t cpus_used = 0;
    uint32_t base = node->node_state & NODE_STATE_BASE;

    mem = mem > node->mem_spec_limit ? mem - node->mem_spec_limit : 0;
    slurm_get_select_nodeinfo (node->select_nodeinfo, SELECT_NODEDATA_SUBCNT,
                               NODE_STATE_ALLOCATED, &cpus_used);
    slurm_get_select_nodeinfo (node->select_nodeinfo, SELECT_NODEDATA_MEM_ALLOC,
                               NODE_STATE_ALLOCATED, &mem_used);
    return json_pack (
        "{s:o, s:o, s:o, s:i, s:I, s:o, s:o, s:i, s:i, s:I, s:b}", "name",
        text (node->name), "used", text (node->gres_used), "tres",
        tres_used (node), "cpus_used", cpus_used, "mem_used_mb",
        (json_int_t)mem_used, "features",
        text (node->features_act ? node->features_act : node->features), "gres",
        text (base == NODE_STATE_FUTURE ? "" : node->gres), "cpus",
        base == NODE_STATE_FUTURE ? 0
        : node->cpus_efctv        ? node->cpus_efctv
                                  : node->cpus,
        "threads", node->threads, "mem_mb", (json_int_t)mem, "usable",
        node_usable (node));
}

static bool no_limit (uint32_t value)
{
    return value == INFINITE || value == NO_VAL;
}

/* What the records of one answer share. */
struct site {
    const slurm_conf_t *conf;
    const partition_info_msg_t *parts;
    const struct cluster_as *as;
};

/* May a partition's lists refuse one whose account is [name]? Slurm alone knows
 * the account where none is given. */
static bool may_refuse (const char *allow, const char *deny, const char *name)
{
    size_t n = name ? strlen (name) : 0;

    if (allow && allow[0] && strcasecmp (allow, "ALL"))
        return !feature_list_has (allow, name, n);
    return deny && deny[0] && (!name || feature_list_has (deny, name, n));
}

/* Jobs of a partition of a lower tier may be stopped for those of a higher
 * one. */
static bool preempts (const struct site *site, const partition_info_t *part)
{
    uint16_t mode = part->preempt_mode & ~PREEMPT_MODE_GANG;

    if (!site->conf || !site->conf->preempt_type
        || strcmp (site->conf->preempt_type, "preempt/partition_prio"))
        return false;
    if (mode == (uint16_t)(NO_VAL16 & ~PREEMPT_MODE_GANG))
        mode = site->conf->preempt_mode & ~PREEMPT_MODE_GANG;
    for (uint32_t i = 0; mode && i < site->parts->record_count; i++)
        if (site->parts->partition_array[i].priority_tier > part->priority_tier)
            return true;
    return false;
}

static bool on_request (const struct site *site, const partition_info_t *part)
{
    return may_refuse (part->allow_accounts, part->deny_accounts,
                       site->as->account)
           || may_refuse (part->allow_qos, part->deny_qos, site->as->qos)
           || preempts (site, part);
}

static bool exclusive (const struct site *site, const partition_info_t *part)
{
    return part->max_share == 0
           || (site->conf && site->conf->select_type
               && !strcmp (site->conf->select_type, "select/linear"));
}

static json_t *pack_partition (const struct site *site,
                               const partition_info_t *part)
{
    uint64_t mem = part->max_mem_per_cpu;
    bool per_cpu = mem != INFINITE64 && mem != NO_VAL64 && (mem & MEM_PER_CPU);

    if (mem == INFINITE64 || mem == NO_VAL64)
        mem = 0;
    mem &= ~MEM_PER_CPU;
    return json_pack (
        "{s:o, s:b, s:b, s:I, s:b, s:b, s:I, s:I, s:I, s:I, s:I, s:I, s:o}",
        "name", text (part->name), "on_request", on_request (site, part),
        "exclusive", exclusive (site, part), "tier",
        (json_int_t)part->priority_tier, "default",
        (part->flags & PART_FLAG_DEFAULT) != 0, "up",
        part->state_up == PARTITION_UP, "max_time_s",
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
        cluster_indices (part->node_inx));
}

static json_t *pack_nodes (const node_info_msg_t *msg)
{
    json_t *list = json_array ();

    for (uint32_t i = 0; i < msg->record_count; i++)
        json_array_append_new (list, pack_node (&msg->node_array[i]));
    return list;
}

static json_t *pack_partitions (const struct site *site)
{
    const partition_info_msg_t *msg = site->parts;
    json_t *list = json_array ();

    for (uint32_t i = 0; i < msg->record_count; i++)
        if (!(msg->partition_array[i].flags & PART_FLAG_ROOT_ONLY))
            json_array_append_new (
                list, pack_partition (site, &msg->partition_array[i]));
    return list;
}

/* PrivateData=jobs hides those of others from all but Slurm's own user and
 * root. */
static bool jobs_hidden (const slurm_conf_t *conf)
{
    return conf && conf->private_data & PRIVATE_DATA_JOBS && getuid () != 0
           && getuid () != conf->slurm_user_id;
}

static json_t *ask_cluster (const void *arg)
{
    struct site site = {.as = arg};
    node_info_msg_t *nodes = NULL;
    partition_info_msg_t *parts = NULL;
    slurm_conf_t *conf = NULL;
    bool memory;
    json_t *queue;

    /* The node list needs SHOW_ALL: indices of partitions count every node. */
    if (slurm_load_node (0, &nodes, SHOW_ALL | SHOW_DETAIL)
        || slurm_load_partitions (0, &parts, 0)
        || slurm_load_ctl_conf (0, &conf))
        return NULL;
    site.parts = parts;
    site.conf = conf;
    memory = conf->select_type_param & CR_MEMORY;
    queue = cluster_queue_ask (memory);
    return json_pack ("{s:o, s:o, s:b, s:b, s:I, s:o}", "nodes",
                      pack_nodes (nodes), "partitions", pack_partitions (&site),
                      "memory", memory, "hidden", !queue || jobs_hidden (conf),
                      "now", (json_int_t)time (NULL), "queue",
                      queue ? queue : json_null ());
}

static int read_node (const json_t *json, struct strategy_node *node,
                      struct rv_error *err)
{
    const char *name, *features, *gres, *used, *tres;
    int cpus, threads, usable, cpus_used;
    json_int_t mem, mem_used;

    if (json_unpack ((json_t *)json,
                     "{s:s, s:s, s:s, s:i, s:I, s:s, s:s, s:i, s:i, s:I, s:b}",
                     "name", &name, "used", &used, "tres", &tres, "cpus_used",
                     &cpus_used, "mem_used_mb", &mem_used, "features",
                     &features, "gres", &gres, "cpus", &cpus, "threads",
                     &threads, "mem_mb", &mem, "usable", &usable))
        return error_set (err, RV_EFORMAT, "a node record is malformed");
    node->cpus = (uint32_t)cpus;
    node->threads = threads > 0 ? (uint32_t)threads : 1;
    node->cpus_used = (uint32_t)cpus_used;
    node->mem_mb = (uint64_t)mem;
    node->mem_used_mb = (uint64_t)mem_used;
    node->usable = usable;
    node->name = strdup (name);
    node->features = strdup (features);
    if (!node->name || !node->features)
        return error_set (err, RV_ENOMEM, "out of memory");
    if (gres_parse (gres, &node->gres, err) != RV_OK) {
        error_prefix (err, "node %s", name);
        return RV_EFORMAT;
    }
    /* GresUsed tells the types; a text that is not read is nothing in use. */
    if (gres_parse (used, &node->used, NULL) != RV_OK || node->used.n == 0)
        gres_parse (tres, &node->used, NULL);
    return RV_OK;
}

static int read_partition (const json_t *json, size_t n_nodes,
                           struct strategy_partition *part,
                           struct rv_error *err)
{
    const char *name;
    int is_default, up, on_request, exclusive;
    json_int_t tier, max_time, min_nodes, max_nodes, max_cpus, mem_node,
        mem_cpu;
    json_t *nodes;

    if (json_unpack ((json_t *)json,
                     "{s:s, s:b, s:b, s:I, s:b, s:b, s:I, s:I, s:I, s:I, s:I, "
                     "s:I, s:o}",
                     "name", &name, "on_request", &on_request, "exclusive",
                     &exclusive, "tier", &tier, "default", &is_default, "up",
                     &up, "max_time_s", &max_time, "min_nodes", &min_nodes,
                     "max_nodes", &max_nodes, "max_cpus_node", &max_cpus,
                     "max_mem_node_mb", &mem_node, "max_mem_cpu_mb", &mem_cpu,
                     "nodes", &nodes))
        return error_set (err, RV_EFORMAT, "a partition record is malformed");
    part->is_default = is_default;
    part->up = up;
    part->on_request = on_request;
    part->exclusive = exclusive;
    part->tier = (uint32_t)tier;
    part->max_time_s = max_time;
    part->min_nodes = (uint32_t)min_nodes;
    part->max_nodes = (uint32_t)max_nodes;
    part->max_cpus_node = (uint32_t)max_cpus;
    part->max_mem_node_mb = (uint64_t)mem_node;
    part->max_mem_cpu_mb = (uint64_t)mem_cpu;
    part->name = strdup (name);
    if (!part->name
        || cluster_indices_read (nodes, n_nodes, &part->node, &part->n_nodes))
        return error_set (err, RV_ENOMEM, "out of memory");
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
    out->now_s = json_integer_value (json_object_get (json, "now"));
    out->jobs_hidden = json_is_true (json_object_get (json, "hidden"));
    out->memory_shared = !json_is_true (json_object_get (json, "memory"));
    if (status == RV_OK)
        status = cluster_queue_read (json_object_get (json, "queue"), out, err);
    return status;
}

int cluster_load (const struct cluster_as *as, struct strategy_cluster *ret,
                  struct rv_error *err)
{
    static const struct cluster_as nobody = {NULL, NULL};
    struct strategy_cluster out = {0};
    json_t *json = NULL;
    int status = slurm_ask_wait (ask_cluster, as ? as : &nobody, &json, err);

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
