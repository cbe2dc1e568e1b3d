/* SPDX-License-Identifier: Apache-2.0
 * ckpt_meta.c - a run's state and its model as keys and values of a manifest */
#include "ckpt_meta.h"

#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "err.h"

enum kind { K_INT, K_BOOL, K_I64, K_U64, K_DOUBLE, K_DTYPE, K_ROPE };

struct field {
    const char *key;
    enum kind kind;
    size_t offset;
};

#define STATE(key, kind)                                                       \
    {                                                                          \
#key, kind, offsetof(train_ckpt_state_t, key)                          \
    }
#define ROPE(key, kind)                                                        \
    {                                                                          \
        "rope_" #key, kind, offsetof (train_decoder_config_t, rope.key)        \
    }
#define LORA(key, kind)                                                        \
    {                                                                          \
        "lora_" #key, kind, offsetof (train_decoder_config_t, lora.key)        \
    }
#define MODEL(key, kind)                                                       \
    {                                                                          \
#key, kind, offsetof(train_decoder_config_t, key)                      \
    }
#define COUNT(a) (sizeof (a) / sizeof (*(a)))

#define VALUE_MAX CKPT_META_VALUE
#define SHOWN     80 /* the names of all targets */

static const struct field state_field[] = {
    STATE (step, K_I64),     STATE (updates, K_I64),   STATE (skipped, K_I64),
    STATE (skip_run, K_I64), STATE (tokens, K_I64),    STATE (position, K_I64),
    STATE (seq, K_I64),      STATE (batch, K_I64),     STATE (shuffle, K_BOOL),
    STATE (seed, K_U64),     STATE (data_hash, K_U64), STATE (loss, K_DOUBLE),
};

/* Not in checkpoints of libtrain before loss scaling: 0 there. */
static const struct field scaler_field[] = {
    STATE (scale, K_DOUBLE),
    STATE (scale_good, K_I64),
    STATE (scale_budget, K_I64),
    STATE (scale_stuck, K_I64),
};

static const struct field model_field[] = {
    MODEL (layers, K_INT),      MODEL (dim, K_INT),
    MODEL (heads, K_INT),       MODEL (kv_heads, K_INT),
    MODEL (ffn, K_INT),         MODEL (vocab, K_INT),
    MODEL (tie, K_BOOL),        MODEL (rope_theta, K_DOUBLE),
    MODEL (norm_eps, K_DOUBLE), MODEL (dtype, K_DTYPE),
    MODEL (head_dim, K_INT),    MODEL (qkv_bias, K_BOOL),
    MODEL (qk_norm, K_BOOL),    ROPE (kind, K_ROPE),
    ROPE (factor, K_DOUBLE),    ROPE (original, K_DOUBLE),
    ROPE (low, K_DOUBLE),       ROPE (high, K_DOUBLE),
    ROPE (attention, K_DOUBLE), ROPE (whole, K_BOOL),
};

/* Not in checkpoints of libtrain before adapters: 0 there. */
static const struct field lora_field[] = {
    LORA (rank, K_INT),
    LORA (targets, K_INT),
    LORA (alpha, K_DOUBLE),
};

static const char *const rope_name[] = {"default", "linear", "dynamic",
                                        "llama3", "yarn"};

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
    case K_ROPE:
        snprintf (text, VALUE_MAX, "%s",
                  rope_name[*(const train_rope_kind_t *)p]);
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
        *(train_dtype_t *)p = TRAIN_F32;
        for (int i = 0; i < TRAIN_N_DTYPES; i++)
            if (strcmp (text, train_dtype_name ((train_dtype_t)i)) == 0)
                *(train_dtype_t *)p = (train_dtype_t)i;
        break;
    case K_ROPE:
        *(train_rope_kind_t *)p = TRAIN_ROPE_DEFAULT;
        for (size_t i = 0; i < COUNT (rope_name); i++)
            if (strcmp (text, rope_name[i]) == 0)
                *(train_rope_kind_t *)p = (train_rope_kind_t)i;
        break;
    }
    to_text (f, base, again);
    return strcmp (text, again) == 0 ? 0 : -1;
}

#define N_ITEMS                                                                \
    (COUNT (state_field) + COUNT (model_field) + COUNT (scaler_field)          \
     + COUNT (lora_field))

