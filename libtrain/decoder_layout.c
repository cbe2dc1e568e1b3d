/* SPDX-License-Identifier: Apache-2.0
 * decoder_layout.c - what a decoder's configuration makes: names, shapes, sizes
 *
 * Pure arithmetic over the configuration, so that a test or a planner can ask
 * for sizes without a model. Order of the parameters is that of Hugging Face's
 * state dict, but for the biases of q, k and v, which stand together. */
#include <limits.h>
#include <stdio.h>
#include <stdlib.h>

#include "decoder_impl.h"
#include "err.h"

#define MAX_NUMEL ((size_t)1 << 40) /* keeps every later product in size_t */

static train_status_t positive (const char *name, int value, train_error_t *err)
{
    if (value >= 1)
        return TRAIN_OK;
    return err_set (err, TRAIN_EINVAL, "model %s is %d: must be at least 1",
                    name, value);
}

static train_status_t check_heads (const train_decoder_config_t *c,
                                   train_error_t *err)
{
    if (c->head_dim < 0 || c->head_dim % 2 != 0)
        return err_set (err, TRAIN_EINVAL,
                        "model head_dim is %d: must be even, for rotary "
                        "position embedding; 0 is dim / heads",
                        c->head_dim);
    if (c->head_dim == 0 && c->dim % c->heads != 0)
        return err_set (err, TRAIN_EINVAL,
                        "model heads is %d: must divide dim (%d)", c->heads,
                        c->dim);
    if (c->head_dim == 0 && c->dim / c->heads % 2 != 0)
        return err_set (err, TRAIN_EINVAL,
                        "model dim / heads is %d: must be even, for rotary "
                        "position embedding",
                        c->dim / c->heads);
    if (c->heads % c->kv_heads != 0)
        return err_set (err, TRAIN_EINVAL,
                        "model kv_heads is %d: must divide heads (%d)",
                        c->kv_heads, c->heads);
    return TRAIN_OK;
}

static train_status_t check_place (const train_decoder_config_t *c,
                                   train_error_t *err)
{
    if ((int)c->recompute < TRAIN_RECOMPUTE_NOTHING
        || c->recompute > TRAIN_RECOMPUTE_BLOCKS)
        return err_set (err, TRAIN_EINVAL,
                        "model recompute is %d: must be a train_recompute_t",
                        (int)c->recompute);
    if (c->buffer != TRAIN_F32 && c->buffer != TRAIN_BF16
        && c->buffer != TRAIN_F16)
        return err_set (err, TRAIN_EINVAL,
                        "model buffer is %d: must be TRAIN_BF16, TRAIN_F16 or "
                        "TRAIN_F32 (0)",
                        (int)c->buffer);
    if (c->device.device_type == kDLCUDA && c->dtype == TRAIN_F64)
        return err_set (err, TRAIN_EINVAL,
                        "model dtype is F64: GPUs have F32, BF16 and F16");
    if (c->device.device_type == kDLCUDA || c->device.device_type == kDLCPU
        || c->device.device_type == 0)
        return TRAIN_OK;
    return err_set (err, TRAIN_EINVAL,
                    "model device is of DLPack's type %d: must be kDLCPU or "
                    "kDLCUDA",
                    (int)c->device.device_type);
}

