/* SPDX-License-Identifier: Apache-2.0
 * usage.h - GPUs of many nodes, by type: free, used and down.
 *
 * Pure: text of Slurm's nodes in, sums out. */
#ifndef RV_PLAN_USAGE_H
#define RV_PLAN_USAGE_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "plan/error.h"
#include "plan/gres.h"

struct usage_type {
    char type[GRES_NAME_MAX]; /* "" = of no type */
    uint64_t total, used, free, down;
};

struct usage {
    struct usage_type *type; /* (n) in the order they were seen */
    size_t n;
};

/* usage_add - one node's GPUs.
 *   gres   what it has: "gpu:a100:4(S:0-1),gpu:1g.10gb:7"
 *   used   what jobs have of it: "gpu:a100:2(IDX:0-1)"; a count without a type
 *          is taken from the types in their order
 *   down   no new job can start there: what is not used is down
 * More used than there is counts as all of it. RV_EFORMAT, RV_ENOMEM; [usage]
 * is then as it was. */
int usage_add (struct usage *usage, const char *gres, const char *used,
               bool down, struct rv_error *err);
void usage_fini (struct usage *usage);

/* usage_asked - GPUs that a waiting job asks for, slices among them.
 *   per_job, per_node, per_task   "gres:gpu:a100:2" or "gres/gpu:2"; NULL or
 *                                 "" = not said
 *   nodes, tasks                  that the last two are multiplied with */
uint64_t usage_asked (const char *per_job, const char *per_node,
                      const char *per_task, uint32_t nodes, uint32_t tasks);

#endif
