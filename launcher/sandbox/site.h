/* SPDX-License-Identifier: Apache-2.0
 * site.h - what this machine has: programs, PMIx, GPUs, memory. */
#ifndef RV_SANDBOX_SITE_H
#define RV_SANDBOX_SITE_H

#include "plan/error.h"
#include "sandbox/files.h"
#include "sandbox/state.h"

struct site {
    char *munged, *slurmctld, *slurmd; /* absolute paths */
    char user[64];
    struct files_site files; /* .user points at user */
    int cpus;                /* of the machine, those we may use */
    int real_gpus;           /* /dev/nvidia0 .. without a gap */
    char gpu_type[64];       /* "h100"; "" when unknown or mixed */
    bool pmix;               /* srun --mpi=pmix can work */
};

/* site_probe - look. RV_ENOTFOUND names a missing program and its package;
 * RV_EINVAL when this user id has no name. */
int site_probe (struct site *site, struct rv_error *err);
void site_fini (struct site *site);

/* site_has_plugin - does Slurm have the plugin of that file name,
 * "task_cgroup.so"? */
bool site_has_plugin (const char *name);

/* site_gpu_type - "NVIDIA H100 80GB HBM3" to "h100": the first word of the
 * model that says which one it is, in lower case.
 *   ret   (size) written; "" when there is none */
void site_gpu_type (const char *model, char *ret, size_t size);

#endif
