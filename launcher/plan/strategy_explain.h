/* SPDX-License-Identifier: Apache-2.0
 * strategy_explain.h - why no plan exists, and the parts of the search that
 * the explanation shares with it. Internal to libplan. */
#ifndef RV_PLAN_STRATEGY_EXPLAIN_H
#define RV_PLAN_STRATEGY_EXPLAIN_H

#include "plan/strategy.h"

/* strategy_try - the search behind strategy_choose.
 *   usable_only   pass over nodes that are down now
 *   plan          written when true is returned */
bool strategy_try (const struct strategy_cluster *cluster,
                   const struct strategy_request *req, bool usable_only,
                   struct strategy_plan *plan);

/* Is [part] among the partitions of the request? Is [gres] a whole GPU of its
 * type? */
bool strategy_partition_asked (const struct strategy_request *req,
                               const struct strategy_partition *part);
bool strategy_type_asked (const struct strategy_request *req,
                          const struct gres_entry *gres);

/* GPUs of exactly [type] on a node, case ignored; "" counts untyped ones. */
uint32_t strategy_node_gpus (const struct strategy_node *node,
                             const char *type);

/* The rule of a type; one that says nothing where there is none. */
const struct strategy_rule *strategy_rule_find (
    const struct strategy_cluster *cluster, const char *type);

/* strategy_check_partitions - is every partition of the request there, and one
 * of them up? RV_ENOTFOUND or RV_EINVAL. */
int strategy_check_partitions (const struct strategy_cluster *cluster,
                               const struct strategy_request *req,
                               struct rv_error *err);

/* strategy_explain - say why the request cannot be met and what would work.
 * Called after strategy_try failed. Returns RV_ENOTFOUND or RV_EINVAL. */
int strategy_explain (const struct strategy_cluster *cluster,
                      const struct strategy_request *req, struct rv_error *err);

#endif
