/* SPDX-License-Identifier: Apache-2.0
 * home.h - where the ranks that found each other by PMIx meet again, for the later
 * groups of their process. Inside libtrain only.
 *
 * A rank joins PMIx once and leaves it at once. To stay is no way: Slurm ends a
 * step that loses a rank which had not left. Nor is to join again: the server of
 * Open MPI 4's mpirun answers a rank that leaves before it notes that it has, so
 * now and then takes it for lost, and knows it no more when it comes back. So at
 * the first group rank 0 reserves a port, and each later group meets there. */
#ifndef TRAIN_HOME_H
#define TRAIN_HOME_H

#include <stdbool.h>

#include "join.h"
#include "layout.h"

/* home_make - at the first join, which is one of PMIx: rank 0's port is known to
 * all from here on.
 *   mine   what this rank says of its place, kept for later joins
 * Collective; errors of join_exchange, and EIO no port can be had. */
train_status_t home_make (struct join *join, const struct layout_in *mine,
                          train_error_t *err);

/* home_is_made - by this process: a child that was forked finds the others anew. */
bool home_is_made (void);

/* home_open - come to a later meeting. Behind it as after join by variables.
 *   join         its name is set; the facts are written
 *   mine         written
 *   timeout_ms   of the whole join; 0 = the job's
 * Errors of meet_open. */
train_status_t home_open (struct join *join, struct layout_in *mine,
                          int64_t timeout_ms, train_error_t *err);

/* home_forget - a join of this process failed: others may have no home, or have
 * lost theirs. The next group finds the ranks by PMIx again. */
void home_forget (void);

#endif
