/* SPDX-License-Identifier: Apache-2.0
 * checkpoint.h - --checkpoint=SIGNAL@SECONDS: what the ranks are told before
 * the time limit, and how long before. */
#ifndef RV_PLAN_CHECKPOINT_H
#define RV_PLAN_CHECKPOINT_H

#include <stdint.h>

#include "plan/error.h"

#define CHECKPOINT_SECONDS     120
#define CHECKPOINT_SECONDS_MAX 65535 /* sbatch takes no more */

struct checkpoint {
    int signal;       /* 0: no checkpoints */
    uint32_t seconds; /* before the limit */
};

/* checkpoint_parse - read "USR1@120", "SIGUSR1", "@300" or, with NULL, the
 * default: USR1, CHECKPOINT_SECONDS before the limit.
 *   ret   written on success
 * RV_EINVAL for a signal that is none or cannot be handled by a program, and
 * for seconds that are no whole number from 1 to CHECKPOINT_SECONDS_MAX. */
int checkpoint_parse (const char *text, struct checkpoint *ret,
                      struct rv_error *err);

/* checkpoint_signal_name - "USR1"; NULL for one that checkpoint_parse would
 * not take. Static. */
const char *checkpoint_signal_name (int signal);

/* checkpoint_signal - the inverse, with or without "SIG"; 0 = none. */
int checkpoint_signal (const char *name);

#endif
