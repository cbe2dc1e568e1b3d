/* SPDX-License-Identifier: Apache-2.0
 * run.h - one training run, from the group to the last checkpoint. */
#ifndef RV_TRAIN_RUN_H
#define RV_TRAIN_RUN_H

#include <signal.h>
#include <stdbool.h>

#include <train.h>

#include "settings.h"

/* Who speaks: for the prefix of messages. */
struct who {
    int rank, size;
};

/* run_who - "[rank 3 on NODE]" of several ranks, else "". */
#define RUN_WHO 96
void run_who (int rank, int size, char who[RUN_WHO]);

/* run_training - train as [set] says, as one rank of the job.
 *   stop          set by a signal handler: stop after the step that runs
 *   ret_who       written as soon as it is known, on failure too
 *   ret_stopped   true: stopped on request, and a checkpoint was written
 * Rank 0 writes progress to stdout, a line every [log] every steps. */
train_status_t run_training (const struct settings *set,
                             const volatile sig_atomic_t *stop,
                             struct who *ret_who, bool *ret_stopped,
                             train_error_t *err);

#endif
