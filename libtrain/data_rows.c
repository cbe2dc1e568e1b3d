/* SPDX-License-Identifier: Apache-2.0
 * data_rows.c - training samples of prompts and their answers */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <xxhash.h>

#include <train/prompts.h>

#include "data_impl.h"
#include "err.h"
#include "opts.h"

struct job {
    const train_rows_options_t *opts;
    const train_prompts_t *prompts;
    train_data_t *d;
    size_t cap, skipped; /* ids there is room for; rows left out */
};

static train_status_t no_memory (train_error_t *err)
{
    return err_set (err, TRAIN_ENOMEM, "no memory for rows");
}

void data_rows_free (struct data_rows *r)
{
    if (!r)
        return;
    free (r->ids);
    free (r->first);
    free (r->prompt);
    free (r->order);
    free (r->bin);
    free (r);
}

/* Room for [n] more ids behind [have]. */
static train_status_t grow (struct job *j, size_t have, size_t n,
                            train_error_t *err)
{
    size_t cap = j->cap ? j->cap : 4096;
    int32_t *more;

    if (have + n <= j->cap)
        return TRAIN_OK;
    while (cap < have + n)
        cap *= 2;
    if (!(more = realloc (j->d->rows->ids, cap * sizeof (*more))))
        return no_memory (err);
    j->d->rows->ids = more;
    j->cap = cap;
    return TRAIN_OK;
}

static train_status_t refuse (const struct job *j, size_t i, const char *why,
                              train_error_t *err)
{
    char where[512];

    return err_set (err, TRAIN_EINVAL, "%s: %s",
                    train_prompts_where (j->prompts, i, where, sizeof (where)),
                    why);
}

/* Does a row of [n] ids, [prompt] of which are the prompt's, become a sample?
 * [*n] is what is left of it, 0: it is left out. */
static train_status_t fit (struct job *j, size_t i, size_t prompt, size_t *n,
                           train_error_t *err)
{
    size_t most = (size_t)j->opts->seq + 1;
    char why[128];

    if (*n <= prompt)
        return refuse (j, i, "there is no token to learn", err);
    if (*n <= most)
        return TRAIN_OK;
    if (j->opts->too_long == TRAIN_ROWS_REFUSE) {
        snprintf (why, sizeof (why),
                  "prompt and answer have %zu tokens, and a sample of seq %d "
                  "has room for %zu",
                  *n, j->opts->seq, most);
        return refuse (j, i, why, err);
    }
    *n = j->opts->too_long == TRAIN_ROWS_CUT && prompt < most ? most : 0;
    j->skipped += *n == 0;
    return TRAIN_OK;
}

/* The row's ids, [answer] those of its answer. */
static train_status_t put (struct job *j, size_t i, const int32_t *answer,
                           size_t n_answer, train_error_t *err)
{
    int32_t end = train_prompts_end (j->prompts);
    struct data_rows *r = j->d->rows;
    size_t at = r->first[j->d->n_samples], n_prompt, n;
    const int32_t *prompt = train_prompts_ids (j->prompts, i, &n_prompt);
    int32_t *ids;

    n = n_prompt + n_answer + (end >= 0);
    TRY (grow (j, at, n, err));
    ids = r->ids + at;
    memcpy (ids, prompt, n_prompt * sizeof (*ids));
    memcpy (ids + n_prompt, answer, n_answer * sizeof (*ids));
    if (end >= 0)
        ids[n - 1] = end;
    TRY (fit (j, i, n_prompt, &n, err));
    if (n == 0)
        return TRAIN_OK;
    r->prompt[j->d->n_samples++] = (int)n_prompt;
    r->first[j->d->n_samples] = at + n;
    return TRAIN_OK;
}

static train_status_t add (struct job *j, size_t i, train_error_t *err)
{
    const char *answer = train_prompts_answer (j->prompts, i);
    train_status_t status;
    int32_t *ids;
    size_t n;

    if (!answer)
        return refuse (j, i, "no field 'answer', which is what is learnt", err);
    TRY (train_tokenizer_encode (j->opts->tokenizer, &ids, &n, answer,
                                 strlen (answer), false, NULL, err));
    status = put (j, i, ids, n, err);
    free (ids);
    return status;
}

