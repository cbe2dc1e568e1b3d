/* SPDX-License-Identifier: Apache-2.0
 * waiting.h - why a job waits, in words, and when it should start.
 *
 * Pure but for the time zone. Sources: squeue(1), JOB REASON CODES; for
 * BeginTime of a job that was put back, slurmctld's own hold of two minutes. */
#ifndef RV_PLAN_WAITING_H
#define RV_PLAN_WAITING_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

struct waiting {
    const char *reason;  /* Slurm's: "Priority", or "ReqNodeNotAvail,
                            UnavailableNodes:n1"; NULL or "" = none yet */
    bool put_back;       /* it has run before */
    int64_t begins_at;   /* Unix; not considered before; 0 = at once */
    int64_t expected_at; /* Unix; Slurm's own; 0 = it has none */
};

/* waiting_start - when it should start, as seen at [now]: never before it may
 * begin. 0 where that is not known, or was to be in the past. */
int64_t waiting_start (const struct waiting *w, int64_t now);

/* waiting_why - "jobs before it are served first (Priority)"; of a reason that
 * is not known here the reason alone; "" for none.
 *   buf   (size) cut where it is too short */
void waiting_why (const struct waiting *w, char *buf, size_t size);

/* waiting_text - both: "...; expected at 14:32, in 12 min". "" for neither. */
void waiting_text (const struct waiting *w, int64_t now, char *buf,
                   size_t size);

#endif
