/* SPDX-License-Identifier: Apache-2.0
 * decoder_look.c - look at weights, activations and gradients between visits */
#include "config.h"

#include "decoder_look.h"

#include <math.h>
#include <stdio.h>
#include <string.h>

#include "err.h"
#include "kernels/finite.h"

/* An array of activations, in the order of a pass. */
struct array {
    const char *name; /* behind the layer's, or alone */
    const struct decoder_array *at;
    size_t block, columns; /* columns 0: there is none of it */
};

static train_dtype_t real_dtype (const train_decoder_t *m)
{
    return m->config.dtype == TRAIN_F64 ? TRAIN_F64 : TRAIN_F32;
}

#if HAVE_CUDA
static void on_gpu (uint64_t *ret, const void *data, train_dtype_t dtype,
                    size_t n, void *stream)
{
    if (dtype == TRAIN_BF16)
        kern_first_nonfinite_bf16_cuda (ret, data, n, stream);
    else if (dtype == TRAIN_F16)
        kern_first_nonfinite_f16_cuda (ret, data, n, stream);
    else
        kern_first_nonfinite_f32_cuda (ret, data, n, stream);
}
#endif

static void on_host (uint64_t *ret, const void *data, train_dtype_t dtype,
                     size_t n)
{
    if (dtype == TRAIN_BF16)
        kern_first_nonfinite_bf16_host (ret, data, n, NULL);
    else if (dtype == TRAIN_F16)
        kern_first_nonfinite_f16_host (ret, data, n, NULL);
    else if (dtype == TRAIN_F64)
        kern_first_nonfinite_f64_host (ret, data, n, NULL);
    else
        kern_first_nonfinite_f32_host (ret, data, n, NULL);
}

/* Inf has no bit below the exponent. */
static bool is_inf (const void *element, train_dtype_t dtype)
{
    uint16_t half;
    double d;
    float f;

    if (dtype == TRAIN_F64) {
        memcpy (&d, element, sizeof (d));
        return isinf (d);
    }
    if (dtype == TRAIN_F32) {
        memcpy (&f, element, sizeof (f));
        return isinf (f);
    }
    memcpy (&half, element, sizeof (half));
    return (half & (dtype == TRAIN_BF16 ? 0x7f : 0x3ff)) == 0;
}

static train_status_t settle (const struct decoder_look *look,
                              train_error_t *err)
{
    return look->settle ? look->settle (look->settle_arg, err) : TRAIN_OK;
}

train_status_t decoder_look_first (const struct decoder_look *look,
                                   const void *data, train_dtype_t dtype,
                                   size_t n, size_t *ret, bool *ret_inf,
                                   train_error_t *err)
{
    const train_decoder_t *m = look->decoder;
    size_t size = train_dtype_size (dtype);
    char element[sizeof (double)];
    uint64_t at = n;

    TRY (settle (look, err));
    if (!m->gpu)
        on_host (&at, data, dtype, n);
#if HAVE_CUDA
    else {
        on_gpu (look->found_at, data, dtype, n, m->stream);
        TRY (m->ops->copy (&at, look->found_at, sizeof (at), m->stream, err));
        TRY (m->ops->sync (m->stream, err));
    }
#endif
    *ret = (size_t)at;
    if (at == n || !ret_inf)
        return TRAIN_OK;
    TRY (m->ops->copy (element, (const char *)data + at * size, size, m->stream,
                       err));
    TRY (m->ops->sync (m->stream, err));
    *ret_inf = is_inf (element, dtype);
    return TRAIN_OK;
}

/* "model.layers.0.mlp.up_proj.weight at [3, 5]": which parameter has the element
 * [offset] of the arena. */
static void name_element (const train_decoder_t *m, size_t offset, char *text,
                          size_t size)
{
    for (size_t i = 0; i < m->n_params; i++) {
        const train_param_t *p = &m->params[i];
        size_t at = offset - p->offset, columns = (size_t)p->shape[1];

        if (offset < p->offset || at >= p->count)
            continue;
        if (p->ndim == 2)
            snprintf (text, size, "%s at [%zu, %zu]", p->name, at / columns,
                      at % columns);
        else
            snprintf (text, size, "%s at [%zu]", p->name, at);
        return;
    }
    snprintf (text, size, "element %zu", offset);
}

static const char *kind (bool inf)
{
    return inf ? "Inf" : "NaN";
}

