/* SPDX-License-Identifier: Apache-2.0
 * trainer_rows.c - what a pass of a step takes: samples, their documents, what is
 * dropped, and the weight of a token */
#include "trainer.h"

#include "data_impl.h"
#include "err.h"

train_status_t trainer_take_rows (train_trainer_t *t, int p, int *ret_rows,
                                  train_error_t *err)
{
    int seq = train_data_seq (t->data), row = p * t->pass;
    int rows = t->rows - row < t->pass ? t->rows - row : t->pass;
    int64_t base = t->step * t->opts.batch + t->first + row;

    for (int i = 0; i < rows; i++) {
        size_t at = (size_t)i * (size_t)seq;

        train_data_get (t->data, base + i, t->tokens + at, t->targets + at);
        TRY (data_check (t->data, base + i, t->tokens + at, t->targets + at,
                         err));
        if (t->starts)
            train_data_starts_at (t->data, base + i, t->tokens + at,
                                  t->starts + at);
    }
    train_decoder_documents (t->decoder, t->starts);
    if (rows > 0 && t->opts.dropout > 0) /* create has checked it */
        (void)train_decoder_dropout (t->decoder, t->opts.dropout,
                                     train_data_seed (t->data),
                                     (uint64_t)t->step, t->first + row, NULL);
    *ret_rows = rows;
    return TRAIN_OK;
}

double trainer_token_scale (train_trainer_t *t)
{
    int64_t first = t->step * t->opts.batch;

    if (t->counted_from != first || t->counted == 0) {
        t->counted = train_data_counted (t->data, first, t->opts.batch);
        t->counted_from = first;
    }
    return trainer_loss_scale (t) / (double)(t->counted > 0 ? t->counted : 1);
}
