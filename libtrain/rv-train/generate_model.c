/* SPDX-License-Identifier: Apache-2.0
 * generate_model.c - the weights that rv-train generate continues with */
#include "config.h"

#include "generate_cmd.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include <train/ckpt_pieces.h>
#include <train/hf.h>

#include "libtrain/ckpt_meta.h"
#include "libtrain/decoder_impl.h"
#include "libtrain/err.h"
#include "model_dir.h"

static train_status_t create (const char *dir, train_dtype_t dtype, bool cuda,
                              const train_lora_t *lora, train_decoder_t **ret,
                              train_error_t *err)
{
    train_hf_model_t model = {.size = sizeof (model)};

    TRY (train_hf_describe (dir, &model, err));
    model.decoder.dtype = dtype;
    if (lora)
        model.decoder.lora = *lora;
    if (cuda)
        model.decoder.device = (DLDevice){kDLCUDA, 0};
    return train_decoder_create (&model.decoder, ret, err);
}

/* Every parameter of [m] as a piece whose bytes go to [arena]. */
static train_ckpt_piece_t *pieces_of (const train_decoder_t *m, char *arena)
{
    size_t n = train_decoder_n_params (m);
    train_ckpt_piece_t *piece = calloc (n, sizeof (*piece));

    for (size_t i = 0; piece && i < n; i++) {
        const train_param_t *p = train_decoder_param (m, i);

        piece[i] = (train_ckpt_piece_t){
            .name = p->name,
            .dtype = m->config.dtype,
            .ndim = p->ndim,
            .count = (int64_t)p->count,
            .data = arena + p->offset * m->kern->elem_size,
        };
        memcpy (piece[i].shape, p->shape, sizeof (p->shape));
    }
    return piece;
}

/* By way of the host's memory, whatever ranks wrote it. */
static train_status_t read_weights (train_ckpt_t *ckpt, train_decoder_t *m,
                                    train_error_t *err)
{
    size_t bytes = m->numel * m->kern->elem_size;
    char *arena = malloc (bytes);
    train_ckpt_piece_t *piece = arena ? pieces_of (m, arena) : NULL;
    train_status_t status;

    if (!piece)
        status = err_set (err, TRAIN_ENOMEM, "no memory for the weights");
    else
        status = train_ckpt_read (ckpt, piece, m->n_params, err);
    if (status == TRAIN_OK)
        status = m->ops->copy (m->weights.t.data, arena, bytes, m->stream, err);
    if (status == TRAIN_OK)
        status = m->ops->sync (m->stream, err);
    free (piece);
    free (arena);
    return status;
}

static train_status_t dtype_there (train_ckpt_t *ckpt, train_dtype_t *ret,
                                   train_error_t *err)
{
    train_ckpt_piece_t piece;

    for (size_t i = 0; i < train_ckpt_n_tensors (ckpt); i++) {
        TRY (train_ckpt_tensor (ckpt, i, &piece, NULL, err));
        if (strcmp (piece.name, "model.embed_tokens.weight") == 0) {
            *ret = piece.dtype;
            return TRAIN_OK;
        }
    }
    return err_set (err, TRAIN_EFORMAT,
                    "it has no tensor model.embed_tokens.weight");
}

/* The adapters that the checkpoint has; zeros: none. */
static train_status_t adapters_there (const train_ckpt_t *ckpt,
                                      train_lora_t *ret, train_error_t *err)
{
    train_decoder_config_t config;
    train_ckpt_state_t state;

    TRY (ckpt_meta_read (ckpt, &state, &config, err));
    *ret = config.lora;
    return TRAIN_OK;
}

static train_status_t open_ckpt (const char *path, bool cuda,
                                 train_decoder_t **ret, train_error_t *err)
{
    train_ckpt_t *ckpt = NULL;
    train_dtype_t dtype = TRAIN_F32;
    train_lora_t lora = {0};
    train_status_t status = train_ckpt_open (path, &ckpt, err);

    if (status == TRAIN_OK)
        status = adapters_there (ckpt, &lora, err);
    if (status == TRAIN_OK)
        status = dtype_there (ckpt, &dtype, err);
    if (status == TRAIN_OK)
        status = create (path, dtype, cuda, &lora, ret, err);
    if (status == TRAIN_OK)
        status = read_weights (ckpt, *ret, err);
    if (status == TRAIN_OK)
        status = train_decoder_merge (*ret, err);
    train_ckpt_close (ckpt);
    return status;
}

train_status_t generate_model (const char *where, train_dtype_t dtype,
                               bool cuda, train_decoder_t **ret, char **ret_dir,
                               train_error_t *err)
{
    TRY (model_find (where, ret_dir, err));
    if (!model_has (*ret_dir, "checkpoint.json")) {
        TRY (create (where, dtype == TRAIN_N_DTYPES ? TRAIN_F32 : dtype, cuda,
                     NULL, ret, err));
        return train_hf_load (where, *ret, err);
    }
    if (dtype == TRAIN_N_DTYPES)
        return open_ckpt (*ret_dir, cuda, ret, err);
    return err_set (err, TRAIN_EINVAL,
                    "--dtype is of a directory's weights: checkpoint %s keeps "
                    "its own; rv-train export --dtype makes a directory",
                    *ret_dir);
}
