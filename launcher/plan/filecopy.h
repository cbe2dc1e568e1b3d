/* SPDX-License-Identifier: Apache-2.0
 * filecopy.h - the bytes of a file into another, shared where the file system
 * can share them. */
#ifndef RV_PLAN_FILECOPY_H
#define RV_PLAN_FILECOPY_H

#include <stdbool.h>
#include <sys/stat.h>

#include "plan/error.h"

/* filecopy_steady - all that is in [in], which others may be writing, from its
 * beginning into the empty [out]: again, up to three times, while it changes under
 * the copy, then mode (of [in], less what is no permission) and time of change.
 *   ret_cloned   NULL is fine; true: no byte was copied, the two share blocks
 *                until one of them is written to
 *   ret_st       [in]'s; may be NULL
 * Never a hard link: what is written into one file must not show in the other.
 * RV_EIO with strerror, RV_EPEER where it never held still; [out] may then hold a
 * part. Source: ioctl_ficlone(2), copy_file_range(2). */
int filecopy_steady (int in, int out, bool *ret_cloned, struct stat *ret_st,
                     struct rv_error *err);

/* filecopy_dir - open the folder of [path] below [top], a link in it never
 * followed. The folder of "a/b/c" is "a/b", that of "c" is [top] itself.
 *   make   folders that are missing are made
 * A descriptor, or -1 with errno (ELOOP or ENOTDIR for a link). */
int filecopy_dir (int top, const char *path, bool make);

#endif
