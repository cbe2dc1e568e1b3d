/* SPDX-License-Identifier: Apache-2.0
 * heard.h - has any rank been told to stop? A rank that waits for a reward's
 * program or the reference's server, maybe for long, asks, while the one that was
 * told waits for it in a collective. */
#ifndef RV_TRAIN_HEARD_H
#define RV_TRAIN_HEARD_H

#include <signal.h>
#include <stdbool.h>

#include <train/group.h>

struct heard;

/* heard_open - from here on the ranks tell each other, several times a second, by a
 * thread and a group of their own.
 *   ranks   of all; borrowed for this call
 *   stop    this rank's word, borrowed until heard_close
 *   ret     end with heard_close; NULL for one rank
 * Collective. */
train_status_t heard_open (struct heard **ret, train_group_t *ranks,
                           const volatile sig_atomic_t *stop,
                           train_error_t *err);

/* heard_stop - was a rank told to, as far as is known here? Where a rank has left, or
 * its thread is late past the group's deadline, that is no more than was known
 * before: the ranks hear of it at their next step. NULL: no. */
bool heard_stop (const struct heard *heard);

/* heard_close - waits for nobody. NULL is fine. */
void heard_close (struct heard *heard);

#endif
