/* SPDX-License-Identifier: Apache-2.0
 * train/tokens.h - files of tokens, mapped and never copied.
 *
 * All numbers little-endian:
 *    0   8 bytes   "RVTOKENS"
 *    8   uint32    version, 1
 *   12   uint32    bytes of a token, 2 or 4
 *   16   uint64    tokens
 *   24   uint64    XXH3 (64 bits) of the tokens' bytes
 *   32   uint32    vocabulary: every token is below it
 *   36   uint32    the token that ends a document; 0xffffffff: none does
 *   40   24 bytes  zero
 *   64             the tokens */
#ifndef TRAIN_TOKENS_H
#define TRAIN_TOKENS_H

#include <stddef.h>
#include <stdint.h>

#include <train/status.h>

#ifdef __cplusplus
extern "C" {
#endif

#define TRAIN_TOKENS_HEADER 64

typedef struct train_tokens train_tokens_t;

/* train_tokens_open - map [path] and check its header against its size.
 * TRAIN_ENOTFOUND, TRAIN_EIO; TRAIN_EFORMAT names what is wrong. One that is
 * shortened meanwhile raises SIGBUS, as any mapping. Read-only: any thread. */
train_status_t train_tokens_open (const char *path, train_tokens_t **ret_tokens,
                                  train_error_t *err);
void train_tokens_close (train_tokens_t *tokens); /* NULL is fine */

int64_t train_tokens_count (const train_tokens_t *tokens);
int train_tokens_width (const train_tokens_t *tokens); /* bytes of one */
int64_t train_tokens_vocab (const train_tokens_t *tokens);
int64_t train_tokens_end (const train_tokens_t *tokens);  /* -1: none */
uint64_t train_tokens_sum (const train_tokens_t *tokens); /* as written */

/* train_tokens_read - copy [n] tokens from [first] on; what is not there, and
 * a token over the largest int32_t, is -1. */
void train_tokens_read (const train_tokens_t *tokens, int64_t first, int64_t n,
                        int32_t *out);
/* train_tokens_verify - reads all: TRAIN_ECORRUPT when the sum is another,
 * TRAIN_EFORMAT names a token that is not below the vocabulary. */
train_status_t train_tokens_verify (const train_tokens_t *tokens,
                                    train_error_t *err);

/* A file that is being written: beside its target until the commit. */
typedef struct train_token_writer train_token_writer_t;

/* train_tokens_create
 *   vocab   1..2^31; up to 65536 a token has 2 bytes, else 4
 *   end     below vocab, or -1
 * TRAIN_EINVAL, TRAIN_EIO, TRAIN_ENOMEM. */
train_status_t train_tokens_create (const char *path, int64_t vocab,
                                    int64_t end,
                                    train_token_writer_t **ret_writer,
                                    train_error_t *err);
/* train_tokens_put - TRAIN_EINVAL names a token outside the vocabulary, nothing
 * of the call is written then; TRAIN_EIO. */
train_status_t train_tokens_put (train_token_writer_t *writer,
                                 const int32_t *tokens, size_t n,
                                 train_error_t *err);
/* train_tokens_commit - sync, and give the file its name; ends the writer, after
 * a failure too. train_tokens_abandon - remove it. NULL is fine. */
train_status_t train_tokens_commit (train_token_writer_t *writer,
                                    train_error_t *err);
void train_tokens_abandon (train_token_writer_t *writer);

#ifdef __cplusplus
}
#endif
#endif
