/* SPDX-License-Identifier: Apache-2.0
 * taskmap.h - tasks per node as Slurm writes them ("2(x3),1"). */
#ifndef RV_PLAN_TASKMAP_H
#define RV_PLAN_TASKMAP_H

#include <stddef.h>
#include <stdint.h>

#include "plan/error.h"

struct taskmap {
    uint32_t *tasks; /* (n) tasks of node i */
    size_t n;        /* nodes */
    uint32_t total;  /* tasks */
};

/* taskmap_parse - expand SLURM_STEP_TASKS_PER_NODE or SLURM_TASKS_PER_NODE.
 * Malformed text, zero repeat, more than 65536 nodes or UINT32_MAX tasks:
 * RV_EINVAL and *map is empty. A node with 0 tasks is fine. */
int taskmap_parse (const char *text, struct taskmap *map, struct rv_error *err);
void taskmap_fini (struct taskmap *map);

#endif
