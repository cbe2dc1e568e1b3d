/* SPDX-License-Identifier: Apache-2.0
 * stepd_gpus.h - slurmstepd: a device for each task.
 *
 * What needs files and libraries happens before the tasks exist; a task then
 * only looks up what was found. */
#ifndef RV_SPANK_STEPD_GPUS_H
#define RV_SPANK_STEPD_GPUS_H

#include <stdbool.h>
#include <stdint.h>

#include "devlist.h"
#include "plan/error.h"

struct stepd_gpus_wish {
    bool slices;  /* a MIG slice each */
    bool isolate; /* a GPU each */
    bool whole;   /* GPUs were asked for */
};

/* stepd_gpus_look - before the tasks: what CUDA calls the node's devices.
 *   nvml        path of NVML, NULL = the loader's
 *   node        Slurm's name of this node
 *   conf        path of slurm.conf, NULL = Slurm's usual one
 *   n_tasks     of this node
 * In the step's slurmstepd, with the user as effective user. Takes 2 s at
 * most, and no failure reaches the step but through its tasks. */
void stepd_gpus_look (const char *nvml, const char *node, const char *conf,
                      uint32_t n_tasks);

/* stepd_gpus_take - in a task: the value of CUDA_VISIBLE_DEVICES that is its
 * own.
 *   wish   what was asked
 *   t      the task; its [local] is set here
 *   ret    (DEVLIST_NAME_MAX) written; "" = leave Slurm's
 * Reads no file, loads nothing. RV_EINVAL or RV_EIO: one line that names
 * node, tasks and devices. */
int stepd_gpus_take (const struct stepd_gpus_wish *wish, struct devlist_task *t,
                     char ret[DEVLIST_NAME_MAX], struct rv_error *err);

#endif
