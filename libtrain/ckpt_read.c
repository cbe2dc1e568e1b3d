/* SPDX-License-Identifier: Apache-2.0
 * ckpt_read.c - read any ranges of a checkpoint's tensors
 *
 * Everything that a call needs is summed before it writes anything. */
#include "config.h"

#include <errno.h>
#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <xxhash.h>

#include "ckpt_manifest.h"
#include "ckpt_place.h"
#include "err.h"
#include "plan/fsio.h"
#include "safetensors.h"

#define STEP ((size_t)1 << 20) /* read at a time, what a sum finds in a cache */

struct train_ckpt {
    char *path;
    struct ckpt_manifest m;
    train_safetensors_t **open; /* (n_files) NULL until needed */
    char *room;                 /* (STEP) */
};

static train_status_t path_of (const train_ckpt_t *c, size_t file, char **ret,
                               train_error_t *err)
{
    if (!(*ret = fsio_join (c->path, c->m.file[file].name)))
        return err_set (err, TRAIN_ENOMEM, "no memory for a path");
    return TRAIN_OK;
}

static train_status_t check_sizes (const train_ckpt_t *c, train_error_t *err)
{
    train_status_t status = TRAIN_OK;

    for (size_t i = 0; i < c->m.n_files && status == TRAIN_OK; i++) {
        int64_t want = c->m.file[i].bytes;
        struct stat st;
        char *path;

        TRY (path_of (c, i, &path, err));
        if (stat (path, &st) < 0)
            status =
                err_set (err, errno == ENOENT ? TRAIN_ENOTFOUND : TRAIN_EIO,
                         "%s: %s", path, strerror (errno));
        else if (!S_ISREG (st.st_mode) || st.st_size != want)
            status = err_set (err, TRAIN_ECORRUPT,
                              "%s has %" PRId64 " bytes and not %" PRId64, path,
                              (int64_t)st.st_size, want);
        free (path);
    }
    return status;
}

static train_status_t read_manifest (train_ckpt_t *c, train_error_t *err)
{
    char *path = fsio_join (c->path, CKPT_MANIFEST), *text = NULL;
    struct rv_error e = {0};
    train_status_t status = TRAIN_OK;
    size_t n;

    if (!path)
        return err_set (err, TRAIN_ENOMEM, "no memory for a path");
    if (fsio_read (path, CKPT_MANIFEST_MAX, &text, &n, &e) != RV_OK)
        status = err_from (err, &e);
    else if ((status = ckpt_manifest_parse (text, n, &c->m, err)) != TRAIN_OK)
        err_prefix (err, status, "%s", path);
    free (text);
    free (path);
    return status;
}

train_status_t train_ckpt_open (const char *path, train_ckpt_t **ret_ckpt,
                                train_error_t *err)
{
    train_ckpt_t *c;
    train_status_t status;

    if (!path || !ret_ckpt)
        return err_set (err, TRAIN_EINVAL,
                        "checkpoint: path or ret_ckpt is NULL");
    if (!(c = calloc (1, sizeof (*c))) || !(c->path = strdup (path))) {
        free (c);
        return err_set (err, TRAIN_ENOMEM, "no memory for a checkpoint");
    }
    if ((status = read_manifest (c, err)) == TRAIN_OK
        && (!(c->open = calloc (c->m.n_files + 1, sizeof (*c->open)))
            || !(c->room = malloc (STEP))))
        status = err_set (err, TRAIN_ENOMEM, "no memory to read a checkpoint");
    if (status == TRAIN_OK)
        status = check_sizes (c, err);
    if (status == TRAIN_OK)
        *ret_ckpt = c;
    else
        train_ckpt_close (c);
    return status;
}

void train_ckpt_close (train_ckpt_t *c)
{
    if (!c)
        return;
    for (size_t i = 0; c->open && i < c->m.n_files; i++)
        train_safetensors_close (c->open[i]);
    free (c->open);
    free (c->room);
    ckpt_manifest_fini (&c->m);
    free (c->path);
    free (c);
}

/* The header of a file is summed before it is believed. */
static train_status_t check_file (train_ckpt_t *c, size_t file,
                                  const char *path, train_error_t *err)
{
    struct ckpt_file *f = &c->m.file[file];
    int64_t bytes;
    uint64_t sum;

    if (f->good)
        return TRAIN_OK;
    TRY (ckpt_file_sum (path, &bytes, &sum, err));
    if (bytes != f->bytes || sum != f->sum)
        return err_set (err, TRAIN_ECORRUPT, "%s does not match its checksum",
                        path);
    f->good = true;
    return TRAIN_OK;
}

