/* SPDX-License-Identifier: Apache-2.0
 * run_plan.h - from the words of `rv run` and rv.conf to strategies. */
#ifndef RV_RUN_PLAN_H
#define RV_RUN_PLAN_H

#include "plan/command.h"
#include "plan/plans.h"
#include "run_opts.h"
#include "settings.h"

struct run_plan {
    struct plans plans;
    struct strategy_rule *rules; /* of rv.conf, one a [gpu TYPE] */
    char slices[GRES_NAME_MAX];  /* type of the MIG slices, "" = whole GPUs */
};

/* run_plan_make - strategies for what was asked.
 *   opts, settings, command   borrowed until run_plan_fini
 *   cluster                   as cluster_load gave it; gets rv.conf's rules,
 *                             and loses the nodes that -x, -w and --reservation
 *                             leave out
 *   ret                       written on success
 * RV_ENOTFOUND or RV_EINVAL with what would work, RV_ENOMEM. */
int run_plan_make (const struct run_opts *opts, const struct settings *settings,
                   const struct command *command,
                   struct strategy_cluster *cluster, struct run_plan *ret,
                   struct rv_error *err);
void run_plan_fini (struct run_plan *plan); /* NULL is fine */

#endif
