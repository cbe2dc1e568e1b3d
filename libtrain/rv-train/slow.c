/* SPDX-License-Identifier: Apache-2.0
 * slow.c - when ranks are compared, and when that is worth a line */
#include "slow.h"

#include "libtrain/err.h"
#include "libtrain/sock.h"

train_status_t slow_step (struct slow *slow, train_trainer_t *trainer,
                          double factor, char *text, size_t size,
                          train_error_t *err)
{
    double now;
    int rank;

    text[0] = '\0';
    if (factor == 0 || train_trainer_steps (trainer) % SLOW_STEPS != 0)
        return TRAIN_OK;
    TRY (train_trainer_slow (trainer, factor, &rank, text, size, err));
    if (rank < 0)
        return TRAIN_OK;
    now = clock_s ();
    if (slow->s > 0 && slow->rank == rank && now - slow->s < SLOW_QUIET) {
        text[0] = '\0';
        return TRAIN_OK;
    }
    slow->rank = rank;
    slow->s = now;
    return TRAIN_OK;
}
