/* SPDX-License-Identifier: Apache-2.0
 * ckpt_meta.c - write, read and check the metadata of a checkpoint */
#include "ckpt_meta.h"

#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <xxhash.h>

#include "err.h"

enum kind { K_INT, K_BOOL, K_I64, K_U64, K_DOUBLE, K_DTYPE };

struct field {
    const char *key;
    enum kind kind;
    size_t offset;
};

#define STATE(key, kind)                                                       \
    {                                                                          \
#key, kind, offsetof(train_ckpt_state_t, key)                          \
    }
#define MODEL(key, kind)                                                       \
    {                                                                          \
#key, kind, offsetof(train_decoder_config_t, key)                      \
    }
#define COUNT(a) (sizeof (a) / sizeof (*(a)))

static const struct field state_field[] = {
    STATE (step, K_I64),     STATE (updates, K_I64),   STATE (skipped, K_I64),
    STATE (skip_run, K_I64), STATE (tokens, K_I64),    STATE (position, K_I64),
    STATE (seq, K_I64),      STATE (batch, K_I64),     STATE (shuffle, K_BOOL),
    STATE (seed, K_U64),     STATE (data_hash, K_U64),
};

static const struct field model_field[] = {
    MODEL (layers, K_INT),      MODEL (dim, K_INT),
    MODEL (heads, K_INT),       MODEL (kv_heads, K_INT),
    MODEL (ffn, K_INT),         MODEL (vocab, K_INT),
    MODEL (tie, K_BOOL),        MODEL (rope_theta, K_DOUBLE),
    MODEL (norm_eps, K_DOUBLE), MODEL (dtype, K_DTYPE),
};

#define VALUE_MAX 40 /* of any kind, NUL included */

static void to_text (const struct field *f, const void *base, char *text)
{
    const void *p = (const char *)base + f->offset;

    switch (f->kind) {
    case K_INT:
        snprintf (text, VALUE_MAX, "%d", *(const int *)p);
        break;
    case K_BOOL:
        snprintf (text, VALUE_MAX, "%s", *(const bool *)p ? "on" : "off");
        break;
    case K_I64:
        snprintf (text, VALUE_MAX, "%" PRId64, *(const int64_t *)p);
        break;
    case K_U64:
        snprintf (text, VALUE_MAX, "%" PRIu64, *(const uint64_t *)p);
        break;
    case K_DOUBLE:
        snprintf (text, VALUE_MAX, "%.17g", *(const double *)p);
        break;
    case K_DTYPE:
        snprintf (text, VALUE_MAX, "%s",
                  train_dtype_name (*(const train_dtype_t *)p));
        break;
    }
}

/* Text that does not come back as itself is not ours: no sign, blank, zero in
 * front or value out of range passes. */
static int from_text (const struct field *f, void *base, const char *text)
{
    void *p = (char *)base + f->offset;
    char again[VALUE_MAX];

    switch (f->kind) {
    case K_INT:
        *(int *)p = (int)strtol (text, NULL, 10);
        break;
    case K_BOOL:
        *(bool *)p = strcmp (text, "on") == 0;
        break;
    case K_I64:
        *(int64_t *)p = strtoll (text, NULL, 10);
        if (*(int64_t *)p < 0)
            return -1;
        break;
    case K_U64:
        *(uint64_t *)p = strtoull (text, NULL, 10);
        break;
    case K_DOUBLE:
        *(double *)p = strtod (text, NULL);
        break;
    case K_DTYPE:
        *(train_dtype_t *)p = strcmp (text, "F64") == 0 ? TRAIN_F64 : TRAIN_F32;
        break;
    }
    to_text (f, base, again);
    return strcmp (text, again) == 0 ? 0 : -1;
}

void ckpt_meta_fini (struct ckpt_meta *meta)
{
    for (size_t i = 0; i < meta->n; i++) {
        free ((char *)meta->item[i].key);
        free ((char *)meta->item[i].value);
    }
    free (meta->item);
    *meta = (struct ckpt_meta){0};
}

static train_status_t add (struct ckpt_meta *meta, const char *key,
                           const char *value, train_error_t *err)
{
    train_st_meta_t *p =
        realloc (meta->item, (meta->n + 1) * sizeof (*meta->item));

    if (!p)
        return err_set (err, TRAIN_ENOMEM, "no memory for metadata");
    meta->item = p;
    p += meta->n++;
    p->key = strdup (key);
    p->value = strdup (value);
    if (!p->key || !p->value)
        return err_set (err, TRAIN_ENOMEM, "no memory for metadata");
    return TRAIN_OK;
}

