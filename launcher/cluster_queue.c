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

#define TASKS_MAX  1000 /* of an array that are given places */
#define COMPLETING 60   /* seconds that the end of a job may take */

/* The places of a job's record. */
enum {
    AT_ID,
    AT_RUNNING,
    AT_EXCLUSIVE,
    AT_COUNT,
    AT_NODES,
    AT_GPUS,
    AT_CPUS,
    AT_MEM,
    AT_PRIORITY,
    AT_END,
    AT_BEGIN,
    AT_TIME,
    AT_TYPE,
    AT_PARTITION,
    AT_FEATURES,
    AT_WHERE,
};

json_t *cluster_indices (const int32_t *pairs)
{
    json_t *list = json_array ();

    for (size_t i = 0; pairs && pairs[i] >= 0; i += 2)
        for (int32_t n = pairs[i]; n <= pairs[i + 1]; n++)
            json_array_append_new (list, json_integer (n));
    return list;
}

int cluster_indices_read (const json_t *list, size_t limit, uint32_t **ret,
                          size_t *ret_n)
{
    uint32_t *index = calloc (json_array_size (list) + 1, sizeof (*index));

    if (!index)
        return -1;
    *ret = index;
    *ret_n = 0;
    for (size_t i = 0; i < json_array_size (list); i++) {
        json_int_t n = json_integer_value (json_array_get (list, i));

        if (n >= 0 && (size_t)n < limit)
            index[(*ret_n)++] = (uint32_t)n;
    }
    return 0;
}

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

