/* SPDX-License-Identifier: Apache-2.0
 * tokenize_cmd.h - rv-train tokenize: text files to one file of tokens */
#ifndef RV_TRAIN_TOKENIZE_CMD_H
#define RV_TRAIN_TOKENIZE_CMD_H

#include <stddef.h>

#include <train/status.h>

/* tokenize_cmd - bytes of [files] (n) to [out]: a byte is a token, 256 ends each
 * file, which is one document. */
train_status_t tokenize_cmd (const char *out, char *const *files, size_t n,
                             train_error_t *err);

#endif
