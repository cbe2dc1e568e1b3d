/* SPDX-License-Identifier: Apache-2.0
 * grpo.h - a run whose task is grpo. */
#ifndef RV_TRAIN_GRPO_H
#define RV_TRAIN_GRPO_H

#include "run.h"

/* run_grpo - as run_training. A request to stop is met where a cycle ends. */
train_status_t run_grpo (const struct settings *set,
                         const volatile sig_atomic_t *stop, struct who *ret_who,
                         bool *ret_stopped, train_error_t *err);

#endif
