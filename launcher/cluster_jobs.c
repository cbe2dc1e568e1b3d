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

static const char *state_name (uint32_t state)
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

static json_t *text (const char *s)
{
    json_t *value = json_string (s ? s : "");

    return value ? value : json_string ("?");
}

static json_t *pack_job (const job_info_t *job)
{
    char reason[256];
    uint32_t base = job->job_state & JOB_STATE_BASE;
    bool active = base <= JOB_SUSPENDED || (job->job_state & JOB_COMPLETING);
    bool limit = job->time_limit != INFINITE && job->time_limit != NO_VAL;

    reason_text (job, reason, sizeof (reason));
    return json_pack (
        "{s:I, s:I, s:I, s:o, s:o, s:o, s:s, s:o, s:b, s:b, s:I, s:i, s:o, "
        "s:o, s:I, "
        "s:I, s:I, s:I, s:I, s:I, s:i, s:i, s:o}",
        "job_id", (json_int_t)job->job_id, "array_id",
        (json_int_t)job->array_job_id, "array_task",
        job->array_job_id && job->array_task_id != NO_VAL
            ? (json_int_t)job->array_task_id
            : (json_int_t)-1,
        "name", text (job->name), "partition", text (job->partition),
        "node_list", text (job->nodes), "state", state_name (job->job_state),
        "reason", text (reason), "active", active, "pending",
        base == JOB_PENDING, "nodes", (json_int_t)job->num_nodes, "restarts",
        job->restart_cnt, "tres_per_node", text (job->tres_per_node),
        "tres_per_job", text (job->tres_per_job), "submitted_at",
        (json_int_t)job->submit_time, "begins_at",
        (json_int_t)job->eligible_time, "started_at",
        (json_int_t)(base == JOB_PENDING ? 0 : job->start_time), "expected_at",
        (json_int_t)(base == JOB_PENDING ? job->start_time : 0), "ended_at",
        (json_int_t)(active ? 0 : job->end_time), "time_limit_s",
        limit ? (json_int_t)job->time_limit * 60
              : (json_int_t)STRATEGY_UNLIMITED,
        "exit_status",
        WIFEXITED (job->exit_code) ? WEXITSTATUS (job->exit_code) : 0,
        "exit_signal",
        WIFSIGNALED (job->exit_code) ? WTERMSIG (job->exit_code) : 0, "command",
        text (job->command));
}

static json_t *pack_jobs (job_info_msg_t *msg)
{
    json_t *list = json_array ();

    for (uint32_t i = 0; i < msg->record_count; i++)
        json_array_append_new (list, pack_job (&msg->job_array[i]));
    slurm_free_job_info_msg (msg);
    return list;
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

static char *dup_member (const json_t *json, const char *key)
{
    const char *s = json_string_value (json_object_get (json, key));

    return strdup (s ? s : "");
}

static int64_t number (const json_t *json, const char *key)
{
    return json_integer_value (json_object_get (json, key));
}

/* The table's own text, so that the member is static. */
static const char *state_static (const char *name)
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

static int read_job (const json_t *json, struct cluster_job *job)
{
    const char *per_node, *per_job;

    job->job_id = (uint32_t)number (json, "job_id");
    job->array_id = (uint32_t)number (json, "array_id");
    job->array_task = number (json, "array_task");
    job->name = dup_member (json, "name");
    job->partition = dup_member (json, "partition");
    job->node_list = dup_member (json, "node_list");
    job->reason = dup_member (json, "reason");
    job->command = dup_member (json, "command");
    job->state =
        state_static (json_string_value (json_object_get (json, "state")));
    job->active = json_is_true (json_object_get (json, "active"));
    job->pending = json_is_true (json_object_get (json, "pending"));
    job->nodes = (uint32_t)number (json, "nodes");
    job->restarts = (uint32_t)number (json, "restarts");
    job->submitted_at = number (json, "submitted_at");
    job->begins_at = number (json, "begins_at");
    job->expected_at = number (json, "expected_at");
    job->started_at = number (json, "started_at");
    job->ended_at = number (json, "ended_at");
    job->time_limit_s = number (json, "time_limit_s");
    job->exit_status = (int)number (json, "exit_status");
    job->exit_signal = (int)number (json, "exit_signal");
    per_node = json_string_value (json_object_get (json, "tres_per_node"));
    per_job = json_string_value (json_object_get (json, "tres_per_job"));
    job->gpus = tres_gpus (per_job ? per_job : "");
    if (job->gpus < 0 && (job->gpus = tres_gpus (per_node ? per_node : "")) > 0)
        job->gpus *= job->nodes;
    return job->name && job->partition && job->node_list && job->reason
                   && job->command
               ? RV_OK
               : RV_ENOMEM;
}

static int read_jobs (const json_t *json, struct cluster_jobs *ret,
                      struct rv_error *err)
{
    struct cluster_jobs out = {0};

    out.job = calloc (json_array_size (json) + 1, sizeof (*out.job));
    if (!out.job)
        return error_set (err, RV_ENOMEM, "out of memory");
    for (size_t i = 0; i < json_array_size (json); i++)
        if (read_job (json_array_get (json, i), &out.job[out.n++]) != RV_OK) {
            cluster_jobs_fini (&out);
            return error_set (err, RV_ENOMEM, "out of memory");
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
