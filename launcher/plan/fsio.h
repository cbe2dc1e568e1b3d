/* SPDX-License-Identifier: Apache-2.0
 * fsio.h - whole files: read them, replace them atomically, make folders. */
#ifndef RV_PLAN_FSIO_H
#define RV_PLAN_FSIO_H

#include <stddef.h>
#include <sys/types.h>

#include "plan/error.h"

/* fsio_read - the whole file into a malloc'ed buffer with a NUL after it.
 *   max       larger files are RV_EFORMAT
 *   ret_len   may be NULL
 * RV_ENOTFOUND or RV_EIO with strerror otherwise. */
int fsio_read (const char *path, size_t max, char **ret_buf, size_t *ret_len,
               struct rv_error *err);

/* fsio_read_fd - the same from an open descriptor (borrowed), to its end.
 *   name   stands in messages */
int fsio_read_fd (int fd, const char *name, size_t max, char **ret_buf,
                  size_t *ret_len, struct rv_error *err);

/* fsio_write - replace [path]: temporary file beside it, write, fsync,
 * rename, fsync of the folder. On failure [path] is as it was and no
 * temporary file stays. A link at [path] is replaced, not followed.
 *   mode   of the new file, less the umask
 * RV_ENOTFOUND when the folder is missing, RV_EIO otherwise. */
int fsio_write (const char *path, const void *buf, size_t len, mode_t mode,
                struct rv_error *err);

/* fsio_write_unsynced - the same without a wait for the disk: whole for every
 * reader at once, but after a crash of the machine it may be empty. */
int fsio_write_unsynced (const char *path, const void *buf, size_t len,
                         mode_t mode, struct rv_error *err);

/* fsio_write_all - [len] bytes to an open descriptor, however few each write(2)
 * takes. -1 with errno. */
int fsio_write_all (int fd, const void *buf, size_t len);

/* fsio_mkdir_p - make a folder and its parents, each with [mode] less the
 * umask. An existing folder is fine and keeps its mode. */
int fsio_mkdir_p (const char *path, mode_t mode, struct rv_error *err);

/* fsio_join - "a/b" in a malloc'ed string; NULL when out of memory. */
char *fsio_join (const char *dir, const char *name);

/* fsio_remove_tree - remove a folder and all in it, following no link. A
 * missing folder is fine. A file or a link at [path] itself is RV_EINVAL, more
 * than 200 levels RV_EIO. */
int fsio_remove_tree (const char *path, struct rv_error *err);

#endif
