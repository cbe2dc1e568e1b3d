/* SPDX-License-Identifier: Apache-2.0
 * affinity.h - the CPUs of a task. */
#ifndef RV_SPANK_AFFINITY_H
#define RV_SPANK_AFFINITY_H

#include <stdint.h>

/* affinity_count - CPUs of the calling process's mask; 0 = unknown. */
uint32_t affinity_count (void);

/* affinity_shared - CPUs that the tasks of a node have together.
 *   task            of one task's mask
 *   node            of the mask before Slurm narrowed it
 *   cpus_per_task   as asked for, at least 1
 *   local           tasks of the step on this node, > 0
 * A mask that Slurm left whole, or that has room for all tasks, is one that
 * they share. A smaller one is the task's own, and the others have as many. */
uint32_t affinity_shared (uint32_t task, uint32_t node, uint32_t cpus_per_task,
                          uint32_t local);

#endif
