/* SPDX-License-Identifier: Apache-2.0
 * ckpt_manifest_read.c - check checkpoint.json completely and make tables of it
 */
#include "config.h"

#include <inttypes.h>
#include <limits.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <xxhash.h>

#include "ckpt_manifest.h"
#include "err.h"
#include "json_why.h"

static train_status_t want_text (const json_t *in, const char *key,
                                 const char **ret, train_error_t *err)
{
    const json_t *value = json_object_get (in, key);

    if (!json_is_string (value)
        || strlen (json_string_value (value)) != json_string_length (value))
        return err_set (err, TRAIN_EFORMAT, "'%s' is not a text", key);
    *ret = json_string_value (value);
    return TRAIN_OK;
}

static train_status_t want_int (const json_t *in, const char *key, int64_t max,
                                int64_t *ret, train_error_t *err)
{
    const json_t *value = json_object_get (in, key);

    if (!json_is_integer (value) || json_integer_value (value) < 0
        || json_integer_value (value) > max)
        return err_set (err, TRAIN_EFORMAT,
                        "'%s' is not a whole number of 0..%" PRId64, key, max);
    *ret = json_integer_value (value);
    return TRAIN_OK;
}

static train_status_t want_object (const json_t *in, const char *key,
                                   json_t **ret, train_error_t *err)
{
    if (!json_is_object (*ret = json_object_get (in, key)))
        return err_set (err, TRAIN_EFORMAT, "'%s' is not an object", key);
    return TRAIN_OK;
}

int64_t ckpt_numel (int ndim, const int64_t *shape)
{
    int64_t n = 1, most = 1;

    for (int i = 0; i < ndim; i++)
        if (shape[i] < 0 || __builtin_mul_overflow (n, shape[i], &n)
            || __builtin_mul_overflow (most, shape[i] ? shape[i] : 1, &most))
            return -1;
    return n <= INT64_MAX / 8 ? n : -1;
}

static int by_file (const void *a, const void *b)
{
    return strcmp (((const struct ckpt_file *)a)->name,
                   ((const struct ckpt_file *)b)->name);
}

/* A name that stays in its folder, and is none of the manifest's own. */
static bool plain (const char *name)
{
    return *name && *name != '.' && !strchr (name, '/')
           && strcmp (name, CKPT_MANIFEST) != 0;
}

static train_status_t read_sum (const char *text, uint64_t *ret,
                                train_error_t *err)
{
    if (strlen (text) != 16 || strspn (text, "0123456789abcdef") != 16)
        return err_set (err, TRAIN_EFORMAT, "a sum is '%s'", text);
    *ret = strtoull (text, NULL, 16);
    return TRAIN_OK;
}

static train_status_t read_files (struct ckpt_manifest *m, train_error_t *err)
{
    json_t *files, *file;
    const char *name, *sum;

    TRY (want_object (m->root, "files", &files, err));
    m->file = calloc (json_object_size (files) + 1, sizeof (*m->file));
    if (!m->file)
        return err_set (err, TRAIN_ENOMEM, "no memory for a list of files");
    json_object_foreach (files, name, file)
    {
        struct ckpt_file *f = &m->file[m->n_files++];

        f->name = name;
        if (!plain (name))
            return err_set (err, TRAIN_EFORMAT, "'%s' is no name of a file",
                            name);
        TRY (want_int (file, "bytes", INT64_MAX, &f->bytes, err));
        TRY (want_text (file, "xxh3", &sum, err));
        TRY (read_sum (sum, &f->sum, err));
    }
    qsort (m->file, m->n_files, sizeof (*m->file), by_file);
    return TRAIN_OK;
}

/* One piece as it stands in the tree; they are sorted afterwards. */
struct row {
    struct ckpt_range range;
    struct ckpt_stored stored;
};

static train_status_t read_piece (const struct ckpt_manifest *m,
                                  const json_t *piece, int64_t numel,
                                  struct row *row, train_error_t *err)
{
    struct ckpt_file key = {0}, *file;
    const char *sum;

