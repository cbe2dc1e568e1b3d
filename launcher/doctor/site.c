/* SPDX-License-Identifier: Apache-2.0
 * site.c - what rv doctor asks the controller: its configuration, nodes and
 * partitions
 *
 * ask_site runs in the child of slurm_ask.h, the rest in the parent. */
#ifdef HAVE_CONFIG_H
#include "config.h"
#endif
#include <slurm/slurm.h>
#include <stdlib.h>
#include <string.h>

#include "doctor/doctor.h"
#include "jsonout.h"
#include "plan/gres.h"
#include "plan/hostlist.h"
#include "slurm_ask.h"

/* Any of these, and a step that asks for the node would wait or fail. */
#define NOT_FREE                                                               \
    (NODE_STATE_RES | NODE_STATE_DRAIN | NODE_STATE_COMPLETING                 \
     | NODE_STATE_NO_RESPOND | NODE_STATE_POWERED_DOWN | NODE_STATE_FAIL       \
     | NODE_STATE_POWERING_UP | NODE_STATE_MAINT | NODE_STATE_REBOOT_REQUESTED \
     | NODE_STATE_POWERING_DOWN | NODE_STATE_REBOOT_ISSUED                     \
     | NODE_STATE_INVALID_REG)

static const char *const states[] = {
    "unknown", "down", "idle", "allocated", "error", "mixed", "future",
};

static const struct {
    uint32_t flag;
    const char *name;
} flags[] = {
    {NODE_STATE_NO_RESPOND, "not responding"},
    {NODE_STATE_DRAIN, "drained"},
    {NODE_STATE_FAIL, "failing"},
    {NODE_STATE_POWERED_DOWN, "powered down"},
    {NODE_STATE_POWERING_UP, "powering up"},
    {NODE_STATE_POWERING_DOWN, "powering down"},
    {NODE_STATE_REBOOT_REQUESTED, "to reboot"},
    {NODE_STATE_REBOOT_ISSUED, "rebooting"},
    {NODE_STATE_MAINT, "in maintenance"},
    {NODE_STATE_RES, "reserved"},
    {NODE_STATE_COMPLETING, "completing"},
    {NODE_STATE_INVALID_REG, "registered with a wrong configuration"},
};

/* By its gres; -1 where slices stand beside whole ones, which NVML counts
 * otherwise. */
static int64_t whole_gpus (const char *gres)
{
    struct gres_list list = {0};
    bool slices = false;
    int64_t n;

    if (gres_parse (gres ? gres : "", &list, NULL) != RV_OK)
        return -1;
    for (size_t i = 0; i < list.n; i++)
        slices = slices
                 || (!strcmp (list.entry[i].name, "gpu")
                     && gres_is_mig (list.entry[i].type));
    n = slices ? -1 : (int64_t)gres_count (&list, NULL);
    gres_fini (&list);
    return n;
}

static json_t *pack_node (const node_info_t *node)
{
    uint32_t base = node->node_state & NODE_STATE_BASE;
    const char *state = states[base < NODE_STATE_END ? base : 0];

    for (size_t i = 0; i < sizeof (flags) / sizeof (flags[0]); i++)
        if (node->node_state & flags[i].flag) {
            state = flags[i].name;
            break;
        }
    return json_pack (
        "{s:o, s:o, s:s, s:I, s:o, s:b}", "name", jsonout_text (node->name),
        "slurm", jsonout_text (node->version ? node->version : ""), "state",
        state, "gpus", (json_int_t)whole_gpus (node->gres), "gres",
        jsonout_text (node->gres ? node->gres : ""), "idle",
        base == NODE_STATE_IDLE && !(node->node_state & NOT_FREE));
}

static json_t *pack_partition (const partition_info_t *part)
{
    json_t *list = json_array ();
    const int32_t *inx = part->node_inx;

    for (size_t i = 0; inx && inx[i] >= 0; i += 2)
        for (int32_t n = inx[i]; n <= inx[i + 1]; n++)
            json_array_append_new (list, json_integer (n));
    return json_pack ("{s:o, s:o}", "name", jsonout_text (part->name), "nodes",
                      list);
}

static json_t *ask_site (const void *arg)
{
    json_t *nodes = json_array (), *parts = json_array ();
    partition_info_msg_t *p = NULL;
    node_info_msg_t *n = NULL;
    slurm_conf_t *conf = NULL;

    (void)arg;
    if (slurm_load_ctl_conf (0, &conf) || slurm_load_node (0, &n, SHOW_ALL)
        || slurm_load_partitions (0, &p, 0))
        return NULL;
    for (uint32_t i = 0; i < n->record_count; i++)
        json_array_append_new (nodes, pack_node (&n->node_array[i]));
    for (uint32_t i = 0; i < p->record_count; i++) {
        const partition_info_t *part = &p->partition_array[i];

        if (part->state_up == PARTITION_UP
            && !(part->flags & PART_FLAG_ROOT_ONLY))
            json_array_append_new (parts, pack_partition (part));
    }
    return json_pack ("{s:o, s:o, s:o, s:o, s:o, s:o}", "cluster",
                      jsonout_text (conf->cluster_name), "slurm",
                      jsonout_text (conf->version), "plugstack",
                      jsonout_text (conf->plugstack), "mpi_default",
                      jsonout_text (conf->mpi_default), "nodes", nodes,
                      "partitions", parts);
}

