/* SPDX-License-Identifier: Apache-2.0
 * trainer_source.c - where passes come from: data, or whoever made the trainer */
#include "trainer.h"

#include "err.h"

train_status_t train_trainer_create (const train_trainer_options_t *opts,
                                     train_group_t *group,
                                     const train_data_t *data,
                                     train_decoder_t *decoder,
                                     train_trainer_t **ret_trainer,
                                     train_error_t *err)
{
    return trainer_create (opts, group, data, NULL, decoder, ret_trainer, err);
}

struct trainer_source trainer_source_of (const train_trainer_t *t)
{
    if (!t->data)
        return t->source;
    return (struct trainer_source){
        .seq = train_data_seq (t->data),
        .shuffle = train_data_shuffle (t->data),
        .seed = train_data_seed (t->data),
        .hash = train_data_hash (t->data),
        .hashed = "the text, and of what is held out,",
    };
}

train_status_t trainer_ask (train_trainer_t *t, int p, int *ret_rows,
                            int64_t *counted, train_error_t *err)
{
    int row = p * t->pass;
    int rows = t->rows - row < t->pass ? t->rows - row : t->pass;

    *ret_rows = rows;
    if (rows <= 0)
        return TRAIN_OK;
    return t->source.pass (t->source.arg, t->first + row, rows,
                           trainer_loss_scale (t), counted, err);
}
