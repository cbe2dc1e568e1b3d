/* SPDX-License-Identifier: Apache-2.0
 * slow_run.h - a rank whose own work takes long, by a clock that goes by itself
 * only where somebody looks at it. For tests alone. */
#ifndef SLOW_RUN_H
#define SLOW_RUN_H

#include "decoder_impl.h"
#include "trainer.h"

/* be_slow_or_wait - rank 1 takes 8 ms in each unit's turn, in hooks around the
 * trainer's, where they are its own; the others take as long in the engine's,
 * which is waiting. Of one trainer of the process. */
void be_slow_or_wait (train_trainer_t *t, train_decoder_t *d, int rank);

#endif
