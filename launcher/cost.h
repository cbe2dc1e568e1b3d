/* SPDX-License-Identifier: Apache-2.0
 * cost.h - how long a request has run, and what that costs. Pure. */
#ifndef RV_COST_H
#define RV_COST_H

#include <jansson.h>
#include <stdbool.h>
#include <stdint.h>

#include "plan/site_conf.h"

/* cost_elapsed - seconds that the segments of one segments.json ran.
 *   segments   the file's object
 *   since      Unix; what ran before does not count
 *   now        Unix; the end of a segment that still runs
 *   active     its job runs, as Slurm says: else a segment without an end was
 *              lost, and is left out
 *   ret_lost   set where such a one was left out, else as it was
 * Returns 0 for an object that is none. */
int64_t cost_elapsed (const json_t *segments, int64_t since, int64_t now,
                      bool active, bool *ret_lost);

/* cost_of_run - seconds of one run of a job, as Slurm counts them, that are after
 * [since].
 *   ended    Unix; 0 = it runs until [now]
 *   suspended_s  of it, not counted
 * 0 for one that has not started. */
int64_t cost_of_run (int64_t started, int64_t ended, int64_t suspended_s,
                     int64_t since, int64_t now);

/* cost_per_hour - what rv.conf says of one GPU or slice of that type and hour;
 * -1 where it says nothing. "" is a GPU of no type. */
double cost_per_hour (const struct site_conf *conf, const char *type);

#endif
