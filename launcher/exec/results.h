/* SPDX-License-Identifier: Apache-2.0
 * results.h - rv run --output, in the batch step. */
#ifndef RV_EXEC_RESULTS_H
#define RV_EXEC_RESULTS_H

#include "exec/child.h"
#include "exec/segment_run.h"

/* results_bring - bring what the request asks for out of the snapshot, after
 * every end of the ranks: there may be no other. Logs what does not come.
 *   own   this job's folder of the request
 *   c     of srun
 * Ends in time for a job that was told to end, or is to be put back. */
void results_bring (const char *own, const struct segment_run *seg,
                    const struct child_result *c);

#endif
