/* SPDX-License-Identifier: Apache-2.0
 * tokenize_cmd.h - rv-train tokenize: text files to one file of tokens */
#ifndef RV_TRAIN_TOKENIZE_CMD_H
#define RV_TRAIN_TOKENIZE_CMD_H

#include <train/status.h>

/* tokenize_cmd - text files, each one document, to one file of tokens.
 *   argv   (argc) behind "tokenize": --tokenizer NAME, --end TOKEN, OUT, FILE...
 * Without a tokenizer a byte is a token and 256 ends each document; with one
 * (train/tokenizer.h) tokens are its ids without what it puts around a text, and
 * TOKEN, where it is given, ends each. TRAIN_EINVAL for what is not understood,
 * for a TOKEN that the tokenizer has not, for a file of more than 2^30 bytes. */
train_status_t tokenize_cmd (int argc, char **argv, train_error_t *err);

#endif
