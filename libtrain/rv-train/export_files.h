/* SPDX-License-Identifier: Apache-2.0
 * export_files.h - the files of a tokenizer beside an exported model. */
#ifndef RV_TRAIN_EXPORT_FILES_H
#define RV_TRAIN_EXPORT_FILES_H

#include <stddef.h>

#include <train/status.h>

/* export_files - copy what a model's directory has of a tokenizer.
 *   from    a model's directory, which has a tokenizer.json or tokenizer.model
 *   to      a directory
 *   ret_n   files copied
 * TRAIN_ENOTFOUND: [from] has neither; TRAIN_EIO; TRAIN_ENOMEM. */
train_status_t export_files (const char *from, const char *to, size_t *ret_n,
                             train_error_t *err);

#endif
