/* SPDX-License-Identifier: Apache-2.0
 * trainer_init.c - the weights that a trainer begins with: drawn, or those of a
 * Hugging Face directory */
#include "decoder_impl.h"
#include "err.h"
#include "hf_impl.h"
#include "trainer.h"

/* Initial weights pass through libm, which another node may have newer. */
train_status_t trainer_same_weights (train_trainer_t *t, train_error_t *err)
{
    DLTensor *masters = train_adamw_masters (t->adamw);

    if (t->gpu || fsdp_is_sharded (t->fsdp))
        return TRAIN_OK;
    TRY (fsdp_settle (t->fsdp, err));
    TRY (trainer_shard_spread (t, fsdp_weights (t->fsdp), err));
    if (masters)
        TRY (trainer_shard_spread (t, masters, err));
    return trainer_updated (t, err);
}

static train_status_t begin (train_trainer_t *t,
                             const train_safetensors_t *files, uint64_t seed,
                             train_error_t *err)
{
    if (t->gpu)
        return trainer_gpu_init (t, files, seed, err);
    TRY (fsdp_init_decoder (t->fsdp, t->decoder, files, seed, t->adamw, err));
    TRY (trainer_updated (t, err));
    return trainer_same_weights (t, err);
}

train_status_t train_trainer_init (train_trainer_t *t, uint64_t seed,
                                   train_error_t *err)
{
    return begin (t, NULL, seed, err);
}

train_status_t train_trainer_init_hf (train_trainer_t *t, const char *dir,
                                      uint64_t seed, train_error_t *err)
{
    train_safetensors_t *files = NULL;
    train_status_t status =
        dir && *dir ? hf_open (dir, t->decoder, &files, err)
                    : err_set (err, TRAIN_EINVAL, "model: dir is missing");

    status = trainer_agree (t->group, status, err);
    if (status == TRAIN_OK)
        status = begin (t, files, seed, err);
    train_safetensors_close (files);
    return status;
}
