/* SPDX-License-Identifier: Apache-2.0
 * run_slurm.h - options of sbatch(1) that `rv run` hands on.
 *
 * Pure, without allocation until the words are made. rv knows of each option
 * only whether it takes a value and who must get it: sbatch, or the srun of the
 * job's step (containers: the batch script itself stays outside). What rv
 * decides itself is refused, with the option of rv that decides it. */
#ifndef RV_RUN_SLURM_H
#define RV_RUN_SLURM_H

#include <stdbool.h>
#include <stddef.h>

#include "plan/error.h"

#define RUN_SLURM_MAX 64

/* Who said it. */
enum run_from { RUN_FROM_LINE, RUN_FROM_USER, RUN_FROM_SITE };

struct run_slurm {
    size_t n;
    struct run_slurm_opt {
        const char *name;  /* "exclude"; NULL: [value] is the whole word */
        const char *value; /* borrowed; NULL: none */
        bool step;         /* for the step's srun */
        enum run_from from;
    } opt[RUN_SLURM_MAX];
    const char *constraint; /* -C, which may have to be joined with rv.conf's */
    enum run_from constraint_from;
    bool array, container;
};

/* run_slurm_add - one option.
 *   name    long name of sbatch's, or "slurm" for --slurm=OPT
 *   value   of argv; NULL = without
 * RV_EINVAL for an empty value, a newline, or what rv decides; RV_ENOTSUP for
 * another cluster. */
int run_slurm_add (struct run_slurm *s, const char *name, const char *value,
                   struct rv_error *err);

/* run_slurm_words - "--NAME=VALUE" for sbatch, or for the step, in the order
 * they were given, without the constraint.
 *   mounts   "/a:/a,/b:/b", what a container must have besides the user's
 *            mounts, for the step; NULL = nothing
 * NULL-terminated, free it and each; NULL when out of memory. */
char **run_slurm_words (const struct run_slurm *s, bool step,
                        const char *mounts);

/* run_slurm_constraint - [site]'s and the user's as one, into [buf].
 *   site, user   NULL = none; both NULL gives ""
 * Slurm has no brackets that hold any two together: RV_EINVAL unless one is
 * NULL, both are the same, or neither has more than "a&b". */
int run_slurm_constraint (const char *site, const char *user, char *buf,
                          size_t size, struct rv_error *err);

#endif
