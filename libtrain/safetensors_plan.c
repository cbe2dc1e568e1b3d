/* SPDX-License-Identifier: Apache-2.0
 * safetensors_plan.c - lay out a safetensors file: order, sizes and header
 *
 * Larger elements come first, so that with a header padded to 8 every tensor
 * is aligned for its type. */
#include "safetensors.h"

#include <endian.h>
#include <stdlib.h>
#include <string.h>

#include "err.h"
#include "tokenizer_impl.h"

static int by_size_then_name (const void *a, const void *b)
{
    const train_st_entry_t *const *x = a, *const *y = b;
    unsigned p = train_st_type_bits (st_type_entry (*x));
    unsigned q = train_st_type_bits (st_type_entry (*y));

    if (p != q)
        return p > q ? -1 : 1;
    return strcmp ((*x)->name, (*y)->name);
}

train_status_t st_entry_bytes (const train_st_entry_t *e, size_t *ret_bytes,
                               train_error_t *err)
{
    unsigned bits = train_st_type_bits (st_type_entry (e));
    size_t n = bits;

    if (!e->name || strcmp (e->name, ST_META_KEY) == 0)
        return err_set (err, TRAIN_EINVAL,
                        "a tensor cannot be named '%s'; that name is the "
                        "format's",
                        e->name ? e->name : "(null)");
    if (bits == 0 || e->ndim < 0 || e->ndim > TRAIN_MAX_DIMS)
        return err_set (err, TRAIN_EINVAL,
                        "tensor '%s': unknown dtype, or not 0..%d dimensions",
                        e->name, TRAIN_MAX_DIMS);
    for (int i = 0; i < e->ndim; i++) {
        if (e->shape[i] < 0
            || __builtin_mul_overflow (n, (size_t)e->shape[i], &n)
            || n > INT64_MAX)
            return err_set (err, TRAIN_EINVAL,
                            "tensor '%s': size %lld of dimension %d is "
                            "negative or too large",
                            e->name, (long long)e->shape[i], i);
    }
    if (n % 8)
        return err_set (err, TRAIN_EINVAL,
                        "tensor '%s': its size is not a whole number of bytes",
                        e->name);
    *ret_bytes = n / 8;
    return TRAIN_OK;
}

static train_status_t no_memory (train_error_t *err)
{
    return err_set (err, TRAIN_ENOMEM, "no memory for the header");
}

static bool is_text (const char *text)
{
    return text && utf8_valid (text, strlen (text)) == strlen (text);
}

static train_status_t add_meta (json_t *root, const train_st_meta_t *meta,
                                size_t n, train_error_t *err)
{
    json_t *object = json_object ();

    if (json_object_set_new (root, ST_META_KEY, object) < 0)
        return no_memory (err);
    for (size_t i = 0; i < n; i++) {
        const char *key = meta[i].key;

        if (!is_text (key) || !is_text (meta[i].value))
            return err_set (err, TRAIN_EINVAL,
                            "metadata '%s': key and value must be UTF-8",
                            key ? key : "(null)");
        if (json_object_get (object, key))
            return err_set (err, TRAIN_EINVAL, "metadata key '%s' twice", key);
        if (json_object_set_new (object, key, json_string (meta[i].value)) < 0)
            return no_memory (err);
    }
    return TRAIN_OK;
}

/* NULL: no memory. */
static json_t *entry_json (const train_st_entry_t *e, size_t begin, size_t end)
{
    json_t *shape = json_array ();

    for (int i = 0; i < e->ndim; i++)
        if (json_array_append_new (shape, json_integer (e->shape[i])) < 0) {
            json_decref (shape);
            return NULL;
        }
    return json_pack ("{s:s, s:o, s:[I, I]}", "dtype",
                      train_st_type_name (st_type_entry (e)), "shape", shape,
                      "data_offsets", (json_int_t)begin, (json_int_t)end);
}

static train_status_t add_entries (struct st_plan *plan, json_t *root,
                                   train_error_t *err)
{
    size_t at = 0;

    for (size_t i = 0; i < plan->n; i++) {
        const train_st_entry_t *e = plan->order[i];
        size_t end;

        if (json_object_get (root, e->name))
            return err_set (err, TRAIN_EINVAL, "tensor '%s' twice", e->name);
        if (__builtin_add_overflow (at, plan->bytes[i], &end)
            || end > INT64_MAX / 8)
            return err_set (err, TRAIN_EINVAL, "the tensors are too large");
        if (!is_text (e->name))
            return err_set (err, TRAIN_EINVAL,
                            "tensor '%s': the name must be UTF-8", e->name);
        if (json_object_set_new (root, e->name, entry_json (e, at, end)) < 0)
            return no_memory (err);
        at = end;
    }
    return TRAIN_OK;
}

static train_status_t dump_header (struct st_plan *plan, const json_t *root,
                                   train_error_t *err)
{
    size_t n = json_dumpb (root, NULL, 0, JSON_COMPACT);
    size_t padded = (n + 7) / 8 * 8;
    uint64_t le = htole64 (padded);

    if (padded > ST_MAX_HEADER)
        return err_set (err, TRAIN_EINVAL,
                        "a header of %zu bytes is over the format's %d", padded,
                        ST_MAX_HEADER);
    if (n == 0 || !(plan->header = malloc (8 + padded)))
        return no_memory (err);
    memcpy (plan->header, &le, 8);
    memset (plan->header + 8, ' ', padded);
    if (json_dumpb (root, plan->header + 8, n, JSON_COMPACT) != n)
        return no_memory (err);
    plan->header_bytes = 8 + padded;
    return TRAIN_OK;
}

void st_plan_fini (struct st_plan *plan)
{
    free (plan->order);
    free (plan->bytes);
    free (plan->header);
}

static train_status_t plan_order (struct st_plan *plan,
                                  const train_st_entry_t *entries, size_t n,
                                  train_error_t *err)
{
    train_status_t status;

    plan->n = n;
    plan->order = calloc (n + 1, sizeof (*plan->order));
    plan->bytes = calloc (n + 1, sizeof (*plan->bytes));
    if (!plan->order || !plan->bytes)
        return err_set (err, TRAIN_ENOMEM, "no memory for %zu tensors", n);
    for (size_t i = 0; i < n; i++) {
        plan->order[i] = &entries[i];
        if ((status = st_entry_bytes (&entries[i], &plan->bytes[i], err))
            != TRAIN_OK)
            return status;
    }
    qsort (plan->order, n, sizeof (*plan->order), by_size_then_name);
    for (size_t i = 0; i < n; i++)
        st_entry_bytes (plan->order[i], &plan->bytes[i], NULL);
    return TRAIN_OK;
}

train_status_t st_plan_init (struct st_plan *plan,
                             const train_st_entry_t *entries, size_t n,
                             const train_st_meta_t *meta, size_t n_meta,
                             train_error_t *err)
{
    json_t *root = NULL;
    train_status_t status = plan_order (plan, entries, n, err);

    if (status != TRAIN_OK)
        return status;
    if (!(root = json_object ()))
        return no_memory (err);
    if (n_meta > 0)
        status = add_meta (root, meta, n_meta, err);
    if (status == TRAIN_OK)
        status = add_entries (plan, root, err);
    if (status == TRAIN_OK)
        status = dump_header (plan, root, err);
    json_decref (root);
    return status;
}
