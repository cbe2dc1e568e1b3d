/* SPDX-License-Identifier: Apache-2.0
 * ckpt_job_run.c - write a rank's files of a checkpoint, and publish it */
#include "config.h"

#include <errno.h>
#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>
#include <unistd.h>
#include <xxhash.h>

#include "ckpt_dir.h"
#include "ckpt_job.h"
#include "ckpt_manifest.h"
#include "err.h"
#include "plan/fsio.h"
#include "sock.h"

#define NAME_MAX_ 320 /* of a file in a checkpoint */
#define HURRY_S   2.0

static bool whole (const train_ckpt_piece_t *p)
{
    return p->first == 0 && p->count == ckpt_numel (p->ndim, p->shape);
}

/* How a piece stands in its file: by its name and shape, or NAME@FIRST, flat.
 *   ret_name   malloc'ed */
static train_status_t entry_of (const train_ckpt_piece_t *p, char **ret_name,
                                train_st_entry_t *e, train_error_t *err)
{
    size_t size = strlen (p->name) + 32;
    char *name = malloc (size);

    if (!name)
        return err_set (err, TRAIN_ENOMEM, "no memory for a name");
    *ret_name = name;
    *e = (train_st_entry_t){.name = name, .dtype = p->dtype, .data = p->data};
    if (whole (p)) {
        snprintf (name, size, "%s", p->name);
        e->ndim = p->ndim;
        memcpy (e->shape, p->shape, sizeof (e->shape));
    } else {
        snprintf (name, size, "%s@%" PRId64, p->name, p->first);
        e->ndim = 1;
        e->shape[0] = p->count;
    }
    return TRAIN_OK;
}

/* What goes into one file. */
struct shard {
    train_st_entry_t *entry;         /* (n) */
    const train_ckpt_piece_t **from; /* (n) */
    char **name;                     /* (n) */
    size_t n;
};

static void shard_fini (struct shard *s)
{
    for (size_t i = 0; s->name && i < s->n; i++)
        free (s->name[i]);
    free (s->name);
    free (s->from);
    free (s->entry);
}

/* The pieces of the kind of [at], which is the first of them. */
static train_status_t shard_init (struct shard *s, const struct ckpt_job *job,
                                  size_t at, train_error_t *err)
{
    s->entry = calloc (job->n, sizeof (*s->entry));
    s->from = calloc (job->n, sizeof (*s->from));
    s->name = calloc (job->n, sizeof (*s->name));
    if (!s->entry || !s->from || !s->name)
        return err_set (err, TRAIN_ENOMEM, "no memory for a list of tensors");
    for (size_t i = at; i < job->n; i++) {
        const train_ckpt_piece_t *p = &job->piece[i];

        if (strcmp (p->file, job->piece[at].file) != 0
            || (p->count == 0 && !whole (p)))
            continue;
        s->from[s->n] = p;
        TRY (entry_of (p, &s->name[s->n], &s->entry[s->n], err));
        s->n++;
    }
    return TRAIN_OK;
}

static train_status_t note_shard (struct ckpt_job *job, const struct shard *s,
                                  const char *path, const char *name,
                                  train_error_t *err)
{
    int64_t bytes;
    uint64_t sum;

    TRY (ckpt_file_sum (path, &bytes, &sum, err));
    TRY (ckpt_manifest_add_file (job->root, name, bytes, sum, err));
    for (size_t i = 0; i < s->n; i++) {
        const train_ckpt_piece_t *p = s->from[i];
        size_t n = (size_t)p->count * train_dtype_size (p->dtype);

        TRY (ckpt_manifest_add_piece (job->root, p, name, s->name[i],
                                      XXH3_64bits (p->data, n), err));
    }
    return TRAIN_OK;
}

