/* SPDX-License-Identifier: Apache-2.0
 * data_text.c - text in memory to the ids of a tokenizer
 *
 * A file at a time, as rv-train tokenize does it: no token goes over the end of
 * one. */
#include <stdlib.h>
#include <string.h>
#include <xxhash.h>

#include <train/tokenizer.h>

#include "data_impl.h"
#include "err.h"

struct ids {
    train_data_t *data;
    train_tokenizer_t *tokenizer;
    size_t cap;
};

static train_status_t put (struct ids *s, const int32_t *id, size_t n,
                           train_error_t *err)
{
    train_data_t *d = s->data;
    size_t have = (size_t)d->n_tokens, cap = s->cap ? s->cap : 4096;
    int32_t *p;

    while (cap < have + n)
        cap *= 2;
    if (cap > s->cap) {
        if (!(p = reallocarray (d->id, cap, sizeof (*p))))
            return err_set (err, TRAIN_ENOMEM, "no memory for %zu tokens", cap);
        d->id = p;
        s->cap = cap;
    }
    memcpy (d->id + have, id, n * sizeof (*id));
    d->n_tokens += (int64_t)n;
    return TRAIN_OK;
}

static train_status_t add_file (struct ids *s, size_t i, train_error_t *err)
{
    train_data_t *d = s->data;
    size_t from = d->file[i].from;
    size_t to = i + 1 < d->n_files ? d->file[i + 1].from : d->n_bytes, n;
    train_status_t status;
    int32_t *id;

    status = train_tokenizer_encode (s->tokenizer, &id, &n,
                                     (const char *)d->byte + from, to - from,
                                     false, NULL, err);
    if (status != TRAIN_OK)
        return err_prefix (err, status, "%s", d->file[i].name);
    status = put (s, id, n, err);
    free (id);
    if (status == TRAIN_OK && d->end >= 0)
        status = put (s, &d->end, 1, err);
    return status;
}

static train_status_t find_end (struct ids *s, const char *name,
                                const char *end, train_error_t *err)
{
    train_data_t *d = s->data;

    d->vocab = train_tokenizer_vocab (s->tokenizer);
    d->end = end ? train_tokenizer_id (s->tokenizer, end) : -1;
    return d->end >= 0 || !end
               ? TRAIN_OK
               : err_set (err, TRAIN_EINVAL, "data: end '%s' is no token of %s",
                          end, name);
}

train_status_t data_tokenize (train_data_t *d, const char *name,
                              const char *end, train_error_t *err)
{
    struct ids s = {.data = d};
    train_status_t status;

    TRY (train_tokenizer_open (name, &s.tokenizer, err));
    status = find_end (&s, name, end, err);
    for (size_t i = 0; i < d->n_files && status == TRAIN_OK; i++)
        status = add_file (&s, i, err);
    train_tokenizer_close (s.tokenizer);
    free (d->byte);
    d->byte = NULL;
    d->cap = 0;
    return status;
}

uint64_t data_hash_ids (const train_data_t *d)
{
    uint64_t kind[] = {(uint64_t)d->vocab, (uint64_t)d->end};

    return XXH3_64bits_withSeed (d->id, (size_t)d->n_tokens * sizeof (*d->id),
                                 XXH3_64bits (kind, sizeof (kind)));
}
