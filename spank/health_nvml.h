/* SPDX-License-Identifier: Apache-2.0
 * health_nvml.h - the state of a node's GPUs, from NVML.
 *
 * Calls into the driver's library, which may hang or crash: for child_run. */
#ifndef RV_SPANK_HEALTH_NVML_H
#define RV_SPANK_HEALTH_NVML_H

#include "health.h"
#include "plan/error.h"

#define HEALTH_GPUS 64

/* health_nvml_read - every GPU of the node.
 *   path      of libnvidia-ml.so.1; NULL = where the loader finds it
 *   gpus      the job's, as SLURM_JOB_GPUS has them (device minors)
 *   has_job   does a job of this node own the process? NULL = none does
 *   ret       (HEALTH_GPUS) written
 *   ret_n     written
 * What a GPU does not support is left as healthy. RV_ENOTFOUND without the
 * library or one of its functions; RV_EIO with NVML's words where it does not
 * start. A [path] that others may write is RV_EINVAL. */
int health_nvml_read (const char *path, const char *gpus,
                      bool (*has_job) (pid_t pid),
                      struct health_gpu ret[HEALTH_GPUS], size_t *ret_n,
                      struct rv_error *err);

#endif
