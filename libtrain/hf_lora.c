/* SPDX-License-Identifier: Apache-2.0
 * hf_lora.c - adapters as PEFT keeps them: adapter_config.json and
 * adapter_model.safetensors */
#include "config.h"

#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include <train/safetensors.h>

#include "decoder_impl.h"
#include "elem.h"
#include "err.h"
#include "hf_impl.h"

#include "plan/fsio.h"

#define CONFIG     "adapter_config.json"
#define MODEL      "adapter_model.safetensors"
#define PREFIX     "base_model.model."
#define MAX_CONFIG ((size_t)1 << 20)
#define NAME_MAX_  (DECODER_NAME_MAX + sizeof (PREFIX))

/* Keys that change what an adapter computes, and the value that changes
 * nothing: false, null, nothing in it, or the text. */
static train_status_t refuse_more (const json_t *root, train_error_t *err)
{
    static const char *const keys[] = {
        "use_rslora",      "use_dora",          "fan_in_fan_out",
        "lora_bias",       "rank_pattern",      "alpha_pattern",
        "modules_to_save", "layer_replication", "layers_to_transform",
        "exclude_modules", "target_parameters", "trainable_token_indices",
    };
    const char *bias = json_string_value (hf_get (root, "bias"));

    for (size_t i = 0; i < sizeof (keys) / sizeof (*keys); i++) {
        const json_t *v = hf_get (root, keys[i]);

        if (!v || json_is_false (v)
            || (json_is_object (v) && json_object_size (v) == 0)
            || (json_is_array (v) && json_array_size (v) == 0))
            continue;
        return err_set (err, TRAIN_ENOTSUP,
                        "'%s' asks for more than is served; without it works",
                        keys[i]);
    }
    if (bias && strcmp (bias, "none") != 0)
        return err_set (err, TRAIN_ENOTSUP, "'bias' is '%s': none works", bias);
    return TRAIN_OK;
}

static train_status_t read_targets (const json_t *root, int *ret,
                                    train_error_t *err)
{
    const json_t *list = hf_get (root, "target_modules");
    const char *all = json_string_value (list);

    if (all && strcmp (all, "all-linear") == 0)
        return train_lora_targets (all, ret, err);
    if (!json_is_array (list) || json_array_size (list) == 0)
        return err_set (err, TRAIN_ENOTSUP,
                        "'target_modules' is no list of names, nor all-linear");
    *ret = 0;
    for (size_t i = 0; i < json_array_size (list); i++) {
        const char *name = json_string_value (json_array_get (list, i));
        int k = 0;

        while (k < TRAIN_LORA_N
               && (!name || strcmp (name, train_lora_target (k)) != 0))
            k++;
        if (k == TRAIN_LORA_N)
            return err_set (err, TRAIN_ENOTSUP,
                            "'target_modules' has '%s': q_proj, k_proj, "
                            "v_proj, o_proj, gate_proj, up_proj and down_proj "
                            "work",
                            name ? name : "what is no text");
        *ret |= 1 << k;
    }
    return TRAIN_OK;
}

static train_status_t parse (const char *text, size_t n, train_lora_t *ret,
                             train_error_t *err)
{
    json_error_t at;
    json_t *root = json_loadb (text, n, JSON_REJECT_DUPLICATES, &at);
    const char *type = json_string_value (hf_get (root, "peft_type"));
    train_status_t status = TRAIN_OK;
    train_lora_t o = {0};

    if (!root)
        return err_set (err, TRAIN_EFORMAT, "line %d: %s", at.line, at.text);
    o.alpha = 8; /* PEFT's own, of both */
    if (!type || strcmp (type, "LORA") != 0)
        status = err_set (err, TRAIN_ENOTSUP, "'peft_type' is '%s': LORA works",
                          type ? type : "missing");
    if (status == TRAIN_OK)
        status = refuse_more (root, err);
    if (status == TRAIN_OK)
        status = hf_int (root, "r", 1, 8, &o.rank, err);
    if (status == TRAIN_OK)
        status = hf_real (root, "lora_alpha", &o.alpha, err);
    if (status == TRAIN_OK)
        status = read_targets (root, &o.targets, err);
    json_decref (root);
    if (status == TRAIN_OK)
        *ret = o;
    return status;
}

train_status_t train_hf_lora_describe (const char *dir, train_lora_t *ret_lora,
                                       train_error_t *err)
{
    train_status_t status = TRAIN_OK;
    struct rv_error e = {0};
    char *path, *text = NULL;
    size_t n = 0;

    if (!dir || !*dir || !ret_lora)
        return err_set (err, TRAIN_EINVAL, "lora: dir or ret_lora is missing");
    if (!(path = fsio_join (dir, CONFIG)))
        return err_set (err, TRAIN_ENOMEM, "no memory for a path");
    if (fsio_read (path, MAX_CONFIG, &text, &n, &e) != RV_OK)
        status = err_from (err, &e);
    else if ((status = parse (text, n, ret_lora, err)) != TRAIN_OK)
        err_prefix (err, status, "%s", path);
    free (text);
    free (path);
    return status;
}

