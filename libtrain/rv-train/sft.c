/* SPDX-License-Identifier: Apache-2.0
 * sft.c - the data of task = sft */
#include "sft.h"

#include <stdio.h>
#include <string.h>

#include "libtrain/err.h"

static train_status_t make_rows (const struct settings *set, bool shuffle,
                                 int64_t held, const train_prompts_t *prompts,
                                 train_tokenizer_t *tokenizer, bool say,
                                 train_data_t **ret_data, train_error_t *err)
{
    train_rows_options_t o = {
        .size = sizeof (o),
        .seq = (int)set->seq,
        .shuffle = shuffle,
        .seed = (uint64_t)set->seed,
        .held = held,
        .too_long = (train_rows_long_t)set->rows.too_long,
        .tokenizer = tokenizer,
        .packed = set->rows.packed,
    };
    size_t skipped;

    TRY (train_data_of_prompts (&o, prompts, ret_data, &skipped, err));
    if (say && skipped > 0)
        fprintf (stderr,
                 "rv-train: %zu of %zu rows are longer than a sample of %d "
                 "tokens and left out\n",
                 skipped, train_prompts_count (prompts), o.seq);
    return TRAIN_OK;
}

train_status_t sft_open (const struct settings *set, const char *section,
                         const char *files, int64_t held, bool say,
                         train_data_t **ret_data, train_error_t *err)
{
    bool shuffle = set->shuffle && strcmp (section, "data") == 0;
    train_tokenizer_t *tokenizer = NULL;
    train_prompts_t *prompts = NULL;
    train_status_t status;
    char where[256];

    status = train_tokenizer_open (set->tokenizer, &tokenizer, err);
    if (status != TRAIN_OK)
        return err_prefix (
            err, status, "%s",
            settings_where (set, "data", "tokenizer", where, sizeof (where)));
    status = settings_rows_open (set, section, files, tokenizer, &prompts, err);
    if (status == TRAIN_OK) {
        status = make_rows (set, shuffle, held, prompts, tokenizer, say,
                            ret_data, err);
        if (status != TRAIN_OK)
            err_prefix (
                err, status, "%s",
                settings_where (set, section, "files", where, sizeof (where)));
    }
    train_prompts_close (prompts);
    train_tokenizer_close (tokenizer);
    return status;
}
