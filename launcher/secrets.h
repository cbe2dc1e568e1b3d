/* SPDX-License-Identifier: Apache-2.0
 * secrets.h - files of secrets: the user's own, and the copy of one request.
 *
 * Both have the form of envfile.h, belong to the user and have mode 0600. One
 * that others can read, or that is somebody else's, is refused, never used.
 * Shared by rv and rv-exec. */
#ifndef RV_SECRETS_H
#define RV_SECRETS_H

#include "plan/envfile.h"
#include "plan/error.h"

#define SECRETS_FILE  "secrets" /* within a request's folder */
#define SECRETS_TASKS "array"   /* there: an array's tasks have a link each */

/* secrets_path - rv/env in $XDG_CONFIG_HOME, else in ~/.config; malloc'ed.
 * RV_ENOTFOUND without HOME. */
int secrets_path (char **ret_path, struct rv_error *err);

/* secrets_read - the variables of a file.
 *   ret   written on success; free with envfile_fini
 * RV_ENOTFOUND when it is not there, RV_EINVAL when it is not the user's alone
 * or a name is not allowed, RV_EFORMAT for what is no NAME=VALUE, RV_EIO. */
int secrets_read (const char *path, struct envfile *ret, struct rv_error *err);

/* secrets_write - replace a file (fsio_write), mode 0600 whatever the umask.
 * A link at [path] stays: what it points to is replaced. */
int secrets_write (const char *path, const struct envfile *env,
                   struct rv_error *err);

/* secrets_lock - make the folder of [path] (0700) where it is missing, and be
 * alone at changing the file until the descriptor is closed.
 *   ret_fd   written on success
 * Waits for another rv that is at it. */
int secrets_lock (const char *path, int *ret_fd, struct rv_error *err);

/* secrets_forget - remove the copy of the request in [dir], with all that its
 * tasks have of it. */
void secrets_forget (const char *dir);

#endif