static json_t *text (const char *s)
{
    json_t *value = s && s[0] ? json_string (s) : NULL;

    return value ? value : json_null ();
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

static json_t *pack_job (const job_info_t *job, bool running, bool memory,
                         uint32_t gpus, const char *type, json_t *where)
{
    const char *tres = running && job->tres_alloc_str && job->tres_alloc_str[0]
                           ? job->tres_alloc_str
                           : job->tres_req_str;
    uint32_t nodes = job->num_nodes ? job->num_nodes : 1;
    int64_t mem = memory ? jobtext_tres (tres, "mem") : 0;
    uint32_t count =
        running ? 1 : jobtext_tasks (job->array_task_str, TASKS_MAX);

    return json_pack (
        "[I, b, b, I, I, I, I, I, I, I, I, I, o, o, o, o]",
        (json_int_t)job->job_id, running, job->shared == JOB_SHARED_NONE,
        (json_int_t)count, (json_int_t)nodes, (json_int_t)gpus,
        (json_int_t)each (job->num_cpus, nodes), (json_int_t)each (mem, nodes),
        (json_int_t)job->priority, running ? end_of (job) : (json_int_t)0,
        (json_int_t)job->eligible_time, limit_s (job), text (type),
        running ? json_null () : text (job->partition),
        running ? json_null () : text (job->features), where);
}

/* A running job may have other GPUs on each node: one record for nodes that
 * have the same, which follow each other. */
static void pack_running (json_t *list, const job_info_t *job, bool memory)
{
    json_t *nodes = cluster_indices (job->node_inx);
    size_t n = json_array_size (nodes), i = 0;
    char type[GRES_NAME_MAX], next[GRES_NAME_MAX];
    bool detailed = job->gres_detail_cnt == n;

    while (i < n) {
        json_t *where = json_array ();
        uint32_t gpus = detailed ? jobtext_gpus (job->gres_detail_str[i], type)
                                 : wanted_gpus (job, (uint32_t)n, type);

        do
            json_array_append (where, json_array_get (nodes, i++));
        while (i < n
               && (!detailed
                   || (jobtext_gpus (job->gres_detail_str[i], next) == gpus
                       && !strcmp (type, next))));
        json_array_append_new (list,
                               pack_job (job, true, memory, gpus, type, where));
    }
    json_decref (nodes);
}

static json_t *pack_jobs (const job_info_msg_t *msg, bool memory)
{
    json_t *list = json_array ();

    for (uint32_t i = 0; i < msg->record_count; i++) {
        const job_info_t *job = &msg->job_array[i];
        uint32_t base = job->job_state & JOB_STATE_BASE;
        char type[GRES_NAME_MAX];

        if (base == JOB_RUNNING || base == JOB_SUSPENDED
            || (job->job_state & JOB_COMPLETING))
            pack_running (list, job, memory);
        else if (base == JOB_PENDING && may_start (job)) {
            uint32_t nodes = job->num_nodes ? job->num_nodes : 1;
            uint32_t gpus = wanted_gpus (job, nodes, type);

            json_array_append_new (
                list, pack_job (job, false, memory, gpus, type, json_null ()));
        }
    }
    return list;
}

/* Those of whole nodes; one of cores leaves the rest of its nodes to others. */
static json_t *ask_reservations (void)
{
    reserve_info_msg_t *msg = NULL;
    json_t *list = json_array ();

    if (slurm_load_reservations (0, &msg))
        return list;
    for (uint32_t i = 0; i < msg->record_count; i++) {
        const reserve_info_t *resv = &msg->reservation_array[i];

        if (resv->core_spec_cnt == 0)
            json_array_append_new (
                list, json_pack ("[I, I, o]", (json_int_t)resv->start_time,
                                 (json_int_t)resv->end_time,
                                 cluster_indices (resv->node_inx)));
    }
    slurm_free_reservation_info_msg (msg);
    return list;
}

json_t *cluster_queue_ask (bool memory)
{
    job_info_msg_t *msg = NULL;
    json_t *jobs;

    if (slurm_load_jobs (0, &msg, SHOW_ALL | SHOW_DETAIL))
        return NULL;
    jobs = pack_jobs (msg, memory);
    slurm_free_job_info_msg (msg);
    return json_pack ("[o, o]", jobs, ask_reservations ());
}

static int64_t number (const json_t *record, size_t place)
{
    return json_integer_value (json_array_get (record, place));
}

static bool flag (const json_t *record, size_t place)
{
    return json_is_true (json_array_get (record, place));
}

/* NULL stays NULL; false when out of memory. */
static bool copy (const json_t *record, size_t place, char **ret)
{
    const char *s = json_string_value (json_array_get (record, place));

    *ret = s ? strdup (s) : NULL;
    return !s || *ret;
}

static int read_job (const json_t *record, size_t n_nodes,
                     struct strategy_job *job)
{
    *job = (struct strategy_job){
        .job_id = (uint32_t)number (record, AT_ID),
        .running = flag (record, AT_RUNNING),
        .exclusive = flag (record, AT_EXCLUSIVE),
        .count = (uint32_t)number (record, AT_COUNT),
        .nodes = (uint32_t)number (record, AT_NODES),
        .gpus = (uint32_t)number (record, AT_GPUS),
        .cpus = (uint32_t)number (record, AT_CPUS),
        .mem_mb = (uint64_t)number (record, AT_MEM),
        .priority = (uint64_t)number (record, AT_PRIORITY),
        .end_s = number (record, AT_END),
        .begin_s = number (record, AT_BEGIN),
        .time_s = number (record, AT_TIME),
    };
    if (!copy (record, AT_TYPE, &job->type)
        || !copy (record, AT_PARTITION, &job->partition)
        || !copy (record, AT_FEATURES, &job->features))
        return -1;
    return job->running
               ? cluster_indices_read (json_array_get (record, AT_WHERE),
                                       n_nodes, &job->node, &job->n_nodes)
               : 0;
}

int cluster_queue_read (const json_t *json, struct strategy_cluster *cluster,
                        struct rv_error *err)
{
    const json_t *jobs = json_array_get (json, 0);
    const json_t *resvs = json_array_get (json, 1);
    int failed = 0;

    cluster->job = calloc (json_array_size (jobs) + 1, sizeof (*cluster->job));
    cluster->resv =
        calloc (json_array_size (resvs) + 1, sizeof (*cluster->resv));
    if (!cluster->job || !cluster->resv)
        return error_set (err, RV_ENOMEM, "out of memory");
    for (size_t i = 0; i < json_array_size (jobs) && !failed; i++)
        failed = read_job (json_array_get (jobs, i), cluster->n_nodes,
                           &cluster->job[cluster->n_jobs++]);
    for (size_t i = 0; i < json_array_size (resvs) && !failed; i++) {
        const json_t *record = json_array_get (resvs, i);
        struct strategy_reservation *resv = &cluster->resv[cluster->n_resv++];

        resv->start_s = number (record, 0);
        resv->end_s = number (record, 1);
        failed =
            cluster_indices_read (json_array_get (record, 2), cluster->n_nodes,
                                  &resv->node, &resv->n_nodes);
    }
    return failed ? error_set (err, RV_ENOMEM, "out of memory") : RV_OK;
}
