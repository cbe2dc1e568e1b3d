/* SPDX-License-Identifier: Apache-2.0
 * train/data.h - training samples from text files, or from files of tokens.
 *
 * The files are one stream: their bytes in the order of the patterns, names
 * sorted bytewise within a pattern. Links are followed and a file that is
 * reached twice (by link, by a second pattern) is read once, under the first
 * name. Of text a token is a byte (0..255), or an id of a tokenizer
 * (train/tokenizer.h), file by file. Files of tokens (train/tokens.h),
 * told by how they begin, are mapped; a stream is of one kind and vocabulary.
 * It is cut into n samples of seq tokens that do not overlap, each with its
 * successor as target: n = (tokens - 1) / seq; the rest is left out.
 *
 * What stands at position p of the endless sequence of samples is a pure
 * function of (files, seq, seed, shuffle, held, p): epoch p / n, and within it a
 * permutation keyed by (seed, epoch). So a global batch of B rows at step s is
 * the positions s*B .. s*B+B-1 however ranks and micro-batches share them, and
 * a resumed run needs its position alone. The permutation is a Feistel network
 * with Philox as round function and cycle walking (Black and Rogaway 2002,
 * "Ciphers with arbitrary finite domains"): no table, any n.
 *
 * A handle is read-only once open: any thread. */
#ifndef TRAIN_DATA_H
#define TRAIN_DATA_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include <train/status.h>

#ifdef __cplusplus
extern "C" {
#endif

typedef struct train_data train_data_t;

typedef struct train_data_options {
    size_t size;       /* sizeof (train_data_options_t) */
    const char *files; /* paths and glob(7) patterns, separated by commas;
                              blanks around each are dropped */
    int seq;           /* tokens of a sample, >= 1 */
    bool shuffle;      /* false: every epoch in the order of the stream */
    uint64_t seed;
    int64_t held;   /* so many of the last samples are held out: no epoch has
                     them, and n is less by as many; 0 = none */
    bool documents; /* samples are rows of documents, each up to and with the
                       files' end token: what follows an end is no target */
    const char *tokenizer; /* of text: NULL or "bytes"; a tokenizer.json or its
                              folder: every rank reads all text by it, which
                              files of tokens spare */
    const char *end; /* with it: the token behind each file; NULL = none */
    bool text_alone; /* tokenizer and end are of text: files of tokens are read
                        without them, and not refused */
} train_data_options_t;

/* train_data_open - read text into memory (it may change afterwards), map files
 * of tokens (they must not).
 * TRAIN_ENOTFOUND: a path does not exist or a pattern matches nothing;
 * TRAIN_EINVAL: an option is wrong, a path names something that is no regular
 * file (what a pattern matches beside files is passed over), the stream is
 * shorter than seq + 1 tokens, end is no token of the tokenizer or goes without
 * one, a tokenizer is given for files of tokens, held leaves no sample to train on, or documents are
 * wanted of files that have no end token, as text without one; the statuses of
 * train_tokenizer_open; TRAIN_EIO; TRAIN_ENOMEM. */
train_status_t train_data_open (const train_data_options_t *opts,
                                train_data_t **ret_data, train_error_t *err);
void train_data_close (train_data_t *data); /* NULL is fine */

size_t train_data_n_files (const train_data_t *data);
/* Name of a file as first met; lives with [data]. */
const char *train_data_file (const train_data_t *data, size_t index);
int64_t train_data_bytes (const train_data_t *data);     /* of all files */
int64_t train_data_n_samples (const train_data_t *data); /* of an epoch */
int64_t train_data_held (const train_data_t *data);      /* out of all epochs */
int train_data_seq (const train_data_t *data);
bool train_data_shuffle (const train_data_t *data);
uint64_t train_data_seed (const train_data_t *data);
/* Every token is below it: 256 of bytes. */
int64_t train_data_vocab (const train_data_t *data);
/* The token that ends a document; -1: there is none, as of bytes. */
int64_t train_data_end (const train_data_t *data);
bool train_data_is_documents (const train_data_t *data); /* as opened */
/* XXH3 (64 bits) of the stream, of files of tokens that of their headers, which
 * have their sums: the same on every rank, and when resumed. */
uint64_t train_data_hash (const train_data_t *data);

/* Of rows of prompts and answers train_data_of_prompts makes such a handle
 * (train/prompts.h): a sample is a row, its seq tokens padded with 0 and its
 * targets with -1. */

/* train_data_index - which sample of the stream stands at [position]: -1 is the
 * first that is held out, -2 the second. */
int64_t train_data_index (const train_data_t *data, int64_t position);

/* train_data_get - the sample at [position].
 *   tokens    (seq) written
 *   targets   (seq) written: the token that follows each; with documents -1
 *             where that is another document's */
void train_data_get (const train_data_t *data, int64_t position,
                     int32_t *tokens, int32_t *targets);

/* train_data_verify - reads files of tokens whole and holds them against the sums
 * in their heads, which opening does not: TRAIN_ECORRUPT or TRAIN_EFORMAT names
 * the file. Of text and of rows there is nothing to compare. */
train_status_t train_data_verify (const train_data_t *data, train_error_t *err);

/* train_data_documents - which document each token of that sample is of.
 *   documents   (seq) written: 0 for the sample's first, one more behind each
 *               token that ends a document; of text all are 0 */
void train_data_documents (const train_data_t *data, int64_t position,
                           int32_t *documents);

/* train_data_starts - where the document of each token of a sample begins, as
 * train_decoder_documents takes it.
 *   tokens   (seq) of train_data_get
 *   starts   (seq) written; all 0 unless opened with documents. A document that
 *            began before the sample begins at 0 */
void train_data_starts (const train_data_t *data, const int32_t *tokens,
                        int32_t *starts);

/* train_data_starts_at - the same of the sample at [position], whose tokens are
 * given; rows that are packed (train/prompts.h) may have end tokens within, so
 * that the tokens do not tell. */
void train_data_starts_at (const train_data_t *data, int64_t position,
                           const int32_t *tokens, int32_t *starts);

/* train_data_counted - how many targets of the [n] samples from [position] on
 * are not -1: with documents it reads them, else it is n seq. */
int64_t train_data_counted (const train_data_t *data, int64_t position,
                            int64_t n);

#ifdef __cplusplus
}
#endif
#endif
