/* SPDX-License-Identifier: Apache-2.0
 * envedit.h - put variables into the environment and take them out again.
 *
 * A client reads them between slurm_spank_init and init_post_opt; what stayed
 * longer would reach the job, its tasks and every nested srun or sbatch. */
#ifndef RV_SPANK_ENVEDIT_H
#define RV_SPANK_ENVEDIT_H

#include <stdbool.h>
#include <stddef.h>

#define ENVEDIT_MAX 8

struct envedit {
    const char *name[ENVEDIT_MAX]; /* that we set */
    size_t n;
};

/* envedit_set - set [name], which must live as long as [e], unless it stands
 * in the environment already: a value of the user's stays.
 * Returns false when it was not set: user's own, no room, no memory. */
bool envedit_set (struct envedit *e, const char *name, const char *value);

/* envedit_drop_rank - forget the rank that this process is, if it is one.
 * A job that a rank submits would inherit all of it. RV_STEP marks variables
 * of the plugin or of rv-exec; without it they are the user's and stay.
 * OMP_NUM_THREADS and the timeouts of other programs go where RV_SET says that
 * they are ours (plan/rank_env.h). */
void envedit_drop_rank (void);

/* envedit_undo - take out what envedit_set put in, and nothing else. */
void envedit_undo (struct envedit *e);

#endif
