/* SPDX-License-Identifier: Apache-2.0
 * updown.h - start and stop the daemons of a sandbox. */
#ifndef RV_SANDBOX_UPDOWN_H
#define RV_SANDBOX_UPDOWN_H

#include <stdbool.h>

#include "plan/error.h"
#include "sandbox/state.h"

/* What the user asked for; 0 and NULL mean "not said". */
struct sandbox_wish {
    int nodes;
    int gpus; /* -1: not said */
    int mig;  /* MIG slices, and then no real GPUs */
    int cpus;
    const char *type;
    bool made_up;    /* no real GPUs even where there are some */
    bool no_plugin;  /* Slurm without spank_rv.so */
    bool cgroup;     /* jobs confined by control groups */
    bool accounting; /* a database and slurmdbd */
};

/* sandbox_up - bring a sandbox up in [dir] (from folder_resolve).
 *   ret       written: the running sandbox; fini it
 *   ret_was   written: it was up already, and nothing was done
 * What a crashed `up` left in the folder is taken down first. On failure, and
 * on SIGINT, SIGTERM and SIGHUP, nothing stays.
 * RV_ENOTFOUND: a program or the plugin is missing; the text names the
 * package. RV_EMISMATCH: it is up with another shape than [wish]. RV_EINVAL,
 * RV_ENOTSUP: the wish cannot be served. RV_EABORTED: a signal. RV_ETIMEDOUT, RV_EIO. */
int sandbox_up (const char *dir, const struct sandbox_wish *wish,
                struct sandbox *ret, bool *ret_was, struct rv_error *err);

/* sandbox_down - end every process of the sandbox in [dir] and remove it.
 *   ret_was   written: there was something to take down
 * No folder, or an empty one, is fine. RV_ESTATE when called from inside one
 * of its jobs; RV_ETIMEDOUT when a process does not end: the folder stays. */
int sandbox_down (const char *dir, bool *ret_was, struct rv_error *err);

/* sandbox_sweep - kill what is left of the sandbox in [dir]: the recorded
 * daemons of [sb] (NULL: no record) and whatever ident_scan() finds. An srun
 * gets a second to end by itself. Its control groups go with it. Needs the
 * folder's lock. */
int sandbox_sweep (const char *dir, const struct sandbox *sb,
                   struct rv_error *err);

#endif
