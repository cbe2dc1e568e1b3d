/* SPDX-License-Identifier: Apache-2.0
 * claim.h - of several jobs of one request, one runs its command.
 *
 * DIR/claim names the job that may; DIR/claim.1, claim.2 ... those that came
 * after it: the same job once more, put back or chained, or another one when
 * slurmctld says that the claimant's job is over. The last of them counts. None
 * is ever changed or removed, and each is made by link(2), so of all that want
 * one name exactly one gets it; who did is told by the link count of its own
 * file, for a network file system may answer EEXIST to a success whose first
 * answer was lost. DIR/started says that the command has begun: from then on no
 * other job may run it. */
#ifndef RV_EXEC_CLAIM_H
#define RV_EXEC_CLAIM_H

#include <stdbool.h>
#include <stdint.h>

#include "plan/error.h"

/* What slurmctld says of a claimant's job. */
enum claim_said {
    CLAIM_LIVES, /* or there is no answer */
    CLAIM_OVER,
    CLAIM_UNKNOWN, /* it knows no such job; believed when it says so again */
};

struct claim {
    const char *dir;
    uint32_t job_id, restart;
    uint32_t root; /* first job of the chain; job_id where there is none */
    /* ask (required) - about another job of the request. */
    enum claim_said (*ask) (void *arg, uint32_t job_id);
    /* before - ahead of every file operation, for tests. NULL: none. */
    void (*before) (void *arg, const char *operation);
    void *arg;
    int poll_ms; /* between two looks; 0: one second */
};

/* Who holds the claim. */
struct claim_holder {
    uint32_t job_id, restart, root;
    int number; /* of its file; -1: nobody has claimed */
};

/* claim_take - claim, or wait for whoever has until its command has begun.
 *   ret_won      this job runs the command
 *   ret_holder   who runs it
 * RV_EIO, RV_EFORMAT; RV_ENOTSUP where the file system has no hard links. */
int claim_take (const struct claim *c, bool *ret_won,
                struct claim_holder *ret_holder, struct rv_error *err);

/* claim_hand_on - the claim of this job is that of [next] from now on, which
 * goes on in its place. */
int claim_hand_on (const struct claim *c, uint32_t next, struct rv_error *err);

/* claim_read - who holds it. RV_OK with number -1 when nobody does. */
int claim_read (const struct claim *c, struct claim_holder *ret,
                struct rv_error *err);

/* claim_started - the command has begun: by rank 0, at once. */
int claim_started (const char *dir, struct rv_error *err);

/* claim_has_started - has it? */
bool claim_has_started (const char *dir);

#endif
