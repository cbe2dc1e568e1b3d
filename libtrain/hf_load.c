/* SPDX-License-Identifier: Apache-2.0
 * hf_load.c - weights of a Hugging Face directory into a decoder */
#include "config.h"

#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include <train/safetensors.h>

#include "decoder_impl.h"
#include "err.h"
#include "hf_impl.h"

#include "kernels/half.h"
#include "plan/fsio.h"

#define SHAPE_MAX 128
#define WHOLE     "model.safetensors"
#define INDEX     "model.safetensors.index.json"

/* "[3, 4]" */
static const char *shape_text (int ndim, const int64_t *shape,
                               char text[SHAPE_MAX])
{
    size_t used = 0;

    text[0] = '\0';
    for (int i = 0; i < ndim && used < SHAPE_MAX; i++)
        used += (size_t)snprintf (text + used, SHAPE_MAX - used, "%s%" PRId64,
                                  i ? ", " : "", shape[i]);
    return text;
}

/* The file of [dir] that holds tensor [name], for messages: by the index, else
 * the one file. */
static char *file_of (const char *dir, const char *name)
{
    char *path = fsio_join (dir, WHOLE), *in;
    const char *file;
    json_t *root;

    if (!path || access (path, F_OK) == 0)
        return path;
    free (path);
    if (!(path = fsio_join (dir, INDEX)))
        return NULL;
    root = json_load_file (path, 0, NULL);
    file = json_string_value (
        json_object_get (json_object_get (root, "weight_map"), name));
    if (file && (in = fsio_join (dir, file))) {
        free (path);
        path = in;
    }
    json_decref (root);
    return path;
}

static train_status_t say (const char *dir, const char *name,
                           train_status_t status, const char *text,
                           train_error_t *err)
{
    char *file = file_of (dir, name);

    err_set (err, status, "%s: tensor '%s' %s", file ? file : dir, name, text);
    free (file);
    return status;
}

static bool has_floats (train_st_type_t type)
{
    return type == TRAIN_ST_F32 || type == TRAIN_ST_BF16 || type == TRAIN_ST_F16
           || type == TRAIN_ST_F64;
}

static train_status_t check_param (const train_safetensors_t *set,
                                   const char *dir, const train_param_t *p,
                                   train_error_t *err)
{
    const train_st_entry_t *e = train_safetensors_find (set, p->name);
    char want[SHAPE_MAX], found[SHAPE_MAX], text[2 * SHAPE_MAX + 64];

    shape_text (p->ndim, p->shape, want);
    if (!e) {
        snprintf (text, sizeof (text),
                  "is missing: expected [%s], found none of that name", want);
        return say (dir, p->name, TRAIN_EFORMAT, text, err);
    }
    if (e->ndim != p->ndim
        || memcmp (e->shape, p->shape, (size_t)p->ndim * sizeof (*e->shape))
               != 0) {
        snprintf (text, sizeof (text), "has the shape [%s]: expected [%s]",
                  shape_text (e->ndim, e->shape, found), want);
        return say (dir, p->name, TRAIN_EFORMAT, text, err);
    }
    if (!has_floats (e->type)) {
        snprintf (text, sizeof (text), "is %s: expected F32, BF16, F16 or F64",
                  train_st_type_name (e->type));
        return say (dir, p->name, TRAIN_ENOTSUP, text, err);
    }
    return TRAIN_OK;
}

/* Parameters that a model's files have. */
static size_t n_stored (const train_decoder_t *m)
{
    size_t n = 0;

    for (size_t i = 0; i < m->n_params; i++)
        n += !decoder_is_lora (m->params[i].name);
    return n;
}

/* Adapters are none of a model's files: who leaves them there must know. */
static bool is_param (const train_decoder_t *m, const char *name)
{
    for (size_t i = 0; i < m->n_params; i++)
        if (strcmp (m->params[i].name, name) == 0)
            return !decoder_is_lora (name);
    return false;
}

/* A tied head that is written out, or a table that follows from config.json. */
static bool may_stay (const train_decoder_t *m, const train_safetensors_t *set,
                      const train_st_entry_t *e)
{
    static const char table[] = ".rotary_emb.inv_freq";
    const train_st_entry_t *embed;
    size_t n = strlen (e->name), k = sizeof (table) - 1;

    if (n >= k && strcmp (e->name + n - k, table) == 0)
        return true;
    if (!m->config.tie || strcmp (e->name, "lm_head.weight") != 0)
        return false;
    embed = train_safetensors_find (set, "model.embed_tokens.weight");
    return embed && embed->type == e->type && embed->bytes == e->bytes
           && memcmp (embed->data, e->data, e->bytes) == 0;
}

static train_status_t check_surplus (const train_decoder_t *m,
                                     const train_safetensors_t *set,
                                     const char *dir, train_error_t *err)
{
    char found[SHAPE_MAX], text[SHAPE_MAX + 160];

    /* every parameter is there, so a set no larger has nothing else */
    if (train_safetensors_count (set) == n_stored (m))
        return TRAIN_OK;
    for (size_t i = 0; i < train_safetensors_count (set); i++) {
        const train_st_entry_t *e = train_safetensors_entry (set, i);

        if (is_param (m, e->name) || may_stay (m, set, e))
            continue;
        snprintf (text, sizeof (text),
                  "[%s] is not one of this model's: expected %s",
                  shape_text (e->ndim, e->shape, found),
                  m->config.tie && strcmp (e->name, "lm_head.weight") == 0
                      ? "the embedding's copy, as config.json ties it"
                      : "none of that name");
        return say (dir, e->name, TRAIN_EFORMAT, text, err);
    }
    return TRAIN_OK;
}

