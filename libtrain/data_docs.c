/* SPDX-License-Identifier: Apache-2.0
 * data_docs.c - samples of the stream, and the documents in them */
#include <xxhash.h>

#include "data_impl.h"
#include "err.h"

int64_t train_data_end (const train_data_t *d)
{
    if (d->rows)
        return d->rows->end;
    return d->n_parts ? train_tokens_end (d->part[0].tokens)
           : d->id    ? d->end
                      : -1;
}

bool train_data_is_documents (const train_data_t *d)
{
    return d->documents;
}

train_status_t data_by_documents (train_data_t *d, train_error_t *err)
{
    static const uint64_t word = 0x646f6373; /* "docs" */

    if (!d->n_parts && !d->id)
        return err_set (err, TRAIN_EINVAL,
                        "data: text has no ends of documents; rv-train "
                        "tokenize makes files that have them");
    if (train_data_end (d) < 0)
        return err_set (err, TRAIN_EINVAL,
                        "data: %s has no end of documents; rv-train tokenize "
                        "makes files that have, and so does a tokenizer with "
                        "an end",
                        d->file[0].name);
    d->documents = true;
    d->hash = XXH3_64bits_withSeed (&word, sizeof (word), d->hash);
    return TRAIN_OK;
}

void train_data_get (const train_data_t *d, int64_t position, int32_t *tokens,
                     int32_t *targets)
{
    int64_t at = train_data_index (d, position) * d->seq;
    int64_t end = train_data_end (d);

    if (d->rows) {
        data_rows_get (d, at / d->seq, tokens, targets);
        return;
    }
    data_copy (d, at, d->seq, tokens);
    data_copy (d, at + 1, d->seq, targets);
    for (int i = 0; d->documents && i < d->seq; i++)
        if (tokens[i] == end)
            targets[i] = -1;
}

void train_data_documents (const train_data_t *d, int64_t position,
                           int32_t *documents)
{
    int64_t end = train_data_end (d);
    int32_t document = 0;

    if (d->rows) {
        data_rows_starts (d, train_data_index (d, position), NULL, documents);
        return;
    }
    data_copy (d, train_data_index (d, position) * d->seq, d->seq, documents);
    for (int i = 0; i < d->seq; i++) {
        bool last = end >= 0 && documents[i] == end;

        documents[i] = document;
        document += last;
    }
}

void train_data_starts (const train_data_t *d, const int32_t *tokens,
                        int32_t *starts)
{
    int64_t end = train_data_end (d);
    int32_t start = 0;

    for (int i = 0; i < d->seq; i++) {
        starts[i] = start;
        if (d->documents && tokens[i] == end)
            start = i + 1;
    }
}

void train_data_starts_at (const train_data_t *d, int64_t position,
                           const int32_t *tokens, int32_t *starts)
{
    if (d->rows && d->documents)
        data_rows_starts (d, train_data_index (d, position), starts, NULL);
    else
        train_data_starts (d, tokens, starts);
}

/* In blocks, so that no sample's room is needed. */
int64_t train_data_counted (const train_data_t *d, int64_t position, int64_t n)
{
    int64_t end = train_data_end (d), counted = n * d->seq;
    int32_t block[512];

    for (int64_t i = 0; d->rows && i < n; i++)
        counted +=
            data_rows_counted (d, train_data_index (d, position + i)) - d->seq;
    for (int64_t i = 0; d->documents && !d->rows && i < n; i++) {
        int64_t at = train_data_index (d, position + i) * d->seq;

        for (int64_t j = 0, k; j < d->seq; j += k) {
            k = d->seq - j < 512 ? d->seq - j : 512;
            data_copy (d, at + j, k, block);
            for (int64_t x = 0; x < k; x++)
                counted -= block[x] == end;
        }
    }
    return counted;
}
