/* SPDX-License-Identifier: Apache-2.0
 * slow.h - say now and then which rank makes the others wait. */
#ifndef RV_TRAIN_SLOW_H
#define RV_TRAIN_SLOW_H

#include <train.h>

#define SLOW_STEPS 20   /* compared at a time */
#define SLOW_QUIET 60.0 /* seconds between two lines about one rank */

struct slow {
    int rank; /* that the last line was about, */
    double s; /* and when */
};

/* slow_step - after each step, on every rank: collective after each SLOW_STEPS.
 *   factor   how much slower than the median is slow; 0 = never
 *   text     (size) written where a line is due, else "" */
train_status_t slow_step (struct slow *slow, train_trainer_t *trainer,
                          double factor, char *text, size_t size,
                          train_error_t *err);

#endif
