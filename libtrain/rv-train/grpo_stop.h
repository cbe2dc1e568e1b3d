/* SPDX-License-Identifier: Apache-2.0
 * grpo_stop.h - what ends a completion: ids, and texts. */
#ifndef RV_TRAIN_GRPO_STOP_H
#define RV_TRAIN_GRPO_STOP_H

#include "settings.h"

struct grpo_stop;

/* grpo_stop_open - from [grpo] stop and stop_ids. A text that is a token which no
 * text shows ("<|im_end|>") is taken as its id.
 *   tokenizer   borrowed, as long as what is returned
 * TRAIN_EINVAL names the setting. */
train_status_t grpo_stop_open (struct grpo_stop **ret,
                               const struct settings *set,
                               train_tokenizer_t *tokenizer,
                               train_error_t *err);
void grpo_stop_close (struct grpo_stop *stop); /* NULL is fine */

/* grpo_stop_add - [id] ends completions, too; below 0: none. */
void grpo_stop_add (struct grpo_stop *stop, int32_t id);
bool grpo_stop_is_end (const struct grpo_stop *stop, int32_t id);
/* grpo_stop_is_none - nothing ends a completion but its length. */
bool grpo_stop_is_none (const struct grpo_stop *stop);
/* grpo_stop_options - ends and stops of [o]; borrowed by it. */
void grpo_stop_options (struct grpo_stop *stop,
                        train_grpo_trainer_options_t *o);

#endif
