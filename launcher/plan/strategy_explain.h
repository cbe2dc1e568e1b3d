/* SPDX-License-Identifier: Apache-2.0
 * strategy_explain.h - why no plan exists, and the parts of the search that
 * the explanation shares with it. Internal to libplan. */
#ifndef RV_PLAN_STRATEGY_EXPLAIN_H
#define RV_PLAN_STRATEGY_EXPLAIN_H

#include "plan/strategy.h"

/* Searches pass over nodes that are down now and partitions that serve only on
 * request, unless told otherwise. */
enum {
    STRATEGY_DOWN = 1,
    STRATEGY_ON_REQUEST = 2,
};

/* What a search has found; borrowed for the call. True ends the search. */
typedef bool (*strategy_each_f) (const struct strategy_plan *plan,
                                 const struct strategy_partition *part,
                                 void *arg);

/* strategy_each - every plan of one partition and one type, on each number of
 * nodes that holds the GPUs evenly: the default partition first, the fewest
 * nodes first.
 *   flags   STRATEGY_... or 0
 * Returns whether [found] ended it. */
bool strategy_each (const struct strategy_cluster *cluster,
                    const struct strategy_request *req, unsigned flags,
                    strategy_each_f found, void *arg);

/* strategy_try - the first of them.
 *   usable_only   pass over nodes that are down now
 *   plan          written when true is returned */
bool strategy_try (const struct strategy_cluster *cluster,
                   const struct strategy_request *req, bool usable_only,
                   struct strategy_plan *plan);

/* strategy_check - is it a request, and are its partitions there? */
int strategy_check (const struct strategy_cluster *cluster,
                    const struct strategy_request *req, struct rv_error *err);

/* Is [part] among the partitions of the request? Is [gres] a whole GPU of its
 * type? */
bool strategy_partition_asked (const struct strategy_request *req,
                               const struct strategy_partition *part);
bool strategy_type_asked (const struct strategy_request *req,
                          const struct gres_entry *gres);

/* The rule of a type behind [last], or the first; NULL when there is none. */
const struct strategy_rule *strategy_rule_next (
    const struct strategy_cluster *cluster, const char *type,
    const struct strategy_rule *last);

/* Memory of one GPU, MiB: of the rule (NULL = none), else of the name of a MIG
 * profile; 0 = nobody says. */
uint64_t strategy_vram_mb (const struct strategy_rule *rule, const char *type);

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
