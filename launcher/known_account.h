/* SPDX-License-Identifier: Apache-2.0
 * known_account.h - jobs that Slurm's controller has forgotten, from slurmdbd's
 * records of them. */
#ifndef RV_KNOWN_ACCOUNT_H
#define RV_KNOWN_ACCOUNT_H

#include "cluster_account.h"
#include "cmd_job.h"

/* known_account_owners - the request that each run is of: its job, all that were
 * submitted for it, and a chain's.
 *   ret   malloc'ed, runs.n entries, NULL = none; borrowed from [known]
 * RV_ENOMEM. */
int known_account_owners (const struct known *known,
                          const struct account *account,
                          const struct request ***ret, struct rv_error *err);

/* known_account_add - give the jobs that the controller does not know their last
 * run's record, and add those that no request is of.
 *   account   must live as long as [known]
 * What has no end there and is not known to the controller is passed over: it was
 * submitted meanwhile, or its end was lost. RV_ENOMEM. */
int known_account_add (struct known *known, const struct account *account,
                       struct rv_error *err);

/* known_account_since - how far back to ask: [last_s] seconds, and to the oldest
 * request of which the controller knows nothing. */
int64_t known_account_since (const struct known *known, int64_t now,
                             int64_t last_s);

#endif
