/* SPDX-License-Identifier: Apache-2.0
 * run_snapshot.h - --snapshot and --output of `rv run`. */
#ifndef RV_RUN_SNAPSHOT_H
#define RV_RUN_SNAPSHOT_H

#include "run_opts.h"
#include "worktree.h"

/* run_snapshot_find - the working tree and the patterns that were asked for;
 * nothing without --snapshot.
 *   tree      written on success; worktree_fini
 *   outputs   likewise, NULL = none; outpath_free
 * RV_ESTATE where there is no working tree, or the program would not be in its
 * copy; as worktree_find else. */
int run_snapshot_find (const struct run_opts *opts, struct worktree *tree,
                       char ***outputs, struct rv_error *err);

/* run_snapshot_notes - say on stderr what the copy does not have, and what of
 * the command would not see it. */
void run_snapshot_notes (const struct run_opts *opts,
                         const struct worktree *tree);

/* run_snapshot_print - one line of the plan, on stdout. */
void run_snapshot_print (const struct worktree *tree, char *const *outputs);

#endif