    TRY (want_text (piece, "file", &key.name, err));
    TRY (want_text (piece, "as", &row->stored.as, err));
    TRY (want_text (piece, "xxh3", &sum, err));
    TRY (want_int (piece, "first", numel, &row->range.first, err));
    TRY (want_int (piece, "count", numel, &row->range.count, err));
    TRY (read_sum (sum, &row->stored.sum, err));
    file = bsearch (&key, m->file, m->n_files, sizeof (*m->file), by_file);
    if (!file)
        return err_set (err, TRAIN_EFORMAT, "'%s' is not among the files",
                        key.name);
    row->stored.file = (size_t)(file - m->file);
    return TRAIN_OK;
}

static int by_first (const void *a, const void *b)
{
    int64_t x = ((const struct row *)a)->range.first;
    int64_t y = ((const struct row *)b)->range.first;

    return x < y ? -1 : x > y;
}

static train_status_t read_rows (const struct ckpt_manifest *m,
                                 struct ckpt_tensor *t, const json_t *pieces,
                                 struct row *row, train_error_t *err)
{
    size_t n = json_array_size (pieces);
    int64_t fault;

    for (size_t i = 0; i < n; i++) {
        struct row *r = &row[t->n];

        TRY (read_piece (m, json_array_get (pieces, i), t->numel, r, err));
        t->n += r->range.count > 0;
    }
    qsort (row, t->n, sizeof (*row), by_first);
    for (size_t i = 0; i < t->n; i++) {
        t->range[i] = row[i].range;
        t->stored[i] = row[i].stored;
    }
    fault = ckpt_ranges_fault (t->range, t->n, t->numel);
    if (fault >= 0)
        return err_set (err, TRAIN_EFORMAT,
                        "element %" PRId64 " of %" PRId64
                        " is in no piece or in two",
                        fault, t->numel);
    return TRAIN_OK;
}

static train_status_t read_pieces (const struct ckpt_manifest *m,
                                   struct ckpt_tensor *t, const json_t *tensor,
                                   train_error_t *err)
{
    const json_t *pieces = json_object_get (tensor, "pieces");
    size_t n = json_array_size (pieces);
    struct row *row = calloc (n + 1, sizeof (*row));
    train_status_t status;

    t->range = calloc (n + 1, sizeof (*t->range));
    t->stored = calloc (n + 1, sizeof (*t->stored));
    if (!row || !t->range || !t->stored)
        status = err_set (err, TRAIN_ENOMEM, "no memory for %zu pieces", n);
    else if (!json_is_array (pieces))
        status = err_set (err, TRAIN_EFORMAT, "'pieces' is not a list");
    else
        status = read_rows (m, t, pieces, row, err);
    free (row);
    return status;
}

static train_status_t read_shape (struct ckpt_tensor *t, const json_t *tensor,
                                  train_error_t *err)
{
    const json_t *shape = json_object_get (tensor, "shape");
    const char *dtype;

    TRY (want_text (tensor, "dtype", &dtype, err));
    for (int i = 0; i < TRAIN_N_DTYPES; i++)
        if (strcmp (dtype, train_dtype_name ((train_dtype_t)i)) == 0)
            t->dtype = (train_dtype_t)i;
    if (strcmp (dtype, train_dtype_name (t->dtype)) != 0)
        return err_set (err, TRAIN_EFORMAT, "type '%s' is unknown", dtype);
    if (!json_is_array (shape) || json_array_size (shape) > TRAIN_MAX_DIMS)
        return err_set (err, TRAIN_EFORMAT, "'shape' has not 0..%d sizes",
                        TRAIN_MAX_DIMS);
    t->ndim = (int)json_array_size (shape);
    for (int i = 0; i < t->ndim; i++) {
        const json_t *size = json_array_get (shape, (size_t)i);

        t->shape[i] = json_is_integer (size) ? json_integer_value (size) : -1;
    }
    if ((t->numel = ckpt_numel (t->ndim, t->shape)) < 0)
        return err_set (err, TRAIN_EFORMAT, "'shape' is no shape");
    return TRAIN_OK;
}

static int by_name (const void *a, const void *b)
{
    return strcmp (((const struct ckpt_tensor *)a)->name,
                   ((const struct ckpt_tensor *)b)->name);
}

