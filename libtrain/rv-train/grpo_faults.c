/* SPDX-License-Identifier: Apache-2.0
 * grpo_faults.c - say what rewards could not score, and count it over ranks */
#include "grpo_faults.h"

#include <inttypes.h>
#include <stdio.h>

#include "libtrain/err.h"
#include "run.h"

enum { NOTHING, TIMEOUTS, CRASHES, GARBAGE, N_COUNTS };

static void say (const struct grpo_judge *j, size_t k, int64_t n,
                 const train_group_t *group, int64_t step)
{
    const char *why = train_reward_fault (j->reward[k]);
    char who[RUN_WHO];

    run_who (train_group_rank (group), train_group_size (group), who);
    fprintf (stderr,
             "rv-train%s: step %" PRId64 ": [reward %s]: %" PRId64
             " fault%s; the last: %s\n",
             who, step, j->set->rewards.list[k].name, n, n == 1 ? "" : "s",
             why ? why : "?");
}

/* Adds what is new of one reward to [sum]. Returns its faults. */
static int64_t add (int64_t sum[N_COUNTS], const train_reward_report_t *now,
                    const train_reward_report_t *seen)
{
    int64_t timeouts = now->timeouts - seen->timeouts;
    int64_t crashes = now->crashes - seen->crashes;
    int64_t garbage = now->garbage - seen->garbage;

    sum[NOTHING] += now->nothing - seen->nothing;
    sum[TIMEOUTS] += timeouts;
    sum[CRASHES] += crashes;
    sum[GARBAGE] += garbage;
    return timeouts + crashes + garbage;
}

train_status_t grpo_faults_take (struct grpo_judge *j, train_group_t *group,
                                 int64_t step, struct grpo_faults *ret,
                                 train_error_t *err)
{
    int64_t sum[N_COUNTS] = {0}, shape[1] = {N_COUNTS};
    train_tensor_t view;

    for (size_t k = 0; k < j->n; k++) {
        train_reward_report_t now = {.size = sizeof (now)};
        int64_t n;

        TRY (train_reward_report (j->reward[k], &now, err));
        if ((n = add (sum, &now, &j->seen[k])) > 0)
            say (j, k, n, group, step);
        j->seen[k] = now;
    }
    TRY (train_tensor_view (&view, sum, TRAIN_I64, 1, shape, err));
    TRY (train_all_reduce (group, &view.t, TRAIN_SUM, err));
    *ret = (struct grpo_faults){sum[NOTHING], sum[TIMEOUTS], sum[CRASHES],
                                sum[GARBAGE]};
    return TRAIN_OK;
}
