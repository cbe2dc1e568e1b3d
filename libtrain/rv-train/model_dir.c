/* SPDX-License-Identifier: Apache-2.0
 * model_dir.c - the model that a run begins with: a folder of Hugging Face's
 * files, a checkpoint, or sizes and weights that are drawn */
#include "model_dir.h"

#include <stdlib.h>
#include <string.h>

#include <train/hf.h>

#include "libtrain/err.h"

/* Bytes and an end, and what pads a table of them. */
#define BYTES_MOST 512

bool model_of_bytes (int vocab)
{
    return vocab <= BYTES_MOST;
}

train_status_t model_named (const struct settings *set, train_status_t status,
                            train_error_t *err)
{
    char where[256];

    if (status != TRAIN_OK)
        err_prefix (
            err, status, "%s",
            settings_where (set, "model", "dir", where, sizeof (where)));
    return status;
}

/* A checkpoint's folder holds such files as well, where one rank had all. */
static train_status_t find (const char *where, char **ret, train_error_t *err)
{
    TRY (model_find (where, ret, err));
    if (!model_has (*ret, "checkpoint.json")
        || model_has (*ret, "model.safetensors"))
        return TRAIN_OK;
    return err_set (err, TRAIN_ENOTSUP,
                    "%s was written in parts; rv-train export %s DIR makes a "
                    "folder of it that works",
                    *ret, *ret);
}

train_status_t model_choose (const struct settings *set, char **ret_dir,
                             train_error_t *err)
{
    char *dir = NULL;
    train_status_t status;

    *ret_dir = NULL;
    if (!set->model_dir)
        return TRAIN_OK;
    if ((status = find (set->model_dir, &dir, err)) != TRAIN_OK) {
        free (dir);
        return model_named (set, status, err);
    }
    *ret_dir = dir;
    return TRAIN_OK;
}

train_status_t model_describe (const struct settings *set, const char *dir,
                               train_decoder_config_t *ret_config,
                               train_error_t *err)
{
    train_decoder_config_t config = settings_decoder (set);
    train_hf_model_t model = {.size = sizeof (model)};

    if (dir) {
        TRY (model_named (set, train_hf_describe (dir, &model, err), err));
        model.decoder.dtype = config.dtype;
        model.decoder.device = config.device;
        model.decoder.deterministic = config.deterministic;
        model.decoder.recompute = config.recompute;
        model.decoder.lora = config.lora;
        model.decoder.buffer = config.buffer;
        config = model.decoder;
    }
    *ret_config = config;
    return TRAIN_OK;
}

train_status_t model_create (const struct settings *set,
                             const train_decoder_config_t *config,
                             const char *dir, train_decoder_t **ret,
                             train_error_t *err)
{
    TRY (train_decoder_create (config, ret, err));
    if (dir)
        return model_named (set, train_hf_load (dir, *ret, err), err);
    return train_decoder_draw (*ret, (uint64_t)set->seed, err);
}

train_status_t model_fits (const struct settings *set,
                           const train_decoder_config_t *config, int64_t need,
                           bool text, train_error_t *err)
{
    char where[256];

    if (config->vocab < need)
        return err_set (err, TRAIN_EINVAL,
                        "%s: %d is below %lld, the vocabulary of the data",
                        settings_where (set, "model",
                                        set->model_dir ? "dir" : "vocab", where,
                                        sizeof (where)),
                        config->vocab, (long long)need);
    if (!text || !set->model_dir || !set->tokenizer_follows
        || strcmp (set->tokenizer, "bytes") != 0
        || model_of_bytes (config->vocab))
        return TRAIN_OK;
    return err_set (
        err, TRAIN_EINVAL,
        "%s: is not set, %s has no tokenizer.json, and its vocabulary of %d is "
        "not that of bytes; name a tokenizer, or bytes if they are meant",
        settings_where (set, "data", "tokenizer", where, sizeof (where)),
        set->model_dir, config->vocab);
}
