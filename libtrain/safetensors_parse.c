/* SPDX-License-Identifier: Apache-2.0
 * safetensors_parse.c - check the header of a safetensors file
 *
 * The rules are those of the format section of the huggingface/safetensors
 * README. Ranges must tile the data without hole, overlap or rest, so a header
 * cannot make a reader look outside the file or at the same bytes twice. The
 * README forbids duplicate keys and integers in the metadata, although parsers
 * that let the last key win exist (huggingface/safetensors#401, #278). */
#include "safetensors.h"

#include <errno.h>
#include <stdlib.h>
#include <string.h>

#include "err.h"
#include "json_why.h"

/* An entry on its way, with its range in the data. */
struct item {
    train_st_entry_t e;
    uint64_t begin, end;
};

static train_status_t bad (train_error_t *err, const char *name,
                           const char *what)
{
    return err_set (err, TRAIN_EFORMAT, "tensor '%s': %s", name, what);
}

static bool get_size (const json_t *value, uint64_t *ret)
{
    if (!json_is_integer (value) || json_integer_value (value) < 0)
        return false;
    *ret = (uint64_t)json_integer_value (value);
    return true;
}

static train_status_t read_shape (struct item *it, const json_t *shape,
                                  uint64_t *ret_numel, train_error_t *err)
{
    uint64_t numel = 1, size;
    size_t n = json_array_size (shape);

    if (!json_is_array (shape))
        return bad (err, it->e.name, "'shape' is missing or not a list");
    for (size_t i = 0; i < n; i++) {
        if (!get_size (json_array_get (shape, i), &size))
            return bad (err, it->e.name,
                        "'shape' holds something that is not a whole number "
                        ">= 0");
        if (__builtin_mul_overflow (numel, size, &numel))
            return bad (err, it->e.name, "the product of 'shape' overflows");
        if (i < TRAIN_MAX_DIMS)
            it->e.shape[i] = (int64_t)size;
    }
    it->e.ndim = n > TRAIN_MAX_DIMS ? TRAIN_MAX_DIMS + 1 : (int)n;
    *ret_numel = numel;
    return TRAIN_OK;
}

static train_status_t read_dtype (struct item *it, const json_t *dtype,
                                  unsigned *ret_bits, train_error_t *err)
{
    const char *text = json_string_value (dtype);

    if (!text)
        return bad (err, it->e.name, "'dtype' is missing or not a string");
    it->e.type = st_type_of (text);
    if (it->e.type != TRAIN_ST_AUTO) {
        it->e.dtype = st_type_dtype (it->e.type);
        *ret_bits = train_st_type_bits (it->e.type);
        return TRAIN_OK;
    }
    return err_set (err, TRAIN_EFORMAT, "tensor '%s': unknown dtype '%s'",
                    it->e.name, text);
}

static train_status_t read_range (struct item *it, const json_t *offsets,
                                  train_error_t *err)
{
    if (!json_is_array (offsets) || json_array_size (offsets) != 2
        || !get_size (json_array_get (offsets, 0), &it->begin)
        || !get_size (json_array_get (offsets, 1), &it->end))
        return bad (err, it->e.name,
                    "'data_offsets' is not a list of two whole numbers >= 0");
    if (it->begin > it->end)
        return bad (err, it->e.name, "'data_offsets' run backwards");
    return TRAIN_OK;
}

/* Members other than the three are passed over, as the format's own reader
 * does. */
static train_status_t read_tensor (struct item *it, const char *name,
                                   const json_t *value, train_error_t *err)
{
    uint64_t numel = 0, bits;
    unsigned width = 0;
    train_status_t status;

    it->e.name = name;
    if (!json_is_object (value))
        return bad (err, name, "is not an object");
    status = read_dtype (it, json_object_get (value, "dtype"), &width, err);
    if (status == TRAIN_OK)
        status = read_shape (it, json_object_get (value, "shape"), &numel, err);
    if (status == TRAIN_OK)
        status = read_range (it, json_object_get (value, "data_offsets"), err);
    if (status != TRAIN_OK)
        return status;
    if (__builtin_mul_overflow (numel, (uint64_t)width, &bits))
        return bad (err, name, "its size in bits overflows");
    if (bits % 8)
        return bad (err, name, "its size is not a whole number of bytes");
    if (it->end - it->begin != bits / 8)
        return err_set (err, TRAIN_EFORMAT,
                        "tensor '%s': 'data_offsets' span %llu bytes, shape "
                        "and dtype need %llu",
                        name, (unsigned long long)(it->end - it->begin),
                        (unsigned long long)(bits / 8));
    it->e.bytes = (size_t)(bits / 8);
    return TRAIN_OK;
}

static train_status_t check_meta (const json_t *meta, train_error_t *err)
{
    const char *key;
    json_t *value;

    if (!json_is_object (meta))
        return err_set (err, TRAIN_EFORMAT, "'%s' is not an object",
                        ST_META_KEY);
    json_object_foreach ((json_t *)meta, key, value)
    {
        if (!json_is_string (value))
            return err_set (err, TRAIN_EFORMAT,
                            "'%s': the value of '%s' is not a string; only "
                            "strings are allowed there",
                            ST_META_KEY, key);
    }
    return TRAIN_OK;
}

