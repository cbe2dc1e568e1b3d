/* SPDX-License-Identifier: Apache-2.0
 * hf_save.c - write a decoder as a Hugging Face directory */
#include "config.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include <train/safetensors.h>

#include "decoder_impl.h"
#include "elem.h"
#include "err.h"
#include "hf_impl.h"

#include "plan/fsio.h"

#define MAX_CONFIG ((size_t)16 << 20)
#define MAX_BESIDE ((size_t)256 << 20)
#define MAX_FILE   5000000000u

/* What is not the weights' but the text's: kept as it is. */
static const char *const beside[] = {
    "generation_config.json", "tokenizer.json",      "tokenizer_config.json",
    "tokenizer.model",        "vocab.json",          "merges.txt",
    "added_tokens.json",      "chat_template.jinja", "special_tokens_map.json",
};

static const char *type_name (train_dtype_t dtype)
{
    switch (dtype) {
    case TRAIN_F32:
        return "float32";
    case TRAIN_F64:
        return "float64";
    case TRAIN_BF16:
        return "bfloat16";
    case TRAIN_F16:
        return "float16";
    default:
        return NULL;
    }
}

/* Would Hugging Face compute the same by [from]'s config.json? */
static train_status_t same_model (const train_decoder_config_t *there,
                                  const train_decoder_config_t *here,
                                  train_error_t *err)
{
    const train_rope_t *a = &there->rope, *b = &here->rope;
    const struct {
        const char *name;
        double there, here;
    } v[] = {
        {"layers", there->layers, here->layers},
        {"dim", there->dim, here->dim},
        {"heads", there->heads, here->heads},
        {"kv_heads", there->kv_heads, here->kv_heads},
        {"head_dim", there->head_dim, here->head_dim},
        {"ffn", there->ffn, here->ffn},
        {"vocab", there->vocab, here->vocab},
        {"tie", there->tie, here->tie},
        {"qkv_bias", there->qkv_bias, here->qkv_bias},
        {"qk_norm", there->qk_norm, here->qk_norm},
        {"norm_eps", there->norm_eps, here->norm_eps},
        {"rope_theta", there->rope_theta, here->rope_theta},
        {"rope kind", a->kind, b->kind},
        {"rope factor", a->factor, b->factor},
        {"rope original", a->original, b->original},
        {"rope low", a->low, b->low},
        {"rope high", a->high, b->high},
        {"rope attention", a->attention, b->attention},
        {"rope whole", a->whole, b->whole},
    };

    for (size_t i = 0; i < sizeof (v) / sizeof (*v); i++)
        if (v[i].there < v[i].here || v[i].there > v[i].here)
            return err_set (err, TRAIN_EINVAL,
                            "config.json's %s is %g, the decoder's %g: give "
                            "the directory that describes it",
                            v[i].name, v[i].there, v[i].here);
    return TRAIN_OK;
}

/* The arena in memory of the host: malloc'ed and copied from a GPU; NULL where
 * it is there. */
static train_status_t bring (train_decoder_t *m, void **ret, train_error_t *err)
{
    size_t bytes = m->numel * m->kern->elem_size;
    train_status_t status;

    *ret = NULL;
    if (!m->gpu)
        return TRAIN_OK;
    if (!(*ret = malloc (bytes)))
        return err_set (err, TRAIN_ENOMEM, "no memory for %zu weights",
                        m->numel);
    status = m->ops->copy (*ret, m->weights.t.data, bytes, m->stream, err);
    if (status == TRAIN_OK)
        status = m->ops->sync (m->stream, err);
    if (status == TRAIN_OK)
        return TRAIN_OK;
    free (*ret);
    *ret = NULL;
    return status;
}

/* The whole arena on the host as [dtype], adapters merged, malloc'ed; NULL where
 * it is that already. */
static train_status_t convert (train_decoder_t *m, train_dtype_t dtype,
                               void **ret, train_error_t *err)
{
    train_status_t status = TRAIN_OK;
    const void *x;
    void *y;

    TRY (bring (m, ret, err));
    if (dtype == m->config.dtype && m->dims.lora.rank == 0)
        return TRAIN_OK;
    x = *ret ? *ret : m->weights.t.data;
    if ((y = calloc (m->numel, train_dtype_size (dtype))))
        for (size_t k = 0; k < m->numel; k++)
            elem_put (dtype, y, k, elem_get (m->config.dtype, x, k));
    if (y && m->dims.lora.rank > 0)
        status = decoder_lora_merge (m, x, y, dtype, err);
    free (*ret);
    *ret = y;
    if (!y)
        return err_set (err, TRAIN_ENOMEM, "no memory for %zu weights",
                        m->numel);
    return status;
}

