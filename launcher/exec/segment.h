/* SPDX-License-Identifier: Apache-2.0
 * segment.h - a segment of a job has ended: does the job go on?
 *
 * Pure: what ended, what was asked for and what slurmctld says, in; what to do
 * about it, out. Nothing is ever concluded from a signal alone: SIGTERM is the
 * same for a preemption, scancel and the time limit. */
#ifndef RV_EXEC_SEGMENT_H
#define RV_EXEC_SEGMENT_H

#include <stdbool.h>

/* Preemptions, lost nodes and broken GPUs of one request that are made good;
 * after that somebody should look. The time limit is not counted. */
#define SEGMENT_RETRIES 10

/* What slurmctld says of the job. */
enum segment_said {
    SAID_NOTHING,   /* no answer */
    SAID_RUNNING,   /* the step has ended, the job lives */
    SAID_PENDING,   /* back in the queue: by preemption, a node, scontrol */
    SAID_CANCELLED, /* by the user or an operator */
    SAID_TIMEOUT,
    SAID_PREEMPTED, /* and not put back */
    SAID_NODE_FAIL, /* and not put back */
    SAID_OVER,      /* any other end */
    SAID_UNKNOWN,   /* it does not know the job */
};

struct segment_facts {
    bool asked;        /* --checkpoint */
    bool limit_signal; /* the signal before the limit came, and slurmctld said
                          that it was this */
    bool told;         /* a rank or the batch step was told to end */
    int exit_status;   /* of the command */
    bool node_failed;  /* Slurm says so in the step's own messages */
    bool hardware;     /* the diagnosis of its end is a broken node */
    unsigned retries;  /* made so far, see segment_is_retry */
    enum segment_said said;
    bool preempting;  /* within a preemption's grace time */
    bool may_requeue; /* the job's Requeue flag */
};

enum segment_act {
    SEGMENT_ASK,     /* nothing can be said: ask slurmctld (again) */
    SEGMENT_END,     /* the job is over */
    SEGMENT_REQUEUE, /* put the job back into the queue */
    SEGMENT_CHAIN,   /* submit another job that goes on */
    SEGMENT_QUEUED,  /* Slurm has put it back already */
};

/* Why a segment ended; the names are those of segments.json. */
enum segment_cause {
    CAUSE_COMMAND, /* by itself, well or not */
    CAUSE_STOPPED, /* by the user or an operator */
    CAUSE_LIMIT,
    CAUSE_PREEMPTION,
    CAUSE_NODE_FAILURE,
    CAUSE_HARDWARE,
    CAUSE_REQUEUED, /* by scontrol, or a preemption that puts back */
    CAUSE_LOST,     /* the batch step left no word */
};

struct segment_verdict {
    enum segment_act act;
    enum segment_cause cause;
    bool exclude;  /* not on the node of the first cause again */
    bool given_up; /* it would have gone on, but for SEGMENT_RETRIES */
};

/* segment_decide - what to do about the end of a segment. */
struct segment_verdict segment_decide (const struct segment_facts *facts);

/* segment_is_retry - does a segment that ended so count as one of the retries?
 */
bool segment_is_retry (enum segment_cause cause);

/* segment_cause_name - "limit"; static. */
const char *segment_cause_name (enum segment_cause cause);

/* segment_cause_of - the inverse; CAUSE_LOST for NULL and what is no name. */
enum segment_cause segment_cause_of (const char *name);

#endif