static train_status_t write_shard (struct ckpt_job *job, size_t at,
                                   train_error_t *err)
{
    /* transformers wants to know who wrote the tensors' layout */
    static const train_st_meta_t format = {"format", "pt"};
    const char *kind = job->piece[at].file;
    char name[NAME_MAX_], *path = NULL;
    struct shard s = {0};
    train_status_t status = shard_init (&s, job, at, err);

    if (job->writers == 1)
        snprintf (name, sizeof (name), "%s.safetensors", kind);
    else
        snprintf (name, sizeof (name), "%s-%05d-of-%05d.safetensors", kind,
                  job->rank + 1, job->writers);
    if (status == TRAIN_OK && s.n > 0) {
        if (!(path = fsio_join (job->temp, name)))
            status = err_set (err, TRAIN_ENOMEM, "no memory for a path");
        if (status == TRAIN_OK)
            status =
                train_safetensors_write (path, s.entry, s.n, &format, 1, err);
        if (status == TRAIN_OK)
            status = note_shard (job, &s, path, name, err);
    }
    free (path);
    shard_fini (&s);
    return status;
}

static bool first_of_kind (const struct ckpt_job *job, size_t at)
{
    for (size_t i = 0; i < at; i++)
        if (strcmp (job->piece[i].file, job->piece[at].file) == 0)
            return false;
    return true;
}

static train_status_t write_shards (struct ckpt_job *job, train_error_t *err)
{
    for (size_t i = 0; i < job->n; i++)
        if (first_of_kind (job, i))
            TRY (write_shard (job, i, err));
    return TRAIN_OK;
}

static train_status_t write_text (const struct ckpt_job *job, const char *name,
                                  const void *text, size_t n,
                                  train_error_t *err)
{
    char *path = fsio_join (job->temp, name);
    struct rv_error e = {0};
    train_status_t status = TRAIN_OK;

    if (!path)
        return err_set (err, TRAIN_ENOMEM, "no memory for a path");
    if (fsio_write (path, text, n, 0666, &e) != RV_OK)
        status = err_from (err, &e);
    free (path);
    return status;
}

static void part_name (char name[NAME_MAX_], int rank)
{
    snprintf (name, NAME_MAX_, "part-%05d.json", rank);
}

/* What another rank than 0 leaves: its pieces, or why there are none. */
static train_status_t leave_part (struct ckpt_job *job, train_status_t status,
                                  train_error_t *err)
{
    json_t *part = job->root, *sad = NULL;
    char name[NAME_MAX_], *text;

    part_name (name, job->rank);
    if (status != TRAIN_OK)
        part = sad =
            json_pack ("{s:i, s:s}", "status", (int)status, "error", err->text);
    text = json_dumps (part, JSON_COMPACT);
    json_decref (sad);
    if (!text)
        return err_set (err, TRAIN_ENOMEM, "no memory for a part");
    if (status == TRAIN_OK)
        status = write_text (job, name, text, strlen (text), err);
    else
        write_text (job, name, text, strlen (text), NULL);
    free (text);
    return status;
}

/* Wait for the file. It has its name when it is whole. */
static train_status_t await (const struct ckpt_job *job, int rank,
                             const char *path, double until, char **ret_text,
                             size_t *ret_n, train_error_t *err)
{
    struct timespec nap = {0, 2000000};
    double short_of = 0;

    for (;;) {
        struct rv_error e = {0};
        int code = fsio_read (path, CKPT_MANIFEST_MAX, ret_text, ret_n, &e);

        if (code == RV_OK)
            return TRAIN_OK;
        if (code != RV_ENOTFOUND)
            return err_from (err, &e);
        if (atomic_load (&job->hurry) && short_of == 0)
            short_of = clock_s () + HURRY_S;
        if (clock_s () > until || (short_of > 0 && clock_s () > short_of))
            return err_set (err, TRAIN_ETIMEDOUT,
                            "checkpoint: rank %d has not written its part "
                            "within %g s: there is no %s",
                            rank, short_of > 0 ? HURRY_S : job->timeout_s,
                            path);
        nanosleep (&nap, NULL);
        if (nap.tv_nsec < 200000000)
            nap.tv_nsec *= 2;
    }
}

static train_status_t merge_text (struct ckpt_job *job, int rank,
                                  const char *text, size_t n,
                                  train_error_t *err)
{
    json_t *part = json_loadb (text, n, JSON_REJECT_DUPLICATES, NULL);
    const char *why = json_string_value (json_object_get (part, "error"));
    json_int_t code = json_integer_value (json_object_get (part, "status"));
    train_status_t status;

    if (why)
        status = err_set (err, code > 0 ? (train_status_t)code : TRAIN_EIO,
                          "rank %d: %s", rank, why);
    else if ((status = ckpt_manifest_merge (job->root, part, err)) != TRAIN_OK)
        err_prefix (err, status, "rank %d", rank);
    json_decref (part);
    return status;
}

