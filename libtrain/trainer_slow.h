/* SPDX-License-Identifier: Apache-2.0
 * trainer_slow.h - a rank's own time in a step: its passes without what it
 * waited for others in them; on a GPU as that one tells it. Inside libtrain only.
 */
#ifndef TRAIN_TRAINER_SLOW_H
#define TRAIN_TRAINER_SLOW_H

#include <stdbool.h>
#include <stdint.h>

#include "decoder_impl.h"

struct trainer_slow {
    struct decoder_hooks inner; /* the engine's: it waits in them */
    double (*clock) (void);     /* seconds; tests have one of their own */
    double waited_s;            /* in these, since the beginning */
    double own_s;               /* of the steps since the last comparison */
    int64_t steps, timed;       /* since then; steps that are in own_s */
    int64_t now, work;    /* a source's tokens, padding among them: of this
                                   step; of those in own_s */
    struct slow_gpu *gpu; /* NULL: the host's clock */
};

/* trainer_slow_begin - from now on time is taken. The engine's hooks are set.
 * TRAIN_ENOMEM. */
train_status_t trainer_slow_begin (struct trainer_slow *slow,
                                   train_decoder_t *decoder,
                                   train_error_t *err);
void trainer_slow_fini (struct trainer_slow *slow);
/* trainer_slow_add - a step's passes took [s], [waited_s] of it waiting.
 * trainer_slow_skip - or nobody took the time. */
void trainer_slow_add (struct trainer_slow *slow, double s, double waited_s);
void trainer_slow_skip (struct trainer_slow *slow);

/* slow_gpu_create - the clock of a decoder's stream; *ret stays where its backend
 * has none. Of all below NULL is fine.
 * slow_gpu_begin - a step's passes begin; one step of some is timed. _end - they
 * are enqueued. slow_gpu_mark - between the two: own work ends here, or begins
 * again.
 * slow_gpu_read - once the stream has come to the end.
 *   ret_s       seconds of own work
 *   ret_timed   false: this step was not timed */
train_status_t slow_gpu_create (train_decoder_t *decoder, struct slow_gpu **ret,
                                train_error_t *err);
void slow_gpu_destroy (struct slow_gpu *clock);
train_status_t slow_gpu_begin (struct slow_gpu *clock, train_error_t *err);
train_status_t slow_gpu_mark (struct slow_gpu *clock, train_error_t *err);
train_status_t slow_gpu_end (struct slow_gpu *clock, train_error_t *err);
train_status_t slow_gpu_read (struct slow_gpu *clock, double *ret_s,
                              bool *ret_timed, train_error_t *err);

/* trainer_slow_find - the slowest, if its time is over [factor] times the median
 * of the others'; -1: none.
 *   s           (n) seconds a row or token; 0 or less: a rank without rows,
 *               left out
 *   ret_median  of the others; written if there are such */
int trainer_slow_find (const double *s, int n, double factor,
                       double *ret_median);

#endif
