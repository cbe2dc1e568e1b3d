/* SPDX-License-Identifier: Apache-2.0
 * hf_config.c - a decoder's description from Hugging Face's config.json
 *
 * Keys that change what a model computes are known by name, with the defaults
 * of transformers' own classes, and refused where they are not served; keys
 * that do not (tokens' ids, initial ranges, caches) are passed over. */
#include <errno.h>
#include <limits.h>
#include <math.h>
#include <stddef.h>
#include <stdlib.h>
#include <string.h>

#include "decoder_impl.h"
#include "err.h"
#include "hf_impl.h"
#include "json_why.h"
#include "opts.h"

#include "plan/fsio.h"

#define MAX_BYTES ((size_t)16 << 20)
#define SERVED    "LlamaForCausalLM, Qwen2ForCausalLM and Qwen3ForCausalLM work"

struct arch {
    const char *type, *name;
    train_hf_arch_t arch;
};

static const struct arch archs[] = {
    {"llama", "LlamaForCausalLM", TRAIN_HF_LLAMA},
    {"qwen2", "Qwen2ForCausalLM", TRAIN_HF_QWEN2},
    {"qwen3", "Qwen3ForCausalLM", TRAIN_HF_QWEN3},
};

json_t *hf_get (const json_t *root, const char *key)
{
    json_t *value = json_object_get (root, key);

    return json_is_null (value) ? NULL : value;
}

train_status_t hf_int (const json_t *root, const char *key, int least,
                       int fallback, int *ret, train_error_t *err)
{
    const json_t *value = hf_get (root, key);
    json_int_t n = json_integer_value (value);

    if (!value && fallback < least)
        return err_set (err, TRAIN_EFORMAT, "'%s' is missing", key);
    if (!value) {
        *ret = fallback;
        return TRAIN_OK;
    }
    if (!json_is_integer (value))
        return err_set (err, TRAIN_EFORMAT, "'%s' is not a whole number", key);
    if (n < least || n > INT_MAX)
        return err_set (err, TRAIN_EFORMAT, "'%s' is %lld: must be in %d..%d",
                        key, (long long)n, least, INT_MAX);
    *ret = (int)n;
    return TRAIN_OK;
}

train_status_t hf_real (const json_t *root, const char *key, double *ret,
                        train_error_t *err)
{
    const json_t *value = hf_get (root, key);

    if (!value)
        return TRAIN_OK;
    if (!json_is_number (value))
        return err_set (err, TRAIN_EFORMAT, "'%s' is not a number", key);
    *ret = json_number_value (value);
    return TRAIN_OK;
}

train_status_t hf_bool (const json_t *root, const char *key, bool *ret,
                        train_error_t *err)
{
    const json_t *value = hf_get (root, key);

    if (!value)
        return TRAIN_OK;
    if (!json_is_boolean (value))
        return err_set (err, TRAIN_EFORMAT, "'%s' is not true or false", key);
    *ret = json_is_true (value);
    return TRAIN_OK;
}

/* "architectures" says what the weights are; "model_type" must agree, and
 * speaks alone where there is no list. */
static train_status_t find_arch (const json_t *root, train_hf_arch_t *ret,
                                 train_error_t *err)
{
    const json_t *list = hf_get (root, "architectures");
    const char *name = json_string_value (json_array_get (list, 0));
    const char *type = json_string_value (hf_get (root, "model_type"));

    if (list && (!name || json_array_size (list) != 1))
        return err_set (err, TRAIN_EFORMAT,
                        "'architectures' is not a list of one name: " SERVED);
    if (!list && !type)
        return err_set (err, TRAIN_EFORMAT,
                        "neither 'architectures' nor 'model_type' is there");
    for (size_t i = 0; i < sizeof (archs) / sizeof (*archs); i++) {
        const struct arch *a = &archs[i];

        if (name ? strcmp (name, a->name) != 0 : strcmp (type, a->type) != 0)
            continue;
        if (type && strcmp (type, a->type) != 0)
            return err_set (err, TRAIN_EFORMAT,
                            "'model_type' is '%s': of %s it is '%s'", type,
                            a->name, a->type);
        *ret = a->arch;
        return TRAIN_OK;
    }
    return err_set (err, TRAIN_ENOTSUP, "%s '%s' is not served: " SERVED,
                    name ? "architecture" : "model_type", name ? name : type);
}

