/* SPDX-License-Identifier: Apache-2.0
 * cluster_account.h - what slurmdbd keeps of this user's jobs, as sacct(1)
 * shows it.
 */
#ifndef RV_CLUSTER_ACCOUNT_H
#define RV_CLUSTER_ACCOUNT_H

#include "cluster.h"

/* One record is one run of a job: a requeue makes another with the same id. Its
 * job is active when it has no end. */
struct account {
    bool there;   /* slurmdbd has answered */
    bool no_gpus; /* it keeps no count of them: AccountingStorageTRES */
    struct cluster_jobs runs; /* by job id, the first run first */
};

/* account_load - what ran after [since] (Unix); within 10 s.
 *   ret   written, empty on failure; free with account_fini
 * RV_OK too, with there = false, where the cluster has no slurmdbd or its
 * controller, which tells that, does not answer. RV_ETIMEDOUT when slurmdbd is
 * silent, RV_EIO when it cannot be reached or refuses. */
int account_load (int64_t since, struct account *ret, struct rv_error *err);

void account_fini (struct account *account); /* NULL is fine */

#endif
