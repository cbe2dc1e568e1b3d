/* SPDX-License-Identifier: Apache-2.0
 * grpo.h - options of a policy loss as the kernels take them. Inside libtrain
 * and its tests only. */
#ifndef TRAIN_GRPO_INSIDE_H
#define TRAIN_GRPO_INSIDE_H

#include <train/grpo.h>

#include "kernels/grpo.h"

/* grpo_rules - checked, with the defaults in place. Errors: as train_grpo_loss
 * has them of [opts] and [whole]. */
train_status_t grpo_rules (const train_grpo_options_t *opts,
                           const train_grpo_whole_t *whole,
                           struct kern_grpo *ret, train_error_t *err);

#endif
