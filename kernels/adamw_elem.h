/* SPDX-License-Identifier: Apache-2.0
 * adamw_elem.h - AdamW of one element, and the bf16 of a master weight; one text
 * for the host and for kernels */
#ifndef KERN_ADAMW_ELEM_H
#define KERN_ADAMW_ELEM_H

#include <math.h>
#include <stdint.h>

#include "kernels/half.h"
#include "kernels/philox_words.h"

/* What is the same for all elements of a step. */
struct adamw_step {
    float b1, one_b1, b2, one_b2, keep, rate, root, eps;
};

/* The corrections of the moments' bias in double: 1 - 0.999f errs by 1e-5. */
static inline struct adamw_step adamw_step_of (double lr, double beta1,
                                               double beta2, double eps,
                                               double weight_decay,
                                               int64_t step)
{
    struct adamw_step s;

    s.b1 = (float)beta1;
    s.one_b1 = (float)(1 - beta1);
    s.b2 = (float)beta2;
    s.one_b2 = (float)(1 - beta2);
    s.keep = (float)(1 - lr * weight_decay);
    s.rate = (float)(lr / (1 - pow (beta1, (double)step)));
    s.root = (float)(1 / sqrt (1 - pow (beta2, (double)step)));
    s.eps = (float)eps;
    return s;
}

HALF_FN void adamw_elem (const struct adamw_step *s, float factor, float *p,
                         float *m, float *v, float g)
{
    g *= factor;
    *m = s->b1 * *m + s->one_b1 * g;
    *v = s->b2 * *v + s->one_b2 * g * g;
    *p = s->keep * *p - s->rate * *m / (sqrtf (*v) * s->root + s->eps);
}

/* Up with the probability of what is cut off: [draw] is one of 65,536. What is
 * not finite is rounded as ever. */
HALF_FN uint16_t adamw_round (float x, uint32_t draw)
{
    uint32_t u = half_bits (x);

    if ((u & 0x7f800000u) == 0x7f800000u)
        return half_to_bf16 (x);
    return (uint16_t)((u >> 16) + ((u & 0xffffu) > (draw & 0xffffu)));
}

/* The draws of elements 8 k to 8 k + 7 of a tensor: two in each word. */
HALF_FN void adamw_draws (uint64_t k, int64_t step, const uint32_t key[2],
                          uint32_t words[4])
{
    uint32_t ctr[4] = {(uint32_t)k, (uint32_t)(k >> 32), (uint32_t)step,
                       0x61646d77u};

    philox_words (ctr, key, words);
}

HALF_FN uint32_t adamw_draw (const uint32_t words[4], uint64_t element)
{
    uint32_t at = (uint32_t)(element % 8);

    return words[at / 2] >> (at % 2 * 16) & 0xffffu;
}

#endif