static train_status_t check_config (const train_decoder_config_t *c,
                                    train_error_t *err)
{
    const struct {
        const char *name;
        int value;
    } fields[] = {
        {"layers", c->layers},     {"dim", c->dim}, {"heads", c->heads},
        {"kv_heads", c->kv_heads}, {"ffn", c->ffn}, {"vocab", c->vocab},
    };
    train_status_t status;

    if (c->size != sizeof (*c))
        return err_set (err, TRAIN_EINVAL,
                        "train_decoder_config_t is of %zu bytes, not %zu: set "
                        "size to sizeof",
                        c->size, sizeof (*c));
    for (size_t i = 0; i < sizeof (fields) / sizeof (fields[0]); i++) {
        status = positive (fields[i].name, fields[i].value, err);
        if (status != TRAIN_OK)
            return status;
    }
    status = check_heads (c, err);
    if (status != TRAIN_OK)
        return status;
    if (!(c->rope_theta > 0) || !(c->rope_theta < 1e30))
        return err_set (err, TRAIN_EINVAL,
                        "model rope_theta is %g: must be positive and finite",
                        c->rope_theta);
    if (!(c->norm_eps > 0) || !(c->norm_eps < 1))
        return err_set (err, TRAIN_EINVAL,
                        "model norm_eps is %g: must be between 0 and 1",
                        c->norm_eps);
    if (c->dtype != TRAIN_F32 && c->dtype != TRAIN_F64 && c->dtype != TRAIN_BF16
        && c->dtype != TRAIN_F16)
        return err_set (err, TRAIN_EINVAL,
                        "model dtype is %s: must be F32, F64, BF16 or F16",
                        train_dtype_name (c->dtype));
    TRY (decoder_lora_check (c, err));
    return check_place (c, err);
}

/* In double, which cannot overflow here: is the model of a size that every
 * product below holds? */
static train_status_t check_size (const struct decoder_dims *d,
                                  train_error_t *err)
{
    double C = (double)d->C, D = (double)d->D, block, total;
    double Q = (double)(d->H + 2 * d->G) * D;

    block = C * (Q + (double)d->H * D + 3.0 * (double)d->F + 2.0);
    block += Q + 2 * D;
    for (int k = 0; k < TRAIN_LORA_N; k++)
        block +=
            (double)d->lora.rank
            * (double)(decoder_lora_of (d, k).in + decoder_lora_of (d, k).out);
    total = (double)d->L * block + C * (2.0 * (double)d->V + 1.0);
    if (total > (double)MAX_NUMEL || Q > INT_MAX || d->F > INT_MAX / 2)
        return err_set (err, TRAIN_EINVAL,
                        "model of %.3g parameters is too large: at most %.3g",
                        total, (double)MAX_NUMEL);
    return TRAIN_OK;
}

/* Everything that can be wrong with a configuration. */
static train_status_t make_dims (const train_decoder_config_t *config,
                                 train_decoder_config_t *ret,
                                 struct decoder_dims *d, train_error_t *err)
{
    TRY (check_config (config, err));
    *ret = *config;
    if (config->head_dim == 0)
        ret->head_dim = config->dim / config->heads;
    TRY (decoder_rope_check (ret, err));
    *d = (struct decoder_dims){
        .L = (size_t)config->layers,
        .C = (size_t)config->dim,
        .F = (size_t)config->ffn,
        .V = (size_t)config->vocab,
        .H = (size_t)config->heads,
        .G = (size_t)config->kv_heads,
        .D = (size_t)ret->head_dim,
        .bias = config->qkv_bias,
        .norm = config->qk_norm,
        .lora = config->lora,
    };
    d->Q = (d->H + 2 * d->G) * d->D;
    return check_size (d, err);
}

train_status_t decoder_check (const train_decoder_config_t *config,
                              train_error_t *err)
{
    train_decoder_config_t whole;
    struct decoder_dims dims;

    return make_dims (config, &whole, &dims, err);
}

/* Append a parameter; rows 0 makes a vector of [cols]. Returns its offset. */
static size_t add_kind (train_decoder_t *m, int layer, const char *name,
                        const char *kind, size_t rows, size_t cols)
{
    train_param_t *p = &m->params[m->n_params];
    char *full = m->names[m->n_params];

    if (layer >= 0)
        snprintf (full, DECODER_NAME_MAX, "model.layers.%d.%s.%s", layer, name,
                  kind);
    else
        snprintf (full, DECODER_NAME_MAX, "%s.%s", name, kind);
    p->name = full;
    p->ndim = rows > 0 ? 2 : 1;
    p->shape[0] = (int64_t)(rows > 0 ? rows : cols);
    p->shape[1] = rows > 0 ? (int64_t)cols : 1;
    p->offset = m->numel;
    p->count = rows > 0 ? rows * cols : cols;
    p->decay = rows > 0;
    m->n_params++;
    m->numel += p->count;
    return p->offset;
}

