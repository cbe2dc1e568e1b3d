/* SPDX-License-Identifier: Apache-2.0
 * cluster.c - what rv asks of Slurm: nodes and partitions
 *
 * The functions named ask_* run in the child and turn Slurm's records into
 * JSON; the others read that JSON in the parent. */
#ifdef HAVE_CONFIG_H
#include "config.h"
#endif
#include "cluster.h"
#include "cluster_limits.h"
#include "cluster_queue.h"
#include "plan/feature.h"
#include "record.h"

#include <errno.h>
#include <slurm/slurm.h>
#include <slurm/slurm_errno.h>
#include <slurm/slurmdb.h>
#include <stdlib.h>
#include <string.h>
#include <strings.h>
#include <time.h>
#include <unistd.h>

static bool node_usable (const node_info_t *node)
{
    uint32_t base = node->node_state & NODE_STATE_BASE;

    return base != NODE_STATE_DOWN && base != NODE_STATE_ERROR
           && !(node->node_state & (NODE_STATE_DRAIN | NODE_STATE_FAIL));
}

/* AllocTRES: GPUs stand in it where the site accounts for them. */
static void put_tres_used (struct record_out *out, const node_info_t *node)
{
    char *tres = NULL;

    /* The text is Slurm's own kind of memory, and the child ends soon. */
    slurm_get_select_nodeinfo (node->select_nodeinfo,
                               SELECT_NODEDATA_TRES_ALLOC_FMT_STR,
                               NODE_STATE_ALLOCATED, &tres);
    record_text (out, tres);
}

