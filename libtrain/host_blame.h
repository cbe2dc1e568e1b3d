/* SPDX-License-Identifier: Apache-2.0
 * host_blame.h - which ranks a call waits for, as far as this one can know.
 * Inside libtrain only.
 *
 * Each asks about call host->run.call; those with [arg], a struct host, are for
 * comm_ranks. Nothing waits or writes. */
#ifndef TRAIN_HOST_BLAME_H
#define TRAIN_HOST_BLAME_H

#include "host_watch.h"

/* blame_needs - does this call still need something from, or to, the leader of
 * [node]? */
bool blame_needs (const struct host *host, int node, enum watch_phase phase);

/* Ranks of this node alone.
 * blame_gone - it ended before it had ended this call.
 * blame_left - the same, by leaving the group.
 * blame_stopped - it is in this call and does not run, or has not come to a
 *   call of a learnt step, which nobody says.
 * blame_behind - it is, and has come less far than this rank.
 * blame_late_here - blame_late, here. */
bool blame_gone (const void *arg, int rank);
bool blame_left (const void *arg, int rank);
bool blame_stopped (const void *arg, int rank);
bool blame_behind (const void *arg, int rank);
bool blame_late_here (const void *arg, int rank);

/* blame_unknown - a rank that nothing is known of. The leader of a node speaks
 *   for it: while its own call is missing, nothing is known of the others
 *   there. While that of our own leader is, nothing is known of other nodes.
 * blame_missing - it has not come to this call, as far as is known.
 * blame_late - the same, but for those of this node that wait in an earlier
 *   call, who will say whom for. */
bool blame_unknown (const struct host *host, int rank);
bool blame_missing (const void *arg, int rank);
bool blame_late (const void *arg, int rank);

/* Leaders of other nodes.
 * blame_doubtful - it is in the call while a rank of its node is missing: it
 *   will say so itself, unless it has stopped.
 * blame_needed - the call waits for it.
 * blame_silent - it has given no sign of life: who waits for somebody else has.
 * blame_needed_silent - both. */
bool blame_doubtful (const void *arg, int rank);
bool blame_needed (const void *arg, int rank);
bool blame_silent (const void *arg, int rank);
bool blame_needed_silent (const void *arg, int rank);

#endif