static size_t add (train_decoder_t *m, int layer, const char *name, size_t rows,
                   size_t cols)
{
    return add_kind (m, layer, name, "weight", rows, cols);
}

static void add_lora (train_decoder_t *m, int l)
{
    struct decoder_block *b = &m->blocks[l];
    size_t R = (size_t)m->dims.lora.rank;

    for (int k = 0; k < TRAIN_LORA_N; k++) {
        struct decoder_lora o = decoder_lora_of (&m->dims, k);
        const char *name = decoder_lora_module (k);

        if (!(m->dims.lora.targets & 1 << k))
            continue;
        b->lora_a[k] = add_kind (m, l, name, "lora_A.weight", R, o.in);
        b->lora_b[k] = add_kind (m, l, name, "lora_B.weight", o.out, R);
    }
}

static void add_block (train_decoder_t *m, int l)
{
    const struct decoder_dims *d = &m->dims;
    struct decoder_block *b = &m->blocks[l];

    b->qkv = add (m, l, "self_attn.q_proj", d->H * d->D, d->C);
    add (m, l, "self_attn.k_proj", d->G * d->D, d->C);
    add (m, l, "self_attn.v_proj", d->G * d->D, d->C);
    if (d->bias) {
        b->bias = add_kind (m, l, "self_attn.q_proj", "bias", 0, d->H * d->D);
        add_kind (m, l, "self_attn.k_proj", "bias", 0, d->G * d->D);
        add_kind (m, l, "self_attn.v_proj", "bias", 0, d->G * d->D);
    }
    b->out = add (m, l, "self_attn.o_proj", d->C, d->H * d->D);
    if (d->norm) {
        b->q_norm = add (m, l, "self_attn.q_norm", 0, d->D);
        b->k_norm = add (m, l, "self_attn.k_norm", 0, d->D);
    }
    b->gate_up = add (m, l, "mlp.gate_proj", d->F, d->C);
    add (m, l, "mlp.up_proj", d->F, d->C);
    b->down = add (m, l, "mlp.down_proj", d->C, d->F);
    b->norm1 = add (m, l, "input_layernorm", 0, d->C);
    b->norm2 = add (m, l, "post_attention_layernorm", 0, d->C);
    add_lora (m, l);
}

/* Ends unit [u], which began where the one before ended. */
static void end_unit (train_decoder_t *m, size_t u)
{
    size_t first = u ? m->units[u - 1].first + m->units[u - 1].count : 0;

    m->units[u] = (struct decoder_unit){first, m->numel - first};
}

train_status_t decoder_layout (train_decoder_t *m,
                               const train_decoder_config_t *config,
                               train_error_t *err)
{
    struct decoder_dims *d = &m->dims;
    train_status_t status = make_dims (config, &m->config, d, err);
    size_t most;

    if (status != TRAIN_OK)
        return status;
    most = d->L * (14 + 2 * TRAIN_LORA_N) + 3;
    m->params = calloc (most, sizeof (*m->params));
    m->names = calloc (most, sizeof (*m->names));
    m->blocks = calloc (d->L, sizeof (*m->blocks));
    m->units = calloc (d->L + 2, sizeof (*m->units));
    m->places = calloc (d->L + 2, sizeof (*m->places));
    m->until = calloc (d->L + 1, sizeof (*m->until));
    if (!m->params || !m->names || !m->blocks || !m->units || !m->places
        || !m->until)
        return err_set (err, TRAIN_ENOMEM, "no memory for %zu parameter names",
                        most);
    m->embed = add (m, -1, "model.embed_tokens", d->V, d->C);
    end_unit (m, 0);
    for (int l = 0; l < config->layers; l++) {
        add_block (m, l);
        end_unit (m, (size_t)l + 1);
    }
    m->norm_f = add (m, -1, "model.norm", 0, d->C);
    m->head = config->tie ? m->embed : add (m, -1, "lm_head", d->V, d->C);
    end_unit (m, d->L + 1);
    return TRAIN_OK;
}
