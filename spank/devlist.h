/* SPDX-License-Identifier: Apache-2.0
 * devlist.h - which of a node's devices is a task's own.
 *
 * Pure: values of CUDA_VISIBLE_DEVICES and SLURM_STEP_GPUS in, one device or
 * the reason why there is none out. A device is an opaque string: an index,
 * "GPU-...", "MIG-..."; nothing is ever read as a number but Slurm's indices,
 * to look them up. */
#ifndef RV_SPANK_DEVLIST_H
#define RV_SPANK_DEVLIST_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "plan/error.h"

#define DEVLIST_MAX      256
#define DEVLIST_NAME_MAX 112

/* devlist_count - devices of a list by commas; 0 for NULL, "" and
 * "NoDevFiles". Every item counts. */
size_t devlist_count (const char *list);

/* devlist_item - item [i] of the list.
 *   buf   (DEVLIST_NAME_MAX) written
 * False when there is none, or it is too long. */
bool devlist_item (const char *list, size_t i, char buf[DEVLIST_NAME_MAX]);

/* devlist_index - an item as Slurm's index; -1 when it is no plain number. */
int devlist_index (const char *item);

struct devlist_task {
    const char *visible; /* CUDA_VISIBLE_DEVICES, NULL = unset */
    const char *step;    /* SLURM_STEP_GPUS: the same by the node's indices, or
                            all of the step's there; NULL = unset */
    uint32_t on_node;    /* SLURM_GPUS_ON_NODE, 0 = unset: where it is more
                            than is visible, Slurm bound the task to some */
    const char *node;    /* for messages */
    uint32_t rank, local_rank, local_size;
    bool slices; /* MIG slices were asked for */
    bool local;  /* visible indices count the step's devices, as they do where
                    jobs are confined, and not the node's */
};

struct devlist_own {
    char name[DEVLIST_NAME_MAX]; /* as CUDA_VISIBLE_DEVICES has it */
    int index;                   /* the node's, -1 = not known */
};

/* devlist_check - are there GPUs for all tasks of the node? A step without any
 * (visible and step are both empty) is fine.
 * RV_EINVAL names node, tasks and devices and says what would work. */
int devlist_check (const struct devlist_task *t, struct rv_error *err);

/* devlist_own - the task's own device.
 *   ret   written on success
 * Where the task sees all of the step's, it is the one of its local rank;
 * where Slurm bound fewer to it, the first of those. RV_EINVAL as above, and
 * where no device is visible. */
int devlist_own (const struct devlist_task *t, struct devlist_own *ret,
                 struct rv_error *err);

#endif
