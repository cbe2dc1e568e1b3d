/* SPDX-License-Identifier: Apache-2.0
 * worktree.h - the files that git tracks, as they are in the working tree now,
 * and a copy of them that later edits do not reach.
 *
 * A copy has no hard link to the tree: an editor that writes in place, or >>,
 * would change both. Nor to an earlier copy, whose job may write into it. Where
 * the file system shares blocks (ioctl_ficlone(2)) it costs no space. */
#ifndef RV_WORKTREE_H
#define RV_WORKTREE_H

#include <jansson.h>
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "plan/error.h"

struct worktree {
    char *top;    /* absolute */
    char *prefix; /* the working folder below it, "" = it is the top */
    char *commit; /* checked out; NULL = there is none yet */
    char *list;   /* (list_len) names below top, each with a NUL behind it */
    size_t list_len;
    uint64_t untracked;    /* files that are neither tracked nor ignored */
    char *first_untracked; /* one of them; NULL = none */
    /* What the copy has, or would have. */
    uint64_t files, bytes; /* links and empty folders are no files */
    uint64_t cloned;       /* of [files], how many share their blocks */
    uint64_t missing;      /* tracked, but not there: they are left out */
    uint64_t leading_back; /* links that name a path in the working tree */
};

/* worktree_find - ask git(1) about the working folder.
 *   ret   written on success, with the counts of a copy made now; free with
 *         worktree_fini
 * RV_ESTATE with git's own words where it is in no working tree, RV_ENOTFOUND
 * without git, RV_EIO. */
int worktree_find (struct worktree *ret, struct rv_error *err);

/* worktree_copy - into the folder [to], which is made; counts anew. Names, the
 * permission to execute, links and times of change stay; what git does not
 * track is not in it. RV_EIO, RV_ENOTFOUND and RV_EPEER name the file;
 * what was copied stays. */
int worktree_copy (struct worktree *tree, const char *to, struct rv_error *err);

/* worktree_has - is [path], seen from the working folder, in the copy, itself or
 * something below it? An absolute path is none that the copy could have. */
bool worktree_has (const struct worktree *tree, const char *path);

/* worktree_json - as rv.run/1 and rv.request/1 have it.
 *   dir   of the copy; NULL = none was made. Borrowed */
json_t *worktree_json (const struct worktree *tree, const char *dir);

void worktree_fini (struct worktree *tree); /* NULL is fine */

#endif
