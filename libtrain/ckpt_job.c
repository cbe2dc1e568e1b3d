/* SPDX-License-Identifier: Apache-2.0
 * ckpt_job.c - check and copy what one rank hands in for a checkpoint */
#include "ckpt_job.h"

#include <inttypes.h>
#include <stdlib.h>
#include <string.h>

#include "ckpt_manifest.h"
#include "err.h"

#define ALIGN ((size_t)64)

/* Of a shard's name: so that no two kinds of file meet in one. */
static bool is_kind (const char *file)
{
    return *file && strspn (file, "abcdefghijklmnopqrstuvwxyz") == strlen (file)
           && strcmp (file, "part") != 0;
}

static train_status_t check_piece (const train_ckpt_piece_t *p,
                                   train_error_t *err)
{
    int64_t numel;

    if (!p->name || !*p->name)
        return err_set (err, TRAIN_EINVAL, "checkpoint: a piece has no name");
    if (p->ndim < 0 || p->ndim > TRAIN_MAX_DIMS || !train_dtype_size (p->dtype)
        || (numel = ckpt_numel (p->ndim, p->shape)) < 0)
        return err_set (err, TRAIN_EINVAL,
                        "checkpoint: '%s' has no type or shape", p->name);
    if (p->first < 0 || p->count < 0 || p->first > numel
        || p->count > numel - p->first)
        return err_set (err, TRAIN_EINVAL,
                        "checkpoint: '%s': %" PRId64 " elements from %" PRId64
                        " on are not within its %" PRId64,
                        p->name, p->count, p->first, numel);
    if (p->count > 0 && !p->data)
        return err_set (err, TRAIN_EINVAL, "checkpoint: '%s' has no data",
                        p->name);
    if (p->file && !is_kind (p->file))
        return err_set (err, TRAIN_EINVAL,
                        "checkpoint: '%s': a file '%s' cannot be; small "
                        "letters, not 'part', would work",
                        p->name, p->file);
    return TRAIN_OK;
}

static train_status_t take_pieces (struct ckpt_job *job,
                                   const train_ckpt_piece_t *pieces, size_t n,
                                   train_error_t *err)
{
    if (!(job->piece = calloc (n + 1, sizeof (*job->piece))))
        return err_set (err, TRAIN_ENOMEM, "no memory for a list of pieces");
    for (size_t i = 0; i < n; i++) {
        train_ckpt_piece_t *p = &job->piece[i];

        TRY (check_piece (&pieces[i], err));
        *p = pieces[i];
        p->name = strdup (pieces[i].name);
        p->file = strdup (pieces[i].file ? pieces[i].file : "state");
        job->n++;
        if (!p->name || !p->file)
            return err_set (err, TRAIN_ENOMEM, "no memory for a name");
    }
    return TRAIN_OK;
}

static bool beside_ok (const train_ckpt_bytes_t *b)
{
    size_t len = b->key ? strlen (b->key) : 0;

    return len > 0 && b->key[0] != '.' && !strchr (b->key, '/')
           && strcmp (b->key, CKPT_MANIFEST) != 0 && (b->data || !b->size)
           && strncmp (b->key, "part-", 5) != 0
           && !(len > 12 && strcmp (b->key + len - 12, ".safetensors") == 0);
}

static train_status_t take_beside (struct ckpt_job *job,
                                   const train_ckpt_options_t *o,
                                   train_error_t *err)
{
    job->beside = calloc (o->n_beside + 1, sizeof (*job->beside));
    if (!job->beside)
        return err_set (err, TRAIN_ENOMEM, "no memory for a list of files");
    for (size_t i = 0; i < o->n_beside; i++) {
        const train_ckpt_bytes_t *from = &o->beside[i];
        train_ckpt_bytes_t *to = &job->beside[i];

        if (!beside_ok (from))
            return err_set (err, TRAIN_EINVAL,
                            "checkpoint: no file beside it can be '%s'",
                            from->key ? from->key : "");
        to->key = strdup (from->key);
        to->data = malloc (from->size + 1);
        to->size = from->size;
        job->n_beside++;
        if (!to->key || !to->data)
            return err_set (err, TRAIN_ENOMEM, "no memory for a file");
        if (from->size)
            memcpy ((void *)to->data, from->data, from->size);
    }
    return TRAIN_OK;
}

