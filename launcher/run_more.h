/* SPDX-License-Identifier: Apache-2.0
 * run_more.h - what the user and rv.conf add to a plan of `rv run`, as words
 * for sbatch and for the step's srun. */
#ifndef RV_RUN_MORE_H
#define RV_RUN_MORE_H

#include "run_opts.h"
#include "settings.h"
#include "submit.h"

struct run_more {
    struct submit_more submit; /* points into what follows */
    char **words, **step;      /* NULL-terminated */
    char constraint[512];
};

/* run_more_make - fill [ret], which run_more_fini frees.
 *   constraint   of the plan; NULL = none
 * RV_EINVAL where words cannot be joined, RV_ENOTSUP where srun has no
 * containers, RV_ENOMEM. */
int run_more_make (const struct run_opts *opts, const struct settings *settings,
                   const char *constraint, struct run_more *ret,
                   struct rv_error *err);
void run_more_fini (struct run_more *more);

#endif