static train_status_t merge_parts (struct ckpt_job *job, train_error_t *err)
{
    double until = clock_s () + job->timeout_s;
    train_status_t status = TRAIN_OK;

    for (int rank = 1; rank < job->writers && status == TRAIN_OK; rank++) {
        char name[NAME_MAX_], *path, *text = NULL;
        size_t n = 0;

        part_name (name, rank);
        if (!(path = fsio_join (job->temp, name)))
            return err_set (err, TRAIN_ENOMEM, "no memory for a path");
        status = await (job, rank, path, until, &text, &n, err);
        if (status == TRAIN_OK)
            status = merge_text (job, rank, text, n, err);
        if (status == TRAIN_OK && unlink (path) < 0)
            status = err_set (err, TRAIN_EIO, "%s: %s", path, strerror (errno));
        free (text);
        free (path);
    }
    return status;
}

static train_status_t write_beside (struct ckpt_job *job, train_error_t *err)
{
    for (size_t i = 0; i < job->n_beside; i++) {
        const train_ckpt_bytes_t *b = &job->beside[i];

        TRY (write_text (job, b->key, b->data, b->size, err));
        TRY (ckpt_manifest_add_file (job->root, b->key, (int64_t)b->size,
                                     XXH3_64bits (b->data, b->size), err));
    }
    return TRAIN_OK;
}

/* Nothing is published that could not be read. */
static train_status_t check_text (const char *text, train_error_t *err)
{
    struct ckpt_manifest m;
    train_error_t own = {0};
    train_status_t status = ckpt_manifest_parse (text, strlen (text), &m, &own);

    if (status == TRAIN_OK)
        ckpt_manifest_fini (&m);
    else if (status == TRAIN_EFORMAT) /* the ranks' pieces are wrong */
        status = TRAIN_EINVAL;
    return status == TRAIN_OK
               ? TRAIN_OK
               : err_set (err, status, "checkpoint: %s", own.text);
}

static train_status_t write_manifest (struct ckpt_job *job, train_error_t *err)
{
    char *text = NULL;
    train_status_t status = ckpt_manifest_text (job->root, &text, err);

    if (status == TRAIN_OK)
        status = check_text (text, err);
    if (status == TRAIN_OK)
        status = write_text (job, CKPT_MANIFEST, text, strlen (text), err);
    free (text);
    return status;
}

/* The folder that rank 0 made is another run's to sweep. */
static train_status_t look_for_others (const struct ckpt_job *job,
                                       train_status_t status,
                                       train_error_t *err)
{
    if (status == TRAIN_OK || job->rank > 0 || access (job->temp, F_OK) == 0
        || errno != ENOENT)
        return status;
    return err_set (err, TRAIN_EIO,
                    "%s was removed while it was written: another run has its "
                    "checkpoints in %s, too; each needs a folder of its own",
                    job->temp, job->dir);
}

static train_status_t publish (struct ckpt_job *job, train_error_t *err)
{
    train_status_t status = merge_parts (job, err);

    if (status == TRAIN_OK)
        status = write_beside (job, err);
    if (status == TRAIN_OK)
        status = write_manifest (job, err);
    TRY (look_for_others (job, status, err));
    return ckpt_dir_commit (job->dir, job->step, job->temp, job->keep, err);
}

train_status_t ckpt_job_run (struct ckpt_job *job, train_error_t *err)
{
    train_error_t own = {0};
    train_status_t status =
        look_for_others (job, write_shards (job, &own), &own);

    if (job->rank > 0)
        status = leave_part (job, status, &own);
    else if (status == TRAIN_OK)
        status = publish (job, &own);
    if (status != TRAIN_OK && job->rank == 0)
        fsio_remove_tree (job->temp, NULL);
    if (status != TRAIN_OK && err)
        *err = own;
    return status;
}
