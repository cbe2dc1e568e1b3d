/* SPDX-License-Identifier: Apache-2.0
 * oom.h - did the kernel kill something in our control group for want of
 * memory? Read as the user; needs no privilege.
 *
 * Kernel documentation: admin-guide/cgroup-v2 (memory.events) and
 * cgroup-v1/memory (memory.oom_control, memory.failcnt). */
#ifndef RV_EXEC_OOM_H
#define RV_EXEC_OOM_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

enum oom_version { OOM_NONE, OOM_V1, OOM_V2 };

/* oom_folder - where the memory controller shows a process's group.
 *   self     text of /proc/self/cgroup
 *   mounts   text of /proc/self/mountinfo
 *   buf      the folder's path; "" with OOM_NONE
 * A group that lies outside what is mounted (a container's view) is taken to
 * be the mount's root. */
enum oom_version oom_folder (const char *self, const char *mounts, char *buf,
                             size_t size);

/* oom_count - the number behind [key] on a line of its own, as in
 * memory.events and memory.oom_control; -1 when there is no such line. */
int64_t oom_count (const char *text, const char *key);

/* What has happened in a group so far; -1: unknown. */
struct oom {
    int64_t kills;  /* processes killed for want of memory */
    int64_t limits; /* times that its limit was hit; v1 alone */
};

/* oom_now - of our own group. Never fails: what cannot be read is -1. */
struct oom oom_now (void);

/* oom_happened - between two of them: 1 yes, 0 no, -1 unknown.
 *   killed   something ended by SIGKILL. A kernel before 4.13 counts no kills
 *            in version 1; there, that and a limit that was hit mean yes. */
int oom_happened (const struct oom *before, const struct oom *after,
                  bool killed);

#endif
