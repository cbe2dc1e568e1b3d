/* SPDX-License-Identifier: Apache-2.0
 * folder.h - the folder of a sandbox: choose it, own it, lock it, remove it. */
#ifndef RV_SANDBOX_FOLDER_H
#define RV_SANDBOX_FOLDER_H

#include <stdbool.h>

#include "plan/error.h"
#include "sandbox/state.h"

/* folder_resolve - the sandbox folder as an absolute path without links.
 *   dir      what the user gave; NULL: the default,
 *            ${XDG_RUNTIME_DIR:-/tmp}/rv-sandbox-UID
 *   ret      written: at most SANDBOX_MAX_DIR bytes
 * The folder need not exist, its parent must. RV_EINVAL for a path that is too
 * long or has characters that slurm.conf cannot hold, RV_ENOTFOUND. */
int folder_resolve (const char *dir, char ret[SANDBOX_MAX_DIR + 1],
                    struct rv_error *err);

/* folder_lock - take the folder for this process.
 *   create    make it (0700) if it is not there, make it ours if it is empty
 *   ret_fd    the lock; it ends with the last copy of this descriptor
 * Waits up to a minute for another `up` or `down`. RV_ENOTFOUND when there is
 * none, RV_EINVAL when it is another user's or holds something else than a
 * sandbox: such a folder stays as it is. */
int folder_lock (const char *dir, int create, int *ret_fd,
                 struct rv_error *err);

/* folder_check - is it a sandbox folder of this user? As folder_lock without
 * the lock, and without waiting.
 *   ret_busy  written: somebody has the lock; may be NULL */
int folder_check (const char *dir, bool *ret_busy, struct rv_error *err);

/* folder_clear - remove what is in it but the mark. Needs the lock. */
int folder_clear (const char *dir, struct rv_error *err);

/* folder_remove - clear it, then remove the mark and the folder. A crash
 * leaves the mark, so that the next call goes on. Needs the lock. An `up` that
 * takes the folder the moment its mark is gone is no failure. */
int folder_remove (const char *dir, struct rv_error *err);

#endif