static bool has_floats (train_st_type_t type)
{
    return type == TRAIN_ST_F32 || type == TRAIN_ST_BF16 || type == TRAIN_ST_F16
           || type == TRAIN_ST_F64;
}

static train_dtype_t dtype_of (train_st_type_t type)
{
    return type == TRAIN_ST_F64    ? TRAIN_F64
           : type == TRAIN_ST_BF16 ? TRAIN_BF16
           : type == TRAIN_ST_F16  ? TRAIN_F16
                                   : TRAIN_F32;
}

static const train_st_entry_t *entry_of (const train_safetensors_t *file,
                                         const train_param_t *p)
{
    char name[NAME_MAX_];

    snprintf (name, sizeof (name), PREFIX "%s", p->name);
    return train_safetensors_find (file, name);
}

static train_status_t check_file (const train_decoder_t *m,
                                  const train_safetensors_t *file,
                                  train_error_t *err)
{
    size_t n = 0;

    for (size_t i = 0; i < m->n_params; i++) {
        const train_param_t *p = &m->params[i];
        const train_st_entry_t *e;

        if (!decoder_is_lora (p->name))
            continue;
        n++;
        if (!(e = entry_of (file, p)))
            return err_set (err, TRAIN_EFORMAT,
                            "tensor '" PREFIX "%s' is missing", p->name);
        if (e->ndim != 2 || e->shape[0] != p->shape[0]
            || e->shape[1] != p->shape[1] || !has_floats (e->type))
            return err_set (err, TRAIN_EFORMAT,
                            "tensor '%s' is not [%" PRId64 ", %" PRId64
                            "] of F32, BF16, F16 or F64",
                            e->name, p->shape[0], p->shape[1]);
    }
    if (n != train_safetensors_count (file))
        return err_set (err, TRAIN_EFORMAT,
                        "it has %zu tensors, and the decoder's adapters are "
                        "%zu",
                        train_safetensors_count (file), n);
    return TRAIN_OK;
}

/* By way of the host's memory; the file's bytes may lie at any address. */
static train_status_t fill (train_decoder_t *m, const train_param_t *p,
                            const train_st_entry_t *e, train_error_t *err)
{
    size_t esize = m->kern->elem_size;
    char *to = (char *)m->weights.t.data + p->offset * esize;
    void *raw = malloc (e->bytes), *own = malloc (p->count * esize);
    train_status_t status;

    if (!raw || !own) {
        free (raw);
        free (own);
        return err_set (err, TRAIN_ENOMEM, "no memory for %zu weights",
                        p->count);
    }
    memcpy (raw, e->data, e->bytes);
    for (size_t k = 0; k < p->count; k++)
        elem_put (m->config.dtype, own, k,
                  elem_get (dtype_of (e->type), raw, k));
    status = m->ops->copy (to, own, p->count * esize, m->stream, err);
    if (status == TRAIN_OK)
        status = m->ops->sync (m->stream, err);
    free (raw);
    free (own);
    return status;
}

static train_status_t same_lora (const train_lora_t *there,
                                 const train_lora_t *here, train_error_t *err)
{
    if (there->rank == here->rank && there->targets == here->targets
        && !(there->alpha < here->alpha || there->alpha > here->alpha))
        return TRAIN_OK;
    return err_set (err, TRAIN_EINVAL,
                    "adapters of rank %d, alpha %g, targets %#x there, of "
                    "rank %d, alpha %g, targets %#x in the decoder",
                    there->rank, there->alpha, (unsigned)there->targets,
                    here->rank, here->alpha, (unsigned)here->targets);
}

static train_status_t check_decoder (const char *dir, const train_decoder_t *m,
                                     train_error_t *err)
{
    if (!dir || !*dir || !m)
        return err_set (err, TRAIN_EINVAL, "lora: dir or decoder is missing");
    if (m->dims.lora.rank == 0)
        return err_set (err, TRAIN_EINVAL, "lora: the decoder has no adapters");
    if (!m->weights.t.data)
        return err_set (err, TRAIN_ESTATE, "lora: the decoder has no arena");
    return TRAIN_OK;
}

train_status_t train_hf_lora_load (const char *dir, train_decoder_t *m,
                                   train_error_t *err)
{
    train_safetensors_t *file = NULL;
    train_status_t status;
    train_lora_t there;
    char *path;

    TRY (check_decoder (dir, m, err));
    TRY (train_hf_lora_describe (dir, &there, err));
    TRY (same_lora (&there, &m->dims.lora, err));
    if (!(path = fsio_join (dir, MODEL)))
        return err_set (err, TRAIN_ENOMEM, "no memory for a path");
    status = train_safetensors_open (path, &file, err);
    if (status == TRAIN_OK && (status = check_file (m, file, err)) != TRAIN_OK)
        err_prefix (err, status, "%s", path);
    for (size_t i = 0; i < m->n_params && status == TRAIN_OK; i++)
        if (decoder_is_lora (m->params[i].name))
            status =
                fill (m, &m->params[i], entry_of (file, &m->params[i]), err);
    train_safetensors_close (file);
    free (path);
    return status;
}