static void put_node (struct record_out *out, const node_info_t *node)
{
    uint64_t mem = node->real_memory, mem_used = 0;
    uint16_t cpus_used = 0;
    uint32_t base = node->node_state & NODE_STATE_BASE;

    mem = mem > node->mem_spec_limit ? mem - node->mem_spec_limit : 0;
    slurm_get_select_nodeinfo (node->select_nodeinfo, SELECT_NODEDATA_SUBCNT,
                               NODE_STATE_ALLOCATED, &cpus_used);
    slurm_get_select_nodeinfo (node->select_nodeinfo, SELECT_NODEDATA_MEM_ALLOC,
                               NODE_STATE_ALLOCATED, &mem_used);
    record_text (out, node->name);
    record_text (out, node->gres_used);
    put_tres_used (out, node);
    record_int (out, cpus_used);
    record_int (out, (int64_t)mem_used);
    record_text (out, node->features_act ? node->features_act : node->features);
    record_text (out, base == NODE_STATE_FUTURE ? "" : node->gres);
    record_int (out, base == NODE_STATE_FUTURE ? 0
                     : node->cpus_efctv        ? node->cpus_efctv
                                               : node->cpus);
    record_int (out, node->threads);
    record_int (out, (int64_t)mem);
    record_int (out, node_usable (node));
    record_end (out);
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

static void put_partition (struct record_out *out, const struct site *site,
                           const partition_info_t *part)
{
    uint64_t mem = part->max_mem_per_cpu;
    bool per_cpu = mem != INFINITE64 && mem != NO_VAL64 && (mem & MEM_PER_CPU);

    if (mem == INFINITE64 || mem == NO_VAL64)
        mem = 0;
    mem &= ~MEM_PER_CPU;
    record_text (out, part->name);
    record_int (out, on_request (site, part));
    record_int (out, exclusive (site, part));
    record_int (out, part->qos_char && part->qos_char[0]);
    record_int (out, part->priority_tier);
    record_int (out, (part->flags & PART_FLAG_DEFAULT) != 0);
    record_int (out, part->state_up == PARTITION_UP);
    record_int (out, no_limit (part->max_time) ? (int64_t)STRATEGY_UNLIMITED
                                               : (int64_t)part->max_time * 60);
    record_int (out, part->min_nodes);
    record_int (out, no_limit (part->max_nodes) ? 0 : part->max_nodes);
    record_int (
        out, no_limit (part->max_cpus_per_node) ? 0 : part->max_cpus_per_node);
    record_int (out, per_cpu ? 0 : (int64_t)mem);
    record_int (out, per_cpu ? (int64_t)mem : 0);
    record_ranges (out, part->node_inx);
    record_end (out);
}

static json_t *pack_nodes (const node_info_msg_t *msg)
{
    struct record_out out = {0};

    for (uint32_t i = 0; i < msg->record_count; i++)
        put_node (&out, &msg->node_array[i]);
    return record_json (&out);
}

static json_t *pack_partitions (const struct site *site)
{
    const partition_info_msg_t *msg = site->parts;
    struct record_out out = {0};

    for (uint32_t i = 0; i < msg->record_count; i++)
        if (!(msg->partition_array[i].flags & PART_FLAG_ROOT_ONLY))
            put_partition (&out, site, &msg->partition_array[i]);
    return record_json (&out);
}

/* PrivateData=jobs hides those of others from all but Slurm's own user and
 * root. */
static bool jobs_hidden (const slurm_conf_t *conf)
{
    return conf && conf->private_data & PRIVATE_DATA_JOBS && getuid () != 0
           && getuid () != conf->slurm_user_id;
}

/* The federation that this cluster is in, "" = none: slurmctld would send the
 * jobs of one elsewhere. */
static json_t *federation (void)
{
    void *found = NULL;
    const slurmdb_federation_rec_t *fed;

    if (slurm_load_federation (&found) || !found)
        return json_string ("");
    fed = found;
    return json_string (fed->name ? fed->name : "");
}

static json_t *ask_cluster (const void *arg)
{
    struct site site = {.as = arg};
    node_info_msg_t *nodes = NULL;
    partition_info_msg_t *parts = NULL;
    slurm_conf_t *conf = NULL;
    bool memory;
    json_t *queue, *limits;

    /* The node list needs SHOW_ALL: indices of partitions count every node. */
    if (slurm_load_node (0, &nodes, SHOW_ALL | SHOW_DETAIL)
        || slurm_load_partitions (0, &parts, 0)
        || slurm_load_ctl_conf (0, &conf))
        return NULL;
    site.parts = parts;
    site.conf = conf;
    memory = conf->select_type_param & CR_MEMORY;
    queue = cluster_queue_ask (memory);
    limits = cluster_limits_ask (site.as, conf->accounting_storage_enforce);
    return json_pack (
        "{s:s?, s:o, s:o, s:o, s:b, s:b, s:I, s:o, s:o}", "cluster",
        conf->cluster_name, "federation", federation (), "nodes",
        pack_nodes (nodes), "partitions", pack_partitions (&site), "memory",
        memory, "hidden", !queue || jobs_hidden (conf), "now",
        (json_int_t)time (NULL), "queue", queue ? queue : json_null (),
        "limits", limits ? limits : json_null ());
}

static int read_node (struct record_in *in, struct strategy_node *node,
                      struct rv_error *err)
{
    char *used, *tres, *gres;
    int status;

    node->name = record_get_text (in);
    used = record_get_text (in);
    tres = record_get_text (in);
    node->cpus_used = (uint32_t)record_get_int (in);
    node->mem_used_mb = (uint64_t)record_get_int (in);
    node->features = record_get_text (in);
    gres = record_get_text (in);
    node->cpus = (uint32_t)record_get_int (in);
    node->threads = (uint32_t)record_get_int (in);
    node->threads += node->threads == 0;
    node->mem_mb = (uint64_t)record_get_int (in);
    node->usable = record_get_int (in) != 0;
    record_next (in);
    status = in->failed
                 ? error_set (err, RV_EFORMAT, "a node record is malformed")
                 : gres_parse (gres, &node->gres, err);
    /* GresUsed tells the types; a text that is not read is nothing in use. */
    if (status != RV_OK && !in->failed)
        error_prefix (err, "node %s", node->name);
    else if (status == RV_OK
             && (gres_parse (used, &node->used, NULL) != RV_OK
                 || node->used.n == 0))
        gres_parse (tres, &node->used, NULL);
    free (used);
    free (tres);
    free (gres);
    return status == RV_OK ? RV_OK : RV_EFORMAT;
}

static void read_partition (struct record_in *in, size_t n_nodes,
                            struct strategy_partition *part)
{
    part->name = record_get_text (in);
    part->on_request = record_get_int (in) != 0;
    part->exclusive = record_get_int (in) != 0;
    part->own_qos = record_get_int (in) != 0;
    part->tier = (uint32_t)record_get_int (in);
    part->is_default = record_get_int (in) != 0;
    part->up = record_get_int (in) != 0;
    part->max_time_s = record_get_int (in);
    part->min_nodes = (uint32_t)record_get_int (in);
    part->max_nodes = (uint32_t)record_get_int (in);
    part->max_cpus_node = (uint32_t)record_get_int (in);
    part->max_mem_node_mb = (uint64_t)record_get_int (in);
    part->max_mem_cpu_mb = (uint64_t)record_get_int (in);
    record_get_indices (in, n_nodes, &part->node, &part->n_nodes);
    record_next (in);
}

static int read_cluster (const json_t *json, struct strategy_cluster *out,
                         struct rv_error *err)
{
    struct record_in nodes = record_begin (json_object_get (json, "nodes"));
    struct record_in parts =
        record_begin (json_object_get (json, "partitions"));
    const char *cluster = json_string_value (json_object_get (json, "cluster"));
    const char *fed = json_string_value (json_object_get (json, "federation"));
    int status = RV_OK;

    if (fed && fed[0])
        return error_set (err, RV_ENOTSUP,
                          "rv works with one cluster, and this one is in the "
                          "federation '%.64s', whose jobs may go to others; "
                          "use sbatch here",
                          fed);
    out->node = calloc (record_count (&nodes) + 1, sizeof (*out->node));
    out->part = calloc (record_count (&parts) + 1, sizeof (*out->part));
    if (!out->node || !out->part)
        return error_set (err, RV_ENOMEM, "out of memory");
    while (status == RV_OK && record_more (&nodes))
        status = read_node (&nodes, &out->node[out->n_nodes++], err);
    while (status == RV_OK && record_more (&parts) && !parts.failed)
        read_partition (&parts, out->n_nodes, &out->part[out->n_parts++]);
    if (parts.failed)
        return error_set (err, RV_EFORMAT, "a partition record is malformed");
    out->name = strdup (cluster ? cluster : "");
    out->now_s = json_integer_value (json_object_get (json, "now"));
    out->jobs_hidden = json_is_true (json_object_get (json, "hidden"));
    out->memory_shared = !json_is_true (json_object_get (json, "memory"));
    if (status == RV_OK)
        status = cluster_queue_read (json_object_get (json, "queue"), out, err);
    if (status == RV_OK)
        status = cluster_limits_read (json_object_get (json, "limits"),
                                      &out->limits, err);
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
