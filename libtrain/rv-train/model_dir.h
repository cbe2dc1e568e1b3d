/* SPDX-License-Identifier: Apache-2.0
 * model_dir.h - the model that a run begins with: of [model] dir, a folder of
 * Hugging Face's files or of checkpoints, or of [model]'s sizes. */
#ifndef RV_TRAIN_MODEL_DIR_H
#define RV_TRAIN_MODEL_DIR_H

#include "settings.h"

/* model_choose - the folder of [model] dir, as model_find has it.
 *   ret_dir   to be freed; NULL: there is no [model] dir, weights are drawn
 * Of a folder of checkpoints that are being written two ranks may find another:
 * one chooses. Errors of train_ckpt_find name the setting. */
train_status_t model_choose (const struct settings *set, char **ret_dir,
                             train_error_t *err);

/* model_describe - sizes, of [dir] or, without, of [model]; type, adapters and
 * the rest as settings_decoder has them.
 *   ret_config   written on success
 * Errors of train_hf_describe name the setting. */
train_status_t model_describe (const struct settings *set, const char *dir,
                               train_decoder_config_t *ret_config,
                               train_error_t *err);

/* model_find - the folder that [where] means: a model's of Hugging Face, a
 * checkpoint's, or the latest of a folder of them.
 *   ret   free with free()
 * TRAIN_ENOTFOUND says what a model has; else as train_ckpt_find.
 * model_has - is there a file [name] in [dir]? */
train_status_t model_find (const char *where, char **ret, train_error_t *err);
bool model_has (const char *dir, const char *name);

/* model_create - a whole decoder with its weights, those of [dir] or drawn by
 * [run] seed; it has no adapters. On failure *ret is to be destroyed if it is
 * there. */
train_status_t model_create (const struct settings *set,
                             const train_decoder_config_t *config,
                             const char *dir, train_decoder_t **ret,
                             train_error_t *err);

/* model_fits - TRAIN_EINVAL names the setting: the model's vocabulary is below
 * [need], that of the data; or [text] would be read as bytes, though nobody said
 * so and the vocabulary is far from theirs. */
train_status_t model_fits (const struct settings *set,
                           const train_decoder_config_t *config, int64_t need,
                           bool text, train_error_t *err);

/* model_of_bytes - may a vocabulary be that of bytes and an end, or one of them
 * that is padded? */
bool model_of_bytes (int vocab);

/* model_named - [status], and [err] with the setting that names the folder. */
train_status_t model_named (const struct settings *set, train_status_t status,
                            train_error_t *err);

/* model_positions - max_position_embeddings of [dir]; 0: not known, as of NULL.
 * model_say_reach - a line on stderr where texts of [tokens] go beyond them; [what]
 * decides how long they are.
 * model_reach - TRAIN_EINVAL where a [prompt] of so many tokens, that of [row] of
 * [section] files, leaves none of them. */
int model_positions (const char *dir);
void model_say_reach (const char *dir, const char *what, int64_t tokens);
train_status_t model_reach (const struct settings *set, const char *section,
                            const char *dir, int64_t prompt, size_t row,
                            train_error_t *err);

/* model_eos - ids that end a text by generation_config.json of [dir], else by
 * config.json; how many, at most [most]. */
size_t model_eos (const char *dir, int32_t *ret, size_t most);

#endif