static int by_range (const void *a, const void *b)
{
    const struct item *x = a, *y = b;

    if (x->begin != y->begin)
        return x->begin < y->begin ? -1 : 1;
    if (x->end != y->end)
        return x->end < y->end ? -1 : 1;
    return strcmp (x->e.name, y->e.name);
}

static train_status_t check_tiling (const struct item *items, size_t n,
                                    uint64_t data_bytes, train_error_t *err)
{
    uint64_t at = 0;

    for (size_t i = 0; i < n; i++) {
        if (items[i].begin != at)
            return err_set (err, TRAIN_EFORMAT,
                            "tensor '%s' begins at byte %llu of the data, but "
                            "the one before ends at %llu (%s)",
                            items[i].e.name, (unsigned long long)items[i].begin,
                            (unsigned long long)at,
                            items[i].begin > at ? "a hole" : "an overlap");
        at = items[i].end;
    }
    if (at != data_bytes)
        return err_set (err, TRAIN_EFORMAT,
                        "the tensors end at byte %llu of the data, the file "
                        "holds %llu (%s)",
                        (unsigned long long)at, (unsigned long long)data_bytes,
                        at > data_bytes ? "cut short" : "trailing bytes");
    return TRAIN_OK;
}

/* The file is sound; what libtrain cannot hold is refused last. */
static train_status_t check_support (const struct item *items, size_t n,
                                     train_error_t *err)
{
    for (size_t i = 0; i < n; i++) {
        if (items[i].e.ndim > TRAIN_MAX_DIMS)
            return err_set (err, TRAIN_ENOTSUP,
                            "tensor '%s': more than %d dimensions",
                            items[i].e.name, TRAIN_MAX_DIMS);
    }
    return TRAIN_OK;
}

static train_status_t read_items (json_t *root, struct item *items,
                                  size_t *ret_n, train_error_t *err)
{
    const char *key;
    json_t *value;
    size_t n = 0;

    json_object_foreach (root, key, value)
    {
        train_status_t status;

        if (strcmp (key, ST_META_KEY) == 0)
            status = check_meta (value, err);
        else
            status = read_tensor (&items[n++], key, value, err);
        if (status != TRAIN_OK)
            return status;
    }
    *ret_n = n;
    return TRAIN_OK;
}

static train_status_t load (const char *header, size_t n, json_t **ret_root,
                            train_error_t *err)
{
    json_error_t why;
    json_t *root;

    if (n == 0 || header[0] != '{')
        return err_set (err, TRAIN_EFORMAT,
                        "the header does not begin with '{'");
    root = json_loadb (header, n, JSON_REJECT_DUPLICATES, &why);
    if (!root && json_no_memory (&why))
        return err_set (err, TRAIN_ENOMEM,
                        "no memory for a header of %zu bytes", n);
    if (!root)
        return err_set (err, TRAIN_EFORMAT, "header, byte %d: %s", why.position,
                        why.text);
    *ret_root = root;
    return TRAIN_OK;
}

static train_status_t make_entries (const struct item *items, size_t n,
                                    const char *data,
                                    train_st_entry_t **ret_entries,
                                    train_error_t *err)
{
    train_st_entry_t *entries = NULL;

    if (n > 0 && !(entries = malloc (n * sizeof (*entries))))
        return err_set (err, TRAIN_ENOMEM, "no memory for %zu tensors", n);
    for (size_t i = 0; i < n; i++) {
        entries[i] = items[i].e;
        entries[i].data = data + items[i].begin;
    }
    *ret_entries = entries;
    return TRAIN_OK;
}

train_status_t st_parse (const char *header, size_t n, const char *data,
                         size_t data_bytes, json_t **ret_root,
                         train_st_entry_t **ret_entries, size_t *ret_count,
                         train_error_t *err)
{
    struct item *items = NULL;
    json_t *root = NULL;
    size_t count = 0;
    train_status_t status;

    if ((status = load (header, n, &root, err)) != TRAIN_OK)
        return status;
    items = calloc (json_object_size (root) + 1, sizeof (*items));
    if (!items) {
        status = err_set (err, TRAIN_ENOMEM, "no memory for %zu tensors",
                          json_object_size (root));
        goto out;
    }
    if ((status = read_items (root, items, &count, err)) != TRAIN_OK)
        goto out;
    qsort (items, count, sizeof (*items), by_range);
    if ((status = check_tiling (items, count, data_bytes, err)) != TRAIN_OK
        || (status = check_support (items, count, err)) != TRAIN_OK
        || (status = make_entries (items, count, data, ret_entries, err))
               != TRAIN_OK)
        goto out;
    *ret_root = root;
    *ret_count = count;
    root = NULL;
out:
    json_decref (root);
    free (items);
    return status;
}
