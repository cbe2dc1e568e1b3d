/* SPDX-License-Identifier: Apache-2.0
 * cluster_status.c - what the cluster is doing: GPUs and queue of each partition
 *
 * All of it runs in the child: thousands of nodes and jobs become a few sums
 * before they are handed over. */
#ifdef HAVE_CONFIG_H
#include "config.h"
#endif
#include "cluster_status.h"

#include <slurm/slurm.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "plan/usage.h"
#include "slurm_ask.h"

struct queue {
    uint64_t running, pending, gpus;
};

static json_t *text (const char *s)
{
    json_t *value = json_string (s ? s : "");

    return value ? value : json_string ("?");
}

/* Why no job can start there; NULL when one can. */
static const char *down_word (const node_info_t *node)
{
    uint32_t base = node->node_state & NODE_STATE_BASE;
    bool busy = base == NODE_STATE_ALLOCATED || base == NODE_STATE_MIXED;

    if (node->node_state & NODE_STATE_NO_RESPOND)
        return "does not answer";
    if (base == NODE_STATE_DOWN)
        return "is down";
    if (base == NODE_STATE_ERROR || base == NODE_STATE_UNKNOWN)
        return "is in an unknown state";
    if (base == NODE_STATE_FUTURE)
        return "is not there yet";
    if (node->node_state & NODE_STATE_DRAIN)
        return busy ? "is draining" : "is drained";
    if (node->node_state & NODE_STATE_FAIL)
        return "is failing";
    if (node->node_state & (NODE_STATE_MAINT | NODE_STATE_REBOOT_REQUESTED))
        return "is in maintenance";
    return NULL;
}

static json_t *pack_usage (const struct usage *usage)
{
    json_t *list = json_array ();

    for (size_t i = 0; i < usage->n; i++) {
        const struct usage_type *t = &usage->type[i];

        json_array_append_new (
            list, json_pack ("{s:o, s:I, s:I, s:I, s:I}", "type",
                             t->type[0] ? text (t->type) : json_null (),
                             "total", (json_int_t)t->total, "free",
                             (json_int_t)t->free, "used", (json_int_t)t->used,
                             "down", (json_int_t)t->down));
    }
    return list;
}

static json_t *count (bool known, uint64_t n)
{
    return known ? json_integer ((json_int_t)n) : json_null ();
}

static json_t *pack_partition (const partition_info_t *part,
                               const node_info_msg_t *nodes,
                               const struct queue *queue, bool known)
{
    struct usage usage = {0};
    uint32_t idle = 0, total = 0;
    json_t *gpus;

    for (size_t i = 0; part->node_inx && part->node_inx[i] >= 0; i += 2)
        for (int32_t n = part->node_inx[i];
             n <= part->node_inx[i + 1] && n < (int32_t)nodes->record_count;
             n++) {
            const node_info_t *node = &nodes->node_array[n];
            const char *down = down_word (node);

            total++;
            idle += !down
                    && (node->node_state & NODE_STATE_BASE) == NODE_STATE_IDLE;
            /* What cannot be read is no reason to show nothing. */
            usage_add (&usage, node->gres ? node->gres : "",
                       node->gres_used ? node->gres_used : "", down != NULL,
                       NULL);
        }
    gpus = pack_usage (&usage);
    usage_fini (&usage);
    return json_pack ("{s:o, s:b, s:b, s:I, s:I, s:o, s:o, s:o, s:o}", "name",
                      text (part->name), "default",
                      !!(part->flags & PART_FLAG_DEFAULT), "up",
                      part->state_up == PARTITION_UP, "nodes",
                      (json_int_t)total, "nodes_idle", (json_int_t)idle, "gpus",
                      gpus, "running_jobs", count (known, queue->running),
                      "pending_jobs", count (known, queue->pending),
                      "pending_gpus", count (known, queue->gpus));
}

/* Does the list "a,b" have the word? */
static bool listed (const char *list, const char *word)
{
    size_t len = strlen (word);

    for (const char *at = list; at && (at = strstr (at, word)); at += len)
        if ((at == list || at[-1] == ',') && (!at[len] || at[len] == ','))
            return true;
    return false;
}

static void add_job (const job_info_t *job, const partition_info_msg_t *parts,
                     struct queue *queues)
{
    uint32_t base = job->job_state & JOB_STATE_BASE;

    if (base != JOB_PENDING && base != JOB_RUNNING && base != JOB_SUSPENDED)
        return;
    for (uint32_t i = 0; i < parts->record_count; i++) {
        if (!listed (job->partition, parts->partition_array[i].name))
            continue;
        if (base != JOB_PENDING) {
            queues[i].running++;
            continue;
        }
        queues[i].pending++;
        queues[i].gpus +=
            usage_asked (job->tres_per_job, job->tres_per_node,
                         job->tres_per_task, job->num_nodes, job->num_tasks);
    }
}

/* Does the site hide the jobs of others from this user? */
static bool jobs_hidden (void)
{
    slurm_conf_t *conf = NULL;
    bool hidden;

    if (slurm_load_ctl_conf (0, &conf))
        return true;
    hidden = (conf->private_data & PRIVATE_DATA_JOBS) && getuid () != 0
             && getuid () != conf->slurm_user_id;
    slurm_free_ctl_conf (conf);
    return hidden;
}

static json_t *pack_down (const node_info_msg_t *nodes)
{
    json_t *list = json_array ();

    for (uint32_t i = 0; i < nodes->record_count; i++) {
        const node_info_t *node = &nodes->node_array[i];
        const char *word = node->name ? down_word (node) : NULL;

        if (word)
            json_array_append_new (
                list,
                json_pack ("{s:o, s:s, s:o}", "name", text (node->name),
                           "state", word, "reason",
                           node->reason && node->reason[0] ? text (node->reason)
                                                           : json_null ()));
    }
    return list;
}

static json_t *ask_status (const void *arg)
{
    node_info_msg_t *nodes = NULL;
    partition_info_msg_t *parts = NULL;
    job_info_msg_t *jobs = NULL;
    struct queue *queues;
    json_t *list;
    bool known;

    (void)arg;
    /* indices of partitions count every node, so all are asked for */
    if (slurm_load_node (0, &nodes, SHOW_ALL | SHOW_DETAIL)
        || slurm_load_partitions (0, &parts, 0)
        || slurm_load_jobs (0, &jobs, SHOW_ALL)
        || !(queues = calloc (parts->record_count + 1, sizeof (*queues))))
        return NULL;
    for (uint32_t i = 0; i < jobs->record_count; i++)
        add_job (&jobs->job_array[i], parts, queues);
    known = !jobs_hidden ();
    list = json_array ();
    for (uint32_t i = 0; i < parts->record_count; i++)
        if (!(parts->partition_array[i].flags & PART_FLAG_ROOT_ONLY))
            json_array_append_new (list,
                                   pack_partition (&parts->partition_array[i],
                                                   nodes, &queues[i], known));
    free (queues);
    return json_pack ("{s:o, s:o}", "partitions", list, "down_nodes",
                      pack_down (nodes));
}

int cluster_status_load (json_t **ret, struct rv_error *err)
{
    return slurm_ask_wait (ask_status, NULL, ret, err);
}
