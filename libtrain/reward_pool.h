/* SPDX-License-Identifier: Apache-2.0
 * reward_pool.h - the processes of one program. Inside libtrain only.
 *
 * Each has one sample at a time, so a fault is that sample's. After any fault
 * the process is killed, for what it says next may be about an older sample,
 * and another is started when there is work for it. */
#ifndef TRAIN_REWARD_POOL_H
#define TRAIN_REWARD_POOL_H

#include <stdbool.h>
#include <stdint.h>

#include "reward_proc.h"
#include "reward_wire.h"

struct slot {
    struct proc proc;
    int sample;    /* which it has, -1: none */
    int64_t id;    /* of its request */
    char *request; /* (n_request) of which [sent] are written */
    size_t n_request, sent;
    struct wire_line line;
    double deadline; /* CLOCK_MONOTONIC, seconds */
    double limit;    /* and so many before it, it was asked */
    bool proven;     /* has replied once */
    bool failed;     /* its process did, and what it left to read is there */
};

struct pool {
    char **argv, **envp;
    struct slot *slot; /* (n) */
    int n;
    double timeout_s, start_s;
    int max_faults, faults; /* in a row, without a reply between */
    int late; /* first replies that were too late since one had the time to
                 start in, and none came; above 0 others do not get it */
    int64_t next_id;
    char fault[600];          /* the latest, "" none */
    bool (*ends) (void *arg); /* NULL: nobody is asked */
    void *ends_arg;
};

/* pool_score - reward.h's train_reward_score of a program. Counts in [report].
 * TRAIN_EPEER: max_faults in a row. TRAIN_EABORTED: [ends] said so. */
train_status_t pool_score (struct pool *pool, const struct reward_view *view,
                           int n, float *ret, train_reward_report_t *report,
                           train_error_t *err);
/* pool_start - start them all. TRAIN_ENOTFOUND, TRAIN_EIO. */
train_status_t pool_start (struct pool *pool, train_error_t *err);
/* pool_stop - end them all: a second to end by themselves, then killed. */
void pool_stop (struct pool *pool);

#endif
