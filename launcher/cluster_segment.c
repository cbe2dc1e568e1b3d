/* SPDX-License-Identifier: Apache-2.0
 * cluster_segment.c - a job asks about itself, and is put back into the queue
 *
 * As in cluster.c, ask_* run in the child. */
#ifdef HAVE_CONFIG_H
#include "config.h"
#endif
#include "cluster_segment.h"

#include <errno.h>
#include <slurm/slurm.h>
#include <slurm/slurm_errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "jsonout.h"
#include "slurm_ask.h"

struct wish {
    uint32_t job_id;
    const char *exclude, *text;
};

static const char *base_name (uint32_t state)
{
    static const char *const name[] = {
        "PENDING",   "RUNNING",   "SUSPENDED", "COMPLETED",
        "CANCELLED", "FAILED",    "TIMEOUT",   "NODE_FAIL",
        "PREEMPTED", "BOOT_FAIL", "DEADLINE",  "OUT_OF_MEMORY",
    };
    uint32_t base = state & JOB_STATE_BASE;

    return base < sizeof (name) / sizeof (name[0]) ? name[base] : "UNKNOWN";
}

/* An array's first task has the id of the whole, which loads all of them. */
static job_info_t *find (job_info_msg_t *msg, uint32_t job_id)
{
    for (uint32_t i = 0; i < msg->record_count; i++)
        if (msg->job_array[i].job_id == job_id)
            return &msg->job_array[i];
    errno = ESLURM_INVALID_JOB_ID;
    return NULL;
}

/* Slurm gives a time that is far away for "no limit". */
static json_t *end_time (const job_info_t *job)
{
    if (job->time_limit == INFINITE || !job->end_time)
        return json_null ();
    return jsonout_time (job->end_time);
}

static json_t *pack (const job_info_t *job, const char *done)
{
    return json_pack (
        "{s:s, s:I, s:s, s:b, s:I, s:b, s:b, s:o, s:o, s:s}", "schema",
        "rv.segment/1", "job_id", (json_int_t)job->job_id, "state",
        base_name (job->job_state), "completing",
        (job->job_state & JOB_COMPLETING) != 0, "restarts",
        (json_int_t)job->restart_cnt, "preempting", job->preempt_time != 0,
        "may_requeue", job->requeue != 0, "end_time", end_time (job), "exclude",
        jsonout_text (job->exc_nodes), "done", done);
}

static json_t *ask_self (const void *arg)
{
    const struct wish *w = arg;
    job_info_msg_t *msg = NULL;
    const job_info_t *job;

    if (slurm_load_job (&msg, w->job_id, SHOW_ALL)
        || !(job = find (msg, w->job_id)))
        return NULL;
    return pack (job, "asked");
}

/* Slurm does not add to the list, so the user's own nodes go with it. */
static int exclude_node (const job_info_t *job, const char *node)
{
    job_desc_msg_t desc;
    char list[8192];

    snprintf (list, sizeof (list), "%s%s%s",
              job->exc_nodes ? job->exc_nodes : "",
              job->exc_nodes && *job->exc_nodes ? "," : "", node);
    slurm_init_job_desc_msg (&desc);
    desc.job_id = job->job_id;
    desc.exc_nodes = list;
    return slurm_update_job (&desc);
}

/* A stop that came meanwhile stands: Slurm would requeue a cancelled job. */
static const char *requeue (const job_info_t *job, const struct wish *w)
{
    uint32_t base = job->job_state & JOB_STATE_BASE;

    if (base == JOB_CANCELLED || base == JOB_DEADLINE)
        return "stopped";
    if (base == JOB_PENDING)
        return "pending";
    if (slurm_requeue (w->job_id, 0))
        return errno == ESLURM_DISABLED      ? "forbidden"
               : errno == ESLURM_JOB_PENDING ? "pending"
                                             : NULL;
    if (w->exclude && exclude_node (job, w->exclude))
        return "requeued, but not excluded";
    return "requeued";
}

static json_t *ask_requeue (const void *arg)
{
    const struct wish *w = arg;
    job_info_msg_t *msg = NULL;
    const job_info_t *job;
    const char *done;

    if (slurm_load_job (&msg, w->job_id, SHOW_ALL)
        || !(job = find (msg, w->job_id)) || !(done = requeue (job, w)))
        return NULL;
    return pack (job, done);
}

static json_t *ask_comment (const void *arg)
{
    const struct wish *w = arg;
    job_desc_msg_t desc;

    slurm_init_job_desc_msg (&desc);
    desc.job_id = w->job_id;
    desc.comment = (char *)w->text;
    if (slurm_update_job (&desc))
        return NULL;
    return json_pack ("{s:s, s:I, s:s}", "schema", "rv.segment/1", "job_id",
                      (json_int_t)w->job_id, "done", "commented");
}

int cluster_segment_ask (uint32_t job_id, json_t **ret, struct rv_error *err)
{
    const struct wish w = {.job_id = job_id};

    return slurm_ask_wait (ask_self, &w, ret, err);
}

int cluster_segment_requeue (uint32_t job_id, const char *exclude, json_t **ret,
                             struct rv_error *err)
{
    const struct wish w = {.job_id = job_id, .exclude = exclude};

    return slurm_ask_wait (ask_requeue, &w, ret, err);
}

int cluster_segment_comment (uint32_t job_id, const char *text, json_t **ret,
                             struct rv_error *err)
{
    const struct wish w = {.job_id = job_id, .text = text};

    return slurm_ask_wait (ask_comment, &w, ret, err);
}
