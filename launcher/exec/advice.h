/* SPDX-License-Identifier: Apache-2.0
 * advice.h - what kind of failure this is, where we know it, and what to do.
 * Pure: a table over what is known of the end. */
#ifndef RV_EXEC_ADVICE_H
#define RV_EXEC_ADVICE_H

#include <stdbool.h>

struct advice_in {
    int exit_status;   /* -1: a signal ended it, or it is unknown */
    int signal;        /* 0: none */
    bool oom;          /* the kernel killed for want of memory */
    bool told_to_end;  /* by Slurm: then what Slurm said is why */
    const char *tail;  /* last lines of the program's stderr; NULL: none */
    const char *slurm; /* last lines of Slurm's own; NULL: none */
};

struct advice {
    const char *kind; /* one word, for programs */
    const char *what; /* why Slurm ended it; NULL: Slurm did not */
    const char *text; /* what would work; one line */
};

/* advice_for - never NULL for what the table knows, else NULL. Static. */
const struct advice *advice_for (const struct advice_in *in);

/* advice_of - the first of that kind; NULL: no such kind. Static. */
const struct advice *advice_of (const char *kind);

#endif
