/* SPDX-License-Identifier: Apache-2.0
 * grpo_rows.h - prompts, rewards and what is held out, for task = grpo. */
#ifndef RV_TRAIN_GRPO_ROWS_H
#define RV_TRAIN_GRPO_ROWS_H

#include "settings.h"

#include "grpo_stop.h"

struct grpo_rows; /* prompts of some files */

/* What scores completions: all of [reward NAME]. */
struct grpo_judge {
    const struct settings *set; /* borrowed */
    train_tokenizer_t *tokenizer;
    train_reward_t **reward;     /* (n) */
    double *weight;              /* (n) */
    train_reward_report_t *seen; /* (n) when grpo_faults_take was last called */
    size_t n;
    struct grpo_stop *stop;
};

/* grpo_judge_open - the tokenizer, what stops a text, and the rewards, whose
 * programs are waited for until [ends] of [arg] (train/reward.h);
 * grpo_judge_look - all as grpo_judge_open has it, but that programs are looked for
 * and not started before they are asked.
 * Errors name the setting. */
train_status_t grpo_judge_open (struct grpo_judge *judge,
                                const struct settings *set,
                                bool (*ends) (void *arg), void *arg,
                                train_error_t *err);
train_status_t grpo_judge_look (struct grpo_judge *judge,
                                const struct settings *set, train_error_t *err);
void grpo_judge_close (struct grpo_judge *judge); /* after a failure, too */

/* grpo_rows_open - prompts of [files], of [section] for messages. */
train_status_t grpo_rows_open (struct grpo_rows **ret, struct grpo_judge *judge,
                               const char *section, const char *files,
                               train_error_t *err);
void grpo_rows_close (struct grpo_rows *rows); /* NULL is fine */

const train_prompts_t *grpo_rows_prompts (const struct grpo_rows *rows);
/* grpo_rows_longest - tokens of the longest prompt, and its row, from 0. */
int64_t grpo_rows_longest (const struct grpo_rows *rows, size_t *ret_row);
/* grpo_rows_fit - TRAIN_EINVAL names the setting: the model of [dir] has not the
 * tokenizer's vocabulary, or no position behind a prompt of [rows] or [held], which
 * may be NULL. With [say], a line on stderr where completions may lie behind them. */
train_status_t grpo_rows_fit (const struct grpo_rows *rows,
                              const struct grpo_rows *held,
                              const train_decoder_config_t *config,
                              const char *dir, bool say, train_error_t *err);
/* As the trainer takes them. */
train_grpo_prompts_t grpo_rows_view (struct grpo_rows *rows);
/* grpo_rows_score - a train_grpo_score_t; [arg] are the rows. */
train_status_t grpo_rows_score (void *arg, const train_grpo_sample_t *samples,
                                int n, float *ret, train_error_t *err);
/* grpo_rows_text - what a completion says, without the id that ends it.
 *   ret   the caller frees */
train_status_t grpo_rows_text (const struct grpo_rows *rows,
                               const train_grpo_sample_t *sample, char **ret,
                               size_t *ret_size, train_error_t *err);

#endif
