/* SPDX-License-Identifier: Apache-2.0
 * cluster_jobs.c - what rv asks of Slurm: this user's jobs, and to end one
 *
 * As in cluster.c, ask_* run in the child. */
#ifdef HAVE_CONFIG_H
#include "config.h"
#endif
#include <errno.h>
#include <signal.h>
#include <slurm/slurm.h>
#include <slurm/slurm_errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/wait.h>
#include <unistd.h>

#include "cluster.h"
#include "record.h"

/* Base states in the order of enum job_states. */
static const char *const state_names[] = {
    "PENDING",   "RUNNING",   "SUSPENDED", "COMPLETED",
    "CANCELLED", "FAILED",    "TIMEOUT",   "NODE_FAIL",
    "PREEMPTED", "BOOT_FAIL", "DEADLINE",  "OUT_OF_MEMORY",
};

/* Reasons that a waiting user can do something about, or learn from. */
static const struct {
    uint16_t reason;
    const char *text;
} reason_names[] = {
    {WAIT_PRIORITY, "Priority"},
    {WAIT_DEPENDENCY, "Dependency"},
    {WAIT_RESOURCES, "Resources"},
    {WAIT_PART_NODE_LIMIT, "PartitionNodeLimit"},
    {WAIT_PART_TIME_LIMIT, "PartitionTimeLimit"},
    {WAIT_PART_DOWN, "PartitionDown"},
    {WAIT_PART_INACTIVE, "PartitionInactive"},
    {WAIT_HELD, "JobHeldAdmin"},
    {WAIT_TIME, "BeginTime"},
    {WAIT_LICENSES, "Licenses"},
    {WAIT_ASSOC_JOB_LIMIT, "AssociationJobLimit"},
    {WAIT_ASSOC_RESOURCE_LIMIT, "AssocResourceLimit"},
    {WAIT_ASSOC_TIME_LIMIT, "AssociationTimeLimit"},
    {WAIT_RESERVATION, "Reservation"},
    {WAIT_NODE_NOT_AVAIL, "ReqNodeNotAvail"},
    {WAIT_HELD_USER, "JobHeldUser"},
    {FAIL_BAD_CONSTRAINTS, "BadConstraints"},
    {FAIL_DOWN_NODE, "NodeDown"},
    {FAIL_LAUNCH, "JobLaunchFailure"},
    {FAIL_ACCOUNT, "InvalidAccount"},
    {FAIL_QOS, "InvalidQOS"},
    {WAIT_QOS_JOB_LIMIT, "QOSJobLimit"},
    {WAIT_QOS_RESOURCE_LIMIT, "QOSResourceLimit"},
    {WAIT_QOS_TIME_LIMIT, "QOSTimeLimit"},
    {WAIT_CLEANING, "Cleaning"},
    {WAIT_PROLOG, "Prolog"},
};

const char *cluster_state_name (uint32_t state)
{
    uint32_t base = state & JOB_STATE_BASE;

    if (state & JOB_COMPLETING)
        return "COMPLETING";
    if (state & JOB_CONFIGURING)
        return "CONFIGURING";
    if (base < sizeof (state_names) / sizeof (state_names[0]))
        return state_names[base];
    return "UNKNOWN";
}

static void reason_text (const job_info_t *job, char *buf, size_t size)
{
    buf[0] = '\0';
    if (job->state_desc && job->state_desc[0]) {
        snprintf (buf, size, "%s", job->state_desc);
        return;
    }
    if (job->state_reason == WAIT_NO_REASON
        || job->state_reason == FAIL_EXIT_CODE)
        return;
    for (size_t i = 0; i < sizeof (reason_names) / sizeof (reason_names[0]);
         i++)
        if (reason_names[i].reason == job->state_reason) {
            snprintf (buf, size, "%s", reason_names[i].text);
            return;
        }
    snprintf (buf, size, "Reason%u", job->state_reason);
}

