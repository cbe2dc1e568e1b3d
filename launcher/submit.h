/* SPDX-License-Identifier: Apache-2.0
 * submit.h - the sbatch(1) call of a plan.
 *
 * The job is asked for with Slurm's own options alone, so that it works
 * without our plugin and every filter of the site sees it. */
#ifndef RV_SUBMIT_H
#define RV_SUBMIT_H

#include <stdint.h>

#include "plan/error.h"
#include "plan/strategy.h"
#include "reqdir.h"

/* What the user and rv.conf add to a plan. Borrowed; NULL = nothing. */
struct submit_more {
    const char *account, *qos;
    const char *constraint; /* in the place of the plan's */
    char *const *words;     /* NULL-terminated, as they are */
};

/* submit_argv - NULL-terminated words, "sbatch" first; free with
 * submit_argv_free. NULL when out of memory. */
char **submit_argv (const struct strategy_plan *plan, const struct request *req,
                    const struct submit_more *more);
void submit_argv_free (char **argv);

/* submit_environ - this process's environment for a new job, NULL-terminated,
 * free with submit_argv_free: without the PMIx variables of a step, without
 * those that tell Slurm's clients how to spread GPUs and tasks, what memory and
 * time the ranks have and what their logs look like, or sbatch to wait or to
 * make an array, and inside a job without that job's SLURM_* variables, which
 * sbatch would read as options or hand on. NULL when out of memory. */
char **submit_environ (void);

/* submit_run - call sbatch.
 *   ret_job_id   written on success
 * RV_ESTATE when a limit of submitted jobs is reached, RV_EINVAL with sbatch's
 * own words when it refused (several lines stand on stderr as they are),
 * RV_ENOTFOUND when there is no sbatch; RV_ETIMEDOUT when slurmctld did not
 * answer it, or RV_EFORMAT when it printed no job id: there may be a job all the
 * same. */
int submit_run (char *const argv[], uint32_t *ret_job_id, struct rv_error *err);

/* submit_again - submit_run, tried again for five minutes where slurmctld does
 * not answer, with a line on stderr, and never twice: the last word of [argv] is
 * a script that no other job has. RV_ETIMEDOUT after that, and it must stay. Where
 * sbatch prints no job id, the job is looked for by its script too, once. */
int submit_again (char *const argv[], uint32_t *ret_job_id,
                  struct rv_error *err);

/* submit_has_option - does srun here have the long option [name]? Containers
 * come with a plugin. RV_ENOTSUP when it has not. */
int submit_has_option (const char *name, struct rv_error *err);

#endif
