/* SPDX-License-Identifier: Apache-2.0
 * segment.c - a segment of a job has ended: does the job go on? */
#include "config.h"

#include "exec/segment.h"

#include <stddef.h>
#include <string.h>

static const char *const names[] = {
    [CAUSE_COMMAND] = "command",
    [CAUSE_STOPPED] = "stopped",
    [CAUSE_LIMIT] = "limit",
    [CAUSE_PREEMPTION] = "preemption",
    [CAUSE_NODE_FAILURE] = "node_failure",
    [CAUSE_HARDWARE] = "hardware",
    [CAUSE_REQUEUED] = "requeued",
    [CAUSE_LOST] = "lost",
};
#define N_NAMES (sizeof (names) / sizeof (names[0]))

const char *segment_cause_name (enum segment_cause cause)
{
    return names[cause];
}

enum segment_cause segment_cause_of (const char *name)
{
    for (size_t i = 0; name && i < N_NAMES; i++)
        if (!strcmp (names[i], name))
            return (enum segment_cause)i;
    return CAUSE_LOST;
}

bool segment_is_retry (enum segment_cause cause)
{
    return cause == CAUSE_PREEMPTION || cause == CAUSE_NODE_FAILURE
           || cause == CAUSE_HARDWARE || cause == CAUSE_LOST;
}

/* The job lives, so its step ended for a reason of its own, or after a signal
 * that leaves it time. */
static enum segment_cause cause_while_running (const struct segment_facts *f)
{
    if (f->preempting && (f->told || f->limit_signal || f->exit_status))
        return CAUSE_PREEMPTION;
    if (f->limit_signal)
        return CAUSE_LIMIT;
    return f->hardware ? CAUSE_HARDWARE : CAUSE_COMMAND;
}

static enum segment_cause cause_of (const struct segment_facts *f)
{
    switch (f->said) {
    case SAID_RUNNING:
        return cause_while_running (f);
    case SAID_PENDING:
        return f->preempting    ? CAUSE_PREEMPTION
               : f->node_failed ? CAUSE_NODE_FAILURE
                                : CAUSE_REQUEUED;
    case SAID_CANCELLED:
        return CAUSE_STOPPED;
    case SAID_TIMEOUT:
        return CAUSE_LIMIT;
    case SAID_PREEMPTED:
        return CAUSE_PREEMPTION;
    case SAID_NODE_FAIL:
        return CAUSE_NODE_FAILURE;
    case SAID_NOTHING:
    case SAID_OVER:
    case SAID_UNKNOWN:
        break;
    }
    return CAUSE_COMMAND;
}

/* Nobody but the command itself can have ended it. */
static bool is_plain (const struct segment_facts *f)
{
    return f->exit_status == 0 && !f->told && !f->limit_signal;
}

struct segment_verdict segment_decide (const struct segment_facts *f)
{
    struct segment_verdict v = {.act = SEGMENT_END, .cause = CAUSE_COMMAND};

    if (!f->asked || is_plain (f))
        return v;
    if (f->said == SAID_NOTHING) {
        v.act = SEGMENT_ASK;
        return v;
    }
    v.cause = cause_of (f);
    if (v.cause == CAUSE_COMMAND || v.cause == CAUSE_STOPPED)
        return v;
    if (f->said == SAID_PENDING) {
        v.act = SEGMENT_QUEUED;
        return v;
    }
    if (segment_is_retry (v.cause) && f->retries >= SEGMENT_RETRIES) {
        v.given_up = true;
        return v;
    }
    v.exclude = v.cause == CAUSE_HARDWARE;
    v.act = f->may_requeue ? SEGMENT_REQUEUE : SEGMENT_CHAIN;
    return v;
}
