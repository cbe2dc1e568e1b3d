/* SPDX-License-Identifier: Apache-2.0
 * boot.c - the boots in order of preference, and the facts of a Slurm step */
#include "config.h"

#include <errno.h>
#include <stdlib.h>
#include <string.h>

#include "job/job_impl.h"
#include "plan/hostlist.h"
#include "plan/taskmap.h"

const struct boot_ops *const boot_table[] = {
    &boot_pmix,
    &boot_slurm,
    &boot_single,
    NULL,
};

rv_job_status_t job_env_u32 (const char *name, uint32_t max, uint32_t *ret,
                             rv_job_error_t *err)
{
    const char *text = getenv (name);
    unsigned long long value;
    char *end;

    if (!text || !*text)
        return job_error (err, RV_JOB_ENOTFOUND, "%s is not set", name);
    errno = 0;
    value = strtoull (text, &end, 10);
    if (text[0] < '0' || text[0] > '9' || *end || errno || value > max)
        return job_error (err, RV_JOB_EFORMAT,
                          "%s='%s' is not a number from 0 to %u", name, text,
                          max);
    *ret = (uint32_t)value;
    return RV_JOB_OK;
}

void job_ids (uint32_t *ret_job, uint32_t *ret_step)
{
    *ret_job = *ret_step = 0;
    (void)job_env_u32 ("SLURM_JOB_ID", UINT32_MAX, ret_job, NULL);
    if (*ret_job)
        (void)job_env_u32 ("SLURM_STEP_ID", UINT32_MAX, ret_step, NULL);
}

/* Where in [map] this node is. In a heterogeneous step Slurm sorts the nodes
 * of all components but numbers them by component, so the name decides. */
static uint32_t place_in (const struct taskmap *map, uint32_t node)
{
    const char *list = getenv ("SLURM_STEP_NODELIST"),
               *name = getenv ("SLURMD_NODENAME");
    struct hostlist hosts = {0};

    if (!list || !name || hostlist_parse (list, &hosts, NULL))
        return node;
    for (size_t i = 0; hosts.n == map->n && i < hosts.n; i++)
        if (!strcmp (hosts.host[i], name)) {
            node = (uint32_t)i;
            break;
        }
    hostlist_fini (&hosts);
    return node;
}

/* Tasks of this node and number of nodes, from "2(x3),1". */
static rv_job_status_t read_layout (struct rv_job *job, rv_job_error_t *err)
{
    const char *text = getenv ("SLURM_STEP_TASKS_PER_NODE");
    struct rv_error plan_err = {0};
    struct taskmap map = {0};
    rv_job_status_t status = RV_JOB_OK;

    if (!text)
        return job_error (err, RV_JOB_EFORMAT,
                          "SLURM_STEP_TASKS_PER_NODE is not set");
    if (taskmap_parse (text, &map, &plan_err)) {
        job_error_from (err, &plan_err);
        return job_error (err, RV_JOB_EFORMAT, "SLURM_STEP_TASKS_PER_NODE: %s",
                          plan_err.text);
    }
    if (job->node < map.n && map.total == job->size) {
        job->nodes = (uint32_t)map.n;
        job->local_size = map.tasks[place_in (&map, job->node)];
        if (job->local_rank >= job->local_size)
            status = job_error (err, RV_JOB_EFORMAT,
                                "SLURM_LOCALID=%u but node %u has %u tasks",
                                job->local_rank, job->node, job->local_size);
    } else
        status = job_error (err, RV_JOB_EFORMAT,
                            "SLURM_STEP_TASKS_PER_NODE='%s' does not fit "
                            "SLURM_NODEID=%u and %u tasks",
                            text, job->node, job->size);
    taskmap_fini (&map);
    return status;
}

rv_job_status_t job_step_facts (struct rv_job *job, rv_job_error_t *err)
{
    rv_job_status_t status;

    if (!getenv ("SLURM_PROCID"))
        return job_error (err, RV_JOB_ENOTSUP,
                          "not a task of Slurm (SLURM_PROCID is not set)");
    if (!getenv ("SLURM_STEP_ID"))
        return job_error (err, RV_JOB_ENOTSUP,
                          "a batch script, not a step (start it with srun)");
    job_ids (&job->job_id, &job->step_id);
    if ((status = job_env_u32 ("SLURM_PROCID", JOB_RANKS_MAX, &job->rank, err))
        || (status = job_env_u32 ("SLURM_STEP_NUM_TASKS", JOB_RANKS_MAX,
                                  &job->size, err))
        || (status = job_env_u32 ("SLURM_LOCALID", JOB_RANKS_MAX,
                                  &job->local_rank, err))
        || (status =
                job_env_u32 ("SLURM_NODEID", JOB_RANKS_MAX, &job->node, err)))
        return RV_JOB_EFORMAT;
    if (job->rank >= job->size)
        return job_error (err, RV_JOB_EFORMAT,
                          "SLURM_PROCID=%u in a step of %u tasks", job->rank,
                          job->size);
    return read_layout (job, err);
}