/* What is served by its absence alone. */
static train_status_t refuse_flags (const json_t *root, train_error_t *err)
{
    static const char *const off[] = {"attention_bias", "mlp_bias"};
    static const char *const zero[] = {"attention_dropout"};
    const json_t *act = hf_get (root, "hidden_act");
    double x = 0;

    if (hf_get (root, "quantization_config"))
        return err_set (err, TRAIN_ENOTSUP,
                        "'quantization_config' is there: only unquantized "
                        "weights work (F32, BF16, F16)");
    for (size_t i = 0; i < sizeof (off) / sizeof (*off); i++) {
        bool on = false;

        TRY (hf_bool (root, off[i], &on, err));
        if (on)
            return err_set (err, TRAIN_ENOTSUP,
                            "'%s' is true: only false works", off[i]);
    }
    for (size_t i = 0; i < sizeof (zero) / sizeof (*zero); i++) {
        TRY (hf_real (root, zero[i], &x, err));
        if (x != 0)
            return err_set (err, TRAIN_ENOTSUP, "'%s' is %g: only 0 works",
                            zero[i], x);
    }
    if (act
        && (!json_is_string (act)
            || strcmp (json_string_value (act), "silu") != 0))
        return err_set (
            err, TRAIN_ENOTSUP, "'hidden_act' is %s: only silu works",
            json_is_string (act) ? json_string_value (act) : "not a string");
    return TRAIN_OK;
}

/* A window that some layer uses. One that is merely written down, as Qwen's
 * files have it, changes nothing. */
static train_status_t refuse_windows (const json_t *root,
                                      const train_hf_model_t *m,
                                      train_error_t *err)
{
    const json_t *types = hf_get (root, "layer_types");
    bool use = false;
    int from;
    json_t *type;
    size_t i;

    json_array_foreach (types, i, type)
    {
        const char *text = json_string_value (type);

        if (!text || strcmp (text, "full_attention") != 0)
            return err_set (err, TRAIN_ENOTSUP,
                            "'layer_types' has '%s' for layer %zu: only "
                            "full_attention works",
                            text ? text : "(no string)", i);
    }
    TRY (hf_bool (root, "use_sliding_window", &use, err));
    TRY (hf_int (root, "max_window_layers", 0, 28, &from, err));
    if (use && !types && from < m->decoder.layers
        && (hf_get (root, "sliding_window")
            || !json_object_get (root, "sliding_window")))
        return err_set (err, TRAIN_ENOTSUP,
                        "'use_sliding_window' is true and 'max_window_layers' "
                        "%d of %d layers: only full attention works",
                        from, m->decoder.layers);
    return TRAIN_OK;
}

static train_status_t sizes (const json_t *root, train_hf_model_t *m,
                             train_error_t *err)
{
    const bool qwen = m->arch != TRAIN_HF_LLAMA;
    train_decoder_config_t *c = &m->decoder;

    TRY (hf_int (root, "num_hidden_layers", 1, 0, &c->layers, err));
    TRY (hf_int (root, "hidden_size", 1, 0, &c->dim, err));
    TRY (hf_int (root, "num_attention_heads", 1, 0, &c->heads, err));
    TRY (hf_int (root, "intermediate_size", 1, 0, &c->ffn, err));
    TRY (hf_int (root, "vocab_size", 1, 0, &c->vocab, err));
    /* null is heads; not there at all is the class's own default */
    TRY (hf_int (
        root, "num_key_value_heads", 1,
        qwen && !json_object_get (root, "num_key_value_heads") ? 32 : c->heads,
        &c->kv_heads, err));
    /* Qwen2's class has no such key, but its attention follows it */
    c->head_dim = 0;
    if (hf_get (root, "head_dim") || m->arch == TRAIN_HF_QWEN3)
        TRY (hf_int (root, "head_dim", 1, 128, &c->head_dim, err));
    TRY (hf_int (root, "max_position_embeddings", 1, qwen ? 32768 : 2048,
                 &m->positions, err));
    c->norm_eps = 1e-6;
    TRY (hf_real (root, "rms_norm_eps", &c->norm_eps, err));
    return hf_bool (root, "tie_word_embeddings", &c->tie, err);
}

