/* SPDX-License-Identifier: Apache-2.0
 * options.h - the options that the plugin adds to srun, sbatch and salloc. */
#ifndef RV_SPANK_OPTIONS_H
#define RV_SPANK_OPTIONS_H

#include <slurm/spank.h>
#include <stddef.h>

enum option {
    OPTION_DIFFER,
    OPTION_ENV,
    OPTION_GPU,
    OPTION_ISOLATE,
    OPTION_MIG,
    OPTION_NCCL_TIMEOUT,
};

/* options_register - tell Slurm of them; from slurm_spank_init, and in every
 * context in which they may arrive. Their values go to client_option or, in
 * slurmstepd, to stepd_option. */
void options_register (spank_t sp);

size_t options_count (void);

/* options_word - the variable in which Slurm hands option [i] <
 * options_count () to slurmstepd; cut at [size]. */
void options_word (size_t i, char *buf, size_t size);

#endif
