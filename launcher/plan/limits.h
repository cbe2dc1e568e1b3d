/* SPDX-License-Identifier: Apache-2.0
 * limits.h - what the user's association and QOS allow, and what is used of it.
 *
 * Plain data that the caller fills; nothing in it is "not known, or no limit".
 * Pure. Source: the resource limits of sacctmgr(1). */
#ifndef RV_PLAN_LIMITS_H
#define RV_PLAN_LIMITS_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "plan/error.h"

enum limit_kind {
    LIMIT_GPUS_JOB, /* of one job */
    LIMIT_GPUS,     /* of all that run together */
    LIMIT_WALL,     /* seconds of one job */
    LIMIT_JOBS,     /* that run together */
    LIMIT_SUBMIT,   /* jobs that wait or run together */
};

struct limit {
    enum limit_kind kind;
    char *holder; /* "qos normal", "account main" */
    char *each;   /* "a user", "a job"; "" = in all */
    uint64_t most;
    uint64_t used; /* of it, where jobs share it */
    char *type;    /* of the GPUs, as Slurm knows it; NULL or "" = any */
};

/* Another QOS that the user may name. */
struct limit_qos {
    char *name;
    uint64_t gpus; /* a job's at most; UINT64_MAX = no limit */
};

struct limits {
    struct limit *limit;
    size_t n;
    struct limit_qos *qos;
    size_t n_qos;
};

/* limits_check - may there be such a job at all, of whatever type of GPU?
 *   time_s       in, out: it shrinks to the limit where [fixed] is false; a
 *                negative one is "unlimited"
 *   time_min_s   a limit down to it will do; 0 = none
 * RV_EINVAL with what would work, another QOS among it. What is only used at
 * this moment is no error, but for the number of jobs, which Slurm refuses. */
int limits_check (const struct limits *limits, uint32_t gpus, int64_t *time_s,
                  bool fixed, int64_t time_min_s, struct rv_error *err);

/* limits_of_type - the limit that so many GPUs of just this type are beyond;
 * NULL = none. */
const struct limit *limits_of_type (const struct limits *limits,
                                    const char *type, uint32_t gpus);

/* limits_beyond - RV_EINVAL with what would work: [gpus] are beyond [limit]. */
int limits_beyond (const struct limits *limits, const struct limit *limit,
                   uint32_t gpus, struct rv_error *err);

/* limits_wait - would it wait for what runs under the same limits?
 *   type   of the GPUs, where the job asks for one; "" = it does not
 *   buf    (size) why, in one line, where true is returned */
bool limits_wait (const struct limits *limits, const char *type, uint32_t gpus,
                  char *buf, size_t size);

/* limits_submits - jobs that may still be submitted; UINT32_MAX = any number. */
uint32_t limits_submits (const struct limits *limits);

void limits_fini (struct limits *limits); /* it is empty afterwards */

#endif
