/* SPDX-License-Identifier: Apache-2.0
 * reqdir.h - the folder of one request: what rv leaves for the job, and what
 * the job leaves for rv.
 *
 * STATE_DIR/requests/ID holds request.json, argv and job.sh (written by `rv
 * run` before submission), snapshot/ (likewise: the copy that the job runs in,
 * and writes to, with --snapshot), secrets (likewise, where the user has some;
 * removed when the job has ended), jobs/J.json (by the submission) and
 * status.json (by the batch step). Where several jobs stand for one request
 * (fan-out), the further ones have their own request-N.json and job-N.sh. Each
 * file has one writer and is replaced whole. */
#ifndef RV_REQDIR_H
#define RV_REQDIR_H

#include <jansson.h>
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "plan/checkpoint.h"
#include "plan/envfile.h"
#include "plan/error.h"
#include "plan/site_conf.h"
#include "plan/strategy.h"
#include "worktree.h"

#define REQUEST_ROOTS 16 /* jobs that one request may have waiting at once */

/* What a request is, in memory. Strings are malloc'ed. */
struct request {
    char *id;   /* YYYYMMDD-HHMMSS-xxxxxxxx */
    char *dir;  /* absolute */
    char *name; /* of the job */
    char *log_dir;
    char *gpu_type; /* "" = none or any */
    int64_t created_at;
    uint32_t gpus, tasks;
    uint32_t job_id; /* of several the one that has claimed the command, and of
                        a chain the newest; 0 = none */
    struct checkpoint checkpoint; /* of `rv run`; not read back */
    uint32_t log_id;    /* job that the logs are named by; 0 = job_id */
    unsigned candidate; /* which of the request's strategies it is, from 1; 0 is
                           1 */
    /* All jobs that were submitted for it, but for those that go on in the place
     * of another. Read back alone. */
    uint32_t root[REQUEST_ROOTS];
    size_t n_roots;
    size_t
        n_waiting; /* of them, of several that nobody has claimed yet; known.c
                         fills it in */
    bool claimed;  /* of several, job_id is the one that runs the command */
    bool secrets;  /* a copy of them is there; read back alone */
    char *cluster; /* read back alone; "" = not known */
    bool torn;     /* of struct requests' lost: written in part, so that no
                      job can be of it; only id, dir, created_at are set */
};

/* What `rv run` knows before the submission. Everything is borrowed. */
struct request_new {
    const char *state_dir; /* absolute */
    const char *name, *rv_exec;
    const char *cluster; /* that it goes to; NULL or "" = not known */
    const struct strategy_plan *plan;
    enum command_launch launch;
    int64_t nccl_timeout_s; /* 0 = not asked for */
    struct checkpoint checkpoint;
    const struct site_env *env; /* (n_env) of rv.conf; the user's own stay */
    size_t n_env;
    char *const *srun_options; /* NULL-terminated, for the step; NULL = none */
    const struct envfile *secrets; /* NULL = none; only the ranks get them */
    unsigned candidate;            /* the plan's number, from 1; 0 is 1 */
    unsigned candidates;   /* jobs that are meant to be submitted; 0 is 1 */
    unsigned spares;       /* in the place of ones that are refused */
    struct worktree *tree; /* NULL = no snapshot; request_write copies it */
    char *const *outputs;  /* NULL-terminated, of outpath_parse; NULL = none */
    int argc;
    char *const *argv;
};

/* request_begin - choose the request's id and paths; touches no file.
 *   ret   written on success; free with request_fini */
int request_begin (const struct request_new *from, struct request *ret,
                   struct rv_error *err);

/* request_write - make the folder and all that the job reads. On failure
 * nothing of the request stays. RV_EIO names the folder that cannot be
 * written. */
int request_write (const struct request_new *from, const struct request *req,
                   struct rv_error *err);

/* request_add - for one more job of the request, by another plan:
 * request-N.json and job-N.sh, N being from->candidate. req->candidate is N then.
 */
int request_add (const struct request_new *from, struct request *req,
                 struct rv_error *err);

/* request_discard - remove the folder of a request that was not submitted. */
void request_discard (const struct request *req);

/* request_submitted - note the job that was made of it (jobs/J.json), and bring
 * the whole request to the disk.
 *   sbatch_argv   NULL-terminated */
int request_submitted (struct request *req, uint32_t job_id,
                       char *const sbatch_argv[], struct rv_error *err);

/* request_index - note a request, all of whose jobs are submitted, where
 * requests_load finds it sooner than in its folder. A failure is no error: it is
 * read from its folder then. */
void request_index (const struct request *req);

/* request_forget - remove the request's copy of the secrets, and its tasks': no
 * job of it will start again. One without secrets is fine. */
void request_forget (const struct request *req);

/* request_has_secrets - is that copy still there? */
bool request_has_secrets (const struct request *req);

/* request_has_job - is it one of the request's? */
bool request_has_job (const struct request *req, uint32_t job_id);

/* request_turn_to - [job_id], another job of the request, is the one that it is
 * about from now on: plan and logs are that job's. gpu_type is replaced and must
 * be the request's own. RV_EIO when its plan cannot be read. */
int request_turn_to (struct request *req, uint32_t job_id);

void request_fini (struct request *req); /* NULL is fine */

struct requests {
    struct request *req;
    size_t n;
    struct request *lost; /* of which no file names a job: job_id is 0 */
    size_t n_lost;
};

/* requests_load - every request that has a job, newest first; and those of
 * which a job is not known, because their rv run was killed before it could
 * note one, or is about to. A folder that is not readable as a request is
 * passed over. A state_dir that is not there is empty.
 *   max   stop after so many; 0 = all */
int requests_load (const char *state_dir, size_t max, struct requests *ret,
                   struct rv_error *err);
void requests_fini (struct requests *list); /* NULL is fine */

struct request_task {
    uint32_t task; /* its index */
    uint32_t job_id;
};

/* request_tasks - the tasks of an array that have left something in the
 * request's folder, in no order.
 *   ret_n   written; 0 too for a request without an array
 * Returns a malloc'ed list, NULL when it is empty or memory is short. */
struct request_task *request_tasks (const char *dir, size_t *ret_n);

/* What status.json says of a job. */
struct request_status {
    bool started;     /* it names this job */
    bool done;        /* the batch step has ended */
    int exit_status;  /* of the command, when done and >= 0; else -1 */
    bool waits;       /* a segment has ended, and the job goes on later */
    uint32_t next_id; /* another job goes on; 0: this one */
    bool told_to_end; /* by SIGTERM, and no rank had failed before */
    char *cause;      /* one line: why it ended badly, or waits; NULL */
    bool names_rank;  /* the batch step has said the same in its log */
    json_t *failure;  /* failure.json of this end; NULL: none */
    char *nodes;      /* all of the job, as Slurm writes them; NULL: not told */
};

/* request_status - read status.json. A file that is not there, or speaks of
 * another job, gives all false and RV_OK. */
int request_status (const char *dir, uint32_t job_id,
                    struct request_status *ret, struct rv_error *err);
void request_status_fini (struct request_status *status);

/* request_log - path of a log: rank < 0 is the batch step. malloc'ed, NULL
 * when out of memory. */
char *request_log (const struct request *req, uint32_t job_id, int rank,
                   bool is_err);

#endif