/* Weights or gradients of [count] elements at [offset] of the arena. */
static train_status_t look_at (struct decoder_look *look, size_t unit,
                               size_t offset, size_t count, bool grads,
                               train_error_t *err)
{
    const train_decoder_t *m = look->decoder;
    char where[160];
    size_t at;
    bool inf;

    if (look->found || count == 0 || (grads && decoder_is_still (m, offset)))
        return TRAIN_OK;
    TRY (decoder_look_first (look,
                             grads ? decoder_grad (m, unit, offset)
                                   : decoder_weight (m, unit, offset),
                             grads ? real_dtype (m) : m->config.dtype, count,
                             &at, &inf, err));
    if (at == count)
        return TRAIN_OK;
    look->found = true;
    look->when = look->visit;
    name_element (m, offset + at, where, sizeof (where));
    snprintf (look->text, sizeof (look->text), "%s in the %s %s", kind (inf),
              grads ? "gradient of" : "weight", where);
    return TRAIN_OK;
}

/* [layer] -1: none. */
static train_status_t look_array (struct decoder_look *look, int layer,
                                  const struct array *a, train_error_t *err)
{
    const train_decoder_t *m = look->decoder;
    size_t N = (size_t)m->B * (size_t)m->T, n = N * a->columns, at, row;
    char where[24] = "";
    bool inf;

    if (look->found || n == 0)
        return TRAIN_OK;
    TRY (decoder_look_first (look, decoder_act (m, *a->at, a->block),
                             m->config.dtype, n, &at, &inf, err));
    if (at == n)
        return TRAIN_OK;
    look->found = true;
    look->when = look->visit;
    row = at / a->columns;
    if (layer >= 0)
        snprintf (where, sizeof (where), "model.layers.%d", layer);
    snprintf (look->text, sizeof (look->text),
              "%s in %s%s%s at sequence %zu, position %zu, column %zu",
              kind (inf), where, *where ? " " : "", a->name, row / (size_t)m->T,
              row % (size_t)m->T, at % a->columns);
    return TRAIN_OK;
}

static train_status_t look_arrays (struct decoder_look *look, int layer,
                                   const struct array *a, size_t n,
                                   train_error_t *err)
{
    for (size_t i = 0; i < n; i++)
        TRY (look_array (look, layer, &a[i], err));
    return TRAIN_OK;
}

#define LENGTH(x) (sizeof (x) / sizeof (*(x)))

static train_status_t block_forward (struct decoder_look *look, size_t l,
                                     train_error_t *err)
{
    const train_decoder_t *m = look->decoder;
    const struct decoder_dims *d = &m->dims;
    const struct decoder_acts *a = &m->layout;
    size_t heads = d->norm ? (d->H + d->G) * d->D : 0;
    const struct array made[] = {
        {"input", &a->x, l, d->C},
        {"input_layernorm", &a->norm1, l, d->C},
        {"self_attn: q, k before their norm", &a->raw, l, heads},
        {"self_attn: q, k, v", &a->qkv, l, d->Q},
        {"self_attn: what attention gives", &a->att, l, d->H * d->D},
        {"residual after self_attn", &a->mid, l, d->C},
        {"post_attention_layernorm", &a->norm2, l, d->C},
        {"mlp: gate, up", &a->gate_up, l, 2 * d->F},
        {"mlp: silu (gate) * up", &a->act, l, d->F},
        {"mlp.down_proj", &a->tmp, l, d->C},
    };

    return look_arrays (look, (int)l, made, LENGTH (made), err);
}

/* The embedding, the last norm, or a head whose logits are whole. */
static train_status_t ends_forward (struct decoder_look *look, size_t unit,
                                    bool head, train_error_t *err)
{
    const train_decoder_t *m = look->decoder;
    const struct decoder_dims *d = &m->dims;
    const struct decoder_acts *a = &m->layout;
    const struct array first = {"model.embed_tokens", &a->x, 0, d->C};
    const struct array made[] = {
        {"the last residual", &a->x, d->L, d->C},
        {"model.norm", &a->norm_f, 0, d->C},
        {"the logits", &a->logits, 0, a->whole ? d->V : 0},
    };

    if (unit == 0 && !head)
        return look_array (look, -1, &first, err);
    if (unit == 0)
        return look_array (look, -1, &made[2], err);
    return look_arrays (look, -1, made, m->config.tie ? 2 : 3, err);
}

static train_status_t half_backward (struct decoder_look *look, size_t l,
                                     bool ffn, train_error_t *err)
{
    const train_decoder_t *m = look->decoder;
    const struct decoder_dims *d = &m->dims;
    const struct decoder_acts *a = &m->layout;
    const struct decoder_block *b = &m->blocks[l];
    size_t u = l + 1, C = d->C, HD = d->H * d->D;
    /* where attention worked in its place, the product's gradient tells */
    const struct array gate = {"mlp: the gradient of gate, up", &a->gate_up, l,
                               a->apart ? 2 * d->F : 0};
    const struct array att = {"self_attn: the gradient of what attention gives",
                              &a->datt, l, HD};
    const struct array qkv = {"self_attn: the gradient of q, k, v", &a->dqkv, l,
                              d->Q};

    if (ffn) {
        TRY (look_at (look, u, b->down, C * d->F, true, err));
        TRY (look_array (look, (int)l, &gate, err));
        TRY (look_at (look, u, b->gate_up, 2 * d->F * C, true, err));
        return look_at (look, u, b->norm2, C, true, err);
    }
    TRY (look_array (look, (int)l, &att, err));
    TRY (look_at (look, u, b->out, C * HD, true, err));
    TRY (look_array (look, (int)l, &qkv, err));
    TRY (look_at (look, u, b->q_norm, d->norm ? d->D : 0, true, err));
    TRY (look_at (look, u, b->k_norm, d->norm ? d->D : 0, true, err));
    TRY (look_at (look, u, b->bias, d->bias ? d->Q : 0, true, err));
    TRY (look_at (look, u, b->qkv, d->Q * C, true, err));
    return look_at (look, u, b->norm1, C, true, err);
}

