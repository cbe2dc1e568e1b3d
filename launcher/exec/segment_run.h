/* SPDX-License-Identifier: Apache-2.0
 * segment_run.h - one segment within the batch step: the signal before the
 * limit while it runs, and what follows when it has ended. */
#ifndef RV_EXEC_SEGMENT_RUN_H
#define RV_EXEC_SEGMENT_RUN_H

#include <stdbool.h>
#include <stdint.h>

#include "exec/child.h"
#include "exec/claim.h"
#include "exec/exec.h"
#include "exec/segment_log.h"

struct segment_run {
    const char *dir; /* of the request, with jobs/ */
    const struct exec_request *q;
    uint32_t job_id, restart;
    const struct claim *claim; /* of this job */
    struct segment_log log;
    bool asked;               /* --checkpoint */
    bool came;                /* SIGUSR1 came, and is not dealt with yet */
    bool limit_signal;        /* it was that of the limit, or of a preemption */
    bool warned;              /* the ranks have it */
    bool killed;              /* they went on for too long */
    bool alone;               /* nothing is to be done about other jobs */
    bool told_silent;         /* said that slurmctld does not let us do it */
    int64_t siblings_ms;      /* monotonic; not before */
    int64_t next_ms, beat_ms; /* monotonic; when to try again, 0 = never */
    int64_t kill_at;          /* Unix; 0 = never */
};

/* segment_run_begin - read what ran before, and export RV_SEGMENT and
 * RV_TOTAL_ELAPSED.
 *   own   folder of segments.json: [dir], or that of an array's task
 * RV_ESTATE when the request has been put back too often. */
int segment_run_begin (struct segment_run *r, const char *own,
                       struct rv_error *err);

/* segment_run_watch - serve the signal while the step runs: for child_run. */
void segment_run_watch (struct segment_run *r, struct child_watch *watch,
                        struct child_opts *opts);

/* How a segment ended, as the batch step found. */
struct segment_end {
    int exit_status;
    bool told;              /* a rank or the batch step was told to end */
    bool hardware;          /* the diagnosis is a broken node */
    const char *node;       /* of the first cause; NULL: unknown */
    const char *slurm_kind; /* what Slurm's own words were of; NULL */
};

struct segment_next {
    bool waits;        /* the job goes on later */
    bool stopped;      /* the user ended it */
    uint32_t job_id;   /* another job that goes on; 0 = this one */
    char message[300]; /* "" = nothing to say */
};

/* segment_run_end - decide, do it, note it. Takes as long as slurmctld does
 * not answer: without its word nothing is done. */
void segment_run_end (struct segment_run *r, const struct segment_end *end,
                      struct segment_next *ret);

void segment_run_fini (struct segment_run *r);

#endif
