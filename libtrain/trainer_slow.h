/* SPDX-License-Identifier: Apache-2.0
 * trainer_slow.h - a rank's own time in a step: its passes without what it
 * waited for others in them. Inside libtrain only. */
#ifndef TRAIN_TRAINER_SLOW_H
#define TRAIN_TRAINER_SLOW_H

#include <stdbool.h>
#include <stdint.h>

#include "decoder_impl.h"

struct trainer_slow {
    struct decoder_hooks inner; /* the engine's: it waits in them */
    double waited_s;            /* in these, since the beginning */
    double own_s;               /* of the steps since the last comparison */
    int64_t steps;
};

/* trainer_slow_begin - from now on time is taken. The engine's hooks are set. */
void trainer_slow_begin (struct trainer_slow *slow, train_decoder_t *decoder);
/* trainer_slow_add - a step's passes took [s], [waited_s] of it waiting. */
void trainer_slow_add (struct trainer_slow *slow, double s, double waited_s);

/* trainer_slow_find - the slowest, if its time is over [factor] times the median
 * of the others'; -1: none.
 *   s           (n) seconds a row; 0 or less: a rank without rows, left out
 *   ret_median  of the others; written if there are such */
int trainer_slow_find (const double *s, int n, double factor,
                       double *ret_median);

#endif
