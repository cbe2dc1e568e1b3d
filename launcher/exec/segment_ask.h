/* SPDX-License-Identifier: Apache-2.0
 * segment_ask.h - ask slurmctld about the own job, by a child: `rv segment`.
 * rv-exec does not link libslurm, which would end it where no controller is. */
#ifndef RV_EXEC_SEGMENT_ASK_H
#define RV_EXEC_SEGMENT_ASK_H

#include <jansson.h>
#include <stdbool.h>
#include <stdint.h>

#include "exec/segment.h"
#include "plan/error.h"

enum segment_done {
    DONE_ASKED,
    DONE_REQUEUED,
    DONE_NOT_EXCLUDED, /* put back, but the node stays allowed */
    DONE_PENDING,      /* it was in the queue already */
    DONE_STOPPED,      /* it was cancelled meanwhile, and stays so */
    DONE_FORBIDDEN,    /* jobs like this may not be put back */
    DONE_CHAINED,
    DONE_COMMENTED,
};

struct segment_answer {
    enum segment_said said;
    enum segment_done done;
    bool completing, preempting, may_requeue;
    int64_t end_time; /* Unix; 0 = no limit */
    uint32_t job_id;  /* of the next job, where one was chained */
};

/* segment_ask - what slurmctld says of the job now. SAID_NOTHING never comes
 * back: no answer is an error.
 *   restart   of this start of the job: a later one is SAID_PENDING */
int segment_ask (uint32_t job_id, uint32_t restart, struct segment_answer *ret,
                 struct rv_error *err);

/* segment_requeue - put it back into the queue, not on [exclude] (NULL: no
 * matter) again. */
int segment_requeue (uint32_t job_id, uint32_t restart, const char *exclude,
                     struct segment_answer *ret, struct rv_error *err);

/* segment_chain - submit a job that goes on behind this one. SLURM_ARRAY_*
 * tell the rest.
 *   dir     of the request, with jobs/
 *   first   the chain's first job */
int segment_chain (const char *dir, uint32_t job_id, uint32_t first,
                   struct segment_answer *ret, struct rv_error *err);

/* segment_comment - leave a word with the job, for scontrol and squeue. */
int segment_comment (uint32_t job_id, const char *text, struct rv_error *err);

/* segment_answer_read - the same from rv.segment/1; exposed for its test. */
int segment_answer_read (const json_t *j, uint32_t restart,
                         struct segment_answer *ret, struct rv_error *err);

#endif
