/* SPDX-License-Identifier: Apache-2.0
 * cluster_limits.h - the limits of a snapshot, from slurmctld's own copy of
 * them: slurmdbd is not asked. */
#ifndef RV_CLUSTER_LIMITS_H
#define RV_CLUSTER_LIMITS_H

#include <jansson.h>

#include "cluster.h"
#include "plan/limits.h"

/* cluster_limits_ask - in the child.
 *   enforce   slurm.conf's AccountingStorageEnforce
 * NULL where no limit holds or none can be read: nothing is known then. */
json_t *cluster_limits_ask (const struct cluster_as *as, unsigned enforce);

/* cluster_limits_read - in the parent. RV_EFORMAT, RV_ENOMEM. */
int cluster_limits_read (const json_t *json, struct limits *ret,
                         struct rv_error *err);

#endif
