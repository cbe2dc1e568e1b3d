/* SPDX-License-Identifier: Apache-2.0
 * sft.h - the data of task = sft: rows of prompts and their answers. */
#ifndef RV_TRAIN_SFT_H
#define RV_TRAIN_SFT_H

#include "settings.h"

/* sft_open - samples of [files] by [data]'s keys; no shuffle without [train].
 *   section   of [files], for messages: "data", "eval"
 *   held      samples held out
 *   say       rank 0 says on stderr how many rows were left out
 * Errors are of train/tokenizer.h and train/prompts.h, with the setting. */
train_status_t sft_open (const struct settings *set, const char *section,
                         const char *files, int64_t held, bool say,
                         train_data_t **ret_data, train_error_t *err);

#endif
