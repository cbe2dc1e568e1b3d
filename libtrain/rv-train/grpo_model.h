/* SPDX-License-Identifier: Apache-2.0
 * grpo_model.h - the policy that GRPO begins with. */
#ifndef RV_TRAIN_GRPO_MODEL_H
#define RV_TRAIN_GRPO_MODEL_H

#include "settings.h"

/* grpo_model_open - of [model] dir, a folder of Hugging Face's files or of
 * checkpoints, with dtype and device of [config]; without a folder all of
 * [config], and drawn by [run] seed. On failure *ret is to be destroyed if it
 * is there. */
train_status_t grpo_model_open (const struct settings *set,
                                const train_decoder_config_t *config,
                                train_decoder_t **ret, train_error_t *err);

#endif
