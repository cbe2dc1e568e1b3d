/* SPDX-License-Identifier: Apache-2.0
 * ckpt.c - write and read the files of one checkpoint
 *
 * Folders, names and the order of renames are ckpt_dir.c's. */
#include <train/ckpt.h>

#include <stdio.h>
#include <errno.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include <train/safetensors.h>

#include "ckpt_dir.h"
#include "ckpt_meta.h"
#include "err.h"
#include "opts.h"
#include "plan/fsio.h"

/* The tensors of a run: weights, then m and v of each. */
struct tensors {
    train_st_entry_t *entry; /* (3n) */
    char **name; /* (2n) of the moments; the weights' are borrowed */
    size_t n;
};

static void tensors_fini (struct tensors *t)
{
    for (size_t i = 0; t->name && i < 2 * t->n; i++)
        free (t->name[i]);
    free (t->name);
    free (t->entry);
}

/* A malloc'ed "PREFIX.NAME". */
static char *dotted (char prefix, const char *name)
{
    size_t size = strlen (name) + 3;
    char *s = malloc (size);

    if (s)
        snprintf (s, size, "%c.%s", prefix, name);
    return s;
}

static void put_entry (train_st_entry_t *e, const char *name,
                       const train_param_t *p, train_dtype_t dtype,
                       const DLTensor *arena)
{
    size_t bytes = train_dtype_size (dtype);

    *e = (train_st_entry_t){
        .name = name,
        .dtype = dtype,
        .ndim = p->ndim,
        .data = (char *)arena->data + arena->byte_offset + p->offset * bytes,
        .bytes = p->count * bytes,
    };
    memcpy (e->shape, p->shape, sizeof (p->shape));
}

static train_status_t tensors_init (struct tensors *t, train_decoder_t *d,
                                    train_adamw_t *a, train_error_t *err)
{
    size_t n = train_decoder_n_params (d);
    train_dtype_t dtype = train_decoder_config (d)->dtype;

    t->n = n;
    t->entry = calloc (3 * n + 1, sizeof (*t->entry));
    t->name = calloc (2 * n + 1, sizeof (*t->name));
    if (!t->entry || !t->name)
        return err_set (err, TRAIN_ENOMEM, "no memory for a list of tensors");
    for (size_t i = 0; i < n; i++) {
        const train_param_t *p = train_decoder_param (d, i);

        t->name[i] = dotted ('m', p->name);
        t->name[n + i] = dotted ('v', p->name);
        if (!t->name[i] || !t->name[n + i])
            return err_set (err, TRAIN_ENOMEM, "no memory for a name");
        put_entry (&t->entry[i], p->name, p, dtype, train_decoder_weights (d));
        put_entry (&t->entry[n + i], t->name[i], p, dtype, train_adamw_m (a));
        put_entry (&t->entry[2 * n + i], t->name[n + i], p, dtype,
                   train_adamw_v (a));
    }
    return TRAIN_OK;
}

/* Hugging Face's description, so that its tools read the weights. */
static train_status_t write_config (const char *path,
                                    const train_decoder_config_t *c,
                                    int64_t seq, train_error_t *err)
{
    char text[1024];
    struct rv_error e = {0};
    int n = snprintf (
        text, sizeof (text),
        "{\n  \"architectures\": [\"LlamaForCausalLM\"],\n"
        "  \"model_type\": \"llama\",\n  \"hidden_act\": \"silu\",\n"
        "  \"attention_bias\": false,\n  \"mlp_bias\": false,\n"
        "  \"hidden_size\": %d,\n  \"num_hidden_layers\": %d,\n"
        "  \"num_attention_heads\": %d,\n  \"num_key_value_heads\": %d,\n"
        "  \"intermediate_size\": %d,\n  \"vocab_size\": %d,\n"
        "  \"max_position_embeddings\": %lld,\n  \"rope_theta\": %.17g,\n"
        "  \"rms_norm_eps\": %.17g,\n  \"tie_word_embeddings\": %s,\n"
        "  \"bos_token_id\": null,\n  \"eos_token_id\": null,\n"
        "  \"torch_dtype\": \"%s\"\n}\n",
        c->dim, c->layers, c->heads, c->kv_heads, c->ffn, c->vocab,
        (long long)seq, c->rope_theta, c->norm_eps, c->tie ? "true" : "false",
        c->dtype == TRAIN_F64 ? "float64" : "float32");

    if (fsio_write (path, text, (size_t)n, 0666, &e) != RV_OK)
        return err_from (err, &e);
    return TRAIN_OK;
}

