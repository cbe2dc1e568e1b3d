/* SPDX-License-Identifier: Apache-2.0
 * fanout.h - which of a request's strategies are submitted side by side.
 *
 * Pure. Where one job can say all places, it does (plans.h), and there is one
 * job. What is left are jobs that differ in more: types that no feature tells
 * apart, numbers of nodes, time limits. Several of them may wait at once; the
 * first that starts runs the command, and the others end. */
#ifndef RV_PLAN_FANOUT_H
#define RV_PLAN_FANOUT_H

#include <stdbool.h>
#include <stddef.h>

#include "plan/plans.h"

#define FANOUT_MOST PLANS_MAX /* jobs of one request, at most */
#define FANOUT_ON   4         /* what "on" stands for */
/* Where neither an option nor rv.conf says how many: 1 is off. Off, as several
 * jobs did not start sooner than one that says all it can, in
 * tests/bench/queue_wait.py; see tests/bench/RESULTS.md. */
#define FANOUT_DEFAULT  1
#define FANOUT_NO_LIMIT (-1)

struct fanout_wish {
    unsigned most;     /* jobs that may wait at once; 0 and 1 = no fan-out */
    int room;          /* submissions that limits still leave to the user, the
                          association and the QOS; FANOUT_NO_LIMIT = not known
                          or none. The first job is always tried. */
    const char *never; /* why this request is one job; NULL = it need not be */
};

/* What becomes of one strategy. */
enum fanout_fate {
    FANOUT_SUBMIT,
    FANOUT_SPARE, /* in the place of one that is refused */
    FANOUT_LEAVE, /* never */
};

struct fanout {
    size_t order[FANOUT_MOST]; /* (n) indices into plans->item, to be submitted,
                                  then (n_spare) spares, the best first */
    size_t n, n_spare;
    enum fanout_fate fate[FANOUT_MOST]; /* of each of plans->item */
    char why[FANOUT_MOST][96];          /* it is not submitted; "" */
    char alone[160]; /* why there is no fan-out at all; "" = there is */
};

/* fanout_choose - the first strategy, and those of the others that are worth a
 * job of their own, as many as the wish allows.
 *   plans   as plan_strategies left them
 *   ret     written */
void fanout_choose (const struct plans *plans, const struct fanout_wish *wish,
                    struct fanout *ret);

/* fanout_parse - "off", "on", or a number from 1 to FANOUT_MOST.
 *   ret   written on success: jobs at most
 * Returns false for any other text. */
bool fanout_parse (const char *text, unsigned *ret);

#endif
