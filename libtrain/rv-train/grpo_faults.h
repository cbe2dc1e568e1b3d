/* SPDX-License-Identifier: Apache-2.0
 * grpo_faults.h - what rewards could not score, for task = grpo. */
#ifndef RV_TRAIN_GRPO_FAULTS_H
#define RV_TRAIN_GRPO_FAULTS_H

#include "grpo_rows.h"

/* Since the last look, over all rewards and ranks; train/reward.h has what they
 * mean. */
struct grpo_faults {
    int64_t nothing, timeouts, crashes, garbage;
};

/* grpo_faults_take - after a step, held-out completions among that. A reward
 * whose program failed at this rank's samples is said on stderr, a line each:
 *   rv-train: step 3: [reward NAME]: 2 faults; the last: ./score.py exited ...
 * Collective. */
train_status_t grpo_faults_take (struct grpo_judge *judge, train_group_t *group,
                                 int64_t step, struct grpo_faults *ret,
                                 train_error_t *err);

#endif
