/* SPDX-License-Identifier: Apache-2.0
 * gpuids.h - what CUDA calls the devices that Slurm counts.
 *
 * Slurm gives indices where its gres.conf was written by hand; CUDA needs
 * UUIDs for MIG slices, whose numbers mean nothing to it. gres.conf tells the
 * device files of an index, the driver's mig-minors the GPU and compute
 * instance of a file, NVML their UUID (and, without NVML, "MIG-GPU-.../GI/CI",
 * which CUDA takes too). All of it is read in a child, as the user. */
#ifndef RV_SPANK_GPUIDS_H
#define RV_SPANK_GPUIDS_H

#include <stdbool.h>
#include <stddef.h>

#include "devlist.h"

#define GPUIDS_DEADLINE_MS 2000
#define GPUIDS_WHY_MAX     240

struct gpuids_where {
    const char *nvml;     /* path of the library, NULL = the loader's */
    const char *conf_dir; /* that holds gres.conf and cgroup.conf */
    const char *driver;   /* "/proc/driver" */
    const char *node;     /* Slurm's name of this node */
};

enum gpuids_state {
    GPUIDS_NONE,   /* nobody asked, or there is no NVIDIA driver here: Slurm's
                      values are all that there is */
    GPUIDS_KNOWN,  /* there is a driver, and it answered */
    GPUIDS_FAILED, /* there is a driver, and it did not: see why */
};

struct gpuids {
    enum gpuids_state state;
    bool confined;            /* jobs open their own devices alone */
    bool slice[DEVLIST_MAX];  /* a MIG slice, by gres.conf */
    char why[GPUIDS_WHY_MAX]; /* "" or what went wrong, one line */
    char name[DEVLIST_MAX][DEVLIST_NAME_MAX]; /* by Slurm's index, "" = not
                                                 known */
};

/* gpuids_read - ask, in a child, for at most GPUIDS_DEADLINE_MS.
 *   ret   written
 * Never fails and never loads anything into the caller. Where the caller's
 * effective user is not its real one, the child becomes the effective one for
 * good. */
void gpuids_read (const struct gpuids_where *where, struct gpuids *ret);

/* gpuids_parse - the child's answer. Pure.
 *   text   (len) lines "id INDEX NAME", "slice INDEX", "confined", "driver", "done",
 *          "why TEXT"; anything else is passed over, a later id replaces an
 *          earlier one. */
void gpuids_parse (const char *text, size_t len, struct gpuids *ret);

#endif
