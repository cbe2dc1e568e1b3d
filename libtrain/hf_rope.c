/* SPDX-License-Identifier: Apache-2.0
 * hf_rope.c - rotary embedding as a config.json has it
 *
 * Until transformers 4: rope_theta beside rope_scaling, which is null or an
 * object with "rope_type" (older: "type"). Since 5: all in rope_parameters.
 * (huggingface/transformers, modeling_rope_utils.py, for names and defaults.) */
#include <math.h>
#include <string.h>

#include "err.h"
#include "hf_impl.h"

#define SERVED "default, linear, dynamic, llama3 and yarn work"

static const struct {
    const char *name;
    train_rope_kind_t kind;
} kinds[] = {
    {"default", TRAIN_ROPE_DEFAULT}, {"linear", TRAIN_ROPE_LINEAR},
    {"dynamic", TRAIN_ROPE_DYNAMIC}, {"llama3", TRAIN_ROPE_LLAMA3},
    {"yarn", TRAIN_ROPE_YARN},
};

/* Which object speaks: rope_scaling goes before rope_parameters, as it does
 * there. */
static train_status_t find_object (const json_t *root, const char **ret_name,
                                   json_t **ret, train_error_t *err)
{
    *ret_name = "rope_scaling";
    *ret = hf_get (root, *ret_name);
    if (!*ret || (json_is_object (*ret) && json_object_size (*ret) == 0)) {
        *ret_name = "rope_parameters";
        *ret = hf_get (root, *ret_name);
    }
    if (*ret && !json_is_object (*ret))
        return err_set (err, TRAIN_EFORMAT, "'%s' is not an object", *ret_name);
    return TRAIN_OK;
}

static train_status_t find_kind (const json_t *rope, const char *where,
                                 train_rope_kind_t *ret, train_error_t *err)
{
    const char *key = hf_get (rope, "rope_type") ? "rope_type" : "type";
    const json_t *value = hf_get (rope, key);
    const char *member, *name = json_string_value (value);
    json_t *inner;

    json_object_foreach ((json_t *)rope, member, inner)
    {
        if (json_is_object (inner))
            return err_set (err, TRAIN_ENOTSUP,
                            "'%s' has parameters for '%s' alone: one rope for "
                            "all layers works",
                            where, member);
    }
    *ret = TRAIN_ROPE_DEFAULT;
    if (!value)
        return TRAIN_OK;
    if (!name)
        return err_set (err, TRAIN_EFORMAT, "'%s' of %s is not a string", key,
                        where);
    for (size_t i = 0; i < sizeof (kinds) / sizeof (*kinds); i++)
        if (strcmp (kinds[i].name, name) == 0) {
            *ret = kinds[i].kind;
            return TRAIN_OK;
        }
    return err_set (err, TRAIN_ENOTSUP,
                    "rope type '%s' (%s) is not served: " SERVED, name, where);
}

static train_status_t need (const json_t *rope, const char *key, double *ret,
                            train_error_t *err)
{
    if (!hf_get (rope, key))
        return err_set (err, TRAIN_EFORMAT,
                        "'%s' is missing, which this rope type needs", key);
    return hf_real (rope, key, ret, err);
}

/* Positions that the model was first trained with; beside rope_scaling it wins
 * over the one inside. */
static train_status_t original (const json_t *root, const json_t *rope,
                                train_hf_model_t *m, train_error_t *err)
{
    static const char key[] = "original_max_position_embeddings";

    m->decoder.rope.original = m->positions;
    TRY (hf_real (rope, key, &m->decoder.rope.original, err));
    return hf_real (root, key, &m->decoder.rope.original, err);
}

static double mscale (double factor, double by)
{
    return factor <= 1 ? 1.0 : 0.1 * by * log (factor) + 1.0;
}

static train_status_t yarn (const json_t *rope, train_hf_model_t *m,
                            train_error_t *err)
{
    train_rope_t *r = &m->decoder.rope;
    double over = 0, under = 0;

    if (!hf_get (rope, "factor"))
        r->factor = m->positions / r->original;
    r->low = 1;
    r->high = 32;
    r->whole = true;
    TRY (hf_real (rope, "beta_slow", &r->low, err));
    TRY (hf_real (rope, "beta_fast", &r->high, err));
    TRY (hf_bool (rope, "truncate", &r->whole, err));
    TRY (hf_real (rope, "mscale", &over, err));
    TRY (hf_real (rope, "mscale_all_dim", &under, err));
    if (r->low == 0) /* 0 is no number there: the default again */
        r->low = 1;
    if (r->high == 0)
        r->high = 32;
    r->attention = over != 0 && under != 0
                       ? mscale (r->factor, over) / mscale (r->factor, under)
                       : mscale (r->factor, 1);
    return hf_real (rope, "attention_factor", &r->attention, err);
}

static train_status_t scaled (const json_t *root, const json_t *rope,
                              train_hf_model_t *m, train_error_t *err)
{
    train_rope_t *r = &m->decoder.rope;

    if (r->kind != TRAIN_ROPE_YARN)
        TRY (need (rope, "factor", &r->factor, err));
    else
        TRY (hf_real (rope, "factor", &r->factor, err));
    switch (r->kind) {
    case TRAIN_ROPE_DEFAULT:
    case TRAIN_ROPE_LINEAR:
        break;
    case TRAIN_ROPE_DYNAMIC:
        r->original = m->positions; /* alone: the other key does not count */
        break;
    case TRAIN_ROPE_LLAMA3:
        TRY (original (root, rope, m, err));
        TRY (need (rope, "low_freq_factor", &r->low, err));
        return need (rope, "high_freq_factor", &r->high, err);
    case TRAIN_ROPE_YARN:
        TRY (original (root, rope, m, err));
        return yarn (rope, m, err);
    }
    return TRAIN_OK;
}

static train_status_t whole_heads (const json_t *from, train_error_t *err)
{
    double part = 1;

    TRY (hf_real (from, "partial_rotary_factor", &part, err));
    if (part != 1)
        return err_set (err, TRAIN_ENOTSUP,
                        "'partial_rotary_factor' is %g: only 1 works", part);
    return TRAIN_OK;
}

train_status_t hf_rope (const json_t *root, train_hf_model_t *m,
                        train_error_t *err)
{
    train_decoder_config_t *c = &m->decoder;
    const char *name;
    json_t *rope;

    c->rope = (train_rope_t){.kind = TRAIN_ROPE_DEFAULT};
    c->rope_theta = 10000;
    TRY (hf_real (root, "rope_theta", &c->rope_theta, err));
    TRY (whole_heads (root, err));
    TRY (find_object (root, &name, &rope, err));
    if (!rope)
        return TRAIN_OK;
    TRY (find_kind (rope, name, &c->rope.kind, err));
    TRY (whole_heads (rope, err));
    TRY (hf_real (rope, "rope_theta", &c->rope_theta, err));
    if (c->rope.kind == TRAIN_ROPE_DEFAULT)
        return TRAIN_OK;
    return scaled (root, rope, m, err);
}
