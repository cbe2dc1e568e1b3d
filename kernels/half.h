/* SPDX-License-Identifier: Apache-2.0
 * half.h - bf16 and fp16 as bits, from and to float
 *
 * Rounding is to nearest, ties to even. A NaN stays a NaN of the same sign and
 * becomes quiet; what exceeds the range becomes infinite (fp16: from 65520 on).
 * (IEEE 754-2019, 4.3.1; bf16 is the upper half of binary32.) */
#ifndef KERN_HALF_H
#define KERN_HALF_H

#include <stdint.h>
#include <string.h>

/* The same text for the host and for kernels. */
#ifdef __CUDACC__
#define HALF_FN static __host__ __device__ inline
#else
#define HALF_FN static inline
#endif

HALF_FN uint32_t half_bits (float x)
{
    uint32_t u;

    memcpy (&u, &x, sizeof (u));
    return u;
}

HALF_FN float half_float (uint32_t u)
{
    float x;

    memcpy (&x, &u, sizeof (x));
    return x;
}

HALF_FN float half_from_bf16 (uint16_t h)
{
    return half_float ((uint32_t)h << 16);
}

HALF_FN uint16_t half_to_bf16 (float x)
{
    uint32_t u = half_bits (x);

    if ((u & 0x7fffffffu) > 0x7f800000u)
        return (uint16_t)((u >> 16) | 0x0040u);
    return (uint16_t)((u + 0x7fffu + ((u >> 16) & 1u)) >> 16);
}

HALF_FN float half_from_f16 (uint16_t h)
{
    uint32_t sign = (uint32_t)(h & 0x8000u) << 16;
    uint32_t rest = h & 0x7fffu;

    if (rest >= 0x7c00u) /* Inf, NaN */
        return half_float (sign | 0x7f800000u | ((rest & 0x3ffu) << 13)
                           | (rest > 0x7c00u ? 0x400000u : 0));
    if (rest >= 0x0400u) /* normal: rebias 15 to 127 */
        return half_float (sign | ((rest << 13) + 0x38000000u));
    /* subnormal: exact in float */
    return half_float (half_bits ((float)rest * 0x1p-24f) | sign);
}

HALF_FN uint16_t half_to_f16 (float x)
{
    uint32_t u = half_bits (x), sign = (u >> 16) & 0x8000u;
    uint32_t rest = u & 0x7fffffffu;

    if (rest > 0x7f800000u)
        return (uint16_t)(sign | 0x7e00u | ((rest >> 13) & 0x3ffu));
    if (rest >= 0x477ff000u) /* 65520 */
        return (uint16_t)(sign | 0x7c00u);
    if (rest < 0x38800000u) {
        /* below 2^-14: adding 0.5 leaves rest * 2^24, rounded by the adder, in
         * the low bits of the sum */
        float sum = half_float (rest) + 0.5f;

        return (uint16_t)(sign | (half_bits (sum) - 0x3f000000u));
    }
    rest += 0xfffu + ((rest >> 13) & 1u);
    return (uint16_t)(sign | ((rest - 0x38000000u) >> 13));
}

#endif