static train_status_t open_file (train_ckpt_t *c, size_t file,
                                 train_error_t *err)
{
    train_status_t status;
    char *path;

    if (c->open[file])
        return TRAIN_OK;
    TRY (path_of (c, file, &path, err));
    status = check_file (c, file, path, err);
    if (status == TRAIN_OK)
        status = train_safetensors_open (path, &c->open[file], err);
    free (path);
    return status;
}

/* A stored piece as it stands in its file. */
static train_status_t entry_of (train_ckpt_t *c, const struct ckpt_tensor *t,
                                size_t piece, const train_st_entry_t **ret,
                                train_error_t *err)
{
    const struct ckpt_stored *s = &t->stored[piece];
    size_t bytes = (size_t)t->range[piece].count * train_dtype_size (t->dtype);
    const train_st_entry_t *e;

    TRY (open_file (c, s->file, err));
    e = train_safetensors_find (c->open[s->file], s->as);
    if (!e || e->dtype != t->dtype || e->bytes != bytes)
        return err_set (
            err, TRAIN_EFORMAT, "%s/%s has no '%s' of %zu bytes of %s", c->path,
            c->m.file[s->file].name, s->as, bytes, train_dtype_name (t->dtype));
    *ret = e;
    return TRAIN_OK;
}

/* Bytes [from, from + n) of a stored piece. Not by the map: what a file system
 * loses, or another program cuts off, is an error and no signal. */
static train_status_t read_stored (const train_ckpt_t *c,
                                   const struct ckpt_stored *s,
                                   const train_st_entry_t *e, size_t from,
                                   void *to, size_t n, train_error_t *err)
{
    train_status_t status = st_read (c->open[s->file], e, from, to, n, err);

    if (status != TRAIN_OK)
        err_prefix (err, status, "%s/%s: tensor '%s'", c->path,
                    c->m.file[s->file].name, s->as);
    return status;
}

static train_status_t sum_stored (train_ckpt_t *c, const struct ckpt_stored *s,
                                  const train_st_entry_t *e, uint64_t *ret,
                                  train_error_t *err)
{
    XXH3_state_t *sum = XXH3_createState ();
    train_status_t status = TRAIN_OK;

    if (!sum)
        return err_set (err, TRAIN_ENOMEM, "no memory for a sum");
    XXH3_64bits_reset (sum);
    for (size_t at = 0; at < e->bytes && status == TRAIN_OK; at += STEP) {
        size_t n = e->bytes - at < STEP ? e->bytes - at : STEP;

        status = read_stored (c, s, e, at, c->room, n, err);
        if (status == TRAIN_OK)
            XXH3_64bits_update (sum, c->room, n);
    }
    *ret = XXH3_64bits_digest (sum);
    XXH3_freeState (sum);
    return status;
}

/* The bytes of a stored piece are what was saved. */
static train_status_t check_stored (train_ckpt_t *c,
                                    const struct ckpt_tensor *t, size_t piece,
                                    train_error_t *err)
{
    struct ckpt_stored *s = &t->stored[piece];
    const train_st_entry_t *e = NULL;
    uint64_t sum = 0;

    TRY (entry_of (c, t, piece, &e, err));
    if (s->good)
        return TRAIN_OK;
    TRY (sum_stored (c, s, e, &sum, err));
    if (sum != s->sum)
        return err_set (err, TRAIN_ECORRUPT,
                        "%s/%s: tensor '%s' does not match its checksum",
                        c->path, c->m.file[s->file].name, s->as);
    s->good = true;
    return TRAIN_OK;
}

/* Bytes [from, from + n) of a stored piece to byte [to] of [p]; of a GPU by way
 * of the room, which is free again once they are there. */