_Static_assert(N_ITEMS == CKPT_META_ITEMS, "the room for them");

/* From [item] on; returns where the next is. */
static size_t write_fields (struct ckpt_meta *meta, size_t item,
                            const struct field *f, size_t n, const void *base)
{
    for (size_t i = 0; i < n; i++, item++) {
        to_text (&f[i], base, meta->value[item]);
        meta->item[item] = (train_st_meta_t){f[i].key, meta->value[item]};
    }
    return item;
}

void ckpt_meta_write (struct ckpt_meta *meta, const train_ckpt_state_t *state,
                      const train_decoder_config_t *config)
{
    size_t at = write_fields (meta, 0, state_field, COUNT (state_field), state);

    at = write_fields (meta, at, model_field, COUNT (model_field), config);
    at = write_fields (meta, at, scaler_field, COUNT (scaler_field), state);
    write_fields (meta, at, lora_field, COUNT (lora_field), config);
}

static train_status_t read_fields (const train_ckpt_t *ckpt,
                                   const struct field *f, size_t n, void *base,
                                   bool may_lack, train_error_t *err)
{
    for (size_t i = 0; i < n; i++) {
        const char *text = train_ckpt_state (ckpt, f[i].key);

        if (!text && may_lack)
            continue;
        if (!text || from_text (&f[i], base, text) < 0)
            return err_set (err, TRAIN_EFORMAT, "its state has '%s' for '%s'",
                            text ? text : "nothing", f[i].key);
    }
    return TRAIN_OK;
}

train_status_t ckpt_meta_read (const train_ckpt_t *ckpt,
                               train_ckpt_state_t *ret_state,
                               train_decoder_config_t *ret_config,
                               train_error_t *err)
{
    train_ckpt_state_t state = {.size = sizeof (state)};
    train_decoder_config_t config = {.size = sizeof (config)};

    TRY (read_fields (ckpt, state_field, COUNT (state_field), &state, false,
                      err));
    TRY (read_fields (ckpt, model_field, COUNT (model_field), &config, false,
                      err));
    TRY (read_fields (ckpt, scaler_field, COUNT (scaler_field), &state, true,
                      err));
    TRY (
        read_fields (ckpt, lora_field, COUNT (lora_field), &config, true, err));
    *ret_state = state;
    *ret_config = config;
    return TRAIN_OK;
}

/* Room for what differs; [used] of it is taken. */
struct list {
    char text[440];
    size_t used;
};

/* As a person would give it: targets of adapters by their names. */
static void say (const struct field *f, const train_decoder_config_t *c,
                 char *text, size_t size)
{
    bool targets = f->offset == offsetof (train_decoder_config_t, lora.targets);
    char value[VALUE_MAX];
    size_t used = 0;

    if (targets)
        for (int k = 0; k < TRAIN_LORA_N && used < size; k++)
            if (c->lora.targets >> k & 1)
                used +=
                    (size_t)snprintf (text + used, size - used, "%s%s",
                                      used ? " " : "", train_lora_target (k));
    if (used)
        return;
    to_text (f, c, value);
    snprintf (text, size, "%s", targets ? "none" : value);
}

static void compare (struct list *list, const struct field *f, size_t n,
                     const train_decoder_config_t *there,
                     const train_decoder_config_t *here)
{
    char a[SHOWN], b[SHOWN];

    for (size_t i = 0; i < n; i++) {
        say (&f[i], there, a, sizeof (a));
        say (&f[i], here, b, sizeof (b));
        if (strcmp (a, b) == 0 || list->used >= sizeof (list->text))
            continue;
        list->used += (size_t)snprintf (list->text + list->used,
                                        sizeof (list->text) - list->used,
                                        "%s%s is %s there and %s here",
                                        list->used ? ", " : "", f[i].key, a, b);
    }
}

train_status_t ckpt_meta_same_model (const train_decoder_config_t *there,
                                     const train_decoder_config_t *here,
                                     train_error_t *err)
{
    struct list list = {{0}, 0};

    compare (&list, model_field, COUNT (model_field), there, here);
    compare (&list, lora_field, COUNT (lora_field), there, here);
    return list.used ? err_set (err, TRAIN_EINVAL, "%s", list.text) : TRAIN_OK;
}
