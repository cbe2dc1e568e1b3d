/* SPDX-License-Identifier: Apache-2.0
 * oom.h - what a run that has no memory would have needed. */
#ifndef RV_TRAIN_OOM_H
#define RV_TRAIN_OOM_H

#include <train.h>

#include "settings.h"

/* oom_say - a table of a rank's arrays of this model and what would make them
 * smaller, on stderr; nothing where it cannot be told.
 *   seq   tokens of the longest row */
void oom_say (const struct settings *set, const train_decoder_config_t *model,
              int world, int seq);

#endif
