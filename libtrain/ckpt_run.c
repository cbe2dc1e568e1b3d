/* SPDX-License-Identifier: Apache-2.0
 * ckpt_run.c - a decoder and its optimizer as pieces of a checkpoint */
#include "ckpt_run.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "ckpt_job.h"
#include "decoder_impl.h"
#include "err.h"
#include "gpu_libs.h"
#include "hf_impl.h"
#include "opts.h"

#define LIBS    "gpu_libraries"
#define CHOICES "gemm_choices"

static void drop_tensors (struct ckpt_tensors *t)
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
        .device = arena->device,
    };
    memcpy (piece.shape, p->shape, sizeof (p->shape));
    return piece;
}

/* Always drop_tensors. */
static train_status_t list_tensors (struct ckpt_tensors *t,
                                    const struct ckpt_run *run,
                                    train_error_t *err)
{
    size_t n = train_decoder_n_params (run->decoder);

    t->n = n;
    t->n_beside = run->n_beside;
    t->piece = calloc (3 * n + run->n_beside + 1, sizeof (*t->piece));
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
    for (size_t i = 0; i < run->n_beside; i++)
        t->piece[3 * n + i] = run->beside[i];
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
    drop_tensors (&s->tensors);
    free ((char *)s->config.data);
    free ((void *)s->bytes[1].data);
}

/* The device, and what else on it gives results their bits. */
static train_status_t describe (const struct ckpt_run *run,
                                char device[CKPT_DEVICE],
                                char libs[CKPT_DEVICE], train_error_t *err)
{
    const train_decoder_t *m = run->decoder;

    libs[0] = '\0';
    TRY (m->ops->model (m->device, device, CKPT_DEVICE, err));
    if (m->gpu)
        gpu_libs (libs, CKPT_DEVICE);
    return TRAIN_OK;
}

static train_status_t add_device (struct ckpt_save *s,
                                  const struct ckpt_run *run,
                                  train_error_t *err)
{
    void *choices = NULL;
    size_t n = 0;

    TRY (describe (run, s->device, s->libs, err));
    s->opts.device = s->device;
    if (!run->decoder->gpu)
        return TRAIN_OK;
    TRY (decoder_choices (run->decoder, &choices, &n, err));
    s->bytes[0] = (train_ckpt_bytes_t){LIBS, s->libs, strlen (s->libs)};
    s->bytes[1] = (train_ckpt_bytes_t){CHOICES, choices, n};
    s->opts.bytes = s->bytes;
    s->opts.n_bytes = choices ? 2 : 1;
    return TRAIN_OK;
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
    TRY (list_tensors (&s->tensors, run, err));
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
    return add_device (s, run, err);
}

/* What [key] has as text, cut; "" where there is no such key. */
static void text_of (const train_ckpt_t *ckpt, const char *key,
                     char text[CKPT_DEVICE])
{
    void *data = NULL;
    size_t n = 0;

    text[0] = '\0';
    if (train_ckpt_bytes (ckpt, key, &data, &n, NULL) != TRAIN_OK)
        return;
    snprintf (text, CKPT_DEVICE, "%.*s", (int)(n < 200 ? n : 200),
              (const char *)data);
    free (data);
}

train_status_t ckpt_run_differs (const train_ckpt_t *ckpt,
                                 const struct ckpt_run *run, char *text,
                                 size_t size, train_error_t *err)
{
    char device[CKPT_DEVICE], here[CKPT_DEVICE], there[CKPT_DEVICE];
    size_t used;

    TRY (describe (run, device, here, err));
    train_ckpt_differs (ckpt, run->world, run->strategy, device, text, size);
    text_of (ckpt, LIBS, there);
    used = strlen (text);
    if (*here && *there && strcmp (here, there) != 0)
        snprintf (text + used, size - used, "%s%s there and %s here",
                  used ? ", " : "written with ", there, here);
    return TRAIN_OK;
}

train_status_t ckpt_run_start (train_ckpt_saver_t *saver, const char *dir,
                               const train_ckpt_state_t *state,
                               const struct ckpt_run *run, int keep,
                               train_error_t *err)
{
    struct ckpt_save s = {0};
    train_status_t status = ckpt_save_init (&s, dir, state, run, keep, err);

    if (status != TRAIN_OK)
        err_prefix (err, status, "cannot save to %s", dir);
    status = ckpt_saver_agree (saver, status, err);
    if (status == TRAIN_OK)
        status = train_ckpt_start (saver, s.tensors.piece,
                                   3 * s.tensors.n + s.tensors.n_beside,
                                   &s.opts, err);
    ckpt_save_fini (&s);
    return status;
}

/* Of another card or library they are of no use; ckpt_run_differs says so. */
static train_status_t read_choices (const train_ckpt_t *ckpt,
                                    train_decoder_t *decoder,
                                    train_error_t *err)
{
    train_error_t own = {0};
    void *data = NULL;
    size_t n = 0;
    train_status_t status = train_ckpt_bytes (ckpt, CHOICES, &data, &n, &own);

    if (status == TRAIN_OK)
        status = decoder_take_choices (decoder, data, n, &own);
    free (data);
    if (status == TRAIN_OK || status == TRAIN_ENOTFOUND
        || status == TRAIN_EMISMATCH)
        return TRAIN_OK;
    return err_set (err, status, "%s", own.text);
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
        status = list_tensors (&t, run, err);
    if (status == TRAIN_OK)
        status = train_ckpt_read (ckpt, t.piece, 3 * t.n, err);
    if (status == TRAIN_OK)
        status = read_choices (ckpt, run->decoder, err);
    drop_tensors (&t);
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
