/* SPDX-License-Identifier: Apache-2.0
 * siblings.h - end the other jobs of a request, once one runs its command. */
#ifndef RV_SIBLINGS_H
#define RV_SIBLINGS_H

#include <stdbool.h>
#include <stdint.h>

#include "plan/error.h"

/* siblings_stop - cancel every job of the request in [dir] but [job_id] and
 * those of its chain: those that are noted there, and those of this user whose
 * script lies there. Each gets a comment that names [job_id]. Jobs that have
 * ended are passed over.
 *   ret_n   how many were cancelled
 * The first failure is returned, after all have been tried. */
int siblings_stop (const char *dir, uint32_t job_id, unsigned *ret_n,
                   struct rv_error *err);

/* siblings_stop_if_started - the same once the command of the job that holds the
 * claim has begun.
 *   ret_winner   who holds it; 0 = nobody
 * Where it has claimed and not begun, nothing is cancelled: it does that itself
 * when it begins, and another may still have to take over. */
int siblings_stop_if_started (const char *dir, uint32_t *ret_winner,
                              struct rv_error *err);

/* siblings_is_of - is [command], the script of a job, one of that request? */
bool siblings_is_of (const char *dir, const char *command);

#endif
