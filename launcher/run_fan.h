/* SPDX-License-Identifier: Apache-2.0
 * run_fan.h - the jobs of one request of `rv run`: which, and their submission.
 *
 * Every job gets the request's folder. The first that starts claims the command
 * there (exec/claim.h); it ends the others, and each that starts nevertheless
 * ends by itself, whatever becomes of rv. */
#ifndef RV_RUN_FAN_H
#define RV_RUN_FAN_H

#include <jansson.h>

#include "plan/fanout.h"
#include "run_more.h"
#include "run_opts.h"
#include "settings.h"

struct run_fan_job {
    size_t item;     /* of the plans */
    uint32_t job_id; /* 0 = not submitted */
    char **argv;     /* the sbatch call */
    char why[512];   /* it was refused */
};

struct run_fan {
    /* borrowed, filled by the caller */
    const struct run_opts *opts;
    const struct settings *settings;
    const struct plans *plans;
    struct request_new *from; /* plan and candidate change */
    struct request *req;

    char reached[400]; /* why the state folder is no meeting place; "" */
    struct fanout choice;
    struct run_fan_job job[FANOUT_MOST]; /* as choice.order: tried, or to be */
    size_t n_tried, n_submitted;
};

/* run_fan_choose - which strategies are submitted, and which are not, and why.
 *   up     a shell, which is one job
 *   room   as fanout_wish has it */
void run_fan_choose (struct run_fan *fan, bool up, int room);

/* run_fan_words - the sbatch call of choice.order[k], into job[k].argv, once.
 * RV_EINVAL where options exclude the plan. */
int run_fan_words (struct run_fan *fan, size_t k, struct rv_error *err);

/* run_fan_submit - submit what was chosen, the best first; in the place of one
 * that is refused the next. The request's folder is there already, with all of
 * the first. Then, if one of them has begun meanwhile, the others are ended.
 * What was refused is told on stderr, unless all were: then the error tells. On
 * success req->job_id is the job that has claimed, else the first. */
int run_fan_submit (struct run_fan *fan, struct rv_error *err);

/* run_fan_item - the strategy of req->job_id; before that the first. */
const struct plans_item *run_fan_item (const struct run_fan *fan);

/* run_fan_print - lines about fan-out for a dry run. */
void run_fan_print (const struct run_fan *fan);

/* run_fan_json - of the jobs that were submitted; an empty list before. */
json_t *run_fan_json (const struct run_fan *fan);

void run_fan_fini (struct run_fan *fan); /* a zeroed one is fine */

#endif