static void put_job (struct record_out *out, const job_info_t *job)
{
    char reason[256];
    uint32_t base = job->job_state & JOB_STATE_BASE;
    bool active = base <= JOB_SUSPENDED || (job->job_state & JOB_COMPLETING);
    bool limit = job->time_limit != INFINITE && job->time_limit != NO_VAL;
    bool exited = WIFEXITED (job->exit_code);

    reason_text (job, reason, sizeof (reason));
    record_int (out, job->job_id);
    record_int (out, job->array_job_id);
    record_int (out, job->array_job_id && job->array_task_id != NO_VAL
                         ? (int64_t)job->array_task_id
                         : -1);
    record_text (out, job->name);
    record_text (out, job->partition);
    record_text (out, job->nodes);
    record_text (out, cluster_state_name (job->job_state));
    record_text (out, reason);
    record_text (out, job->command);
    record_text (out, job->array_task_id == NO_VAL ? job->array_task_str : "");
    record_int (out, active);
    record_int (out, base == JOB_PENDING);
    record_int (out, job->num_nodes);
    record_int (out, job->restart_cnt);
    record_text (out, job->tres_per_node);
    record_text (out, job->tres_per_job);
    record_int (out, (int64_t)job->submit_time);
    record_int (out, (int64_t)job->eligible_time);
    record_int (out, base == JOB_PENDING ? 0 : (int64_t)job->start_time);
    record_int (out, base == JOB_PENDING ? (int64_t)job->start_time : 0);
    record_int (out, active ? 0 : (int64_t)job->end_time);
    record_int (out, limit ? (int64_t)job->time_limit * 60
                           : (int64_t)STRATEGY_UNLIMITED);
    record_int (out, exited ? WEXITSTATUS (job->exit_code) : 0);
    record_int (out,
                WIFSIGNALED (job->exit_code) ? WTERMSIG (job->exit_code) : 0);
    record_end (out);
}

/* The child ends soon, so the answer of Slurm is not freed. */
static json_t *pack_jobs (const job_info_msg_t *msg)
{
    struct record_out out = {0};

    for (uint32_t i = 0; i < msg->record_count; i++)
        put_job (&out, &msg->job_array[i]);
    return record_json (&out);
}

static json_t *ask_user (const void *arg)
{
    job_info_msg_t *msg = NULL;

    (void)arg;
    if (slurm_load_job_user (&msg, getuid (), SHOW_ALL))
        return NULL;
    return pack_jobs (msg);
}

static json_t *ask_job (const void *arg)
{
    job_info_msg_t *msg = NULL;

    if (slurm_load_job (&msg, *(const uint32_t *)arg, SHOW_ALL))
        return NULL;
    return pack_jobs (msg);
}

static json_t *ask_cancel (const void *arg)
{
    if (slurm_kill_job2 ((const char *)arg, SIGKILL, 0, NULL))
        return NULL;
    return json_object ();
}

/* "gres:gpu:a100:2,..." or "gres/gpu:2" to GPUs; -1 when it names none. */
static int64_t tres_gpus (const char *tres)
{
    struct gres_list list;
    int64_t n;

    if (!tres[0] || gres_parse (tres, &list, NULL) != RV_OK)
        return -1;
    n = (int64_t)gres_count (&list, NULL);
    gres_fini (&list);
    return n ? n : -1;
}

/* The table's own text, so that the member is static. */
const char *cluster_state_static (const char *name)
{
    static const char *const flags[] = {"COMPLETING", "CONFIGURING"};

    for (size_t i = 0; name && i < sizeof (flags) / sizeof (flags[0]); i++)
        if (!strcmp (name, flags[i]))
            return flags[i];
    for (size_t i = 0; name && i < sizeof (state_names) / sizeof (*state_names);
         i++)
        if (!strcmp (name, state_names[i]))
            return state_names[i];
    return "UNKNOWN";
}

