/* SPDX-License-Identifier: Apache-2.0
 * eval.h - evaluation as [eval] has it. */
#ifndef RV_TRAIN_EVAL_H
#define RV_TRAIN_EVAL_H

#include <stdbool.h>

#include <train.h>

#include "settings.h"

struct eval;

/* eval_open - its data, on every rank.
 *   ret   written: NULL where [eval] is off
 * Errors of train_data_open, with the place in the settings. */
train_status_t eval_open (struct eval **ret, const struct settings *set,
                          train_error_t *err);
void eval_close (struct eval *eval); /* NULL is fine */
/* eval_say - a line about it on stdout; none for NULL. */
void eval_say (const struct eval *eval);

/* eval_due - is there one after step [step]? False for NULL. */
bool eval_due (const struct eval *eval, int64_t step);
/* eval_run - collective. */
train_status_t eval_run (struct eval *eval, train_trainer_t *trainer,
                         train_eval_t *ret, train_error_t *err);

#endif