/* The file names of the rows, for what tells of them. */
static train_status_t name_files (struct job *j, train_error_t *err)
{
    size_t n = train_prompts_n_files (j->prompts);
    train_data_t *d = j->d;

    if (!(d->file = calloc (n + 1, sizeof (*d->file))))
        return no_memory (err);
    for (; d->n_files < n; d->n_files++) {
        const char *name = train_prompts_file (j->prompts, d->n_files);

        if (!(d->file[d->n_files].name = strdup (name)))
            return no_memory (err);
    }
    return TRAIN_OK;
}

static void finish (struct job *j)
{
    static const uint64_t packed = 0x7061636b; /* "pack" */
    struct data_rows *r = j->d->rows;
    const char *row;
    size_t n = r->first[j->d->n_samples];

    j->d->n_tokens = (int64_t)n;
    j->d->hash = XXH3_64bits_withSeed (r->ids, n * sizeof (*r->ids),
                                       train_prompts_hash (j->prompts));
    j->d->hash = XXH3_64bits_withSeed (
        r->prompt, (size_t)j->d->n_samples * sizeof (*r->prompt), j->d->hash);
    for (size_t i = 0; i < train_prompts_count (j->prompts); i++) {
        row = train_prompts_row (j->prompts, i);
        r->bytes += (int64_t)strlen (row) + 1;
    }
    if (j->opts->packed)
        j->d->hash = XXH3_64bits_withSeed (&packed, sizeof (packed),
                                           j->d->hash ^ (uint64_t)j->d->seq);
}

static train_status_t fill (struct job *j, train_error_t *err)
{
    size_t n = train_prompts_count (j->prompts);
    struct data_rows *r = calloc (1, sizeof (*r));
    train_data_t *d = j->d;

    if (!(d->rows = r))
        return no_memory (err);
    r->first = calloc (n + 1, sizeof (*r->first));
    r->prompt = calloc (n, sizeof (*r->prompt));
    if (!r->first || !r->prompt)
        return no_memory (err);
    r->end = train_prompts_end (j->prompts);
    r->vocab = train_tokenizer_vocab (j->opts->tokenizer);
    if (r->end >= r->vocab) /* of bytes */
        r->vocab = r->end + 1;
    TRY (name_files (j, err));
    for (size_t i = 0; i < n; i++)
        TRY (add (j, i, err));
    finish (j);
    if (j->opts->packed)
        TRY (data_rows_pack (d, err));
    if (j->opts->held < 0 || j->opts->held >= d->n_samples)
        return err_set (
            err, TRAIN_EINVAL,
            "data: of %lld samples (%zu rows were too long) %lld cannot be "
            "held out, for none or fewer are left to train on",
            (long long)d->n_samples, j->skipped, (long long)j->opts->held);
    d->n_samples -= d->held = j->opts->held;
    if (d->held > 0)
        d->hash = XXH3_64bits_withSeed (&d->held, sizeof (d->held), d->hash);
    return TRAIN_OK;
}

train_status_t train_data_of_prompts (const train_rows_options_t *opts,
                                      const train_prompts_t *prompts,
                                      train_data_t **ret_data,
                                      size_t *ret_skipped, train_error_t *err)
{
    train_rows_options_t o;
    struct job j = {.opts = &o, .prompts = prompts};
    train_status_t status;

    if (!opts || !prompts || !ret_data)
        return err_set (err, TRAIN_EINVAL,
                        "rows: options, prompts or ret_data are missing");
    TRY (opts_read (&o, sizeof (o), opts, "rows", err));
    if (o.seq < 1 || o.seq > 1 << 24)
        return err_set (err, TRAIN_EINVAL,
                        "rows: seq %d is not within 1 and %d", o.seq, 1 << 24);
    if (!o.tokenizer || o.too_long < 0 || o.too_long > TRAIN_ROWS_CUT)
        return err_set (err, TRAIN_EINVAL,
                        "rows: tokenizer is not set, or too_long is no choice");
    if (!(j.d = calloc (1, sizeof (*j.d))))
        return no_memory (err);
    j.d->seq = o.seq;
    j.d->shuffle = o.shuffle;
    j.d->seed = o.seed;
    if ((status = fill (&j, err)) != TRAIN_OK) {
        train_data_close (j.d);
        return status;
    }
    *ret_data = j.d;
    if (ret_skipped)
        *ret_skipped = j.skipped;
    return TRAIN_OK;
}
