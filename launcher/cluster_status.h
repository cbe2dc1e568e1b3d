/* SPDX-License-Identifier: Apache-2.0
 * cluster_status.h - what the cluster is doing: GPUs and queue of each
 * partition. */
#ifndef RV_CLUSTER_STATUS_H
#define RV_CLUSTER_STATUS_H

#include <jansson.h>

#include "plan/error.h"

/* cluster_status_load - sums over nodes and jobs, made in the child that asks.
 *   ret   written on success: an object with "partitions" and "down_nodes", as
 *         rv.cluster/1 has them; json_decref it
 * Errors as slurm_ask_poll. */
int cluster_status_load (json_t **ret, struct rv_error *err);

#endif
