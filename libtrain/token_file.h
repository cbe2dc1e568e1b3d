/* SPDX-License-Identifier: Apache-2.0
 * token_file.h - the secret that a reference server asks for. Inside libtrain
 * and rv-train only. */
#ifndef TRAIN_TOKEN_FILE_H
#define TRAIN_TOKEN_FILE_H

#include <stdbool.h>
#include <stddef.h>

#include <train/status.h>

#define TOKEN_LEAST 16
#define TOKEN_MOST  512

/* token_file_read - the first line of [path]: 16 to 512 printable ASCII
 * characters without spaces.
 *   ret   (TOKEN_MOST + 1) written
 * TRAIN_ENOTFOUND, TRAIN_EIO; TRAIN_EFORMAT: no plain file, not this user's,
 * others may read or write it, or no such line. The text never has the token. */
train_status_t token_file_read (const char *path, char ret[TOKEN_MOST + 1],
                                train_error_t *err);

/* token_same - in a time that hangs on the length of [given] alone. */
bool token_same (const char *token, const char *given);

#endif
