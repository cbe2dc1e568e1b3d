/* SPDX-License-Identifier: Apache-2.0
 * safetensors_shard.c - write tensors as several safetensors files and an index
 */
#include "config.h"

#include "safetensors.h"

#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "err.h"

struct shards {
    const char *dir, *base;
    size_t n;                   /* files */
    size_t *first;              /* (n + 1) of the entries */
    train_st_writer_t **writer; /* (n) sealed, not yet renamed */
    char *index, *index_temp;   /* index_temp "": nothing to remove */
    json_t *map;
    uint64_t total;
};

static char *name_of (const struct shards *s, size_t i, bool whole)
{
    char *name = NULL;
    int n;

    if (s->n <= 1)
        n = asprintf (&name, "%s%s%s.safetensors", whole ? s->dir : "",
                      whole ? "/" : "", s->base);
    else
        n = asprintf (&name, "%s%s%s-%05zu-of-%05zu.safetensors",
                      whole ? s->dir : "", whole ? "/" : "", s->base, i + 1,
                      s->n);
    return n < 0 ? NULL : name;
}

static void shards_fini (struct shards *s)
{
    for (size_t i = 0; i < s->n && s->writer; i++)
        train_safetensors_abandon (s->writer[i]);
    if (s->index_temp && s->index_temp[0])
        unlink (s->index_temp);
    free (s->writer);
    free (s->first);
    free (s->index);
    free (s->index_temp);
    json_decref (s->map);
}

/* A file is full when the next tensor would take it over the limit. */
static train_status_t deal (struct shards *s, const train_st_entry_t *entries,
                            size_t n, size_t max_bytes, train_error_t *err)
{
    size_t in = 0, bytes = 0;
    train_status_t status;

    s->first = calloc (n + 2, sizeof (*s->first));
    s->writer = calloc (n + 1, sizeof (*s->writer));
    if (!s->first || !s->writer)
        return err_set (err, TRAIN_ENOMEM, "no memory for %zu tensors", n);
    s->n = 1;
    for (size_t i = 0; i < n; i++) {
        if ((status = st_entry_bytes (&entries[i], &bytes, err)) != TRAIN_OK)
            return status;
        s->total += bytes;
        if (i > s->first[s->n - 1]
            && (in > max_bytes || bytes > max_bytes - in)) {
            s->first[s->n++] = i;
            in = 0;
        }
        in += bytes;
    }
    s->first[s->n] = n;
    return TRAIN_OK;
}

static train_status_t map_names (struct shards *s,
                                 const train_st_entry_t *entries, size_t i,
                                 train_error_t *err)
{
    char *name = name_of (s, i, false);
    train_status_t status = TRAIN_OK;

    if (!name)
        return err_set (err, TRAIN_ENOMEM, "no memory for a name");
    for (size_t k = s->first[i]; k < s->first[i + 1]; k++) {
        if (json_object_get (s->map, entries[k].name)) {
            status = err_set (err, TRAIN_EINVAL, "%s: tensor '%s' twice",
                              s->dir, entries[k].name);
            break;
        }
        if (json_object_set_new (s->map, entries[k].name, json_string (name))
            < 0) {
            status = err_set (err, TRAIN_EINVAL,
                              "%s: tensor '%s': the name must be UTF-8", s->dir,
                              entries[k].name);
            break;
        }
    }
    free (name);
    return status;
}

static train_status_t write_shard (struct shards *s,
                                   const train_st_entry_t *entries,
                                   const train_st_meta_t *meta, size_t n_meta,
                                   size_t i, train_error_t *err)
{
    const train_st_entry_t *from = entries ? entries + s->first[i] : NULL;
    size_t n = s->first[i + 1] - s->first[i];
    char *path = name_of (s, i, true);
    train_status_t status = map_names (s, entries, i, err);

    if (!path && status == TRAIN_OK)
        status = err_set (err, TRAIN_ENOMEM, "no memory for a name");
    if (status == TRAIN_OK)
        status = train_safetensors_create (path, from, n, meta, n_meta,
                                           &s->writer[i], err);
    if (status == TRAIN_OK)
        status = st_writer_fill (s->writer[i], from, n, err);
    if (status == TRAIN_OK)
        status = st_writer_seal (s->writer[i], err);
    free (path);
    return status;
}

