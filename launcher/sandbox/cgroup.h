/* SPDX-License-Identifier: Apache-2.0
 * cgroup.h - the control groups of a sandbox: make, thaw, empty, remove.
 *
 * Version 1. Slurm makes its groups in CgroupMountpoint/CONTROLLER; a sandbox's
 * mountpoint is DIR/cgroup, where each controller is a link to a group of the
 * sandbox's own, named like its cluster, at the root of the machine's mount. So
 * two sandboxes do not meet, nor a sandbox and the machine's own Slurm, and
 * nothing is mounted. A link is made before its group: no crash leaves a group
 * that is not on record. Source: the kernel's cgroup-v1 documents,
 * cgroup.conf(5). */
#ifndef RV_SANDBOX_CGROUP_H
#define RV_SANDBOX_CGROUP_H

#include <stdbool.h>
#include <stddef.h>

#include "plan/error.h"
#include "sandbox/state.h"

/* cgroup_mount_of - where a controller of version 1 is mounted.
 *   mountinfo   text as of /proc/self/mountinfo
 *   controller  "memory"
 *   ret         (size) written: the mount point
 * False when it is not mounted, or at a path that does not fit. Pure. */
bool cgroup_mount_of (const char *mountinfo, const char *controller, char *ret,
                      size_t size);

/* cgroup_check - can jobs be confined here? The caller is root or not, Slurm
 * has the plugins or not: each "no" is a sentence.
 *   ret_swap   written: the machine can limit swap too
 * RV_ENOTSUP, RV_EIO. */
int cgroup_check (bool *ret_swap, struct rv_error *err);

/* cgroup_make - the groups of [sb] and the links in its folder, which is there
 * and has none. RV_EIO; what was made until then, cgroup_remove removes. */
int cgroup_make (const struct sandbox *sb, struct rv_error *err);

/* cgroup_thaw - let suspended processes run, so that a signal ends them.
 * Nothing happens where [dir] has no groups. */
void cgroup_thaw (const char *dir);

/* cgroup_remove - kill what is in the groups of the sandbox in [dir] and remove
 * them. Fine where there are none. RV_ETIMEDOUT when a process does not end. */
int cgroup_remove (const char *dir, struct rv_error *err);

#endif
