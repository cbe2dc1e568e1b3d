/* SPDX-License-Identifier: Apache-2.0
 * known_index.h - a user's jobs in Slurm by number and by script, so that
 * thousands of jobs and requests are joined without each looked at for each. */
#ifndef RV_KNOWN_INDEX_H
#define RV_KNOWN_INDEX_H

#include "cmd_job.h"

/* known_index - sort known->jobs, which stay as they are from then on, into
 * by_id and by_command. RV_ENOMEM. known_fini frees them. */
int known_index (struct known *known, struct rv_error *err);

/* known_live - the job with that number, in known->jobs; NULL = Slurm has none.
 */
const struct cluster_job *known_live (const struct known *known,
                                      uint32_t job_id);

/* known_of_folder - where in by_command, which has known->jobs.n entries, the
 * first stands whose script may be one of [dir]'s (siblings_is_of). */
size_t known_of_folder (const struct known *known, const char *dir);

/* known_all_ended - has every job of this request ended, as Slurm itself says?
 * One that Slurm does not know may be another cluster's.
 *   cancelled   0 = none; this one has since */
bool known_all_ended (const struct known *known, const struct request *req,
                      uint32_t cancelled);

#endif