static train_status_t write_index (struct shards *s, train_error_t *err)
{
    size_t size = strlen (s->index) + 64;
    train_status_t status = TRAIN_OK;
    char *text = NULL;
    json_t *root;
    int fd;

    root = json_pack ("{s:{s:I}, s:O}", "metadata", "total_size",
                      (json_int_t)s->total, "weight_map", s->map);
    if (root)
        text = json_dumps (root, JSON_INDENT (2) | JSON_SORT_KEYS);
    json_decref (root);
    s->index_temp = calloc (1, size);
    if (!text || !s->index_temp) {
        free (text);
        return err_set (err, TRAIN_ENOMEM, "no memory for the index");
    }
    if ((fd = st_open_temp (s->index, s->index_temp, size)) < 0) {
        s->index_temp[0] = '\0';
        status = err_set (err, TRAIN_EIO, "%s: %s", s->index, strerror (errno));
    } else if (st_write_all (fd, text, strlen (text), 0) < 0
               || fsync (fd) < 0) {
        status = err_set (err, TRAIN_EIO, "%s: write: %s", s->index,
                          strerror (errno));
    }
    if (fd >= 0 && close (fd) < 0 && status == TRAIN_OK)
        status = err_set (err, TRAIN_EIO, "%s: close: %s", s->index,
                          strerror (errno));
    free (text);
    return status;
}

/* Both ways into a former set: its files may be about to be replaced. */
static train_status_t remove_former (const struct shards *s, train_error_t *err)
{
    char *whole = NULL;
    int rc = 0;

    if (asprintf (&whole, "%s/%s.safetensors", s->dir, s->base) < 0)
        return err_set (err, TRAIN_ENOMEM, "no memory for a name");
    if ((unlink (whole) < 0 && errno != ENOENT)
        || (unlink (s->index) < 0 && errno != ENOENT))
        rc = errno;
    free (whole);
    if (rc != 0 || st_sync_folder (s->index) < 0)
        return err_set (err, TRAIN_EIO, "%s: cannot remove the former set: %s",
                        s->dir, strerror (rc ? rc : errno));
    return TRAIN_OK;
}

static train_status_t publish (struct shards *s, train_error_t *err)
{
    train_status_t status = TRAIN_OK;

    if (s->n > 1)
        status = remove_former (s, err);
    for (size_t i = 0; i < s->n && status == TRAIN_OK; i++)
        status = st_writer_publish (s->writer[i], err);
    if (status != TRAIN_OK)
        return status;
    if (s->n == 1 && unlink (s->index) < 0 && errno != ENOENT)
        return err_set (err, TRAIN_EIO, "%s: %s", s->index, strerror (errno));
    if (s->n > 1) {
        if (rename (s->index_temp, s->index) < 0)
            return err_set (err, TRAIN_EIO, "%s: rename: %s", s->index,
                            strerror (errno));
        s->index_temp[0] = '\0';
    }
    if (st_sync_folder (s->index) < 0)
        return err_set (err, TRAIN_EIO, "%s: written, but cannot be synced: %s",
                        s->dir, strerror (errno));
    return TRAIN_OK;
}

train_status_t train_safetensors_write_sharded (
    const char *dir, const char *base, const train_st_entry_t *entries,
    size_t n, const train_st_meta_t *meta, size_t n_meta, size_t max_bytes,
    train_error_t *err)
{
    struct shards s = {.dir = dir, .base = base ? base : "model"};
    train_status_t status;

    if (!dir || !*dir || max_bytes == 0 || (n > 0 && !entries) || !*s.base
        || strchr (s.base, '/') || (n_meta > 0 && !meta))
        return err_set (err, TRAIN_EINVAL,
                        "safetensors: no folder, tensors or metadata, no bytes "
                        "in a file, or '/' in the name");
    s.map = json_object ();
    status = deal (&s, entries, n, max_bytes, err);
    if (status == TRAIN_OK
        && (!s.map
            || asprintf (&s.index, "%s/%s.safetensors.index.json", s.dir,
                         s.base)
                   < 0)) {
        s.index = NULL;
        status = err_set (err, TRAIN_ENOMEM, "no memory for the index");
    }
    for (size_t i = 0; i < s.n && status == TRAIN_OK; i++)
        status = write_shard (&s, entries, meta, n_meta, i, err);
    if (status == TRAIN_OK && s.n > 1)
        status = write_index (&s, err);
    if (status == TRAIN_OK)
        status = publish (&s, err);
    shards_fini (&s);
    return status;
}
