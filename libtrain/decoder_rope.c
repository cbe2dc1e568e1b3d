/* SPDX-License-Identifier: Apache-2.0
 * decoder_rope.c - turning rates of rotary embedding, scaled for more positions
 *
 * Rates in double: a table in float would err by t 6e-8 in the angle. */
#include <math.h>
#include <stdlib.h>

#include "decoder_impl.h"
#include "err.h"
#include "kernels/half.h"

#define PI 3.14159265358979323846

static train_status_t wrong (const char *name, double value, const char *must,
                             train_error_t *err)
{
    return err_set (err, TRAIN_EINVAL, "model rope %s is %g: must be %s", name,
                    value, must);
}

static bool number (double x, double least)
{
    return isfinite (x) && x >= least;
}

train_status_t decoder_rope_check (const train_decoder_config_t *c,
                                   train_error_t *err)
{
    const train_rope_t *r = &c->rope;

    if ((int)r->kind < TRAIN_ROPE_DEFAULT || r->kind > TRAIN_ROPE_YARN)
        return wrong ("kind", r->kind, "a train_rope_kind_t", err);
    if (r->kind == TRAIN_ROPE_DEFAULT)
        return TRAIN_OK;
    if (!number (r->factor, 1e-6))
        return wrong ("factor", r->factor, "positive and finite", err);
    if (r->kind == TRAIN_ROPE_LINEAR)
        return TRAIN_OK;
    if (!number (r->original, 1))
        return wrong ("original", r->original, "at least 1", err);
    if (r->kind == TRAIN_ROPE_DYNAMIC) {
        if (c->head_dim < 4)
            return err_set (err, TRAIN_EINVAL,
                            "model head_dim is %d: must be at least 4 where "
                            "rope is dynamic",
                            c->head_dim);
        return r->factor >= 1 ? TRAIN_OK
                              : wrong ("factor", r->factor, "at least 1", err);
    }
    if (!number (r->low, 1e-6))
        return wrong ("low", r->low, "positive and finite", err);
    if (!number (r->high, r->low)
        || (r->kind == TRAIN_ROPE_LLAMA3 && r->high <= r->low))
        return wrong ("high", r->high, "finite and above low", err);
    if (r->kind == TRAIN_ROPE_YARN && !(c->rope_theta > 1))
        return wrong ("theta", c->rope_theta, "above 1 for yarn", err);
    if (r->kind == TRAIN_ROPE_YARN && !number (r->attention, 1e-6))
        return wrong ("attention", r->attention, "positive and finite", err);
    return TRAIN_OK;
}

static double llama3 (const train_rope_t *r, double rate)
{
    double turns = r->original * rate / (2 * PI), blend;

    if (turns < r->low)
        return rate / r->factor;
    if (turns > r->high)
        return rate;
    blend = (turns - r->low) / (r->high - r->low);
    return (1 - blend) * rate / r->factor + blend * rate;
}

/* The j at which a pair turns [turns] times over the original positions. */
static double ramp_end (const train_decoder_config_t *c, double turns)
{
    return (double)c->head_dim * log (c->rope.original / (turns * 2 * PI))
           / (2 * log (c->rope_theta));
}

static double yarn (const train_decoder_config_t *c, double rate, double j)
{
    double low = ramp_end (c, c->rope.high), high = ramp_end (c, c->rope.low);
    double keep;

    if (c->rope.whole) {
        low = floor (low);
        high = ceil (high);
    }
    low = fmax (low, 0);
    high = fmin (high, (double)c->head_dim - 1);
    if (low == high)
        high += 0.001; /* as Hugging Face's: no division by zero */
    keep = 1 - fmin (fmax ((j - low) / (high - low), 0), 1);
    return rate / c->rope.factor * (1 - keep) + rate * keep;
}