static train_status_t add_fields (struct ckpt_meta *meta, const struct field *f,
                                  size_t n, const void *base,
                                  train_error_t *err)
{
    train_status_t status = TRAIN_OK;
    char text[VALUE_MAX];

    for (size_t i = 0; i < n && status == TRAIN_OK; i++) {
        to_text (&f[i], base, text);
        status = add (meta, f[i].key, text, err);
    }
    return status;
}

train_status_t ckpt_meta_write (struct ckpt_meta *meta,
                                const train_ckpt_state_t *state,
                                const train_decoder_config_t *config,
                                train_error_t *err)
{
    train_status_t status = add (meta, "format", CKPT_FORMAT, err);

    if (status == TRAIN_OK)
        status =
            add_fields (meta, state_field, COUNT (state_field), state, err);
    if (status == TRAIN_OK)
        status =
            add_fields (meta, model_field, COUNT (model_field), config, err);
    return status;
}

static void digest_of (const train_st_entry_t *e, char *text)
{
    snprintf (text, VALUE_MAX, "%016" PRIx64,
              (uint64_t)XXH3_64bits (e->data, e->bytes));
}

/* A malloc'ed "xxh3.NAME". */
static char *digest_key (const char *name)
{
    size_t size = strlen (name) + sizeof ("xxh3.");
    char *key = malloc (size);

    if (key)
        snprintf (key, size, "xxh3.%s", name);
    return key;
}

train_status_t ckpt_meta_tensors (struct ckpt_meta *meta,
                                  const train_st_entry_t *entries, size_t n,
                                  train_error_t *err)
{
    train_status_t status = TRAIN_OK;
    char text[VALUE_MAX];

    for (size_t i = 0; i < n && status == TRAIN_OK; i++) {
        char *key = digest_key (entries[i].name);

        if (!key)
            return err_set (err, TRAIN_ENOMEM, "no memory for metadata");
        digest_of (&entries[i], text);
        status = add (meta, key, text, err);
        free (key);
    }
    return status;
}

static int by_key (const void *a, const void *b)
{
    return strcmp (((const train_st_meta_t *)a)->key,
                   ((const train_st_meta_t *)b)->key);
}

train_status_t ckpt_meta_seal (struct ckpt_meta *meta, train_error_t *err)
{
    XXH3_state_t *x = XXH3_createState ();
    char text[VALUE_MAX];

    if (!x)
        return err_set (err, TRAIN_ENOMEM, "no memory for a checksum");
    qsort (meta->item, meta->n, sizeof (*meta->item), by_key);
    XXH3_64bits_reset (x);
    for (size_t i = 0; i < meta->n; i++) { /* with their NULs: no ambiguity */
        const train_st_meta_t *m = &meta->item[i];

        XXH3_64bits_update (x, m->key, strlen (m->key) + 1);
        XXH3_64bits_update (x, m->value, strlen (m->value) + 1);
    }
    snprintf (text, sizeof (text), "%016" PRIx64,
              (uint64_t)XXH3_64bits_digest (x));
    XXH3_freeState (x);
    return add (meta, "xxh3", text, err);
}

/* Copy [key] of [file] into [meta]. */
static train_status_t copy (struct ckpt_meta *meta,
                            const train_safetensors_t *file, const char *key,
                            train_error_t *err)
{
    const char *value = train_safetensors_meta (file, key);

    if (!value)
        return err_set (err, TRAIN_EFORMAT, "its metadata have no '%s'", key);
    return add (meta, key, value, err);
}

static train_status_t copy_digests (struct ckpt_meta *meta,
                                    const train_safetensors_t *file,
                                    const train_safetensors_t *of,
                                    train_error_t *err)
{
    size_t n = train_safetensors_count (of);
    train_status_t status = TRAIN_OK;

    for (size_t i = 0; i < n && status == TRAIN_OK; i++) {
        char *key = digest_key (train_safetensors_entry (of, i)->name);

        status = key ? copy (meta, file, key, err)
                     : err_set (err, TRAIN_ENOMEM, "no memory for metadata");
        free (key);
    }
    return status;
}

