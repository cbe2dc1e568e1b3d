/* SPDX-License-Identifier: Apache-2.0
 * grpo_model.c - the policy that GRPO begins with: a folder of Hugging Face's
 * files, a checkpoint, or weights that are drawn */
#include "grpo_model.h"

#include <stdio.h>
#include <stdlib.h>
#include <unistd.h>

#include <train/ckpt_pieces.h>
#include <train/hf.h>

#include "libtrain/err.h"

static bool has (const char *dir, const char *name)
{
    char path[4096];
    int n = snprintf (path, sizeof (path), "%s/%s", dir, name);

    return n > 0 && (size_t)n < sizeof (path) && access (path, F_OK) == 0;
}

/* A checkpoint's folder holds such files as well. */
static train_status_t read_folder (const char *dir,
                                   const train_decoder_config_t *like,
                                   train_decoder_t **ret, train_error_t *err)
{
    train_hf_model_t model = {.size = sizeof (model)};

    TRY (train_hf_describe (dir, &model, err));
    model.decoder.dtype = like->dtype;
    model.decoder.device = like->device;
    model.decoder.deterministic = like->deterministic;
    TRY (train_decoder_create (&model.decoder, ret, err));
    return train_hf_load (dir, *ret, err);
}

static train_status_t read_model (const char *where,
                                  const train_decoder_config_t *like,
                                  train_decoder_t **ret, train_error_t *err)
{
    char *dir = NULL;
    train_status_t status;

    if (has (where, "config.json"))
        return read_folder (where, like, ret, err);
    TRY (train_ckpt_find (where, &dir, err));
    status = read_folder (dir, like, ret, err);
    free (dir);
    return status;
}

train_status_t grpo_model_open (const struct settings *set,
                                const train_decoder_config_t *config,
                                train_decoder_t **ret, train_error_t *err)
{
    train_status_t status;
    char where[256];

    if (!set->model_dir) {
        TRY (train_decoder_create (config, ret, err));
        return train_decoder_draw (*ret, (uint64_t)set->seed, err);
    }
    status = read_model (set->model_dir, config, ret, err);
    if (status != TRAIN_OK)
        err_prefix (
            err, status, "%s",
            settings_where (set, "model", "dir", where, sizeof (where)));
    return status;
}
