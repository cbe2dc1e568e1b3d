/* SPDX-License-Identifier: Apache-2.0
 * logset.h - the logs of one job's ranks, shown together. */
#ifndef RV_LOGSET_H
#define RV_LOGSET_H

#include <stdbool.h>
#include <stddef.h>

#include "follow.h"
#include "logtail.h"
#include "progress.h"
#include "reqdir.h"

struct logset {
    struct logtail *tail; /* (n) */
    size_t n;
    struct live live; /* the tails have its address: a logset stays in place */
};

/* logset_init - choose the logs that [opts] names; none need exist.
 *   goes_on   they will be polled: on a terminal unfinished lines are shown */
int logset_init (struct logset *set, const struct request *req,
                 const struct follow_opts *opts, bool goes_on,
                 struct rv_error *err);

/* logset_poll - show what was added.
 *   last   the files have ended: what is unfinished is shown too */
int logset_poll (struct logset *set, bool last, struct rv_error *err);

/* logset_quiet - leave the terminal to another line. */
void logset_quiet (struct logset *set);

/* logset_release - show or drop what was kept back. */
int logset_release (struct logset *set, bool show, struct rv_error *err);

void logset_fini (struct logset *set); /* a zeroed one is fine */

#endif
