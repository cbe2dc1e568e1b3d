/* SPDX-License-Identifier: Apache-2.0
 * export_cmd.c - rv-train export: a checkpoint to a Hugging Face directory
 *
 * Whatever ranks and strategy wrote it, its tensors have the names and shapes
 * of the decoder's, and its config.json lies beside them. */
#include "config.h"

#include "export_cmd.h"
#include "export_files.h"

#include <errno.h>
#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>

#include <train/ckpt_pieces.h>
#include <train/decoder.h>
#include <train/hf.h>

#include "libtrain/ckpt_meta.h"
#include "libtrain/err.h"

struct export
{
    const char *from, *to;
    const char *tokenizer; /* directory; NULL: none is copied */
    const char *base;      /* the model that the run began with; NULL: unsaid */
    train_dtype_t dtype;   /* of the files; TRAIN_N_DTYPES: as stored */
    bool adapter;          /* adapters alone, as PEFT keeps them */
    size_t max_bytes;      /* of a file; 0: the library's */
    struct export_end end; /* by the tokenizer */
};

static train_status_t read_type (const char *text, train_dtype_t *ret,
                                 train_error_t *err)
{
    static const struct {
        const char *name;
        train_dtype_t dtype;
    } type[] = {{"fp32", TRAIN_F32},
                {"fp64", TRAIN_F64},
                {"bf16", TRAIN_BF16},
                {"fp16", TRAIN_F16}};

    for (size_t i = 0; i < sizeof (type) / sizeof (*type); i++)
        if (strcmp (text, type[i].name) == 0) {
            *ret = type[i].dtype;
            return TRAIN_OK;
        }
    return err_set (err, TRAIN_EINVAL,
                    "--dtype '%s': fp32, fp64, bf16 and fp16 work", text);
}

static train_status_t read_bytes (const char *text, size_t *ret,
                                  train_error_t *err)
{
    unsigned long long n;
    char *end;

    errno = 0;
    n = strtoull (text, &end, 10);
    if (errno || *end || *text < '0' || *text > '9' || n == 0)
        return err_set (err, TRAIN_EINVAL,
                        "--max-bytes '%s': a whole number above 0 works", text);
    *ret = (size_t)n;
    return TRAIN_OK;
}

static train_status_t read_args (int argc, char *const *argv, struct export *e,
                                 train_error_t *err)
{
    const char **name[] = {&e->from, &e->to};
    size_t n = 0;

    for (int i = 0; i < argc; i++) {
        bool type = strcmp (argv[i], "--dtype") == 0;

        if (type && i + 1 < argc)
            TRY (read_type (argv[++i], &e->dtype, err));
        else if (strcmp (argv[i], "--adapter") == 0)
            e->adapter = true;
        else if (strcmp (argv[i], "--max-bytes") == 0 && i + 1 < argc)
            TRY (read_bytes (argv[++i], &e->max_bytes, err));
        else if (strcmp (argv[i], "--tokenizer") == 0 && i + 1 < argc)
            e->tokenizer = argv[++i];
        else if (strcmp (argv[i], "--base") == 0 && i + 1 < argc)
            e->base = argv[++i];
        else if (argv[i][0] != '-' && n < 2)
            *name[n++] = argv[i];
        else
            return err_set (
                err, TRAIN_EINVAL,
                "'%s' is one too many, or lacks its value: [--adapter] "
                "[--base DIR] [--dtype TYPE] [--max-bytes N] [--tokenizer DIR] "
                "CHECKPOINT DIR works",
                argv[i]);
    }
    return n == 2 ? TRAIN_OK
                  : err_set (err, TRAIN_EINVAL,
                             "it takes a checkpoint and a directory to write");
}

/* The type of the weights there, all of which have one. */
static train_status_t stored_type (const train_ckpt_t *c, const char *name,
                                   train_dtype_t *ret, train_error_t *err)
{
    for (size_t i = 0; i < train_ckpt_n_tensors (c); i++) {
        train_ckpt_piece_t p;

        TRY (train_ckpt_tensor (c, i, &p, NULL, err));
        if (strcmp (p.name, name) == 0) {
            *ret = p.dtype;
            return TRAIN_OK;
        }
    }
    return err_set (err, TRAIN_ENOTFOUND, "it has no tensor %s", name);
}

