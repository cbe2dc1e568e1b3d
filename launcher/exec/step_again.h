/* SPDX-License-Identifier: Apache-2.0
 * step_again.h - the step of the batch step's srun, through a restart of
 * slurmctld. */
#ifndef RV_EXEC_STEP_AGAIN_H
#define RV_EXEC_STEP_AGAIN_H

#include "exec/child.h"
#include "exec/segment_run.h"

/* step_lost_slurmctld - did srun end before it had a step, because slurmctld
 * did not answer? From its own words; nothing ran then, and srun may be called
 * again. Not so where a step may have been made. */
bool step_lost_slurmctld (const struct child_result *c);

/* step_run - child_run of srun; where srun lost slurmctld, once more when that
 * answers again. A signal to end, or slurmctld's word that the job is over, ends
 * the waiting.
 *   dir   where ranks report */
int step_run (const char *dir, const struct segment_run *r,
              const struct child_opts *opts, struct child_result *ret,
              struct rv_error *err);

#endif
