/* SPDX-License-Identifier: Apache-2.0
 * settings_model.h - what follows from [model] dir. */
#ifndef RV_TRAIN_SETTINGS_MODEL_H
#define RV_TRAIN_SETTINGS_MODEL_H

#include "plan/error.h"

struct settings;

/* settings_model_derive - the tokenizer where none is set: the folder's, else
 * bytes. RV_ENOMEM. */
int settings_model_derive (struct settings *set, struct rv_error *err);
/* settings_model_check - RV_EINVAL names a size that stands beside dir. */
int settings_model_check (const struct settings *set, struct rv_error *err);

#endif