static train_status_t read_tensors (struct ckpt_manifest *m, train_error_t *err)
{
    json_t *tensors, *tensor;
    const char *name;

    TRY (want_object (m->root, "tensors", &tensors, err));
    m->tensor = calloc (json_object_size (tensors) + 1, sizeof (*m->tensor));
    if (!m->tensor)
        return err_set (err, TRAIN_ENOMEM, "no memory for a list of tensors");
    json_object_foreach (tensors, name, tensor)
    {
        struct ckpt_tensor *t = &m->tensor[m->n_tensors++];
        train_status_t status;

        t->name = name;
        if ((status = read_shape (t, tensor, err)) != TRAIN_OK
            || (status = read_pieces (m, t, tensor, err)) != TRAIN_OK)
            return err_prefix (err, status, "tensor '%s'", name);
    }
    qsort (m->tensor, m->n_tensors, sizeof (*m->tensor), by_name);
    return TRAIN_OK;
}

struct ckpt_tensor *ckpt_manifest_find (const struct ckpt_manifest *m,
                                        const char *name)
{
    struct ckpt_tensor key = {.name = name};

    return bsearch (&key, m->tensor, m->n_tensors, sizeof (key), by_name);
}

static train_status_t read_strings (const json_t *object, const char *what,
                                    train_error_t *err)
{
    json_t *value;
    const char *key;

    json_object_foreach ((json_t *)object, key, value) if (
        !json_is_string (value)) return err_set (err, TRAIN_EFORMAT,
                                                 "'%s' of %s is not a text",
                                                 key, what);
    return TRAIN_OK;
}

static train_status_t read_head (struct ckpt_manifest *m, train_error_t *err)
{
    int64_t world = 0;

    TRY (want_int (m->root, "step", INT64_MAX, &m->step, err));
    TRY (want_int (m->root, "world", INT_MAX, &world, err));
    TRY (want_text (m->root, "strategy", &m->strategy, err));
    TRY (want_text (m->root, "device", &m->device, err));
    TRY (want_text (m->root, "library", &m->library, err));
    TRY (want_object (m->root, "state", &m->state, err));
    TRY (want_object (m->root, "bytes", &m->bytes, err));
    TRY (read_strings (m->state, "state", err));
    TRY (read_strings (m->bytes, "bytes", err));
    m->world = (int)world;
    return TRAIN_OK;
}

/* Taken out of the tree, the sum must be that of the rest. */
static train_status_t check_sum (json_t *root, train_error_t *err)
{
    const char *format, *text;
    uint64_t sum = 0, here = 0;
    char *rest;

    TRY (want_text (root, "format", &format, err));
    if (strcmp (format, CKPT_FORMAT) != 0)
        return err_set (err, TRAIN_EFORMAT,
                        "format is '%s', this libtrain reads " CKPT_FORMAT,
                        format);
    TRY (want_text (root, "xxh3", &text, err));
    TRY (read_sum (text, &sum, err));
    json_object_del (root, "xxh3");
    if (!(rest = json_dumps (root, JSON_COMPACT | JSON_SORT_KEYS)))
        return err_set (err, TRAIN_ENOMEM, "no memory for a sum");
    here = XXH3_64bits (rest, strlen (rest));
    free (rest);
    return sum == here ? TRAIN_OK
                       : err_set (err, TRAIN_ECORRUPT,
                                  "it does not match its checksum");
}

void ckpt_manifest_fini (struct ckpt_manifest *m)
{
    for (size_t i = 0; i < m->n_tensors; i++) {
        free (m->tensor[i].range);
        free (m->tensor[i].stored);
    }
    free (m->tensor);
    free (m->file);
    json_decref (m->root);
    *m = (struct ckpt_manifest){0};
}

train_status_t ckpt_manifest_parse (const char *text, size_t n,
                                    struct ckpt_manifest *m, train_error_t *err)
{
    struct ckpt_manifest own = {0};
    json_error_t e;
    train_status_t status;

    own.root = json_loadb (text, n, JSON_REJECT_DUPLICATES, &e);
    if (!own.root && json_no_memory (&e))
        return err_set (err, TRAIN_ENOMEM, "no memory for a manifest");
    if (!json_is_object (own.root)) {
        json_decref (own.root);
        return err_set (err, TRAIN_EFORMAT, "no JSON object: %s in line %d",
                        own.root ? "something else" : e.text,
                        own.root ? 1 : e.line);
    }
    if ((status = check_sum (own.root, err)) == TRAIN_OK
        && (status = read_head (&own, err)) == TRAIN_OK
        && (status = read_files (&own, err)) == TRAIN_OK)
        status = read_tensors (&own, err);
    if (status == TRAIN_OK)
        *m = own;
    else
        ckpt_manifest_fini (&own);
    return status;
}
