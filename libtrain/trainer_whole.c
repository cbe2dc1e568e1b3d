/* SPDX-License-Identifier: Apache-2.0
 * trainer_whole.c - a model that rank 0 has whole while a file is written or
 * read */
#include "trainer.h"

#include <stdlib.h>

#include "err.h"

static train_status_t make (const train_trainer_t *t, struct trainer_whole *w,
                            train_error_t *err)
{
    train_decoder_config_t c = *train_decoder_config (t->decoder);
    size_t n = train_decoder_n_params (t->decoder);
    train_param_t *params;
    train_status_t status;

    c.dtype = fsdp_real (t->fsdp);
    TRY (train_decoder_create (&c, &w->decoder, err));
    if (!(params = calloc (n, sizeof (*params))))
        return err_set (err, TRAIN_ENOMEM, "no memory for %zu parameters", n);
    for (size_t i = 0; i < n; i++)
        params[i] = *train_decoder_param (w->decoder, i);
    status = train_adamw_create (&t->opts.adamw, c.dtype,
                                 train_decoder_numel (w->decoder), params, n,
                                 &w->adamw, err);
    free (params);
    return status;
}

train_status_t trainer_whole_open (train_trainer_t *t,
                                   struct trainer_whole *ret,
                                   train_error_t *err)
{
    train_status_t status = TRAIN_OK;

    *ret = (struct trainer_whole){.borrowed = fsdp_is_plain (t->fsdp)};
    if (ret->borrowed) {
        ret->decoder = t->decoder;
        ret->adamw = t->adamw;
        return TRAIN_OK;
    }
    if (train_group_rank (t->group) == 0
        && (status = make (t, ret, err)) != TRAIN_OK)
        trainer_whole_close (ret);
    return trainer_agree (t->group, status, err);
}

void trainer_whole_close (struct trainer_whole *w)
{
    if (!w->borrowed) {
        train_adamw_destroy (w->adamw);
        train_decoder_destroy (w->decoder);
    }
    *w = (struct trainer_whole){0};
}

struct pair {
    DLTensor *shard, *whole;
};

static void list_pairs (train_trainer_t *t, const struct trainer_whole *w,
                        struct pair pair[3])
{
    pair[0].shard = fsdp_weights (t->fsdp);
    pair[1].shard = train_adamw_m (t->adamw);
    pair[2].shard = train_adamw_v (t->adamw);
    pair[0].whole = w->decoder ? train_decoder_weights (w->decoder) : NULL;
    pair[1].whole = w->adamw ? train_adamw_m (w->adamw) : NULL;
    pair[2].whole = w->adamw ? train_adamw_v (w->adamw) : NULL;
}

train_status_t trainer_whole_fill (train_trainer_t *t, struct trainer_whole *w,
                                   train_error_t *err)
{
    struct pair pair[3];

    list_pairs (t, w, pair);
    for (int i = 0; i < 3; i++)
        TRY (fsdp_give (t->fsdp, pair[i].shard, pair[i].whole, 0, err));
    if (w->adamw)
        train_adamw_set_updates (w->adamw, train_adamw_updates (t->adamw));
    return TRAIN_OK;
}

train_status_t trainer_whole_spread (train_trainer_t *t,
                                     struct trainer_whole *w,
                                     train_error_t *err)
{
    struct pair pair[3];

    list_pairs (t, w, pair);
    for (int i = 0; i < 3; i++)
        TRY (fsdp_take (t->fsdp, pair[i].shard, pair[i].whole, 0, err));
    fsdp_updated (t->fsdp);
    return TRAIN_OK;
}
