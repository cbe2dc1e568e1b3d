/* SPDX-License-Identifier: Apache-2.0
 * cluster.h - what rv asks of Slurm: nodes, partitions, jobs; and to end one.
 *
 * All through libslurm's typed interface (slurm.h), each question in a child
 * (slurm_ask.h), so every call ends within a deadline. RV_ETIMEDOUT always
 * means that no controller answers. */
#ifndef RV_CLUSTER_H
#define RV_CLUSTER_H

#include <jansson.h>
#include <stdint.h>

#include "plan/error.h"
#include "plan/strategy.h"
#include "slurm_ask.h"

/* Whose job it would be, where that is known; NULL = the user's default. */
struct cluster_as {
    const char *account, *qos;
};

/* cluster_load - a snapshot: nodes, partitions, jobs, reservations. Partitions
 * that may refuse the account or QOS, or whose jobs may be preempted, are
 * marked as for those who name them.
 *   as    NULL = nothing is known
 *   ret   written on success, without rules; free with strategy_cluster_fini */
int cluster_load (const struct cluster_as *as, struct strategy_cluster *ret,
                  struct rv_error *err);

/* State of a job that rv shows. Text members live with the record. */
struct cluster_job {
    uint32_t job_id;
    uint32_t array_id;  /* the array that it is of; 0 = none */
    int64_t array_task; /* its index there; -1 = none, or those that wait */
    char *name, *partition, *node_list; /* node_list "" while pending */
    const char *state;                  /* "RUNNING"; static */
    char *reason;                       /* why it is pending, or failed; "" */
    char *command;                      /* path of the batch script; "" */
    char *waiting_tasks; /* of an array those that wait: "1-3,7%2"; else "" */
    bool active;         /* pending, running, suspended or completing */
    bool pending;
    uint32_t nodes, restarts;
    int64_t gpus;                               /* -1 = Slurm does not say */
    int64_t submitted_at, started_at, ended_at; /* Unix; 0 = not yet */
    int64_t begins_at;   /* Unix; before that Slurm does not consider it */
    int64_t expected_at; /* Unix; when Slurm expects to start it; 0 = unknown */
    int64_t time_limit_s;         /* -1 = unlimited */
    int exit_status, exit_signal; /* of the batch script */
    char *gpu_type;               /* of slurmdbd's records; NULL or "" */
    int64_t suspended_s;          /* likewise; not part of its time */
};

struct cluster_jobs {
    struct cluster_job *job;
    size_t n;
};

/* cluster_jobs_load - the jobs of this user that the controller knows, oldest
 * first. */
int cluster_jobs_load (struct cluster_jobs *ret, struct rv_error *err);
void cluster_jobs_fini (struct cluster_jobs *jobs); /* NULL is fine */

/* cluster_state_name - "RUNNING", of a job's job_state; static. */
const char *cluster_state_name (uint32_t state);

/* cluster_state_static - the static text of that name; "UNKNOWN" where there is
 * none such. NULL is fine. */
const char *cluster_state_static (const char *name);

/* One job, asked without waiting: begin, then poll until done. RV_ENOTFOUND
 * when the controller does not know the job (any more). */
int cluster_job_begin (struct slurm_ask *ask, uint32_t job_id,
                       struct rv_error *err);
int cluster_job_poll (struct slurm_ask *ask, int timeout_ms, bool *ret_done,
                      struct cluster_jobs *ret, struct rv_error *err);

/* cluster_name - the ClusterName of slurm.conf, malloc'ed. */
int cluster_name (char **ret, struct rv_error *err);

/* cluster_cancel - end a job as scancel(1) does. RV_ESTATE when it has ended,
 * RV_ENOTFOUND when there is none. */
int cluster_cancel (uint32_t job_id, struct rv_error *err);

/* cluster_cancel_named - the same by Slurm's name for it: "17", an array and
 * all its tasks; "17_3", one of them. */
int cluster_cancel_named (const char *id, struct rv_error *err);

#endif