double decoder_rope_rate (const train_decoder_config_t *c, size_t T, size_t j)
{
    const train_rope_t *r = &c->rope;
    double D = (double)c->head_dim, theta = c->rope_theta, rate;

    if (r->kind == TRAIN_ROPE_DYNAMIC && (double)T > r->original)
        theta *= pow (r->factor * (double)T / r->original - (r->factor - 1),
                      D / (D - 2));
    rate = pow (theta, -2.0 * (double)j / D);
    switch (r->kind) {
    case TRAIN_ROPE_LINEAR:
        return rate / r->factor;
    case TRAIN_ROPE_LLAMA3:
        return llama3 (r, rate);
    case TRAIN_ROPE_YARN:
        return yarn (c, rate, (double)j);
    case TRAIN_ROPE_DEFAULT:
    case TRAIN_ROPE_DYNAMIC:
        break;
    }
    return rate;
}

double decoder_rope_scale (const train_decoder_config_t *c)
{
    return c->rope.kind == TRAIN_ROPE_YARN ? c->rope.attention : 1;
}

/* As a buffer of the config's type has it. */
static double stored (const train_decoder_config_t *c, double x)
{
    if (c->buffer == TRAIN_BF16)
        return half_from_bf16 (half_to_bf16 ((float)x));
    if (c->buffer == TRAIN_F16)
        return half_from_f16 (half_to_f16 ((float)x));
    return x;
}

void decoder_rope_tables (const train_decoder_t *m, size_t T, void *cosine,
                          void *sine)
{
    const train_decoder_config_t *f = &m->config;
    double scale = decoder_rope_scale (f);
    size_t half = m->dims.D / 2;

    for (size_t j = 0; j < half; j++) {
        double rate = decoder_rope_rate (f, T, j);

        for (size_t t = 0; t < T; t++) {
            double c = stored (f, scale * cos ((double)t * rate));
            double s = stored (f, scale * sin ((double)t * rate));

            if (m->kern->real_size == sizeof (float)) {
                ((float *)cosine)[t * half + j] = (float)c;
                ((float *)sine)[t * half + j] = (float)s;
            } else {
                ((double *)cosine)[t * half + j] = c;
                ((double *)sine)[t * half + j] = s;
            }
        }
    }
}

/* Do rates for [T] positions turn fewer as well? */
static bool serve_fewer (const train_rope_t *r, int T)
{
    return r->kind != TRAIN_ROPE_DYNAMIC || (double)T <= r->original;
}

/* A last batch that is smaller and the next whole one find them. */
static bool stand (const train_decoder_t *m)
{
    const struct decoder_tables *t = &m->tables;

    return t->T >= m->T && t->cosine.at >= m->layout.cosine.at
           && (t->T == m->T || serve_fewer (&m->config.rope, t->T));
}

static train_status_t send (train_decoder_t *m, void *cosine, void *sine,
                            train_error_t *err)
{
    size_t bytes = (size_t)m->T * (m->dims.D / 2) * m->kern->real_size;
    char *own = malloc (2 * bytes);
    train_status_t status;

    if (!own)
        return err_set (err, TRAIN_ENOMEM, "no memory for %zu bytes",
                        2 * bytes);
    decoder_rope_tables (m, (size_t)m->T, own, own + bytes);
    status = m->ops->copy (cosine, own, bytes, m->stream, err);
    if (status == TRAIN_OK)
        status = m->ops->copy (sine, own + bytes, bytes, m->stream, err);
    if (status == TRAIN_OK)
        status = m->ops->sync (m->stream, err);
    free (own);
    return status;
}

train_status_t decoder_rope (train_decoder_t *m, train_error_t *err)
{
    struct decoder_acts *a = &m->layout;
    size_t up = m->acts_bytes - a->bytes;
    void *cosine, *sine;

    if (stand (m)) {
        a->cosine = m->tables.cosine;
        a->sine = m->tables.sine;
        return TRAIN_OK;
    }
    m->tables.T = 0;
    a->cosine.at += up;
    a->sine.at += up;
    cosine = decoder_act (m, a->cosine, 0);
    sine = decoder_act (m, a->sine, 0);
    if (m->gpu)
        TRY (send (m, cosine, sine, err));
    else
        decoder_rope_tables (m, (size_t)m->T, cosine, sine);
    m->tables = (struct decoder_tables){a->cosine, a->sine, m->T};
    return TRAIN_OK;
}
