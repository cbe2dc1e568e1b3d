/* SPDX-License-Identifier: Apache-2.0
 * fake_flat.c - kernels over flat arenas that run when their stream comes to
 * them */
#include "fake_impl.h"

struct sum_args {
    float *sum;
    const void *x;
    size_t n;
};

static void run_f32 (const void *args)
{
    const struct sum_args *a = args;

    flat_host.accumulate_f32 (a->sum, a->x, a->n, NULL);
}

static void run_bf16 (const void *args)
{
    const struct sum_args *a = args;

    flat_host.accumulate_bf16 (a->sum, a->x, a->n, NULL);
}

static void accumulate_f32 (float *sum, const float *x, size_t n, void *stream)
{
    const struct sum_args a = {sum, x, n};

    fake_call (stream, run_f32, &a, sizeof (a));
}

static void accumulate_bf16 (float *sum, const uint16_t *x, size_t n,
                             void *stream)
{
    const struct sum_args a = {sum, x, n};

    fake_call (stream, run_bf16, &a, sizeof (a));
}

struct sumsq_args {
    double *ret;
    const float *x;
    size_t n;
};

static void run_sumsq (const void *args)
{
    const struct sumsq_args *a = args;

    flat_host.sumsq (a->ret, NULL, a->x, a->n, NULL);
}

static void sumsq (double *ret, double *parts, const float *x, size_t n,
                   void *stream)
{
    const struct sumsq_args a = {ret, x, n};

    (void)parts;
    fake_call (stream, run_sumsq, &a, sizeof (a));
}

struct clip_args {
    float *factor;
    double *norm;
    const double *sumsq;
    double inv_scale, max_norm;
};

static void run_clip (const void *args)
{
    const struct clip_args *a = args;

    flat_host.clip_factor (a->factor, a->norm, a->sumsq, a->inv_scale,
                           a->max_norm, NULL);
}

static void clip_factor (float *factor, double *norm, const double *sumsq_of,
                         double inv_scale, double max_norm, void *stream)
{
    const struct clip_args a = {factor, norm, sumsq_of, inv_scale, max_norm};

    fake_call (stream, run_clip, &a, sizeof (a));
}

struct adamw_args {
    float *p, *m, *v;
    uint16_t *copy;
    const float *g, *factor;
    size_t n;
    double lr, beta1, beta2, eps, weight_decay;
    int64_t step;
    uint64_t first;
    bool random;
    uint32_t key[2];
};

static void run_adamw (const void *args)
{
    const struct adamw_args *a = args;

    flat_host.adamw (a->p, a->copy, a->m, a->v, a->g, a->factor, a->n, a->lr,
                     a->beta1, a->beta2, a->eps, a->weight_decay, a->step,
                     a->first, a->random ? a->key : NULL, NULL);
}

static void run_round (const void *args)
{
    const struct adamw_args *a = args;

    flat_host.round (a->copy, a->p, a->n, a->step, a->first, a->key, NULL);
}

static void round_bf16 (uint16_t *copy, const float *p, size_t n, int64_t step,
                        uint64_t first, const uint32_t *key, void *stream)
{
    const struct adamw_args a = {.p = (float *)(uintptr_t)p,
                                 .copy = copy,
                                 .n = n,
                                 .step = step,
                                 .first = first,
                                 .key = {key[0], key[1]}};

    fake_call (stream, run_round, &a, sizeof (a));
}

static void adamw (float *p, uint16_t *copy, float *m, float *v, const float *g,
                   const float *factor, size_t n, double lr, double beta1,
                   double beta2, double eps, double weight_decay, int64_t step,
                   uint64_t first, const uint32_t *key, void *stream)
{
    const struct adamw_args a = {
        p,     m,      v,           copy,
        g,     factor, n,           lr,
        beta1, beta2,  eps,         weight_decay,
        step,  first,  key != NULL, {key ? key[0] : 0, key ? key[1] : 0}};

    fake_call (stream, run_adamw, &a, sizeof (a));
}

const struct flat_ops fake_flat = {
    .accumulate_f32 = accumulate_f32,
    .accumulate_bf16 = accumulate_bf16,
    .sumsq = sumsq,
    .clip_factor = clip_factor,
    .adamw = adamw,
    .round = round_bf16,
};
