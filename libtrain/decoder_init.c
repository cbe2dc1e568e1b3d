/* SPDX-License-Identifier: Apache-2.0
 * decoder_init.c - first weights, drawn by counter.
 *
 * Element e of parameter i is a pure function of (seed, i, e): the same in any
 * world size, element type or order of drawing. */
#include <train/decoder.h>

#include <math.h>
#include <string.h>

#include "decoder_impl.h"
#include "philox.h"

#define STD_DEV 0.02
#define PI      3.14159265358979323846

/* Word 3 of the counter: what these numbers are for. */
#define STREAM_WEIGHTS 0x77656967u /* "weig" */

/* Two independent N(0,1) (Box and Muller 1958): elements 2 pair, 2 pair + 1. */
static void normals (uint64_t seed, size_t param, uint64_t pair, double ret[2])
{
    const uint32_t key[2] = {(uint32_t)seed, (uint32_t)(seed >> 32)};
    const uint32_t ctr[4] = {(uint32_t)pair, (uint32_t)(pair >> 32),
                             (uint32_t)param, STREAM_WEIGHTS};
    uint32_t w[4];
    double radius, angle;

    philox4x32 (ctr, key, w);
    radius = sqrt (-2.0 * log (philox_uniform (w[0], w[1])));
    angle = 2.0 * PI * philox_uniform (w[2], w[3]);
    ret[0] = radius * cos (angle);
    ret[1] = radius * sin (angle);
}

static void put (const train_decoder_t *m, void *weights, size_t at,
                 double value)
{
    if (m->config.dtype == TRAIN_F32)
        ((float *)weights)[at] = (float)value;
    else
        ((double *)weights)[at] = value;
}

static bool ends_with (const char *name, const char *tail)
{
    size_t n = strlen (name), k = strlen (tail);

    return n >= k && strcmp (name + n - k, tail) == 0;
}

/* Of the matrices that write into the residual stream. */
static bool is_output (const train_param_t *p)
{
    return ends_with (p->name, ".o_proj.weight")
           || ends_with (p->name, ".down_proj.weight");
}

/* Parameter [i] to [weights] of it. */
static void draw (const train_decoder_t *m, size_t i, uint64_t seed,
                  void *weights)
{
    const train_param_t *p = &m->params[i];
    double std_dev = STD_DEV, z[2];

    if (is_output (p))
        std_dev /= sqrt (2.0 * (double)m->dims.L);
    for (size_t e = 0; e < p->count; e++) {
        if (!p->decay) {
            put (m, weights, e, ends_with (p->name, ".bias") ? 0 : 1);
            continue;
        }
        if (e % 2 == 0)
            normals (seed, i, e / 2, z);
        put (m, weights, e, std_dev * z[e % 2]);
    }
}

void decoder_init_unit (const train_decoder_t *m, size_t unit, uint64_t seed,
                        void *weights)
{
    const struct decoder_unit *u = &m->units[unit];

    for (size_t i = 0; i < m->n_params; i++) {
        const train_param_t *p = &m->params[i];
        size_t at = (p->offset - u->first) * train_dtype_size (m->config.dtype);

        if (p->offset >= u->first && p->offset - u->first < u->count)
            draw (m, i, seed, (char *)weights + at);
    }
}

void train_decoder_init (train_decoder_t *m, uint64_t seed)
{
    size_t esize = train_dtype_size (m->config.dtype);

    for (size_t u = 0; u < decoder_n_units (m); u++)
        decoder_init_unit (
            m, u, seed, (char *)m->weights.t.data + m->units[u].first * esize);
}
