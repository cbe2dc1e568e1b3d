/* SPDX-License-Identifier: Apache-2.0
 * jobstep.h - a step of rv's own beside those of a running job. */
#ifndef RV_JOBSTEP_H
#define RV_JOBSTEP_H

#include "cmd_job.h"
#include "plan/hostlist.h"

struct jobstep {
    uint32_t job_id;
    char *name;            /* of the job */
    struct hostlist nodes; /* all of the job's */
    const char *node;      /* the one that was asked for, else the first */
    int64_t gpus;          /* of the job; -1 = unknown */
};

/* jobstep_find - the running job that [word] names (known_find), and its nodes.
 *   what   "attach to": stands in messages
 *   node   NULL = its first
 * Returns an exit status; what went wrong has been printed: CMD_NO_JOB for a
 * job that has ended, CMD_UNMET for one that waits or has no such node. Free
 * [ret] with jobstep_fini after CMD_OK. */
int jobstep_find (const struct cmd_ctx *ctx, const char *what, const char *word,
                  const char *node, struct jobstep *ret);
void jobstep_fini (struct jobstep *step);

/* jobstep_argv - the srun call, NULL-terminated; free it with submit_argv_free.
 *   all       one task on each node, lines labelled with their index; else one
 *             task on step->node
 *   pty       on a terminal of its own
 *   command   NULL-terminated
 * It shares CPUs and GPUs with the job's own steps. NULL when out of memory. */
char **jobstep_argv (const struct jobstep *step, bool all, bool pty,
                     char *const command[]);

/* jobstep_shell - the user's shell; static or of the environment. */
const char *jobstep_shell (void);

/* jobstep_exec - become [argv] with submit_environ's environment. Returns an
 * exit status when that failed; it has been printed. */
int jobstep_exec (const struct cmd_ctx *ctx, char *const argv[]);

#endif
