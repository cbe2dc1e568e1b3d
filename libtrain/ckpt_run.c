/* SPDX-License-Identifier: Apache-2.0
 * ckpt_run.c - a decoder and its optimizer as pieces of a checkpoint */
#include "ckpt_run.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "err.h"
#include "hf_impl.h"
#include "opts.h"

void ckpt_tensors_fini (struct ckpt_tensors *t)
{
    for (size_t i = 0; t->name && i < 2 * t->n; i++)
        free (t->name[i]);
    free (t->name);
    free (t->piece);
    *t = (struct ckpt_tensors){0};
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

static train_shard_range_t range_of (const struct ckpt_run *run, size_t i)
{
    const train_param_t *p = train_decoder_param (run->decoder, i);

    if (run->plan)
        return train_shard_range (run->plan, i, run->rank);
    return (train_shard_range_t){0, p->count, p->offset};
}

static train_ckpt_piece_t piece_of (const struct ckpt_run *run, size_t i,
                                    const char *name, const DLTensor *arena,
                                    const char *file)
{
    const train_param_t *p = train_decoder_param (run->decoder, i);
    train_shard_range_t r = range_of (run, i);
    train_dtype_t dtype = TRAIN_F32;
    train_ckpt_piece_t piece;

    train_dtype_of (arena->dtype, &dtype, NULL);
    piece = (train_ckpt_piece_t){
        .name = name,
        .dtype = dtype,
        .ndim = p->ndim,
        .first = (int64_t)r.begin,
        .count = (int64_t)r.count,
        .data = (char *)arena->data + arena->byte_offset
                + r.at * train_dtype_size (dtype),
        .file = file,
    };
    memcpy (piece.shape, p->shape, sizeof (p->shape));
    return piece;
}

train_status_t ckpt_tensors_init (struct ckpt_tensors *t,
                                  const struct ckpt_run *run,
                                  train_error_t *err)
{
    size_t n = train_decoder_n_params (run->decoder);

    t->n = n;
    t->piece = calloc (3 * n + 1, sizeof (*t->piece));
    t->name = calloc (2 * n + 1, sizeof (*t->name));
    if (!t->piece || !t->name)
        return err_set (err, TRAIN_ENOMEM, "no memory for a list of tensors");
    for (size_t i = 0; i < n; i++) {
        const char *name = train_decoder_param (run->decoder, i)->name;

        t->name[i] = dotted ('m', name);
        t->name[n + i] = dotted ('v', name);
        if (!t->name[i] || !t->name[n + i])
            return err_set (err, TRAIN_ENOMEM, "no memory for a name");
        t->piece[i] = piece_of (run, i, name, run->weights, "model");
        t->piece[n + i] = piece_of (run, i, t->name[i], run->m, "optim");
        t->piece[2 * n + i] =
            piece_of (run, i, t->name[n + i], run->v, "optim");
    }
    return TRAIN_OK;
}

/* As it is in a checkpoint: of the type of the masters, where there are any. */
static train_decoder_config_t config_of (const struct ckpt_run *run)
{
    train_decoder_config_t c = *train_decoder_config (run->decoder);

    train_dtype_of (run->weights->dtype, &c.dtype, NULL);
    return c;
}

void ckpt_save_fini (struct ckpt_save *s)
{
    ckpt_tensors_fini (&s->tensors);
    free ((char *)s->config.data);
}

train_status_t ckpt_save_init (struct ckpt_save *s, const char *dir,
                               const train_ckpt_state_t *state,
                               const struct ckpt_run *run, int keep,
                               train_error_t *err)
{
    train_decoder_config_t c = config_of (run);
    train_ckpt_state_t own;
    char *text = NULL;

    if (keep < 1)
        return err_set (err, TRAIN_EINVAL, "checkpoint: keep %d is below 1",
                        keep);
    TRY (opts_read (&own, sizeof (own), state, "checkpoint", err));
    TRY (ckpt_tensors_init (&s->tensors, run, err));
    ckpt_meta_write (&s->meta, &own, &c);
    TRY (hf_config_text (&c, own.seq, &text, err));
    s->config =
        (train_ckpt_bytes_t){"config.json", text, text ? strlen (text) : 0};
    s->opts = (train_ckpt_options_t){
        .size = sizeof (s->opts),
        .dir = dir,
        .step = own.step,
        .keep = keep,
        .world = run->world,
        .strategy = run->strategy,
        .state = s->meta.item,
        .n_state = CKPT_META_ITEMS,
        .beside = &s->config,
        .n_beside = text != NULL,
    };
    return TRAIN_OK;
}

train_status_t ckpt_run_start (train_ckpt_saver_t *saver, const char *dir,
                               const train_ckpt_state_t *state,
                               const struct ckpt_run *run, int keep,
                               train_error_t *err)
{
    struct ckpt_save s = {0};
    train_status_t status = ckpt_save_init (&s, dir, state, run, keep, err);

    if (status == TRAIN_OK)
        status = train_ckpt_start (saver, s.tensors.piece, 3 * s.tensors.n,
                                   &s.opts, err);
    ckpt_save_fini (&s);
    return status;
}

static train_status_t read_open (train_ckpt_t *ckpt, const struct ckpt_run *run,
                                 train_ckpt_state_t *state, train_error_t *err)
{
    train_decoder_config_t there, here = config_of (run);
    struct ckpt_tensors t = {0};
    train_status_t status = ckpt_meta_read (ckpt, state, &there, err);

    if (status == TRAIN_OK)
        status = ckpt_meta_same_model (&there, &here, err);
    if (status == TRAIN_OK)
        status = ckpt_tensors_init (&t, run, err);
    if (status == TRAIN_OK)
        status = train_ckpt_read (ckpt, t.piece, 3 * t.n, err);
    ckpt_tensors_fini (&t);
    return status;
}

train_status_t ckpt_run_load (const char *path, const struct ckpt_run *run,
                              train_ckpt_state_t *ret_state, train_error_t *err)
{
    train_ckpt_state_t state;
    train_ckpt_t *ckpt = NULL;
    train_status_t status;

    TRY (opts_fits (ret_state, "checkpoint", err));
    TRY (train_ckpt_open (path, &ckpt, err));
    status = read_open (ckpt, run, &state, err);
    if (status != TRAIN_OK)
        err_prefix (err, status, "checkpoint %s", path);
    train_ckpt_close (ckpt);
    if (status != TRAIN_OK)
        return status;
    return opts_give (ret_state, &state, sizeof (state), "checkpoint", err);
}
