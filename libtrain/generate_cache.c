/* SPDX-License-Identifier: Apache-2.0
 * generate_cache.c - a forward of new tokens over kept keys and values
 *
 * The rows are tokens of any texts at any positions, so prompts of several
 * lengths and single tokens are one case. */
#include <math.h>
#include <stdlib.h>
#include <string.h>

#include "decoder_impl.h"
#include "err.h"
#include "generate_impl.h"

#define real    float
#define NAME(x) x##_f32
#include "generate_attention.inc"
#undef real
#undef NAME
#define real    double
#define NAME(x) x##_f64
#include "generate_attention.inc"
#undef real
#undef NAME

struct kv_cache {
    train_decoder_t *m;
    size_t B, T, E;      /* texts, tokens, bytes of an element */
    char *k, *v;         /* (L,B,T,G,D) */
    char *cosine, *sine; /* (T,D/2) */
    double *p;           /* (T) */
    size_t rows;         /* room of those below */
    char *x, *norm, *qkv, *att, *tmp, *raw, *gate_up, *act, *rstd, *logits;
};

static void tables (struct kv_cache *c)
{
    const train_decoder_config_t *f = &c->m->config;
    double scale = decoder_rope_scale (f);
    size_t half = c->m->dims.D / 2;

    for (size_t j = 0; j < half; j++) {
        double rate = decoder_rope_rate (f, c->T, j);

        for (size_t t = 0; t < c->T; t++) {
            double x = scale * cos ((double)t * rate);
            double y = scale * sin ((double)t * rate);

            if (c->E == sizeof (float)) {
                ((float *)(void *)c->cosine)[t * half + j] = (float)x;
                ((float *)(void *)c->sine)[t * half + j] = (float)y;
            } else {
                ((double *)(void *)c->cosine)[t * half + j] = x;
                ((double *)(void *)c->sine)[t * half + j] = y;
            }
        }
    }
}

static train_status_t served (const train_decoder_t *m, train_error_t *err)
{
    if (m->gpu
        || (m->config.dtype != TRAIN_F32 && m->config.dtype != TRAIN_F64))
        return err_set (err, TRAIN_ENOTSUP,
                        "generate: the decoder is %s%s; f32 and f64 on the "
                        "host work",
                        train_dtype_name (m->config.dtype),
                        m->gpu ? " on a GPU" : "");
    if (m->config.rope.kind == TRAIN_ROPE_DYNAMIC)
        return err_set (err, TRAIN_ENOTSUP,
                        "generate: rope is dynamic, whose angles of kept keys "
                        "change with the length; default, linear, llama3 and "
                        "yarn work");
    return TRAIN_OK;
}

train_status_t kv_create (train_decoder_t *m, int B, int T,
                          struct kv_cache **ret, train_error_t *err)
{
    const struct decoder_dims *d = &m->dims;
    struct kv_cache *c;
    size_t kept;

    TRY (served (m, err));
    if (!(c = calloc (1, sizeof (*c))))
        return err_set (err, TRAIN_ENOMEM, "no memory to generate");
    c->m = m;
    c->B = (size_t)B;
    c->T = (size_t)T;
    c->E = m->kern->elem_size;
    if (__builtin_mul_overflow (d->L * d->G * d->D * c->E, c->B * c->T, &kept)
        || !(c->k = malloc (kept)) || !(c->v = malloc (kept))
        || !(c->cosine = malloc (c->T * (d->D / 2) * c->E))
        || !(c->sine = malloc (c->T * (d->D / 2) * c->E))
        || !(c->p = malloc (c->T * sizeof (*c->p)))) {
        kv_destroy (c);
        return err_set (err, TRAIN_ENOMEM,
                        "no memory for keys and values of %d texts of %d "
                        "tokens",
                        B, T);
    }
    tables (c);
    *ret = c;
    return TRAIN_OK;
}

static void drop_rows (struct kv_cache *c)
{
    char **all[] = {&c->x,   &c->norm,    &c->qkv, &c->att,  &c->tmp,
                    &c->raw, &c->gate_up, &c->act, &c->rstd, &c->logits};

    for (size_t i = 0; i < sizeof (all) / sizeof (*all); i++) {
        free (*all[i]);
        *all[i] = NULL;
    }
    c->rows = 0;
}

void kv_destroy (struct kv_cache *c)
{
    if (!c)
        return;
    drop_rows (c);
    free (c->k);
    free (c->v);
    free (c->cosine);
    free (c->sine);
    free (c->p);
    free (c);
}

static train_status_t room (struct kv_cache *c, size_t N, train_error_t *err)
{
    const struct decoder_dims *d = &c->m->dims;
    struct {
        char **p;
        size_t width;
    } all[] = {
        {&c->x, d->C},           {&c->norm, d->C},
        {&c->qkv, d->Q},         {&c->att, d->H * d->D},
        {&c->tmp, d->C},         {&c->raw, (d->H + d->G) * d->D},
        {&c->gate_up, 2 * d->F}, {&c->act, d->F},
        {&c->rstd, d->H + d->G}, {&c->logits, d->V},
    };

    if (N <= c->rows)
        return TRAIN_OK;
    drop_rows (c);
    for (size_t i = 0; i < sizeof (all) / sizeof (*all); i++)
        if (!(*all[i].p = malloc (N * all[i].width * c->E)))
            return err_set (err, TRAIN_ENOMEM, "no memory for %zu rows", N);
    c->rows = N;
    return TRAIN_OK;
}

