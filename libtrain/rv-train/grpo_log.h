/* SPDX-License-Identifier: Apache-2.0
 * grpo_log.h - lines of metrics and of completions for task = grpo. Rank 0's.
 */
#ifndef RV_TRAIN_GRPO_LOG_H
#define RV_TRAIN_GRPO_LOG_H

#include "grpo_faults.h"
#include "grpo_rows.h"
#include "metrics.h"

/* grpo_log_metrics - a step's line: all of train_grpo_metrics_t, and each reward by
 * itself, "rewards/NAME/mean" and "rewards/NAME/std".
 *   rewards  of the judge's, as train_grpo_trainer_rewards has them
 *   held     the reward of prompts that are held out; NaN: none after this step
 *   faults   of the step's rewards
 * grpo_log_completions - lines of the cycle's first [shown] samples:
 *   {"step":1,"prompt":...,"completion":...,"tokens":3,"cut":false,
 *    "rewards":{"NAME":1.0},"advantage":0.5} */
train_status_t grpo_log_metrics (struct metrics *to,
                                 const train_grpo_metrics_t *m, double held,
                                 const struct grpo_faults *faults,
                                 const struct grpo_judge *judge,
                                 const train_grpo_spread_t *rewards,
                                 int64_t mem_bytes, train_error_t *err);
train_status_t grpo_log_completions (struct metrics *to, int64_t step,
                                     const struct grpo_rows *rows,
                                     const struct grpo_judge *judge,
                                     const train_grpo_sample_t *samples, int n,
                                     train_error_t *err);

#endif