/* Element [k] of data that may lie at any address. */
static inline double element (const train_st_entry_t *e, size_t k)
{
    const char *p = e->data;
    uint16_t half;
    double wide;
    float x;

    switch (e->type) {
    case TRAIN_ST_F32:
        memcpy (&x, p + k * sizeof (x), sizeof (x));
        return (double)x;
    case TRAIN_ST_F64:
        memcpy (&wide, p + k * sizeof (wide), sizeof (wide));
        return wide;
    case TRAIN_ST_BF16:
        memcpy (&half, p + k * sizeof (half), sizeof (half));
        return (double)half_from_bf16 (half);
    default: /* F16: has_floats */
        memcpy (&half, p + k * sizeof (half), sizeof (half));
        return (double)half_from_f16 (half);
    }
}

static bool same_type (train_dtype_t dtype, train_st_type_t type)
{
    return (dtype == TRAIN_F64 && type == TRAIN_ST_F64)
           || (dtype == TRAIN_F32 && type == TRAIN_ST_F32)
           || (dtype == TRAIN_BF16 && type == TRAIN_ST_BF16)
           || (dtype == TRAIN_F16 && type == TRAIN_ST_F16);
}

/* All of [e] as [dtype], to [to]. What is wider than f32 is rounded twice on
 * its way to a half: to f32, then to the half. */
static void convert (void *to, train_dtype_t dtype, const train_st_entry_t *e,
                     size_t count)
{
    if (same_type (dtype, e->type)) {
        memcpy (to, e->data, e->bytes);
        return;
    }
    for (size_t k = 0; k < count; k++) {
        double x = element (e, k);

        if (dtype == TRAIN_F64)
            ((double *)to)[k] = x;
        else if (dtype == TRAIN_BF16)
            ((uint16_t *)to)[k] = half_to_bf16 ((float)x);
        else if (dtype == TRAIN_F16)
            ((uint16_t *)to)[k] = half_to_f16 ((float)x);
        else
            ((float *)to)[k] = (float)x;
    }
}

/* By way of [own], which has room for it, where the decoder is on a GPU. */
static train_status_t fill (train_decoder_t *m, const train_param_t *p,
                            const train_st_entry_t *e, void *own,
                            train_error_t *err)
{
    size_t esize = m->kern->elem_size;
    char *to = (char *)m->weights.t.data + p->offset * esize;

    convert (m->gpu ? own : to, m->config.dtype, e, p->count);
    if (!m->gpu)
        return TRAIN_OK;
    TRY (m->ops->copy (to, own, p->count * esize, m->stream, err));
    return m->ops->sync (m->stream, err);
}

static train_status_t fill_all (train_decoder_t *m,
                                const train_safetensors_t *set,
                                train_error_t *err)
{
    train_status_t status = TRAIN_OK;
    void *own = NULL;
    size_t most = 0;

    for (size_t i = 0; i < m->n_params; i++)
        most = m->params[i].count > most ? m->params[i].count : most;
    if (m->gpu && !(own = malloc (most * m->kern->elem_size)))
        return err_set (err, TRAIN_ENOMEM, "no memory for %zu weights", most);
    for (size_t i = 0; i < m->n_params && status == TRAIN_OK; i++)
        if (!decoder_is_lora (m->params[i].name))
            status = fill (m, &m->params[i],
                           train_safetensors_find (set, m->params[i].name), own,
                           err);
    free (own);
    return status;
}

train_status_t hf_open (const char *dir, const train_decoder_t *m,
                        train_safetensors_t **ret, train_error_t *err)
{
    train_safetensors_t *set = NULL;
    train_status_t status = train_safetensors_open_set (dir, &set, err);

    for (size_t i = 0; i < m->n_params && status == TRAIN_OK; i++)
        if (!decoder_is_lora (m->params[i].name))
            status = check_param (set, dir, &m->params[i], err);
    if (status == TRAIN_OK)
        status = check_surplus (m, set, dir, err);
    if (status == TRAIN_OK)
        *ret = set;
    else
        train_safetensors_close (set);
    return status;
}

void hf_unit (const train_decoder_t *m, const train_safetensors_t *files,
              size_t unit, uint64_t seed, void *weights)
{
    const struct decoder_unit *u = &m->units[unit];

    for (size_t i = 0; i < m->n_params; i++) {
        const train_param_t *p = &m->params[i];
        char *to;

        if (p->offset < u->first || p->offset - u->first >= u->count)
            continue;
        to = (char *)weights + (p->offset - u->first) * m->kern->elem_size;
        if (decoder_is_lora (p->name))
            decoder_init_param (m, i, seed, to);
        else
            convert (to, m->config.dtype,
                     train_safetensors_find (files, p->name), p->count);
    }
}

train_status_t train_hf_load (const char *dir, train_decoder_t *m,
                              train_error_t *err)
{
    train_safetensors_t *set = NULL;
    train_status_t status;

    if (!dir || !*dir || !m)
        return err_set (err, TRAIN_EINVAL, "model: dir or decoder is missing");
    TRY (hf_open (dir, m, &set, err));
    status = fill_all (m, set, err);
    train_safetensors_close (set);
    return status;
}
