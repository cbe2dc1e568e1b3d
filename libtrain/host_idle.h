/* SPDX-License-Identifier: Apache-2.0
 * host_idle.h - a leader that is in no call. Inside libtrain only.
 *
 * The leader speaks for the ranks of its node, and they hear of others by it,
 * also while its program computes. So a thread of its own looks into the group
 * each slice when no call of the leader is in there. */
#ifndef TRAIN_HOST_IDLE_H
#define TRAIN_HOST_IDLE_H

#include "host.h"

/* idle_start - of a leader of several nodes; else nothing happens. TRAIN_ENOMEM:
 * also no thread.
 * idle_stop - before anything of [host] goes. */
train_status_t idle_start (struct host *host, train_error_t *err);
void idle_stop (struct host *host);

/* idle_enter, idle_leave - around what this rank does in the group. */
void idle_enter (struct host *host);
void idle_leave (struct host *host);

#endif
