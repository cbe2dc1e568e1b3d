/* SPDX-License-Identifier: Apache-2.0
 * known_fan.h - which of several jobs stands for their request. */
#ifndef RV_KNOWN_FAN_H
#define RV_KNOWN_FAN_H

#include <stdbool.h>

#include "cmd_job.h"

/* known_fan_choose - each request of several jobs, of which none has claimed the
 * command, is turned to one that has not ended; of these to the one that should
 * start first. Before jobs and requests are joined. */
void known_fan_choose (struct known *known);

/* known_fan_drop - the others get no line: leave them out of known->job, where
 * requests have been joined. They stay in known->jobs. RV_ENOMEM. */
int known_fan_drop (struct known *known, struct rv_error *err);

/* known_is_beside - is [live] another job of the request than the one that
 * stands for it? */
bool known_is_beside (const struct request *req,
                      const struct cluster_job *live);

/* known_fan_has - is [word] the id of one of the request's jobs? */
bool known_fan_has (const struct request *req, const char *word);

#endif
