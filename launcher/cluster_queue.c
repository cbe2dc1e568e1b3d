/* SPDX-License-Identifier: Apache-2.0
 * cluster_queue.c - the jobs and reservations of a snapshot */
#ifdef HAVE_CONFIG_H
#include "config.h"
#endif
#include "cluster_queue.h"

#include <slurm/slurm.h>
#include <slurm/slurm_errno.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>

#include "plan/jobtext.h"
#include "record.h"

#define TASKS_MAX  1000 /* of an array that are given places */
#define COMPLETING 60   /* seconds that the end of a job may take */

/* A job that waits for something else than nodes takes none from ours. */
static bool may_start (const job_info_t *job)
{
    switch (job->state_reason) {
    case WAIT_NO_REASON:
    case WAIT_PRIORITY:
    case WAIT_RESOURCES:
    case WAIT_TIME:
    case WAIT_CLEANING:
    case WAIT_PROLOG:
    case WAIT_ARRAY_TASK_LIMIT:
    case WAIT_NODE_NOT_AVAIL:
        break;
    default:
        return false;
    }
    return job->priority && (!job->resv_name || !job->resv_name[0]);
}

static uint64_t each (int64_t all, uint32_t nodes)
{
    return all > 0 ? ((uint64_t)all + nodes - 1) / nodes : 0;
}

/* GPUs a node of a job that waits. */
static uint32_t wanted_gpus (const job_info_t *job, uint32_t nodes, char *type)
{
    uint32_t n = jobtext_gpus (job->tres_per_node, type);

    if (n)
        return n;
    if ((n = jobtext_gpus (job->tres_per_job, type)))
        return (uint32_t)each (n, nodes);
    if ((n = jobtext_gpus (job->tres_per_task, type)))
        return (uint32_t)each ((int64_t)n * job->num_tasks, nodes);
    return jobtext_gpus (job->tres_per_socket, type);
}

static json_int_t limit_s (const job_info_t *job)
{
    return job->time_limit == INFINITE || job->time_limit == NO_VAL
               ? (json_int_t)STRATEGY_UNLIMITED
               : (json_int_t)job->time_limit * 60;
}

/* When a running job ends at the latest; 0 = never. */
static json_int_t end_of (const job_info_t *job)
{
    if (job->job_state & JOB_COMPLETING)
        return (json_int_t)time (NULL) + COMPLETING;
    if ((job->job_state & JOB_STATE_BASE) == JOB_SUSPENDED
        || limit_s (job) == STRATEGY_UNLIMITED)
        return 0;
    return (json_int_t)job->end_time;
}

/* A job as read_job takes it; a running one's nodes follow. */
static void put_job (struct record_out *out, const job_info_t *job,
                     bool running, bool memory, uint32_t gpus, const char *type)
{
    const char *tres = running && job->tres_alloc_str && job->tres_alloc_str[0]
                           ? job->tres_alloc_str
                           : job->tres_req_str;
    uint32_t nodes = job->num_nodes ? job->num_nodes : 1;
    int64_t mem = memory ? jobtext_tres (tres, "mem") : 0;

    record_int (out, job->job_id);
    record_int (out, running);
    record_int (out, job->shared == JOB_SHARED_NONE);
    record_int (out,
                running ? 1 : jobtext_tasks (job->array_task_str, TASKS_MAX));
    record_int (out, nodes);
    record_int (out, gpus);
    record_int (out, (int64_t)each (job->num_cpus, nodes));
    record_int (out, (int64_t)each (mem, nodes));
    record_int (out, job->priority);
    record_int (out, running ? end_of (job) : 0);
    record_int (out, (int64_t)job->eligible_time);
    record_int (out, limit_s (job));
    record_text (out, type);
    record_text (out, running ? NULL : job->partition);
    record_text (out, running ? NULL : job->features);
    record_text (out, running ? NULL : job->resv_name);
}

static void end_nodes (struct record_out *out)
{
    record_ranges_end (out);
    record_end (out);
}

/* A running job may have other GPUs on each node: one record for nodes that
 * have the same, which follow each other. */
static void put_detailed (struct record_out *out, const job_info_t *job,
                          bool memory)
{
    const char *of = NULL; /* the open record's */
    uint32_t i = 0;

    for (const int32_t *p = job->node_inx; p && *p >= 0; p += 2)
        for (int32_t n = p[0]; n <= p[1] && i < job->gres_detail_cnt; n++) {
            const char *detail = job->gres_detail_str[i++];
            char type[GRES_NAME_MAX];

            if (!of || strcmp (of, detail ? detail : "")) {
                if (of)
                    end_nodes (out);
                of = detail ? detail : "";
                put_job (out, job, true, memory, jobtext_gpus (detail, type),
                         type);
            }
            record_range (out, n, n);
        }
    if (of)
        end_nodes (out);
}

static void put_plain (struct record_out *out, const job_info_t *job,
                       bool running, bool memory)
{
    char type[GRES_NAME_MAX];
    uint32_t nodes = job->num_nodes ? job->num_nodes : 1;
    uint32_t gpus = wanted_gpus (job, nodes, type);

    put_job (out, job, running, memory, gpus, type);
    record_ranges (out, running ? job->node_inx : NULL);
    record_end (out);
}