static train_status_t describe (const json_t *root, train_hf_model_t *m,
                                train_error_t *err)
{
    train_decoder_config_t *c = &m->decoder;

    if (!json_is_object (root))
        return err_set (err, TRAIN_EFORMAT, "not a JSON object");
    c->size = sizeof (*c);
    c->dtype = TRAIN_F32;
    TRY (find_arch (root, &m->arch, err));
    c->qkv_bias = m->arch == TRAIN_HF_QWEN2;
    c->qk_norm = m->arch == TRAIN_HF_QWEN3;
    TRY (sizes (root, m, err));
    TRY (refuse_flags (root, err));
    TRY (refuse_windows (root, m, err));
    TRY (hf_rope (root, m, err));
    /* the rest of the rules are the decoder's own */
    if (decoder_check (c, err) != TRAIN_OK) {
        if (err)
            err->code = TRAIN_EFORMAT;
        return TRAIN_EFORMAT;
    }
    if (c->head_dim == 0)
        c->head_dim = c->dim / c->heads;
    return TRAIN_OK;
}

train_status_t hf_parse (const char *text, size_t n,
                         train_hf_model_t *ret_model, train_error_t *err)
{
    train_hf_model_t m = {.size = sizeof (m)};
    json_error_t why;
    json_t *root = json_loadb (text, n, JSON_REJECT_DUPLICATES, &why);
    train_status_t status;

    if (!root && json_no_memory (&why))
        return err_set (err, TRAIN_ENOMEM, "no memory for a model's settings");
    if (!root)
        return err_set (err, TRAIN_EFORMAT, "line %d: %s", why.line, why.text);
    status = describe (root, &m, err);
    json_decref (root);
    if (status == TRAIN_OK)
        *ret_model = m;
    return status;
}

/* Into what the caller has, whose decoder, the last field, is as much shorter. */
static train_status_t give (train_hf_model_t *to, train_hf_model_t *m,
                            train_error_t *err)
{
    size_t head = offsetof (train_hf_model_t, decoder);

    if (to->size < sizeof (*m) && to->size > head)
        m->decoder.size = to->size - head;
    return opts_write (to, sizeof (*m), m, "model", err);
}

train_status_t train_hf_describe (const char *dir, train_hf_model_t *ret_model,
                                  train_error_t *err)
{
    train_hf_model_t m;
    struct rv_error e = {0};
    char *path, *text = NULL;
    size_t n = 0;
    train_status_t status;

    if (!dir || !*dir || !ret_model || ret_model->size < sizeof (size_t))
        return err_set (err, TRAIN_EINVAL,
                        "model: dir or ret_model is missing, or its size is "
                        "not set");
    if (!(path = fsio_join (dir, "config.json")))
        return err_set (err, TRAIN_ENOMEM, "no memory for a path");
    if (fsio_read (path, MAX_BYTES, &text, &n, &e) != RV_OK)
        status = err_from (err, &e);
    else if ((status = hf_parse (text, n, &m, err)) != TRAIN_OK
             || (status = give (ret_model, &m, err)) != TRAIN_OK)
        err_prefix (err, status, "%s", path);
    free (text);
    free (path);
    return status;
}
