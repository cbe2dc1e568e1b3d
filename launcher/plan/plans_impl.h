/* SPDX-License-Identifier: Apache-2.0
 * plans_impl.h - what the files of plan_strategies share. Internal to libplan.
 */
#ifndef RV_PLAN_PLANS_IMPL_H
#define RV_PLAN_PLANS_IMPL_H

#include "plan/plans.h"

#define PLANS_SEARCHED 512 /* items before the ranking */

/* plans_add - a copy of [item] at the end, its texts its own. Beyond
 * PLANS_SEARCHED it is counted and left out. */
void plans_add (struct plans *plans, const struct plans_item *item);

/* plans_fold - add items that name several partitions, and several types, where
 * one job can: among the first [n] items, which have one member each. */
void plans_fold (const struct strategy_cluster *cluster,
                 const struct strategy_request *req, struct plans *plans,
                 size_t n);

/* plans_forecast - fill in the starts. RV_ENOMEM. */
int plans_forecast (const struct strategy_cluster *cluster,
                    const struct strategy_request *req, struct plans *plans,
                    struct rv_error *err);

/* plans_rank - order, drop what is dominated, keep PLANS_MAX. */
void plans_rank (const struct strategy_cluster *cluster, struct plans *plans);

/* plans_covers - may the job of [a] start in every place that [b] names? */
bool plans_covers (const struct plans_item *a, const struct plans_item *b);

/* What the job is sure to get. */
int64_t plans_sure_time (const struct plans_item *item);

#endif