static train_status_t copy_stored (train_ckpt_t *c, const struct ckpt_tensor *t,
                                   size_t piece, size_t from, size_t n,
                                   const train_ckpt_piece_t *p, size_t to,
                                   train_error_t *err)
{
    const struct ckpt_stored *s = &t->stored[piece];
    const train_st_entry_t *e = NULL;

    TRY (entry_of (c, t, piece, &e, err));
    if (!ckpt_is_gpu (p))
        return read_stored (c, s, e, from, (char *)p->data + to, n, err);
    for (size_t at = 0; at < n; at += STEP) {
        size_t k = n - at < STEP ? n - at : STEP;

        TRY (read_stored (c, s, e, from + at, c->room, k, err));
        TRY (ckpt_store (p, to + at, c->room, k, err));
        TRY (ckpt_settle (p, 1, err));
    }
    return TRAIN_OK;
}

static train_status_t find_tensor (const train_ckpt_t *c,
                                   const train_ckpt_piece_t *p,
                                   struct ckpt_tensor **ret, train_error_t *err)
{
    struct ckpt_tensor *t = p->name ? ckpt_manifest_find (&c->m, p->name) : 0;

    if (!t)
        return err_set (err, TRAIN_ENOTFOUND, "%s has no tensor '%s'", c->path,
                        p->name ? p->name : "");
    if (t->dtype != p->dtype || t->ndim != p->ndim
        || memcmp (t->shape, p->shape, (size_t)t->ndim * sizeof (*t->shape)))
        return err_set (err, TRAIN_EINVAL,
                        "%s: tensor '%s' has another type or shape there",
                        c->path, p->name);
    if (p->first < 0 || p->count < 0 || p->first > t->numel
        || p->count > t->numel - p->first || (p->count && !p->data))
        return err_set (err, TRAIN_EINVAL,
                        "checkpoint: '%s': %" PRId64 " elements from %" PRId64
                        " on are not within its %" PRId64 ", or have no data",
                        p->name, p->count, p->first, t->numel);
    *ret = t;
    return TRAIN_OK;
}

/* Check (copy false) or copy what one wanted piece is made of. */
static train_status_t one_piece (train_ckpt_t *c, const train_ckpt_piece_t *p,
                                 bool copy, train_error_t *err)
{
    struct ckpt_tensor *t = NULL;
    struct ckpt_part *part;
    train_status_t status = TRAIN_OK;
    size_t n, size = train_dtype_size (p->dtype);

    TRY (find_tensor (c, p, &t, err));
    if (p->count > 0 && !copy) /* its device is one that can be written */
        TRY (ckpt_store (p, 0, c->room, 0, err));
    if (!(part = calloc (t->n + 1, sizeof (*part))))
        return err_set (err, TRAIN_ENOMEM, "no memory for a plan");
    n = ckpt_ranges_plan (t->range, t->n,
                          (struct ckpt_range){p->first, p->count}, part);
    for (size_t i = 0; i < n && status == TRAIN_OK; i++) {
        status = copy ? copy_stored (c, t, part[i].piece,
                                     (size_t)part[i].from * size,
                                     (size_t)part[i].count * size, p,
                                     (size_t)part[i].to * size, err)
                      : check_stored (c, t, part[i].piece, err);
    }
    free (part);
    return status;
}

train_status_t train_ckpt_read (train_ckpt_t *c,
                                const train_ckpt_piece_t *pieces, size_t n,
                                train_error_t *err)
{
    if (!c || (n && !pieces))
        return err_set (err, TRAIN_EINVAL,
                        "checkpoint: it or the pieces are missing");
    for (size_t i = 0; i < n; i++)
        TRY (one_piece (c, &pieces[i], false, err));
    for (size_t i = 0; i < n; i++)
        TRY (one_piece (c, &pieces[i], true, err));
    return ckpt_settle (pieces, n, err);
}

train_status_t train_ckpt_verify (train_ckpt_t *c, train_error_t *err)
{
    train_status_t status = TRAIN_OK;

    if (!c)
        return err_set (err, TRAIN_EINVAL, "checkpoint: it is missing");
    for (size_t i = 0; i < c->m.n_files && status == TRAIN_OK; i++) {
        char *path;

        TRY (path_of (c, i, &path, err));
        status = check_file (c, i, path, err);
        free (path);
    }
    for (size_t i = 0; i < c->m.n_tensors && status == TRAIN_OK; i++)
        for (size_t k = 0; k < c->m.tensor[i].n && status == TRAIN_OK; k++)
            status = check_stored (c, &c->m.tensor[i], k, err);
    return status;
}

const struct ckpt_manifest *ckpt_manifest_of (const train_ckpt_t *c)
{
    return &c->m;
}
