/* SPDX-License-Identifier: Apache-2.0
 * join.h - how the ranks of a group find each other. Inside libtrain only.
 *
 * Two ways: the variables RANK, WORLD_SIZE, LOCAL_RANK, LOCAL_WORLD_SIZE,
 * MASTER_ADDR and MASTER_PORT, when all are set and are not left over from
 * another step, with a meeting at MASTER_PORT that rank 0 hosts; else librvjob
 * (PMIx, Slurm, single), after PMIx once only: the next meeting is at home.h's
 * port. All give the same facts and one collective. */
#ifndef TRAIN_JOIN_H
#define TRAIN_JOIN_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include <train/status.h>

#include "rv/job.h"

struct meet;

struct join;
typedef train_status_t (*join_exchange_f) (struct join *join, void *all,
                                           const void *mine, size_t len,
                                           train_error_t *err);

struct join {
    int rank, size;
    int local_rank, local_size; /* among the ranks of this node, by rank */
    int node, nodes;            /* nodes are numbered by their lowest rank */
    int *node_of;               /* (size) node of each rank */
    int64_t timeout_ms;         /* the job's deadline of waits */
    int64_t deadline_ms;        /* of this join, as clock_ms counts */
    struct meet *meet;          /* by variables or at home, or NULL */
    rv_job_t *job;              /* by librvjob, or NULL */
    const char *name;           /* of the group */
    const char *address;        /* known already, or NULL */
    join_exchange_f exchange;   /* another way than both, or NULL */
    void *arg;                  /* of [exchange] */
};

#define JOIN_EXCHANGE_MAX 1024 /* bytes a rank */
#define JOIN_ADDRESS_MAX  256

/* join_open - find the others.
 *   name         of the group: both sides of a meeting must agree on it
 *   timeout_ms   of the whole join; 0 = the job's
 *   ret          written; end with join_close, also after a failure
 * Errors: EINVAL, EFORMAT a variable is malformed or they contradict each
 * other; ETIMEDOUT names who did not come; EPEER who left; EMISMATCH the meeting
 * is another job's. */
train_status_t join_open (struct join *ret, const char *name,
                          int64_t timeout_ms, train_error_t *err);

/* join_exchange - every rank gives [len] bytes and gets those of all.
 *   all    (size * len) written, in rank order
 *   mine   (len) 1..1024 bytes
 * Collective; errors as join_open. */
train_status_t join_exchange (struct join *join, void *all, const void *mine,
                              size_t len, train_error_t *err);

/* What a rank says of how it went, as the first member of a card that the ranks
 * of a backend exchange. Sent as it stands. */
struct join_word {
    int32_t code; /* TRAIN_OK, or why it cannot go on */
    char text[400];
};

/* join_tell - tell each other how it went. The rank that failed speaks for all:
 * the first, and rather one that knows why than one that waited in vain.
 *   cards    (size * len) written, in rank order; each begins with its word
 *   mine     (len) its word is written from [status] and [why]
 * TRAIN_OK: all went well. The same on every rank; errors of join_exchange. */
train_status_t join_tell (struct join *join, void *cards,
                          struct join_word *mine, size_t len,
                          train_status_t status, const train_error_t *why,
                          train_error_t *err);

/* join_address - numeric addresses by which other nodes may reach this one,
 * best first, separated by a space.
 *   text   (size) written */
train_status_t join_address (struct join *join, char *text, size_t size,
                             train_error_t *err);

/* join_token - what a meeting of this group knows its ranks by, within a job. */
uint64_t join_token (const char *name, int size);

/* join_is_pmix - is this join one of PMIx, which join_close leaves? */
bool join_is_pmix (const struct join *join);

void join_close (struct join *join);

/* join_ended_pmix - has a join of this process begun PMIx, and ended it? */
bool join_ended_pmix (void);

#endif
