/* SPDX-License-Identifier: Apache-2.0
 * mem_count.h - bytes that this process holds of each device, and the most that
 * it has held. Inside libtrain and its programs only.
 *
 * A device's own count of what is used has other processes in it, and the
 * libraries' context. Here is what was asked for, as a planner foresees it. */
#ifndef TRAIN_MEM_COUNT_H
#define TRAIN_MEM_COUNT_H

#include <stdbool.h>
#include <stddef.h>

#define MEM_COUNT_DEVICES 64 /* those behind them are not counted */

/* mem_count_add - [bytes] at [memory] are held of [device] from now on. false:
 * no memory to keep that in mind, and nothing is counted. Any thread, as all
 * here. */
bool mem_count_add (int device, const void *memory, size_t bytes);

/* mem_count_drop - they are given back. What was not added, NULL among it, is
 * passed over. */
void mem_count_drop (const void *memory);

/* mem_count_now, mem_count_peak - bytes held of [device], and the most since
 * the process began; 0 of a device that is not counted. */
size_t mem_count_now (int device);
size_t mem_count_peak (int device);

#endif