static void read_job (struct record_in *in, struct cluster_job *job)
{
    char *text, *per_node;

    job->job_id = (uint32_t)record_get_int (in);
    job->array_id = (uint32_t)record_get_int (in);
    job->array_task = record_get_int (in);
    job->name = record_get_text (in);
    job->partition = record_get_text (in);
    job->node_list = record_get_text (in);
    text = record_get_text (in);
    job->state = cluster_state_static (text);
    free (text);
    job->reason = record_get_text (in);
    job->command = record_get_text (in);
    job->waiting_tasks = record_get_text (in);
    job->active = record_get_int (in) != 0;
    job->pending = record_get_int (in) != 0;
    job->nodes = (uint32_t)record_get_int (in);
    job->restarts = (uint32_t)record_get_int (in);
    per_node = record_get_text (in);
    text = record_get_text (in);
    job->gpus = text ? tres_gpus (text) : -1;
    if (job->gpus < 0 && per_node && (job->gpus = tres_gpus (per_node)) > 0)
        job->gpus *= job->nodes;
    free (per_node);
    free (text);
    job->submitted_at = record_get_int (in);
    job->begins_at = record_get_int (in);
    job->started_at = record_get_int (in);
    job->expected_at = record_get_int (in);
    job->ended_at = record_get_int (in);
    job->time_limit_s = record_get_int (in);
    job->exit_status = (int)record_get_int (in);
    job->exit_signal = (int)record_get_int (in);
    record_next (in);
}

static int read_jobs (const json_t *json, struct cluster_jobs *ret,
                      struct rv_error *err)
{
    struct record_in in = record_begin (json);
    struct cluster_jobs out = {0};

    out.job = calloc (record_count (&in) + 1, sizeof (*out.job));
    if (!out.job)
        return error_set (err, RV_ENOMEM, "out of memory");
    while (record_more (&in) && !in.failed)
        read_job (&in, &out.job[out.n++]);
    if (in.failed) {
        cluster_jobs_fini (&out);
        return error_set (err, RV_EFORMAT, "a job record is malformed");
    }
    *ret = out;
    return RV_OK;
}

int cluster_jobs_load (struct cluster_jobs *ret, struct rv_error *err)
{
    json_t *json = NULL;
    int status = slurm_ask_wait (ask_user, NULL, &json, err);

    if (status == RV_OK)
        status = read_jobs (json, ret, err);
    json_decref (json);
    return status;
}

void cluster_jobs_fini (struct cluster_jobs *jobs)
{
    if (!jobs)
        return;
    for (size_t i = 0; i < jobs->n; i++) {
        free (jobs->job[i].name);
        free (jobs->job[i].partition);
        free (jobs->job[i].node_list);
        free (jobs->job[i].reason);
        free (jobs->job[i].command);
        free (jobs->job[i].waiting_tasks);
        free (jobs->job[i].gpu_type);
    }
    free (jobs->job);
    memset (jobs, 0, sizeof (*jobs));
}

int cluster_job_begin (struct slurm_ask *ask, uint32_t job_id,
                       struct rv_error *err)
{
    return slurm_ask_begin (ask, ask_job, &job_id, err);
}

int cluster_job_poll (struct slurm_ask *ask, int timeout_ms, bool *ret_done,
                      struct cluster_jobs *ret, struct rv_error *err)
{
    json_t *json = NULL;
    int status = slurm_ask_poll (ask, timeout_ms, ret_done, &json, err);

    if (status == RV_OK && *ret_done)
        status = read_jobs (json, ret, err);
    json_decref (json);
    return status;
}

static json_t *ask_name (const void *arg)
{
    slurm_conf_t *conf = NULL;

    (void)arg;
    if (slurm_load_ctl_conf (0, &conf))
        return NULL;
    return json_string (conf->cluster_name ? conf->cluster_name : "");
}

int cluster_name (char **ret, struct rv_error *err)
{
    json_t *json = NULL;
    int status = slurm_ask_wait (ask_name, NULL, &json, err);
    const char *name = json_string_value (json);

    *ret = status == RV_OK ? strdup (name ? name : "") : NULL;
    if (status == RV_OK && !*ret)
        status = error_set (err, RV_ENOMEM, "out of memory");
    json_decref (json);
    return status;
}

int cluster_cancel (uint32_t job_id, struct rv_error *err)
{
    char id[16];

    snprintf (id, sizeof (id), "%u", job_id);
    return cluster_cancel_named (id, err);
}

int cluster_cancel_named (const char *id, struct rv_error *err)
{
    json_t *json = NULL;
    int status = slurm_ask_wait (ask_cancel, id, &json, err);

    json_decref (json);
    return status;
}
