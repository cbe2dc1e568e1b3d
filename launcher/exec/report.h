/* SPDX-License-Identifier: Apache-2.0
 * report.h - what rv-exec leaves in a request's folder: rank-N.json of each
 * rank, status.json of the batch step; and which end was the first cause. */
#ifndef RV_EXEC_REPORT_H
#define RV_EXEC_REPORT_H

#include <jansson.h>
#include <stdbool.h>
#include <stdint.h>
#include <time.h>

#include "exec/child.h"
#include "plan/error.h"

/* Ends that come this close together are told apart by kind, not by clock. */
#define CAUSE_WINDOW_MS 150

struct report_id {
    uint32_t job_id, restart;
    uint32_t rank, local_rank;
    bool provisional; /* the step may still turn out to have done it */
};

/* report_time - RFC 3339 in UTC with microseconds; buf of 40 bytes. */
char *report_time (const struct timespec *t, char *buf, size_t size);

/* report_rank_json - the end [r] as rank-N.json has it; new reference. */
json_t *report_rank_json (const struct report_id *id,
                          const struct child_result *r);

/* report_rank - write DIR/rank-N.json for the end [r]. */
int report_rank (const char *dir, const struct report_id *id,
                 const struct child_result *r, struct rv_error *err);

/* report_is_fatal_signal - KILL, SEGV, BUS, ILL, FPE: nobody dies of these
 * because another rank went away. ABRT, PIPE and TERM are often a consequence. */
bool report_is_fatal_signal (int signal);

/* report_first_cause - of all bad rank-N.json of this job and restart, the
 * earliest; within CAUSE_WINDOW_MS of it one with a fatal signal goes first.
 * A rank ended by SIGTERM is a cause only where there is no other bad one, and
 * a provisional end only where there is no other; of these the earliest is.
 *   ret_cause   new reference, or NULL when no rank ended badly
 *   ret_ranks   how many ranks of this run have reported at all
 * Files that are malformed are passed over. RV_EIO when DIR is unreadable. */
int report_first_cause (const char *dir, uint32_t job_id, uint32_t restart,
                        json_t **ret_cause, unsigned *ret_ranks,
                        struct rv_error *err);

/* report_told - was one of the ranks below [ranks] told to end, as its report
 * of this job and restart says? */
bool report_told (const char *dir, uint32_t job_id, uint32_t restart,
                  uint32_t ranks);

/* report_missing - is there a rank below [ranks] that has left no report of
 * this job and restart? The first such one is written to ret_rank. */
bool report_missing (const char *dir, uint32_t job_id, uint32_t restart,
                     uint32_t ranks, uint32_t *ret_rank);

/* report_is_over - has this job's command run to its end at an earlier start?
 * Not so when it was told to end (a requeue does that), or never started.
 *   ret_exit_status   of that end; written where true */
bool report_is_over (const char *dir, uint32_t job_id, uint32_t restart,
                     int *ret_exit_status);

/* report_seconds - how long the rank of [j], as in rank-N.json, ran. */
double report_seconds (const json_t *j);

/* report_others - what became of the ranks below [ranks] but [cause] (< 0:
 * none left out): new lists of numbers, in order.
 *   running      those without a report of this job and restart ran until the
 *                step was killed for the cause: they were well
 *   ret_well     ended well, or were told to end
 *   ret_failed   ended badly by themselves
 *   ret_silent   left no report, and it is not known why */
void report_others (const char *dir, uint32_t job_id, uint32_t restart,
                    uint32_t ranks, int64_t cause, bool running,
                    json_t **ret_well, json_t **ret_failed,
                    json_t **ret_silent);

/* report_failure - replace DIR/failure.json by [failure]. */
int report_failure (const char *dir, const json_t *failure,
                    struct rv_error *err);

struct report_status {
    uint32_t job_id, restart;
    bool done;
    bool waiting;         /* the job goes on later */
    uint32_t next_job_id; /* another one that goes on; 0: none */
    struct timespec started, ended;
    int exit_status;     /* of the command, 128+N for a signal */
    int signal;          /* 0: none */
    json_t *first_cause; /* borrowed; NULL: none */
    const char *message; /* NULL: none */
    const char *nodes;   /* of the job, as Slurm writes them; NULL: not known */
};

/* report_status - replace DIR/status.json. */
int report_status (const char *dir, const struct report_status *s,
                   struct rv_error *err);

#endif
