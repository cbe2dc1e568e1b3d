/* SPDX-License-Identifier: Apache-2.0
 * options.h - the options that the plugin adds to srun, sbatch and salloc. */
#ifndef RV_SPANK_OPTIONS_H
#define RV_SPANK_OPTIONS_H

#include <slurm/spank.h>

enum option {
    OPTION_DIFFER,
    OPTION_ENV,
    OPTION_GPU,
    OPTION_MIG,
    OPTION_NCCL_TIMEOUT,
};

/* options_register - tell Slurm of them; from slurm_spank_init, and in every
 * context in which they may arrive. Their values go to client_option or, in
 * slurmstepd, to stepd_option. */
void options_register (spank_t sp);

#endif
