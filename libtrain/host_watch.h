/* SPDX-License-Identifier: Apache-2.0
 * host_watch.h - find out who is gone, late or of another opinion. Inside
 * libtrain only. */
#ifndef TRAIN_HOST_WATCH_H
#define TRAIN_HOST_WATCH_H

#include "host.h"

enum watch_phase {
    WATCH_CALLS, /* waiting for all calls */
    WATCH_DATA,  /* waiting for chunks */
};

/* watch_is_sound - may a rank that waits go on waiting? Looks at most once a
 * slice, except for connections that have ended. False: the failure of the node
 * has been recorded. */
bool watch_is_sound (struct host *host, enum watch_phase phase);

/* watch_beat - this rank runs; [now_ms] by clock_ms. One that is in a call and
 * has not said so for long has stopped. */
void watch_beat (struct host *host, int64_t now_ms);

/* watch_name - "all_reduce (sum of 8 F32), call 3 of group 'world'".
 * watch_any - does [ranks], as comm_ranks wrote it, name one? */
void watch_name (const struct host *host, const struct comm_call *call,
                 char *text, size_t size);
bool watch_any (const char *ranks);

/* watch_say_here - to other leaders, once a call: this one runs, and waits in
 * call [seq] too, or has ended it.
 * watch_answer - the same for leaders that have said so, of call [seq] or one
 * before it. */
void watch_say_here (struct host *host, uint64_t seq);
void watch_answer (struct host *host, uint64_t seq);

/* elsewhere_least_mark - host_least_mark of the ranks of this node.
 * elsewhere_idle - a leader that is in no call: look for those of its node that
 * wait in its last one, or on behalf of leaders that do. */
uint32_t elsewhere_least_mark (const struct host *host, uint64_t seq,
                               int *ret_rank);
void elsewhere_idle (struct host *host);

/* watch_mismatch - record that the calls differ; returns the failure.
 *   calls   (size) all with this call's number */
train_status_t watch_mismatch (struct host *host, const struct seg_call *calls,
                               train_error_t *err);

#endif