static train_status_t write_optim (const char *path, const struct tensors *t,
                                   const train_ckpt_state_t *state,
                                   const train_decoder_config_t *config,
                                   train_error_t *err)
{
    struct ckpt_meta meta = {0};
    train_status_t status = ckpt_meta_write (&meta, state, config, err);

    if (status == TRAIN_OK)
        status = ckpt_meta_tensors (&meta, t->entry, 3 * t->n, err);
    if (status == TRAIN_OK)
        status = ckpt_meta_seal (&meta, err);
    if (status == TRAIN_OK)
        status = train_safetensors_write (path, t->entry + t->n, 2 * t->n,
                                          meta.item, meta.n, err);
    ckpt_meta_fini (&meta);
    return status;
}

/* The three paths of a checkpoint's files. */
struct paths {
    char *model, *optim, *config;
};

static void paths_fini (struct paths *p)
{
    free (p->model);
    free (p->optim);
    free (p->config);
}

static train_status_t paths_init (struct paths *p, const char *dir,
                                  train_error_t *err)
{
    p->model = fsio_join (dir, "model.safetensors");
    p->optim = fsio_join (dir, "optim.safetensors");
    p->config = fsio_join (dir, "config.json");
    if (!p->model || !p->optim || !p->config)
        return err_set (err, TRAIN_ENOMEM, "no memory for a path");
    return TRAIN_OK;
}

static train_status_t write_files (const char *dir,
                                   const train_ckpt_state_t *state,
                                   train_decoder_t *d, train_adamw_t *a,
                                   train_error_t *err)
{
    /* transformers wants to know who wrote the tensors' layout */
    static const train_st_meta_t format = {"format", "pt"};
    const train_decoder_config_t *config = train_decoder_config (d);
    struct tensors t = {0};
    struct paths p = {0};
    train_status_t status = tensors_init (&t, d, a, err);

    if (status == TRAIN_OK)
        status = paths_init (&p, dir, err);
    if (status == TRAIN_OK)
        status =
            train_safetensors_write (p.model, t.entry, t.n, &format, 1, err);
    if (status == TRAIN_OK)
        status = write_optim (p.optim, &t, state, config, err);
    if (status == TRAIN_OK)
        status = write_config (p.config, config, state->seq, err);
    paths_fini (&p);
    tensors_fini (&t);
    return status;
}

train_status_t train_ckpt_prepare (const char *dir, train_error_t *err)
{
    char *temp = NULL;
    train_status_t status;

    if (!dir || !*dir)
        return err_set (err, TRAIN_EINVAL, "checkpoint: dir is missing");
    if ((status = ckpt_dir_begin (dir, 0, &temp, err)) != TRAIN_OK)
        return status;
    if (rmdir (temp) < 0)
        status = err_set (err, TRAIN_EIO, "%s: %s", temp, strerror (errno));
    free (temp);
    return status;
}

/* A checkpoint has no words for these yet, and none may be lost. */
static train_status_t check_plain (const train_decoder_config_t *c,
                                   train_error_t *err)
{
    if (c->device.device_type == kDLCUDA)
        return err_set (err, TRAIN_ENOTSUP,
                        "checkpoint: decoders on a GPU are not served yet");
    if (!c->qkv_bias && !c->qk_norm && c->head_dim * c->heads == c->dim
        && c->rope.kind == TRAIN_ROPE_DEFAULT)
        return TRAIN_OK;
    return err_set (err, TRAIN_ENOTSUP,
                    "checkpoint: models with qkv_bias, qk_norm, a head_dim of "
                    "their own or scaled rope are not served yet");
}

train_status_t train_ckpt_save (const char *dir,
                                const train_ckpt_state_t *state,
                                train_decoder_t *decoder, train_adamw_t *adamw,
                                int keep, train_error_t *err)
{
    train_ckpt_state_t own;
    char *temp = NULL;
    train_status_t status;

    if (!dir || !*dir || !state || !decoder || !adamw)
        return err_set (err, TRAIN_EINVAL,
                        "checkpoint: dir, state, decoder or adamw is missing");
    TRY (opts_read (&own, sizeof (own), state, "checkpoint", err));
    state = &own;
    if (keep < 1)
        return err_set (err, TRAIN_EINVAL, "checkpoint: keep %d is below 1",
                        keep);
    if (state->step < 0)
        return err_set (err, TRAIN_EINVAL, "checkpoint: step %lld is below 0",
                        (long long)state->step);
    status = check_plain (train_decoder_config (decoder), err);
    if (status == TRAIN_OK)
        status = ckpt_dir_begin (dir, state->step, &temp, err);
    if (status == TRAIN_OK)
        status = write_files (temp, state, decoder, adamw, err);
    if (status == TRAIN_OK)
        status = ckpt_dir_commit (dir, state->step, temp, keep, err);
    if (status != TRAIN_OK && temp)
        fsio_remove_tree (temp, NULL);
    free (temp);
    return status;
}