static char *config_text (const train_lora_t *o, const char *base)
{
    json_t *targets = json_array (), *root;
    char *text = NULL;

    for (int k = 0; k < TRAIN_LORA_N; k++)
        if ((o->targets & 1 << k)
            && json_array_append_new (targets,
                                      json_string (train_lora_target (k)))
                   < 0) {
            json_decref (targets);
            return NULL;
        }
    root = json_pack ("{s:s, s:s, s:s?, s:i, s:f, s:f, s:s, s:b, s:b, s:b, s:b,"
                      " s:b, s:o}",
                      "peft_type", "LORA", "task_type", "CAUSAL_LM",
                      "base_model_name_or_path", base, "r", o->rank,
                      "lora_alpha", o->alpha, "lora_dropout", 0.0, "bias",
                      "none", "fan_in_fan_out", 0, "inference_mode", 1,
                      "init_lora_weights", 1, "use_rslora", 0, "use_dora", 0,
                      "target_modules", targets);
    if (root)
        text = json_dumps (root, JSON_INDENT (2));
    json_decref (root);
    return text;
}

/* One adapter as [dtype], to [to], which is of the host. */
static train_status_t bring (train_decoder_t *m, const train_param_t *p,
                             train_dtype_t dtype, void *to, train_error_t *err)
{
    size_t esize = m->kern->elem_size;
    void *own = malloc (p->count * esize);
    train_status_t status;

    if (!own)
        return err_set (err, TRAIN_ENOMEM, "no memory for %zu weights",
                        p->count);
    status = m->ops->copy (own, (char *)m->weights.t.data + p->offset * esize,
                           p->count * esize, m->stream, err);
    if (status == TRAIN_OK)
        status = m->ops->sync (m->stream, err);
    for (size_t k = 0; k < p->count && status == TRAIN_OK; k++)
        elem_put (dtype, to, k, elem_get (m->config.dtype, own, k));
    free (own);
    return status;
}

struct adapters {
    train_st_entry_t *entry; /* (n) */
    char (*name)[NAME_MAX_];
    char *data;
    size_t n, bytes;
};

static train_status_t gather (train_decoder_t *m, train_dtype_t dtype,
                              struct adapters *a, train_error_t *err)
{
    for (size_t i = 0; i < m->n_params; i++) {
        const train_param_t *p = &m->params[i];

        if (!decoder_is_lora (p->name))
            continue;
        snprintf (a->name[a->n], NAME_MAX_, PREFIX "%s", p->name);
        a->entry[a->n] = (train_st_entry_t){
            .name = a->name[a->n],
            .dtype = dtype,
            .ndim = 2,
            .shape = {p->shape[0], p->shape[1]},
            .data = a->data + a->bytes,
        };
        TRY (bring (m, p, dtype, a->data + a->bytes, err));
        a->bytes += p->count * train_dtype_size (dtype);
        a->n++;
    }
    return TRAIN_OK;
}

static train_status_t write_model (const char *dir, train_decoder_t *m,
                                   train_dtype_t dtype, train_error_t *err)
{
    static const train_st_meta_t pt = {"format", "pt"};
    struct adapters a = {0};
    train_status_t status = TRAIN_OK;
    char *path = fsio_join (dir, MODEL);

    for (size_t i = 0; i < m->n_params; i++)
        if (decoder_is_lora (m->params[i].name))
            a.bytes += m->params[i].count * train_dtype_size (dtype);
    a.entry = calloc (m->n_params, sizeof (*a.entry));
    a.name = calloc (m->n_params, sizeof (*a.name));
    a.data = malloc (a.bytes);
    a.bytes = 0;
    if (!path || !a.entry || !a.name || !a.data)
        status = err_set (err, TRAIN_ENOMEM, "no memory to write adapters");
    if (status == TRAIN_OK)
        status = gather (m, dtype, &a, err);
    if (status == TRAIN_OK)
        status = train_safetensors_write (path, a.entry, a.n, &pt, 1, err);
    free (a.entry);
    free (a.name);
    free (a.data);
    free (path);
    return status;
}

train_status_t train_hf_lora_save (const char *dir, const char *base,
                                   train_decoder_t *m, train_dtype_t dtype,
                                   train_error_t *err)
{
    train_status_t status = TRAIN_OK;
    struct rv_error e = {0};
    char *text, *path;

    TRY (check_decoder (dir, m, err));
    if (dtype != TRAIN_F32 && dtype != TRAIN_F64 && dtype != TRAIN_BF16
        && dtype != TRAIN_F16)
        return err_set (err, TRAIN_EINVAL,
                        "lora: files of %s: F32, F64, BF16 and F16 work",
                        train_dtype_name (dtype));
    if (fsio_mkdir_p (dir, 0777, &e) != RV_OK)
        return err_from (err, &e);
    TRY (write_model (dir, m, dtype, err));
    text = config_text (&m->dims.lora, base);
    path = fsio_join (dir, CONFIG);
    if (!text || !path)
        status = err_set (err, TRAIN_ENOMEM, "no memory for " CONFIG);
    else if (fsio_write (path, text, strlen (text), 0666, &e) != RV_OK)
        status = err_from (err, &e);
    free (text);
    free (path);
    return status;
}
