/* SPDX-License-Identifier: Apache-2.0
 * decoder_init.c - first weights, drawn by counter.
 *
 * Element e of parameter i is a pure function of (seed, i, e): the same in any
 * world size, element type or order of drawing. */
#include "config.h"

#include <train/decoder.h>

#include <math.h>
#include <pthread.h>
#include <sched.h>
#include <stdlib.h>
#include <string.h>

#include "decoder_impl.h"
#include "elem.h"
#include "err.h"
#include "philox.h"

#define STD_DEV 0.02
#define PI      3.14159265358979323846

/* Elements that a thread is worth; most threads of one draw. */
#define PART    ((size_t)1 << 16)
#define THREADS ((size_t)64)

/* Word 3 of the counter: what these numbers are for. */
#define STREAM_WEIGHTS 0x77656967u /* "weig" */
#define STREAM_LORA    0x6c6f7261u /* "lora" */

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

static bool is_lora_a (const train_param_t *p)
{
    return ends_with (p->name, ".lora_A.weight");
}

/* Number of parameter [i] among those of its kind: adapters do not change what
 * the others are. */
static size_t number_of (const train_decoder_t *m, size_t i)
{
    bool lora = decoder_is_lora (m->params[i].name);
    size_t n = 0;

    for (size_t k = 0; k < i; k++)
        n += decoder_is_lora (m->params[k].name) == lora;
    return n;
}

/* PyTorch's kaiming_uniform_ with a = sqrt (5), which PEFT takes: within
 * 1 / sqrt (in) of 0. */
static double lora_a (uint64_t seed, size_t number, const train_param_t *p,
                      uint64_t e)
{
    const uint32_t key[2] = {(uint32_t)seed, (uint32_t)(seed >> 32)};
    const uint32_t ctr[4] = {(uint32_t)(e / 2), (uint32_t)(e >> 33),
                             (uint32_t)number, STREAM_LORA};
    uint32_t w[4];
    double u;

    philox4x32 (ctr, key, w);
    u = philox_uniform (w[e % 2 * 2], w[e % 2 * 2 + 1]);
    return (2 * u - 1) / sqrt ((double)p->shape[1]);
}

/* A range of one parameter's elements, which begins at an even one. */
struct part {
    const train_decoder_t *m;
    size_t param, number;
    uint64_t seed;
    void *weights; /* of the whole parameter */
    size_t from, end;
};

static void *draw_part (void *arg)
{
    const struct part *k = arg;
    const train_param_t *p = &k->m->params[k->param];
    double std_dev = STD_DEV, z[2];

    if (is_output (p))
        std_dev /= sqrt (2.0 * (double)k->m->dims.L);
    for (size_t e = k->from; e < k->end; e++) {
        if (decoder_is_lora (p->name)) {
            elem_put (k->m->config.dtype, k->weights, e,
                      is_lora_a (p) ? lora_a (k->seed, k->number, p, e) : 0);
            continue;
        }
        if (!p->decay) {
            elem_put (k->m->config.dtype, k->weights, e,
                      ends_with (p->name, ".bias") ? 0 : 1);
            continue;
        }
        if (e % 2 == 0)
            normals (k->seed, k->number, e / 2, z);
        elem_put (k->m->config.dtype, k->weights, e, std_dev * z[e % 2]);
    }
    return NULL;
}

/* As many as this thread may use, but none for less than PART elements. */
static size_t threads_for (size_t count)
{
    size_t n = count / PART;
    cpu_set_t set;

    CPU_ZERO (&set);
    if (sched_getaffinity (0, sizeof (set), &set) != 0)
        return 1;
    n = n < (size_t)CPU_COUNT (&set) ? n : (size_t)CPU_COUNT (&set);
    return n < 1 ? 1 : n < THREADS ? n : THREADS;
}

/* By several threads where it is large. A thread that cannot be had is done
 * without. */
void decoder_init_param (const train_decoder_t *m, size_t i, uint64_t seed,
                         void *weights)
{
    size_t count = m->params[i].count, n = threads_for (count);
    size_t number = number_of (m, i);
    size_t step = (count / n + 1) & ~(size_t)1;
    struct part parts[THREADS];
    pthread_t threads[THREADS];
    bool there[THREADS] = {false};

    for (size_t k = 0; k < n; k++) {
        parts[k] = (struct part){m,       i,        number,        seed,
                                 weights, k * step, (k + 1) * step};
        if (k + 1 == n)
            parts[k].end = count;
        else
            there[k] =
                !pthread_create (&threads[k], NULL, draw_part, &parts[k]);
        if (!there[k])
            draw_part (&parts[k]);
    }
    for (size_t k = 0; k < n; k++)
        if (there[k])
            pthread_join (threads[k], NULL);
}

void decoder_init_unit (const train_decoder_t *m, size_t unit, uint64_t seed,
                        void *weights)
{
    const struct decoder_unit *u = &m->units[unit];

    for (size_t i = 0; i < m->n_params; i++) {
        const train_param_t *p = &m->params[i];
        size_t at = (p->offset - u->first) * train_dtype_size (m->config.dtype);

        if (p->offset >= u->first && p->offset - u->first < u->count)
            decoder_init_param (m, i, seed, (char *)weights + at);
    }
}

/* One unit by way of the host's memory. */
static train_status_t init_far (train_decoder_t *m, size_t unit, uint64_t seed,
                                train_error_t *err)
{
    const struct decoder_unit *u = &m->units[unit];
    void *own = malloc (u->count * m->kern->elem_size);
    train_status_t status = TRAIN_OK;

    if (!own)
        return err_set (err, TRAIN_ENOMEM, "no memory for %zu weights",
                        u->count);
    decoder_init_unit (m, unit, seed, own);
    status = m->ops->copy (m->places[unit].weights, own,
                           u->count * m->kern->elem_size, m->stream, err);
    if (status == TRAIN_OK)
        status = m->ops->sync (m->stream, err);
    free (own);
    return status;
}

train_status_t train_decoder_draw (train_decoder_t *m, uint64_t seed,
                                   train_error_t *err)
{
    for (size_t u = 0; u < decoder_n_units (m); u++) {
        if (!m->places[u].weights)
            return err_set (err, TRAIN_ESTATE, "unit %zu has no weights", u);
        if (m->gpu)
            TRY (init_far (m, u, seed, err));
        else
            decoder_init_unit (m, u, seed, m->places[u].weights);
    }
    return TRAIN_OK;
}

void train_decoder_init (train_decoder_t *m, uint64_t seed)
{
    (void)train_decoder_draw (m, seed, NULL);
}