/* Rebuild from [file] what was sealed, and seal it again. */
static train_status_t reseal (struct ckpt_meta *meta,
                              const train_safetensors_t *file,
                              const train_safetensors_t *model,
                              train_error_t *err)
{
    train_status_t status = copy (meta, file, "format", err);

    for (size_t i = 0; i < COUNT (state_field) && status == TRAIN_OK; i++)
        status = copy (meta, file, state_field[i].key, err);
    for (size_t i = 0; i < COUNT (model_field) && status == TRAIN_OK; i++)
        status = copy (meta, file, model_field[i].key, err);
    if (status == TRAIN_OK)
        status = copy_digests (meta, file, file, err);
    if (status == TRAIN_OK)
        status = copy_digests (meta, file, model, err);
    if (status == TRAIN_OK)
        status = ckpt_meta_seal (meta, err);
    return status;
}

static train_status_t check_bytes (const train_safetensors_t *file,
                                   const train_safetensors_t *of,
                                   train_error_t *err)
{
    size_t n = train_safetensors_count (of);
    char text[VALUE_MAX];

    for (size_t i = 0; i < n; i++) {
        const train_st_entry_t *e = train_safetensors_entry (of, i);
        char *key = digest_key (e->name);
        const char *want = key ? train_safetensors_meta (file, key) : NULL;

        free (key);
        digest_of (e, text);
        if (!want || strcmp (want, text) != 0)
            return err_set (err, TRAIN_ECORRUPT,
                            "tensor '%s' does not match its checksum", e->name);
    }
    return TRAIN_OK;
}

train_status_t ckpt_meta_check (const train_safetensors_t *file,
                                const train_safetensors_t *model,
                                train_error_t *err)
{
    struct ckpt_meta meta = {0};
    const char *sealed = train_safetensors_meta (file, "xxh3");
    const char *format = train_safetensors_meta (file, "format");
    const char *layout = train_safetensors_meta (model, "format");
    train_status_t status;

    if (!layout || strcmp (layout, "pt") != 0)
        return err_set (err, TRAIN_EFORMAT,
                        "the weights' format is '%s' and not 'pt'",
                        layout ? layout : "");
    if (!format || strcmp (format, CKPT_FORMAT) != 0)
        return err_set (err, TRAIN_EFORMAT,
                        "format is '%s', this program reads '" CKPT_FORMAT "'",
                        format ? format : "");
    status = reseal (&meta, file, model, err);
    if (status == TRAIN_OK
        && (!sealed || strcmp (sealed, meta.item[meta.n - 1].value) != 0))
        status = err_set (err, TRAIN_ECORRUPT,
                          "its metadata do not match their checksum");
    if (status == TRAIN_OK)
        status = check_bytes (file, file, err);
    if (status == TRAIN_OK)
        status = check_bytes (file, model, err);
    ckpt_meta_fini (&meta);
    return status;
}

static train_status_t read_fields (const train_safetensors_t *file,
                                   const struct field *f, size_t n, void *base,
                                   train_error_t *err)
{
    for (size_t i = 0; i < n; i++) {
        const char *text = train_safetensors_meta (file, f[i].key);

        if (!text || from_text (&f[i], base, text) < 0)
            return err_set (err, TRAIN_EFORMAT,
                            "its metadata have '%s' for '%s'",
                            text ? text : "nothing", f[i].key);
    }
    return TRAIN_OK;
}

train_status_t ckpt_meta_read (const train_safetensors_t *file,
                               train_ckpt_state_t *ret_state,
                               train_decoder_config_t *ret_config,
                               train_error_t *err)
{
    train_ckpt_state_t state = {.size = sizeof (state)};
    train_decoder_config_t config = {.size = sizeof (config)};
    train_status_t status =
        read_fields (file, state_field, COUNT (state_field), &state, err);

    if (status == TRAIN_OK)
        status =
            read_fields (file, model_field, COUNT (model_field), &config, err);
    if (status == TRAIN_OK) {
        *ret_state = state;
        *ret_config = config;
    }
    return status;
}

train_status_t ckpt_meta_same_model (const train_decoder_config_t *there,
                                     const train_decoder_config_t *here,
                                     train_error_t *err)
{
    char list[256] = "", a[VALUE_MAX], b[VALUE_MAX];
    size_t used = 0;

    for (size_t i = 0; i < COUNT (model_field); i++) {
        to_text (&model_field[i], there, a);
        to_text (&model_field[i], here, b);
        if (strcmp (a, b) == 0 || used >= sizeof (list))
            continue;
        used += (size_t)snprintf (list + used, sizeof (list) - used,
                                  "%s%s is %s there and %s here",
                                  used ? ", " : "", model_field[i].key, a, b);
    }
    return used ? err_set (err, TRAIN_EINVAL, "%s", list) : TRAIN_OK;
}
