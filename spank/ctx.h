/* SPDX-License-Identifier: Apache-2.0
 * ctx.h - what each process that loads the plugin does.
 *
 * plugin.c holds the hooks and chooses by context; one file serves a context.
 * Every function here returns 0: a value below zero drains nodes in
 * slurmstepd and is ignored in a client whose plugstack line says optional.
 * A client refuses by one line and exit (1), a task by one line and
 * _exit (1). */
#ifndef RV_SPANK_CTX_H
#define RV_SPANK_CTX_H

#include <slurm/spank.h>

#include "options.h"

/* from srun to its tasks: the variables that the plugin gave it, each with a
 * comma behind */
#define GIVEN_VARIABLE "SLURM_RV_GIVEN"

/* srun, sbatch, salloc; as the user, before the job exists */
int client_init (spank_t sp, int argc, char **argv);
int client_option (enum option option, const char *value);
/* once for each component of a heterogeneous job */
int client_post_opt (void);
/* srun alone: the job and the step exist, no task runs yet */
int client_user_init (spank_t sp);

/* slurmstepd, one process a step: as root */
int stepd_init (spank_t sp, int argc, char **argv);
int stepd_option (enum option option, const char *value);
/* before the tasks, root for the last time: the user is the effective user.
 * slurmstepd may hold a lock there, so nothing of Slurm's API but spank_*. */
int stepd_user_init (spank_t sp);
/* in the forked child of each task, as the user, just before execve */
int stepd_task_init (spank_t sp);

/* slurmstepd as slurmd's job script, before and after a job on a node: as
 * root. Checks the node's health where plugstack.conf asks for it. */
int script_check (int argc, char **argv);

#endif
