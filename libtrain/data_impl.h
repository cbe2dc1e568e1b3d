/* SPDX-License-Identifier: Apache-2.0
 * data_impl.h - the inside of train_data_t, for the files that make samples */
#ifndef TRAIN_DATA_IMPL_H
#define TRAIN_DATA_IMPL_H

#include <sys/types.h>

#include <train/data.h>
#include <train/tokens.h>

struct file {
    char *name;
    dev_t dev;
    ino_t ino;
    size_t from; /* of text: its first byte in the stream */
};

/* A file of tokens: where it begins in the stream. */
struct part {
    train_tokens_t *tokens;
    int64_t first;
    size_t file; /* which one it is */
};

/* Rows of a prompt and its answer (train_data_of_prompts). */
struct data_rows {
    int32_t *ids;  /* of all, one behind the other */
    size_t *first; /* (n + 1) where each begins in ids */
    int *prompt;   /* (n) how many of its ids are no targets */
    size_t *order; /* packed: (n) rows, sample by sample; else NULL, */
    size_t *bin;   /* and (samples + 1) where each begins in it */
    int32_t end;
    int64_t vocab, bytes;
};

struct train_data {
    struct data_rows *rows; /* samples are these; else NULL */
    struct file *file;      /* (n_files) */
    size_t n_files;
    unsigned char *byte; /* (n_bytes) of text; of tokens it is NULL */
    size_t n_bytes, cap;
    int32_t *id;        /* (n_tokens) of text that a tokenizer has read, whose
                           bytes are gone then; else NULL */
    int32_t vocab, end; /* of these; -1: no end */
    struct part *part;  /* (n_parts) of tokens; of text NULL */
    size_t n_parts;
    int64_t n_tokens; /* of the stream, of either kind */
    int64_t n_samples, held;
    int seq;
    bool shuffle, documents;
    uint64_t seed, hash;
};

/* data_copy - [n] tokens from [at] of the stream on, which has them. */
void data_copy (const train_data_t *data, int64_t at, int64_t n, int32_t *out);

/* data_check - are the tokens of the sample at [position], which train_data_get
 * wrote, below the vocabulary? TRAIN_ECORRUPT names file and token. */
train_status_t data_check (const train_data_t *data, int64_t position,
                           const int32_t *tokens, const int32_t *targets,
                           train_error_t *err);

/* data_tokenize - the ids of tokenizer [name] instead of the text, each file with
 * token [end] behind it if that is not NULL. The statuses of tokenizers; EINVAL:
 * there is no such token. data_hash_ids - what tells two such streams apart. */
train_status_t data_tokenize (train_data_t *data, const char *name,
                              const char *end, train_error_t *err);
uint64_t data_hash_ids (const train_data_t *data);

/* data_by_documents - samples are rows of documents from now on; the hash tells
 * it. TRAIN_EINVAL: the files have no end token. */
train_status_t data_by_documents (train_data_t *data, train_error_t *err);

/* data_rows_pack - rows share samples from now on. TRAIN_ENOMEM. */
train_status_t data_rows_pack (train_data_t *data, train_error_t *err);
/* data_pack.c: what the calls of train/data.h do of rows. */
void data_rows_get (const train_data_t *data, int64_t index, int32_t *tokens,
                    int32_t *targets);
int64_t data_rows_counted (const train_data_t *data, int64_t index);
/* Either may be NULL. */
void data_rows_starts (const train_data_t *data, int64_t index, int32_t *starts,
                       int32_t *documents);
void data_rows_free (struct data_rows *rows); /* NULL is fine */

#endif
