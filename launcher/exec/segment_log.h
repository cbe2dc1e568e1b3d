/* SPDX-License-Identifier: Apache-2.0
 * segment_log.h - segments.json of a request: what ran, how long, why it ended.
 *
 * The batch step is its only writer. Its time of modification is moved while a
 * segment runs, so that the time of one that was lost with its node counts. */
#ifndef RV_EXEC_SEGMENT_LOG_H
#define RV_EXEC_SEGMENT_LOG_H

#include <jansson.h>
#include <stdbool.h>
#include <stdint.h>

#include "exec/segment.h"
#include "plan/error.h"

#define SEGMENT_BEAT_MS 30000

struct segment_log {
    char *path;
    json_t *json;
    uint32_t number;   /* of the segment that runs; from 0 */
    uint32_t log_id;   /* first job, by which the logs are named */
    int64_t elapsed_s; /* of the earlier segments, together */
    unsigned retries;  /* among them; see segment_is_retry */
    int64_t begun;     /* Unix */
    bool sync;
};

/* segment_log_begin - note that a segment begins. One before it that left no
 * word is closed as lost. A job that is neither the one before nor chained to
 * it begins anew.
 *   root   first job of its chain (jobfile.h)
 *   sync   wait for the disk with each change
 *   ret    written on success; free with segment_log_fini
 * RV_EFORMAT for a segments.json that is none. */
int segment_log_begin (const char *dir, uint32_t job_id, uint32_t restart,
                       uint32_t root, bool sync, struct segment_log *ret,
                       struct rv_error *err);

/* segment_log_beat - it still runs. */
void segment_log_beat (const struct segment_log *log);

/* segment_log_end - it has ended.
 *   exit_status   of the command; < 0: unknown */
int segment_log_end (struct segment_log *log, enum segment_cause cause,
                     int exit_status, struct rv_error *err);

void segment_log_fini (struct segment_log *log); /* all zero is fine */

#endif
