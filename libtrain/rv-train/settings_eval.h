/* SPDX-License-Identifier: Apache-2.0
 * settings_eval.h - [eval]: the loss of text that is not trained on. */
#ifndef RV_TRAIN_SETTINGS_EVAL_H
#define RV_TRAIN_SETTINGS_EVAL_H

#include <stdint.h>

#include <train.h>

#include "plan/error.h"

struct settings;

struct settings_eval {
    int64_t every;   /* steps between; 0 = no evaluation */
    int64_t samples; /* -1 = not set, see settings_eval_derive */
    char *files;     /* NULL: the last samples of [data] files, held out */
};

/* settings_eval_derive - what follows where nothing was said: of held out
 * samples 64, of files all. */
void settings_eval_derive (struct settings *set);
int settings_eval_check (const struct settings *set, struct rv_error *err);
/* Samples of [data] files that are held out. */
int64_t settings_eval_held (const struct settings *set);
/* The evaluation's own data, where it has files. */
train_data_options_t settings_eval_data (const struct settings *set);
/* data   of these options; NULL: what is held out */
train_eval_options_t settings_eval_options (const struct settings *set,
                                            const train_data_t *data);

#endif
