/* SPDX-License-Identifier: Apache-2.0
 * grpo.h - options of a policy loss as the kernels take them, and rewards one by
 * one. Inside libtrain and its tests only. */
#ifndef TRAIN_GRPO_INSIDE_H
#define TRAIN_GRPO_INSIDE_H

#include <train/grpo_trainer.h>

#include "kernels/grpo.h"

/* grpo_rules - checked, with the defaults in place. Errors: as train_grpo_loss
 * has them of [opts] and [whole]. */
train_status_t grpo_rules (const train_grpo_options_t *opts,
                           const train_grpo_whole_t *whole,
                           struct kern_grpo *ret, train_error_t *err);

/* grpo_spreads - of each of [R] rewards: (n, R), of completions that [lengths] are
 * of, as train_grpo_advantages has both.
 *   ret   (R) written */
train_status_t grpo_spreads (const float *rewards, const int64_t *lengths,
                             int64_t n, int R, train_grpo_spread_t *ret,
                             train_error_t *err);

#endif
