/* SPDX-License-Identifier: Apache-2.0
 * settings_rows.h - keys of [data] for rows of prompts: tasks sft and grpo. */
#ifndef RV_TRAIN_SETTINGS_ROWS_H
#define RV_TRAIN_SETTINGS_ROWS_H

#include <stdbool.h>

#include <train.h>

#include "plan/error.h"

struct settings;

struct settings_rows {
    char *chat;   /* [data] template; NULL: auto */
    char *system; /* NULL: none */
    char *end;    /* NULL: the template's */
    int too_long; /* train_rows_long_t */
    bool packed;
};

int settings_rows_check (const struct settings *set, struct rv_error *err);

/* settings_rows_open - prompts of [files], of [section] in messages, which name the
 * setting at fault. */
train_status_t settings_rows_open (const struct settings *set,
                                   const char *section, const char *files,
                                   train_tokenizer_t *tokenizer,
                                   train_prompts_t **ret, train_error_t *err);

#endif