static train_status_t check_shape (const train_safetensors_t *file,
                                   const train_st_entry_t *want,
                                   const train_st_entry_t **ret,
                                   train_error_t *err)
{
    const train_st_entry_t *e = train_safetensors_find (file, want->name);

    if (!e)
        return err_set (err, TRAIN_EFORMAT, "there is no tensor '%s'",
                        want->name);
    if (e->dtype != want->dtype || e->ndim != want->ndim
        || memcmp (e->shape, want->shape,
                   (size_t)want->ndim * sizeof (*want->shape))
               != 0)
        return err_set (err, TRAIN_EFORMAT,
                        "tensor '%s' has another dtype or shape than its model",
                        want->name);
    *ret = e;
    return TRAIN_OK;
}

/* Check every tensor first, then copy: a failure changes nothing. */
static train_status_t fill (const struct tensors *t,
                            const train_safetensors_t *model,
                            const train_safetensors_t *optim,
                            train_error_t *err)
{
    size_t n = 3 * t->n;
    const train_st_entry_t **from = calloc (n + 1, sizeof (*from));
    train_status_t status = TRAIN_OK;

    if (!from)
        return err_set (err, TRAIN_ENOMEM, "no memory for a list of tensors");
    for (size_t i = 0; i < n && status == TRAIN_OK; i++)
        status =
            check_shape (i < t->n ? model : optim, &t->entry[i], &from[i], err);
    if (status == TRAIN_OK
        && train_safetensors_count (model) + train_safetensors_count (optim)
               != n)
        status = err_set (err, TRAIN_EFORMAT,
                          "there are more tensors than the model has");
    for (size_t i = 0; i < n && status == TRAIN_OK; i++)
        memcpy ((void *)t->entry[i].data, from[i]->data, from[i]->bytes);
    free (from);
    return status;
}

static train_status_t load_open (const train_safetensors_t *model,
                                 const train_safetensors_t *optim,
                                 train_decoder_t *d, train_adamw_t *a,
                                 train_ckpt_state_t *ret_state,
                                 train_error_t *err)
{
    train_decoder_config_t there;
    train_ckpt_state_t state;
    struct tensors t = {0};
    train_status_t status = ckpt_meta_check (optim, model, err);

    if (status == TRAIN_OK)
        status = ckpt_meta_read (optim, &state, &there, err);
    if (status == TRAIN_OK)
        status = ckpt_meta_same_model (&there, train_decoder_config (d), err);
    if (status == TRAIN_OK)
        status = tensors_init (&t, d, a, err);
    if (status == TRAIN_OK)
        status = fill (&t, model, optim, err);
    tensors_fini (&t);
    if (status != TRAIN_OK)
        return status;
    train_adamw_set_updates (a, state.updates);
    *ret_state = state;
    return TRAIN_OK;
}

train_status_t train_ckpt_load (const char *path, train_decoder_t *decoder,
                                train_adamw_t *adamw,
                                train_ckpt_state_t *ret_state,
                                train_error_t *err)
{
    train_safetensors_t *model = NULL, *optim = NULL;
    struct paths p = {0};
    train_status_t status;

    if (!path || !decoder || !adamw || !ret_state)
        return err_set (
            err, TRAIN_EINVAL,
            "checkpoint: path, decoder, adamw or ret_state is NULL");
    if ((status = check_plain (train_decoder_config (decoder), err))
        != TRAIN_OK)
        return status;
    if ((status = paths_init (&p, path, err)) == TRAIN_OK)
        status = train_safetensors_open (p.optim, &optim, err);
    if (status == TRAIN_OK)
        status = train_safetensors_open (p.model, &model, err);
    if (status == TRAIN_OK
        && (status = load_open (model, optim, decoder, adamw, ret_state, err))
               != TRAIN_OK)
        err_prefix (err, status, "checkpoint %s", path);
    train_safetensors_close (model);
    train_safetensors_close (optim);
    paths_fini (&p);
    return status;
}
