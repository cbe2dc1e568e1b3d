/* SPDX-License-Identifier: Apache-2.0
 * affinity.c - the CPUs of a task */
#include "config.h"

#include "affinity.h"

#include <sched.h>

uint32_t affinity_count (void)
{
    cpu_set_t set[16]; /* 16384 CPUs */

    if (sched_getaffinity (0, sizeof (set), set) != 0)
        return 0;
    return (uint32_t)CPU_COUNT_S (sizeof (set), set);
}

uint32_t affinity_shared (uint32_t task, uint32_t node, uint32_t cpus_per_task,
                          uint32_t local)
{
    if (task >= node || task >= (uint64_t)cpus_per_task * local)
        return task;
    return task * local;
}
