/* SPDX-License-Identifier: Apache-2.0
 * ident.h - which process is which, so that none but ours is ever signalled.
 *
 * Process ids wrap. A process is ours when its start time and command line are
 * those that were recorded, or when it shows by what it holds that it belongs
 * to the sandbox: a Slurm daemon with an open file in the sandbox folder, a
 * task with the sandbox's cluster name in its environment, or a descendant of
 * such a slurmstepd. Signals go through a pidfd that is opened before the
 * check, so the process cannot change in between. */
#ifndef RV_SANDBOX_IDENT_H
#define RV_SANDBOX_IDENT_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>
#include <sys/types.h>

#include "plan/error.h"

/* ident_start - start time of [pid] in clock ticks since boot, as proc(5)
 * tells. False when there is no such process or it is a zombie. */
bool ident_start (pid_t pid, uint64_t *ret_start);

/* ident_is - is [pid] a live process that started at [start] with exactly the
 * argument vector [argv] (NULL-terminated)? */
bool ident_is (pid_t pid, uint64_t start, char *const *argv);

/* ident_kill - send [sig] if ident_is() holds.
 * Returns true when the signal was sent. */
bool ident_kill (pid_t pid, uint64_t start, char *const *argv, int sig);

enum ident_kind {
    IDENT_DAEMON = 1, /* munged, slurmctld and its script runner, slurmd,
                          mariadbd, slurmdbd */
    IDENT_STEPD = 2,  /* slurmstepd */
    IDENT_TASK = 4,   /* what Slurm started for a user, with descendants */
    IDENT_CLIENT = 8, /* srun, with the sandbox's SLURM_CONF */
};

struct ident_found {
    pid_t pid;
    uint64_t start;
    enum ident_kind kind;
};

/* ident_scan - find the processes of the sandbox.
 *   dir        its folder, absolute, links resolved
 *   cluster    its ClusterName; NULL when not known: no tasks by name then
 *   kinds      enum ident_kind, or-ed
 *   ret_found  (*ret_n) malloc'ed; NULL for none
 * This process is never among them. RV_EIO when /proc cannot be read. */
int ident_scan (const char *dir, const char *cluster, int kinds,
                struct ident_found **ret_found, size_t *ret_n,
                struct rv_error *err);

/* ident_kill_found - send [sig] if the process is still the one that was
 * found, by its start time. */
bool ident_kill_found (const struct ident_found *found, int sig);

/* ident_boot_id - this boot's id, 36 characters; start times of another boot
 * mean nothing. "" when the kernel does not tell. */
void ident_boot_id (char buf[40]);

#endif
