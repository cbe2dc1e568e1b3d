/* SPDX-License-Identifier: Apache-2.0
 * cluster_segment.h - what the batch step of a job asks of slurmctld about its
 * own job, through a child of rv: rv-exec does not link libslurm. */
#ifndef RV_CLUSTER_SEGMENT_H
#define RV_CLUSTER_SEGMENT_H

#include <jansson.h>
#include <stdint.h>

#include "plan/error.h"

/* cluster_segment_ask - what slurmctld says of the job, as rv.segment/1 has it
 * (etc/schema).
 *   ret   new reference on success
 * RV_ENOTFOUND when it knows no such job, else as slurm_ask_wait. */
int cluster_segment_ask (uint32_t job_id, json_t **ret, struct rv_error *err);

/* cluster_segment_requeue - put the job back into the queue, unless it was
 * cancelled or is there already.
 *   exclude   a node that it shall not get again; NULL: none
 *   ret       as above, "done" tells which it was */
int cluster_segment_requeue (uint32_t job_id, const char *exclude, json_t **ret,
                             struct rv_error *err);

/* cluster_segment_comment - replace the job's comment. */
int cluster_segment_comment (uint32_t job_id, const char *text, json_t **ret,
                             struct rv_error *err);

#endif