/* Turn row [i]'s queries and keys, and keep its keys and values. */
static void keep (struct kv_cache *c, size_t l, size_t i, size_t text,
                  size_t at)
{
    const struct decoder_dims *d = &c->m->dims;
    size_t half = d->D / 2, GD = d->G * d->D;
    size_t to = ((l * c->B + text) * c->T + at) * GD * c->E;
    char *row = c->qkv + i * d->Q * c->E;

    c->m->kern->rope_fwd (row, c->cosine + at * half * c->E,
                          c->sine + at * half * c->E, 1, 1, d->H + d->G, d->D,
                          d->Q, NULL);
    memcpy (c->k + to, row + d->H * d->D * c->E, GD * c->E);
    memcpy (c->v + to, row + (d->H * d->D + GD) * c->E, GD * c->E);
}

static void attend (struct kv_cache *c, size_t l, size_t i, size_t text,
                    size_t at)
{
    const struct decoder_dims *d = &c->m->dims;
    size_t from = (l * c->B + text) * c->T * d->G * d->D * c->E;
    void *y = c->att + i * d->H * d->D * c->E;
    const void *q = c->qkv + i * d->Q * c->E;
    const void *k = c->k + from, *v = c->v + from;

    if (c->E == sizeof (float))
        attend_f32 (y, q, k, v, at + 1, d->H, d->G, d->D, c->p);
    else
        attend_f64 (y, q, k, v, at + 1, d->H, d->G, d->D, c->p);
}

/* x += tmp */
static void add (struct kv_cache *c, size_t n)
{
    if (c->E == sizeof (float)) {
        float *x = (float *)(void *)c->x;
        const float *y = (const float *)(void *)c->tmp;

        for (size_t i = 0; i < n; i++)
            x[i] += y[i];
    } else {
        double *x = (double *)(void *)c->x;
        const double *y = (const double *)(void *)c->tmp;

        for (size_t i = 0; i < n; i++)
            x[i] += y[i];
    }
}

#define W(name) decoder_weight (m, l + 1, m->blocks[l].name)

static void block (struct kv_cache *c, size_t l, const int *text, const int *at,
                   size_t N)
{
    train_decoder_t *m = c->m;
    const struct decoder_dims *d = &m->dims;
    const struct kern_ops *kern = m->kern;
    double eps = m->config.norm_eps;

    kern->rmsnorm_fwd (c->norm, c->rstd, c->x, W (norm1), N, d->C, eps, NULL);
    kern->matmul_fwd (c->qkv, c->norm, W (qkv), N, d->C, d->Q, NULL);
    if (d->bias)
        kern->bias_fwd (c->qkv, W (bias), N, d->Q, NULL);
    if (d->norm)
        kern->headnorm_fwd (c->qkv, c->raw, c->rstd, W (q_norm), W (k_norm), N,
                            d->H, d->G, d->D, eps, NULL);
    for (size_t i = 0; i < N; i++)
        keep (c, l, i, (size_t)text[i], (size_t)at[i]);
    for (size_t i = 0; i < N; i++)
        attend (c, l, i, (size_t)text[i], (size_t)at[i]);
    kern->matmul_fwd (c->tmp, c->att, W (out), N, d->H * d->D, d->C, NULL);
    add (c, N * d->C);
    kern->rmsnorm_fwd (c->norm, c->rstd, c->x, W (norm2), N, d->C, eps, NULL);
    kern->matmul_fwd (c->gate_up, c->norm, W (gate_up), N, d->C, 2 * d->F,
                      NULL);
    kern->swiglu_fwd (c->act, c->gate_up, N, d->F, NULL);
    kern->matmul_fwd (c->tmp, c->act, W (down), N, d->F, d->C, NULL);
    add (c, N * d->C);
}

train_status_t kv_feed (struct kv_cache *c, const void **logits,
                        const int32_t *tokens, const int *text, const int *at,
                        size_t N, train_error_t *err)
{
    train_decoder_t *m = c->m;
    const struct decoder_dims *d = &m->dims;
    size_t last = d->L + 1, head = m->config.tie ? 0 : last;

    TRY (room (c, N, err));
    TRY (decoder_enter (m, 0, false, err));
    m->kern->embedding_fwd (c->x, decoder_weight (m, 0, m->embed), tokens, N,
                            d->C, NULL);
    TRY (decoder_leave (m, 0, false, err));
    for (size_t l = 0; l < d->L; l++) {
        TRY (decoder_enter (m, l + 1, false, err));
        block (c, l, text, at, N);
        TRY (decoder_leave (m, l + 1, false, err));
    }
    TRY (decoder_enter (m, last, false, err));
    m->kern->rmsnorm_fwd (c->norm, c->rstd, c->x,
                          decoder_weight (m, last, m->norm_f), N, d->C,
                          m->config.norm_eps, NULL);
    if (head != last)
        TRY (decoder_turn (m, last, head, false, err));
    m->kern->matmul_fwd (c->logits, c->norm, decoder_weight (m, head, m->head),
                         N, d->C, d->V, NULL);
    *logits = c->logits;
    return decoder_leave (m, head, false, err);
}
