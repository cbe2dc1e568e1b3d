/* SPDX-License-Identifier: Apache-2.0
 * cmd_job.h - the commands about jobs, and what they share. */
#ifndef RV_CMD_JOB_H
#define RV_CMD_JOB_H

#include <stdbool.h>
#include <stdint.h>

#include "cluster.h"
#include "cmd.h"
#include "reqdir.h"

extern const struct cmd cmd_run;
extern const struct cmd cmd_up;
extern const struct cmd cmd_attach;
extern const struct cmd cmd_forward;
extern const struct cmd cmd_gpu;
extern const struct cmd cmd_ps;
extern const struct cmd cmd_logs;
extern const struct cmd cmd_status;
extern const struct cmd cmd_cost;
extern const struct cmd cmd_stop;
extern const struct cmd cmd_doctor;
extern const struct cmd cmd_segment;
extern const struct cmd cmd_env;
extern const struct cmd cmd_completion;
extern const struct cmd cmd_help_about;
extern const struct cmd cmd_version;

/* cmd_job_status - the exit status for a failed question to Slurm. */
int cmd_job_status (int code);

/* cmd_job_hint - what would work when no controller answers; else NULL. */
const char *cmd_job_hint (int code);

/* One job that rv knows of: from Slurm, from a request's folder, or both. Of
 * several jobs of one request it is the one that has claimed the command, else
 * the one that should start first; the others are in known->jobs alone. */
struct known_job {
    uint32_t job_id;
    const char *name;
    const struct cluster_job *live; /* NULL = Slurm has forgotten it */
    const struct request *req;      /* NULL = not submitted by rv run */
    uint32_t array_id;              /* the array that it is of; 0 = none */
    int64_t task;                   /* its index there; -1 = none, or those
                                       that wait */
};

#define KNOWN_ID_SIZE 32

/* known_id - "17", of a task of an array "17_3", into [buf]; returns it. */
const char *known_id (const struct known_job *job, char buf[KNOWN_ID_SIZE]);

/* known_is_task - is [word] "17_3", a task of those of an array 17 that wait
 * together as [job]? Its id is for Slurm alone: it has no record of its own. */
bool known_is_task (const struct known_job *job, const char *word);

/* known_request - the request as this job has it: of a task of an array the
 * folder is the task's.
 *   ret   its texts are borrowed from [job], but for dir: free that alone
 * RV_ENOMEM. */
int known_request (const struct known_job *job, struct request *ret,
                   struct rv_error *err);

struct known {
    struct cluster_jobs jobs;
    const struct cluster_job **by_id, **by_command; /* of jobs, sorted */
    struct requests reqs;
    struct known_job *job; /* newest first */
    size_t n;
    struct rv_error unasked; /* why Slurm was not asked; code 0 = it was */
};

/* known_load - all jobs of this user. Without a controller RV_ETIMEDOUT, or
 * with [offline] the requests alone. Requests whose jobs have ended lose their
 * copy of the secrets. */
int known_load (const char *state_dir, bool offline, struct known *ret,
                struct rv_error *err);
void known_fini (struct known *known);

/* known_join - jobs and requests, which are loaded, become known->job.
 *   online   known->jobs is Slurm's whole answer: requests of which no file
 *            names a job may be found there
 * RV_ENOMEM. */
int known_join (struct known *known, bool online, struct rv_error *err);

/* known_cancelled - [job] was ended just now. One that has never started needs
 * no secrets any more; of others the batch step takes care. */
void known_cancelled (const struct known *known, const struct known_job *job);

/* known_find - the job that [word] names: an id (of a job, an array, a task of
 * it as 17_3, a request or its last part), else a name, else the beginning of
 * one, its end, a part of it. A number is not looked for at the end of names or
 * within: a slip in an id names no other job. Jobs that have not ended go
 * before those that have; of several that ended the newest is meant.
 *   word        NULL = the newest job that rv run submitted and that runs, else
 *               the newest
 *   ret_whole   written, unless NULL: true when [word] names several tasks of
 *               one array, and *ret is one of them; NULL: that is ambiguous
 * RV_ENOTFOUND, or RV_EMISMATCH when several are meant (the text lists them);
 * RV_ETIMEDOUT where only Slurm, which was not asked, could know the job.
 */
int known_find (const struct known *known, const char *word,
                const struct known_job **ret, bool *ret_whole,
                struct rv_error *err);

/* cmd_job_options - read the options that rv ps and rv stop share: -a, --json
 * (into [ctx]) and --help.
 *   what       "list jobs": stands in messages
 *   ret_all    -a was given
 *   ret_done   the command is over (help was printed, or an option was wrong)
 *              and the value is its exit status; else optind is the first word
 */
int cmd_job_options (struct cmd_ctx *ctx, int argc, char **argv,
                     const char *what, bool *ret_all, bool *ret_done);

/* cmd_job_known - known_load with the user's settings, its failure printed.
 * Returns an exit status; free [ret] with known_fini after CMD_OK. */
int cmd_job_known (const struct cmd_ctx *ctx, const char *what,
                   struct known *ret);

struct account;

/* cmd_job_account - slurmdbd's records since then; what keeps it from answering
 * is one line on stderr, and there are none then.
 *   ret   written; free with account_fini */
void cmd_job_account (int64_t since, struct account *ret);

/* known_active - has it not ended, as far as anyone can tell? */
bool known_active (const struct known_job *job);

#endif
