/* SPDX-License-Identifier: Apache-2.0
 * train/tokenizer.h - text to token ids and back: bytes, or a Hugging Face
 * tokenizer.json with a BPE model.
 *
 * Served of tokenizer.json, with the ids of Hugging Face's tokenizers library:
 * normalizers NFC, Prepend, Replace (a string); pre-tokenizers ByteLevel,
 * Digits, Metaspace and Split by the patterns of GPT-2, Llama 3 and Qwen2;
 * model BPE with byte_fallback, fuse_unk and ignore_merges; added tokens;
 * post-processors ByteLevel and TemplateProcessing (of one text); decoders
 * ByteLevel, ByteFallback, Fuse, Metaspace, Replace, Strip; Sequences of those.
 * Anything else that a file asks for is TRAIN_ENOTSUP with its key, never
 * passed over. (Sennrich et al. 2016, arXiv:1508.07909, for BPE.)
 *
 * Encoding a piece of n symbols costs n log n. A handle keeps a cache of pieces:
 * one thread at a time. */
#ifndef TRAIN_TOKENIZER_H
#define TRAIN_TOKENIZER_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include <train/status.h>

#ifdef __cplusplus
extern "C" {
#endif

typedef struct train_tokenizer train_tokenizer_t;

/* Behind a text of bytes, whose ids are below it: where tokenizer bytes is used,
 * the id that ends a text of training data, or of a model. */
#define TRAIN_TOKENIZER_BYTE_END 256

/* train_tokenizer_open - "bytes" (256 ids, no special token), a directory with
 * tokenizer.json, or the path of such a file (it ends in .json).
 * TRAIN_EINVAL; TRAIN_ENOTFOUND, TRAIN_EIO; TRAIN_EFORMAT and TRAIN_ENOTSUP name
 * the file and the key; TRAIN_ENOMEM. */
train_status_t train_tokenizer_open (const char *name,
                                     train_tokenizer_t **ret_tokenizer,
                                     train_error_t *err);
/* train_tokenizer_parse - the same from the text of a tokenizer.json. */
train_status_t train_tokenizer_parse (const char *json, size_t size,
                                      train_tokenizer_t **ret_tokenizer,
                                      train_error_t *err);
void train_tokenizer_close (train_tokenizer_t *tokenizer); /* NULL is fine */

/* The highest id and one more; ids below it may be missing. */
int32_t train_tokenizer_vocab (const train_tokenizer_t *tokenizer);
/* The id of a token as the file writes it, -1 where there is none. */
int32_t train_tokenizer_id (const train_tokenizer_t *tokenizer,
                            const char *token);
/* The id of a token that decoding shows nothing of where special tokens are left
 * out, as "<|im_end|>" is; -1 where there is no such token, or it shows
 * something. */
int32_t train_tokenizer_hidden (const train_tokenizer_t *tokenizer,
                                const char *token);
/* XXH3 (64 bits) of the file's text; 0 for bytes. */
uint64_t train_tokenizer_hash (const train_tokenizer_t *tokenizer);

/* train_tokenizer_encode - ids of a text.
 *   ret_ids   written: (*ret_n) of malloc, the caller frees; NULL on failure
 *   text      (size) UTF-8; what is not (each longest part of a character that
 *             ends too early) is read as U+FFFD, as Python's errors='replace'
 *             does. Tokenizer bytes takes every byte as it is.
 *   around    with the ids that the post-processor puts before and after
 *   ret_bad   written: such parts; NULL = not wanted
 * TRAIN_EINVAL: more than 2^30 bytes, or a byte that a byte-level vocabulary
 * without unk_token lacks (Hugging Face leaves it out); TRAIN_ENOMEM. */
train_status_t train_tokenizer_encode (train_tokenizer_t *tokenizer,
                                       int32_t **ret_ids, size_t *ret_n,
                                       const char *text, size_t size,
                                       bool around, size_t *ret_bad,
                                       train_error_t *err);

/* train_tokenizer_decode - the text of ids.
 *   ret_text       written: (*ret_size) bytes and a NUL, the caller frees; valid
 *                  UTF-8 (U+FFFD for what is not), but for tokenizer bytes,
 *                  which gives the bytes
 *   ids            (n)
 *   skip_special   without tokens that the file calls special
 * TRAIN_EINVAL: an id that is no token, with its place; TRAIN_ENOMEM. */
train_status_t train_tokenizer_decode (train_tokenizer_t *tokenizer,
                                       char **ret_text, size_t *ret_size,
                                       const int32_t *ids, size_t n,
                                       bool skip_special, train_error_t *err);

#ifdef __cplusplus
}
#endif
#endif