static train_status_t write_weights (const char *dir, train_decoder_t *m,
                                     train_dtype_t dtype, size_t max_bytes,
                                     train_error_t *err)
{
    static const train_st_meta_t pt = {"format", "pt"};
    train_st_entry_t *entries = calloc (m->n_params, sizeof (*entries));
    const char *data = m->weights.t.data;
    train_status_t status;
    void *own = NULL;
    size_t n = 0;

    if (!entries)
        return err_set (err, TRAIN_ENOMEM, "no memory for a list of tensors");
    status = convert (m, dtype, &own, err);
    if (own)
        data = own;
    for (size_t i = 0; i < m->n_params; i++) {
        const train_param_t *p = &m->params[i];

        if (decoder_is_lora (p->name))
            continue;
        entries[n++] = (train_st_entry_t){
            .name = p->name,
            .dtype = dtype,
            .ndim = p->ndim,
            .shape = {p->shape[0], p->shape[1]},
            .data = data + p->offset * train_dtype_size (dtype),
        };
    }
    if (status == TRAIN_OK)
        status = train_safetensors_write_sharded (dir, NULL, entries, n, &pt, 1,
                                                  max_bytes, err);
    free (own);
    free (entries);
    return status;
}

/* The same text, unless it names another type: loaders cast to that. */
static train_status_t retype (char **text, size_t *n, const char *type,
                              train_error_t *err)
{
    static const char *const keys[] = {"dtype", "torch_dtype"};
    json_t *root = json_loadb (*text, *n, JSON_REJECT_DUPLICATES, NULL);
    bool changed = false, good = true;
    char *again;

    for (size_t i = 0; i < 2 && good; i++) {
        const char *old = json_string_value (hf_get (root, keys[i]));

        if (!old || strcmp (old, type) == 0)
            continue;
        good = json_object_set_new (root, keys[i], json_string (type)) == 0;
        changed = true;
    }
    again = changed && good ? json_dumps (root, JSON_INDENT (2)) : NULL;
    json_decref (root);
    if (changed && !again)
        return err_set (err, TRAIN_ENOMEM, "no memory for config.json");
    if (again) {
        free (*text);
        *text = again;
        *n = strlen (again);
    }
    return TRAIN_OK;
}

/* [name] of [from] to [dir]; type: not NULL for config.json, which must be
 * there. */
static train_status_t keep_file (const char *from, const char *dir,
                                 const char *name, const char *type,
                                 train_error_t *err)
{
    char *in = fsio_join (from, name), *out = fsio_join (dir, name);
    train_status_t status = TRAIN_OK;
    struct rv_error e = {0};
    char *text = NULL;
    size_t n = 0;
    int code = RV_ENOMEM;

    if (!in || !out)
        status = err_set (err, TRAIN_ENOMEM, "no memory for a path");
    else
        code = fsio_read (in, type ? MAX_CONFIG : MAX_BESIDE, &text, &n, &e);
    if (code == RV_OK && type)
        status = retype (&text, &n, type, err);
    if (code == RV_OK && status == TRAIN_OK)
        code = fsio_write (out, text, n, 0666, &e);
    if (status == TRAIN_OK && code != RV_OK
        && (type || code != RV_ENOTFOUND || text))
        status = err_from (err, &e);
    free (text);
    free (in);
    free (out);
    return status;
}

train_status_t train_hf_save (const char *from, const char *dir,
                              train_decoder_t *m, train_dtype_t dtype,
                              size_t max_bytes, train_error_t *err)
{
    train_hf_model_t model = {.size = sizeof (model)};
    struct rv_error e = {0};

    if (!from || !*from || !dir || !*dir || !m)
        return err_set (err, TRAIN_EINVAL,
                        "model: from, dir or decoder is missing");
    if (!type_name (dtype))
        return err_set (err, TRAIN_EINVAL,
                        "model: files of %s: F32, F64, BF16 and F16 work",
                        train_dtype_name (dtype));
    TRY (train_hf_describe (from, &model, err));
    TRY (same_model (&model.decoder, &m->config, err));
    if (fsio_mkdir_p (dir, 0777, &e) != RV_OK)
        return err_from (err, &e);
    TRY (write_weights (dir, m, dtype, max_bytes ? max_bytes : MAX_FILE, err));
    for (size_t i = 0; i < sizeof (beside) / sizeof (*beside); i++)
        TRY (keep_file (from, dir, beside[i], NULL, err));
    return keep_file (from, dir, "config.json", type_name (dtype), err);
}