static train_status_t read_weights (train_ckpt_t *c, train_decoder_t *m,
                                    train_dtype_t dtype, train_error_t *err)
{
    size_t n = train_decoder_n_params (m);
    train_ckpt_piece_t *piece = calloc (n, sizeof (*piece));
    char *data = train_decoder_weights (m)->data;
    train_status_t status;

    if (!piece)
        return err_set (err, TRAIN_ENOMEM, "no memory for a list of tensors");
    for (size_t i = 0; i < n; i++) {
        const train_param_t *p = train_decoder_param (m, i);

        piece[i] = (train_ckpt_piece_t){
            .name = p->name,
            .dtype = dtype,
            .ndim = p->ndim,
            .count = (int64_t)p->count,
            .data = data + p->offset * train_dtype_size (dtype),
        };
        memcpy (piece[i].shape, p->shape, sizeof (p->shape));
    }
    status = train_ckpt_read (c, piece, n, err);
    free (piece);
    return status;
}

/* A decoder of the checkpoint's sizes, with its weights. */
static train_status_t load (const char *path, train_ckpt_t *c,
                            train_decoder_t **ret, train_error_t *err)
{
    train_hf_model_t model = {.size = sizeof (model)};
    train_dtype_t *dtype = &model.decoder.dtype;
    train_decoder_config_t config;
    train_ckpt_state_t state;

    TRY (train_hf_describe (path, &model, err));
    TRY (ckpt_meta_read (c, &state, &config, err));
    model.decoder.lora = config.lora;
    TRY (stored_type (c, "model.embed_tokens.weight", dtype, err));
    TRY (train_decoder_create (&model.decoder, ret, err));
    return read_weights (c, *ret, *dtype, err);
}

static train_status_t write_model (const struct export *e, const char *path,
                                   const train_ckpt_t *c, train_decoder_t *m,
                                   train_error_t *err)
{
    train_dtype_t dtype =
        e->dtype == TRAIN_N_DTYPES ? train_decoder_config (m)->dtype : e->dtype;

    if (e->adapter)
        TRY (train_hf_lora_save (e->to, e->base, m, dtype, err));
    else
        TRY (train_hf_save (e->base ? e->base : path, e->to, m, dtype,
                            e->max_bytes, err));
    printf ("%s: step %" PRId64 " of %s, %zu parameters in %s\n", e->to,
            train_ckpt_step (c), path, train_decoder_numel (m),
            train_dtype_name (dtype));
    return TRAIN_OK;
}

static train_status_t write_tokenizer (const struct export *e,
                                       train_error_t *err)
{
    size_t n;

    if (!e->tokenizer)
        return TRAIN_OK;
    TRY (export_files (e->tokenizer, e->to, &n, err));
    TRY (export_end_put (e->to, &e->end, err));
    printf ("%s: %zu file%s of the tokenizer in %s\n", e->to, n,
            n == 1 ? "" : "s", e->tokenizer);
    return TRAIN_OK;
}

/* Weights there would damage one, or hide those that a run writes next. */
static train_status_t refuse_ckpt (const char *dir, train_error_t *err)
{
    char *path = NULL;
    train_status_t found = train_ckpt_find (dir, &path, NULL);
    struct stat st;

    free (path);
    if (stat (dir, &st) == 0 && !S_ISDIR (st.st_mode))
        return err_set (err, TRAIN_EINVAL,
                        "%s is a file; a directory is made or filled", dir);
    return found == TRAIN_ENOTFOUND
               ? TRAIN_OK
               : err_set (err, TRAIN_EINVAL,
                          "%s holds checkpoints, which it would damage; "
                          "another directory works",
                          dir);
}

train_status_t export_cmd (int argc, char **argv, train_error_t *err)
{
    struct export e = {.dtype = TRAIN_N_DTYPES};
    train_decoder_t *m = NULL;
    train_ckpt_t *c = NULL;
    train_status_t status;
    char *path = NULL;

    TRY (read_args (argc, argv, &e, err));
    TRY (refuse_ckpt (e.to, err));
    if (e.tokenizer)
        TRY (export_files_check (e.tokenizer, err));
    TRY (train_ckpt_find (e.from, &path, err));
    if ((status = train_ckpt_open (path, &c, err)) == TRAIN_OK)
        status = load (path, c, &m, err);
    if (status == TRAIN_OK && e.tokenizer)
        status = export_end_find (e.tokenizer, train_decoder_config (m)->vocab,
                                  &e.end, err);
    if (status == TRAIN_OK)
        status = write_model (&e, path, c, m, err);
    if (status == TRAIN_OK)
        status = write_tokenizer (&e, err);
    train_decoder_destroy (m);
    train_ckpt_close (c);
    free (path);
    return status;
}
