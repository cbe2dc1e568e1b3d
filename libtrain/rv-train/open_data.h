/* SPDX-License-Identifier: Apache-2.0
 * open_data.h - the data of a run, as its settings have it. */
#ifndef RV_TRAIN_OPEN_DATA_H
#define RV_TRAIN_OPEN_DATA_H

#include "settings.h"

/* open_data - text, tokens or rows of prompts, by the task.
 *   model   that the data is held against
 *   say   say on stderr how many rows were left out
 * Errors name the setting; TRAIN_EINVAL: they do not fit (model_fits).
 * [ret_data] may be written in any case. */
train_status_t open_data (const struct settings *set,
                          const train_decoder_config_t *model, bool say,
                          train_data_t **ret_data, train_error_t *err);

#endif
