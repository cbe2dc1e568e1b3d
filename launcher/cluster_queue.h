/* SPDX-License-Identifier: Apache-2.0
 * cluster_queue.h - the jobs and reservations of a snapshot.
 *
 * The first half runs in the child that asks (slurm_ask.h), the second in rv.
 * Between them is JSON in which a record is an array, because thousands of them
 * are. */
#ifndef RV_CLUSTER_QUEUE_H
#define RV_CLUSTER_QUEUE_H

#include <jansson.h>
#include <stdbool.h>

#include "plan/error.h"
#include "plan/snapshot.h"

/* cluster_queue_ask - in the child: running and waiting jobs, reservations.
 *   memory   jobs are given memory of their own (CR_..._Memory)
 * A new array of two; NULL with errno. What may not be read is an empty list. */
json_t *cluster_queue_ask (bool memory);

/* cluster_queue_read - put them into a snapshot that has its nodes. */
int cluster_queue_read (const json_t *json, struct strategy_cluster *cluster,
                        struct rv_error *err);

#endif
