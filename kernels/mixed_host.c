/* SPDX-License-Identifier: Apache-2.0
 * mixed_host.c - what mixed precision adds to the optimizer: AdamW on masters
 * with a bf16 copy, the factor of the gradient, accumulation */
#include "kernels.h"

#include "adamw_elem.h"
#include "host.h"

/* bf16 of the masters, in order; [key] NULL = to nearest. */
static void write_copy (uint16_t *copy, const float *p, size_t n,
                        uint64_t first, int64_t step, const uint32_t *key)
{
    uint32_t words[4] = {0};

    if (!key) {
        kern_cast_f32_bf16_host (copy, p, n, NULL);
        return;
    }
    for (size_t i = 0; i < n; i++) {
        if (i == 0 || (first + i) % 8 == 0)
            adamw_draws ((first + i) / 8, step, key, words);
        copy[i] = adamw_round (p[i], adamw_draw (words, first + i));
    }
}

void kern_round_bf16_host (uint16_t *copy, const float *p, size_t n,
                           int64_t step, uint64_t first, const uint32_t *key,
                           void *stream)
{
    (void)stream;
    write_copy (copy, p, n, first, step, key);
}

KERN_CLONES void kern_adamw_bf16_host (float *p, uint16_t *copy, float *m,
                                       float *v, const float *g,
                                       const float *factor, size_t n, double lr,
                                       double beta1, double beta2, double eps,
                                       double weight_decay, int64_t step,
                                       uint64_t first, const uint32_t *key,
                                       void *stream)
{
    const struct adamw_step s =
        adamw_step_of (lr, beta1, beta2, eps, weight_decay, step);
    const float f = factor ? *factor : 1;

    (void)stream;
    if (!isfinite (f))
        return;
    SIMD for (size_t i = 0; i < n; i++)
        adamw_elem (&s, f, &p[i], &m[i], &v[i], g[i]);
    if (copy)
        write_copy (copy, p, n, first, step, key);
}

void kern_clip_factor_host (float *factor, double *norm, const double *sumsq,
                            double inv_scale, double max_norm, void *stream)
{
    double length = sqrt (*sumsq) * inv_scale;
    double clip = max_norm > 0 ? max_norm / (length + 1e-6) : 1;

    (void)stream;
    *norm = length;
    *factor =
        (float)(isfinite (length) ? inv_scale * (clip < 1 ? clip : 1) : NAN);
}

KERN_CLONES void kern_accumulate_f32_host (float *sum, const float *x, size_t n,
                                           void *stream)
{
    (void)stream;
    SIMD for (size_t i = 0; i < n; i++) sum[i] += x[i];
}

KERN_CLONES void kern_accumulate_bf16_host (float *sum, const uint16_t *x,
                                            size_t n, void *stream)
{
    (void)stream;
    SIMD for (size_t i = 0; i < n; i++) sum[i] += half_from_bf16 (x[i]);
}