static uint32_t count_nodes (const int32_t *pairs)
{
    uint32_t n = 0;

    for (; pairs && *pairs >= 0; pairs += 2)
        n += (uint32_t)(pairs[1] - pairs[0] + 1);
    return n;
}

static json_t *pack_jobs (const job_info_msg_t *msg, bool memory)
{
    struct record_out out = {0};

    for (uint32_t i = 0; i < msg->record_count; i++) {
        const job_info_t *job = &msg->job_array[i];
        uint32_t base = job->job_state & JOB_STATE_BASE;
        bool running = base == JOB_RUNNING || base == JOB_SUSPENDED
                       || (job->job_state & JOB_COMPLETING);
        uint32_t nodes = running ? count_nodes (job->node_inx) : 0;

        if (nodes && job->gres_detail_cnt == nodes)
            put_detailed (&out, job, memory);
        else if (nodes || (base == JOB_PENDING && !running && may_start (job)))
            put_plain (&out, job, running, memory);
    }
    return record_json (&out);
}

/* 22.05 spells it with one R. */
#ifndef RESERVE_REOCCURRING
#define RESERVE_REOCCURRING RESERVE_REOCCURING
#endif

/* Those of whole nodes; one of cores leaves the rest of its nodes to others. */
static json_t *ask_reservations (void)
{
    const uint64_t not_fixed = RESERVE_REOCCURRING | RESERVE_FLAG_FLEX
                               | RESERVE_FLAG_REPLACE
                               | RESERVE_FLAG_REPLACE_DOWN;
    reserve_info_msg_t *msg = NULL;
    struct record_out out = {0};

    if (slurm_load_reservations (0, &msg))
        return record_json (&out);
    for (uint32_t i = 0; i < msg->record_count; i++) {
        const reserve_info_t *resv = &msg->reservation_array[i];

        if (resv->core_spec_cnt)
            continue;
        record_text (&out, resv->flags & not_fixed ? "" : resv->name);
        record_int (&out, (int64_t)resv->start_time);
        record_int (&out, (int64_t)resv->end_time);
        record_ranges (&out, resv->node_inx);
        record_end (&out);
    }
    return record_json (&out);
}

json_t *cluster_queue_ask (bool memory)
{
    job_info_msg_t *msg = NULL;
    json_t *jobs;

    if (slurm_load_jobs (0, &msg, SHOW_ALL | SHOW_DETAIL))
        return NULL;
    /* The child ends soon, and to free thousands of jobs takes longer. */
    jobs = pack_jobs (msg, memory);
    return json_pack ("[o, o]", jobs, ask_reservations ());
}

/* "" is NULL. */
static char *get_text (struct record_in *in)
{
    char *text = record_get_text (in);

    if (text && text[0])
        return text;
    free (text);
    return NULL;
}

static void read_job (struct record_in *in, size_t n_nodes,
                      struct strategy_job *job)
{
    job->job_id = (uint32_t)record_get_int (in);
    job->running = record_get_int (in) != 0;
    job->exclusive = record_get_int (in) != 0;
    job->count = (uint32_t)record_get_int (in);
    job->nodes = (uint32_t)record_get_int (in);
    job->gpus = (uint32_t)record_get_int (in);
    job->cpus = (uint32_t)record_get_int (in);
    job->mem_mb = (uint64_t)record_get_int (in);
    job->priority = (uint64_t)record_get_int (in);
    job->end_s = record_get_int (in);
    job->begin_s = record_get_int (in);
    job->time_s = record_get_int (in);
    job->type = get_text (in);
    job->partition = get_text (in);
    job->features = get_text (in);
    job->resv = get_text (in);
    record_get_indices (in, n_nodes, &job->node, &job->n_nodes);
    record_next (in);
}

static int read_jobs (const json_t *json, struct strategy_cluster *cluster,
                      struct rv_error *err)
{
    struct record_in in = record_begin (json);

    cluster->job = calloc (record_count (&in) + 1, sizeof (*cluster->job));
    if (!cluster->job)
        return error_set (err, RV_ENOMEM, "out of memory");
    while (record_more (&in) && !in.failed)
        read_job (&in, cluster->n_nodes, &cluster->job[cluster->n_jobs++]);
    return in.failed ? error_set (err, RV_EFORMAT, "a job record is malformed")
                     : RV_OK;
}

int cluster_queue_read (const json_t *json, struct strategy_cluster *cluster,
                        struct rv_error *err)
{
    struct record_in in = record_begin (json_array_get (json, 1));
    int status = read_jobs (json_array_get (json, 0), cluster, err);

    if (status != RV_OK)
        return status;
    cluster->resv = calloc (record_count (&in) + 1, sizeof (*cluster->resv));
    if (!cluster->resv)
        return error_set (err, RV_ENOMEM, "out of memory");
    while (record_more (&in) && !in.failed) {
        struct strategy_reservation *resv = &cluster->resv[cluster->n_resv++];

        resv->name = get_text (&in);
        resv->start_s = record_get_int (&in);
        resv->end_s = record_get_int (&in);
        record_get_indices (&in, cluster->n_nodes, &resv->node, &resv->n_nodes);
        record_next (&in);
    }
    return in.failed ? error_set (err, RV_EFORMAT,
                                  "a reservation's record is malformed")
                     : RV_OK;
}