static train_status_t check_options (const train_ckpt_options_t *o,
                                     train_error_t *err)
{
    if (!o->dir || !*o->dir)
        return err_set (err, TRAIN_EINVAL, "checkpoint: dir is missing");
    if (o->step < 0)
        return err_set (err, TRAIN_EINVAL,
                        "checkpoint: step %" PRId64 " is below 0", o->step);
    if (o->keep < 0 || o->world < 0)
        return err_set (err, TRAIN_EINVAL,
                        "checkpoint: keep %d or world %d is below 0", o->keep,
                        o->world);
    if (!(o->timeout_s >= 0))
        return err_set (err, TRAIN_EINVAL,
                        "checkpoint: timeout_s %g is not a number from 0 on",
                        o->timeout_s);
    if ((o->n_state && !o->state) || (o->n_bytes && !o->bytes)
        || (o->n_beside && !o->beside))
        return err_set (err, TRAIN_EINVAL,
                        "checkpoint: state, bytes or beside is missing");
    return TRAIN_OK;
}

train_status_t ckpt_job_init (struct ckpt_job *job,
                              const train_ckpt_piece_t *pieces, size_t n,
                              const train_ckpt_options_t *o, int rank,
                              int writers, train_error_t *err)
{
    *job = (struct ckpt_job){
        .rank = rank,
        .writers = writers,
        .step = o->step,
        .keep = o->keep,
        .timeout_s = o->timeout_s > 0 ? o->timeout_s : 600,
    };
    TRY (check_options (o, err));
    if (n && !pieces)
        return err_set (err, TRAIN_EINVAL, "checkpoint: pieces are missing");
    if (!(job->dir = strdup (o->dir)))
        return err_set (err, TRAIN_ENOMEM, "no memory for a path");
    TRY (take_pieces (job, pieces, n, err));
    if (rank == 0)
        TRY (take_beside (job, o, err));
    return ckpt_manifest_head (rank == 0 ? o : NULL,
                               o->world ? o->world : writers, &job->root, err);
}

void ckpt_job_fini (struct ckpt_job *job)
{
    for (size_t i = 0; i < job->n; i++) {
        free ((char *)job->piece[i].name);
        free ((char *)job->piece[i].file);
    }
    for (size_t i = 0; i < job->n_beside; i++) {
        free ((char *)job->beside[i].key);
        free ((void *)job->beside[i].data);
    }
    free (job->piece);
    free (job->beside);
    free (job->dir);
    free (job->temp);
    json_decref (job->root);
    *job = (struct ckpt_job){0};
}

static size_t bytes_of (const train_ckpt_piece_t *p)
{
    return (size_t)p->count * train_dtype_size (p->dtype);
}

/* The first piece of a GPU. */
static const train_ckpt_piece_t *of_gpu (const struct ckpt_job *job)
{
    for (size_t i = 0; i < job->n; i++)
        if (ckpt_is_gpu (&job->piece[i]))
            return &job->piece[i];
    return NULL;
}

train_status_t ckpt_job_copy (struct ckpt_job *job, struct ckpt_room *room,
                              train_error_t *err)
{
    size_t need = ALIGN;
    char *at;

    for (size_t i = 0; i < job->n; i++)
        need += (bytes_of (&job->piece[i]) + ALIGN - 1) / ALIGN * ALIGN;
    TRY (ckpt_room_grow (room, need, of_gpu (job), err));
    at = room->data;
    for (size_t i = 0; i < job->n; i++) {
        TRY (ckpt_fetch (at, &job->piece[i], err));
        at += (bytes_of (&job->piece[i]) + ALIGN - 1) / ALIGN * ALIGN;
    }
    TRY (ckpt_settle (job->piece, job->n, err));
    at = room->data;
    for (size_t i = 0; i < job->n; i++) {
        job->piece[i].data = at;
        job->piece[i].device = (DLDevice){kDLCPU, 0};
        at += (bytes_of (&job->piece[i]) + ALIGN - 1) / ALIGN * ALIGN;
    }
    return TRAIN_OK;
}

bool ckpt_job_is_gpu (const struct ckpt_job *job)
{
    return of_gpu (job) != NULL;
}
