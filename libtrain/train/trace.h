/* SPDX-License-Identifier: Apache-2.0
 * train/trace.h - a timeline of copies, collectives and steps.
 *
 * One file a process, in the Chrome trace format (a JSON list), which
 * ui.perfetto.dev and chrome://tracing open. The list is complete after each
 * entry, so that a file left by a crash can be read. Times are those of the
 * day, in microseconds, so that the lists of several ranks, put together
 * (`jq -s add`), show what ran beside what; process ids in it are ranks.
 *
 * The variable RV_TRACE, a path, turns it on in each process that makes a
 * copier, a group or a trainer. Calls of a group, blocking or not, have a row a
 * group, in which a step's span encloses its calls'. Without a trace each call costs a test of a variable.
 * Where libtrain was built with NVTX's header, spans are its ranges too, trace
 * or not. Any thread; a process that was forked off writes nothing. */
#ifndef TRAIN_TRACE_H
#define TRAIN_TRACE_H

#include <stddef.h>
#include <stdint.h>

#include <train/status.h>

#ifdef __cplusplus
extern "C" {
#endif

typedef struct train_span {
    const char *category; /* "copy", "collective", "step"; not copied */
    const char *name;     /* UTF-8; not copied */
    int64_t begin_us;     /* CLOCK_REALTIME at the first call, goes on by
                             CLOCK_MONOTONIC; 0: there was no trace */
    uint64_t nvtx;
} train_span_t;

typedef struct train_trace_arg {
    const char *key;
    int64_t value;
} train_trace_arg_t;

/* train_trace_open - begin this process's trace, if there is none yet.
 *   path   replaced; "/tmp/t.json" is "/tmp/t-3.json" on rank 3 of several;
 *          NULL = RV_TRACE; without that there will be no trace, and TRAIN_OK
 *   rank, size   of the job; size 0: by RANK and WORLD_SIZE, or else
 *          SLURM_PROCID and SLURM_NTASKS, or else alone
 * TRAIN_EINVAL, TRAIN_EIO. */
train_status_t train_trace_open (const char *path, int rank, int size,
                                 train_error_t *err);
/* Ends it: the file is whole before and after. TRAIN_EIO: an entry could not
 * be written, and none after it was. */
train_status_t train_trace_close (train_error_t *err);

/* train_trace_begin, train_trace_end - one span of time.
 *   row    of the timeline, UTF-8; NULL = the thread's; at most 64 in all, and
 *          no more than 60 bytes of each
 *   args   (n) shown beside it; NULL when n is 0; n <= 16 */
train_span_t train_trace_begin (const char *category, const char *name);
void train_trace_end (const train_span_t *span, const char *row,
                      const train_trace_arg_t *args, size_t n);

#ifdef __cplusplus
}
#endif
#endif