static train_status_t head_backward (struct decoder_look *look, size_t unit,
                                     train_error_t *err)
{
    const train_decoder_t *m = look->decoder;
    const struct decoder_dims *d = &m->dims;
    const struct decoder_acts *a = &m->layout;
    const struct array made[] = {
        {"the gradient of the logits", &a->logits, 0, a->whole ? d->V : 0},
        {"the gradient of model.norm", &a->tmp, 0, d->C},
    };

    TRY (look_arrays (look, -1, made, LENGTH (made), err));
    return look_at (look, unit, m->head, d->V * d->C, true, err);
}

static train_status_t unit_backward (struct decoder_look *look, size_t unit,
                                     bool head, train_error_t *err)
{
    const train_decoder_t *m = look->decoder;
    const struct decoder_dims *d = &m->dims;
    const struct array stream = {unit <= d->L
                                     ? "the gradient of the input"
                                     : "the gradient of the last residual",
                                 &m->layout.dx, 0, d->C};

    if (head || (unit == d->L + 1 && !m->config.tie))
        TRY (head_backward (look, unit, err));
    if (unit == d->L + 1)
        TRY (look_at (look, unit, m->norm_f, d->C, true, err));
    if (unit == 0 && !head)
        return look_at (look, 0, m->embed, d->V * d->C, true, err);
    if (unit == 0)
        return TRAIN_OK;
    if (unit <= d->L) {
        TRY (half_backward (look, unit - 1, true, err));
        TRY (half_backward (look, unit - 1, false, err));
    }
    return look_array (look, unit <= d->L ? (int)unit - 1 : -1, &stream, err);
}

static train_status_t before (void *arg, size_t unit, bool backward,
                              train_error_t *err)
{
    struct decoder_look *look = arg;
    const train_decoder_t *m = look->decoder;
    const struct decoder_unit *u = &m->units[unit];

    if (look->inner.before)
        TRY (look->inner.before (look->inner.arg, unit, backward, err));
    if (backward || !m->places[unit].weights)
        return TRAIN_OK;
    return look_at (look, unit, u->first, u->count, false, err);
}

/* A tied head visits unit 0 last in a forward, and first in a backward. */
static bool is_head (struct decoder_look *look, size_t unit, bool backward)
{
    if (look->backward != backward)
        look->heads = 0;
    look->backward = backward;
    if (unit != 0 || !look->decoder->config.tie)
        return false;
    return (look->heads++ == 0) == backward;
}

static train_status_t after (void *arg, size_t unit, bool backward,
                             train_error_t *err)
{
    struct decoder_look *look = arg;
    bool head = is_head (look, unit, backward);
    size_t last = look->decoder->dims.L + 1;

    if (look->found)
        ;
    else if (backward)
        TRY (unit_backward (look, unit, head, err));
    else if (unit == 0 || unit == last)
        TRY (ends_forward (look, unit, head, err));
    else
        TRY (block_forward (look, unit - 1, err));
    look->visit++;
    return look->inner.after
               ? look->inner.after (look->inner.arg, unit, backward, err)
               : TRAIN_OK;
}

train_status_t decoder_look_begin (struct decoder_look *look,
                                   train_decoder_t *m, train_error_t *err)
{
    struct decoder_hooks hooks = {before, after, look};
    void *memory = NULL;

    *look = (struct decoder_look){.decoder = m, .inner = m->hooks};
    TRY (m->ops->alloc (m->device, sizeof (*look->found_at), &memory, err));
    look->found_at = memory;
    decoder_set_hooks (m, &hooks);
    return TRAIN_OK;
}

void decoder_look_end (struct decoder_look *look)
{
    if (!look->found_at)
        return;
    (void)settle (look, NULL);
    decoder_set_hooks (look->decoder, &look->inner);
    look->decoder->ops->free (look->found_at);
    look->found_at = NULL;
}

void decoder_look_pass (struct decoder_look *look)
{
    look->visit = 0;
    look->heads = 0;
    look->backward = false;
}