static char *copy (const json_t *object, const char *key)
{
    const char *s = json_string_value (json_object_get (object, key));

    return strdup (s ? s : "");
}

/* The text of pack_node lives in the child's tables; ours has the same. */
static const char *state_of (const char *name)
{
    for (size_t i = 0; i < sizeof (flags) / sizeof (flags[0]); i++)
        if (!strcmp (flags[i].name, name))
            return flags[i].name;
    for (size_t i = 0; i < sizeof (states) / sizeof (states[0]); i++)
        if (!strcmp (states[i], name))
            return states[i];
    return states[0];
}

static bool read_node (const json_t *json, struct doctor_node *node)
{
    const char *state = json_string_value (json_object_get (json, "state"));

    node->name = copy (json, "name");
    node->slurm = copy (json, "slurm");
    node->gres = copy (json, "gres");
    node->slurm_state = state_of (state ? state : "");
    node->idle = json_is_true (json_object_get (json, "idle"));
    node->gpus_slurm = json_integer_value (json_object_get (json, "gpus"));
    node->gpus_there = GPUS_UNKNOWN;
    node->state = DOCTOR_UNKNOWN;
    return node->name && node->slurm && node->gres;
}

static bool read_partition (const json_t *json, size_t n_nodes,
                            struct doctor_partition *part)
{
    const json_t *list = json_object_get (json, "nodes");

    part->name = copy (json, "name");
    part->node = calloc (json_array_size (list) + 1, sizeof (*part->node));
    if (!part->name || !part->node)
        return false;
    for (size_t i = 0; i < json_array_size (list); i++) {
        json_int_t inx = json_integer_value (json_array_get (list, i));

        if (inx >= 0 && (size_t)inx < n_nodes)
            part->node[part->n++] = (size_t)inx;
    }
    return true;
}

static bool read_site (const json_t *json, struct doctor_site *site)
{
    const json_t *nodes = json_object_get (json, "nodes");
    const json_t *parts = json_object_get (json, "partitions");
    bool good;

    site->cluster = copy (json, "cluster");
    site->slurm = copy (json, "slurm");
    site->plugstack = copy (json, "plugstack");
    site->mpi_default = copy (json, "mpi_default");
    site->node = calloc (json_array_size (nodes) + 1, sizeof (*site->node));
    site->part = calloc (json_array_size (parts) + 1, sizeof (*site->part));
    good = site->cluster && site->slurm && site->plugstack && site->mpi_default
           && site->node && site->part;
    for (size_t i = 0; good && i < json_array_size (nodes); i++)
        good =
            read_node (json_array_get (nodes, i), &site->node[site->n_nodes++]);
    for (size_t i = 0; good && i < json_array_size (parts); i++)
        good = read_partition (json_array_get (parts, i), site->n_nodes,
                               &site->part[site->n_parts++]);
    return good;
}

int doctor_site_load (struct doctor_site *ret, struct rv_error *err)
{
    struct doctor_site site = {0};
    json_t *json = NULL;
    int status = slurm_ask_wait (ask_site, NULL, &json, err);

    if (status == RV_OK && !read_site (json, &site))
        status = error_set (err, RV_ENOMEM, "out of memory");
    json_decref (json);
    if (status == RV_OK)
        *ret = site;
    else
        doctor_site_fini (&site);
    return status;
}

void doctor_site_fini (struct doctor_site *site)
{
    if (!site)
        return;
    free (site->cluster);
    free (site->slurm);
    free (site->plugstack);
    free (site->mpi_default);
    for (size_t i = 0; i < site->n_nodes; i++) {
        free (site->node[i].name);
        free (site->node[i].slurm);
        free (site->node[i].gres);
        free (site->node[i].plugin);
        free (site->node[i].rv_exec);
    }
    for (size_t i = 0; i < site->n_parts; i++) {
        free (site->part[i].name);
        free (site->part[i].node);
    }
    free (site->node);
    free (site->part);
    *site = (struct doctor_site){0};
}

static struct doctor_node *find (struct doctor_site *site, const char *name)
{
    for (size_t i = 0; i < site->n_nodes; i++)
        if (!strcmp (site->node[i].name, name))
            return &site->node[i];
    return NULL;
}

int doctor_pick (struct doctor_site *site, const char *list,
                 struct rv_error *err)
{
    struct hostlist hosts = {0};
    int status = RV_OK;

    for (size_t i = 0; i < site->n_nodes; i++)
        site->node[i].picked = !list;
    if (!list)
        return RV_OK;
    status = hostlist_parse (list, &hosts, err);
    for (size_t i = 0; status == RV_OK && i < hosts.n; i++) {
        struct doctor_node *node = find (site, hosts.host[i]);

        if (node)
            node->picked = true;
        else
            status = error_set (err, RV_ENOTFOUND, "there is no node '%s'",
                                hosts.host[i]);
    }
    hostlist_fini (&hosts);
    return status;
}
