/* SPDX-License-Identifier: Apache-2.0
 * export_files.h - the files of a tokenizer beside an exported model. */
#ifndef RV_TRAIN_EXPORT_FILES_H
#define RV_TRAIN_EXPORT_FILES_H

#include <stddef.h>
#include <stdint.h>

#include <train/status.h>

/* export_files - copy what a model's directory has of a tokenizer.
 *   from    export_files_check was good
 *   to      a directory
 *   ret_n   files copied
 * TRAIN_EIO; TRAIN_ENOMEM. */
train_status_t export_files (const char *from, const char *to, size_t *ret_n,
                             train_error_t *err);
/* export_files_check - TRAIN_ENOTFOUND: [from] has neither a tokenizer.json nor a
 * tokenizer.model. */
train_status_t export_files_check (const char *from, train_error_t *err);

#define EXPORT_ENDS 8

/* Ids that end a text. */
struct export_end {
    int32_t id[EXPORT_ENDS];
    size_t n; /* 0: not known */
};

/* export_end_find - by generation_config.json or config.json of [dir], else the
 * eos_token of tokenizer_config.json or special_tokens_map.json, whose id the
 * vocabulary has. TRAIN_EINVAL: a model of [vocab] tokens has no such one.
 * export_end_put - eos_token_id of config.json and generation_config.json in [dir],
 * where they have none. TRAIN_EIO; TRAIN_ENOMEM. */
train_status_t export_end_find (const char *dir, int vocab,
                                struct export_end *ret, train_error_t *err);
train_status_t export_end_put (const char *dir, const struct export_end *end,
                               train_error_t *err);

#endif
