/* SPDX-License-Identifier: Apache-2.0
 * host.h - what the host kernels share: wide clones, SIMD loops, exp.
 *
 * SIMD and SIMD_SUM mark loops whose iterations may run side by side (OpenMP's
 * simd directive, without its run time). KERN_CLONES compiles a function for
 * AVX2 with FMA as well and picks at load time; the two differ in rounding
 * only. */
#ifndef KERN_HOST_H
#define KERN_HOST_H

#include <math.h>
#include <stdint.h>
#include <string.h>

#define KERN_PRAGMA(x) _Pragma (#x)
#define SIMD           KERN_PRAGMA (omp simd)
#define SIMD_SUM(...)  KERN_PRAGMA (omp simd reduction (+ : __VA_ARGS__))
#define SIMD_MAX(...)  KERN_PRAGMA (omp simd reduction (max : __VA_ARGS__))
#define KERN_INLINE    static inline __attribute__ ((always_inline))

/* A clone is picked by an ifunc, and sanitizers instrument the resolver, which
 * runs before they are ready: none there. clang 14 gives the ifunc another name
 * than callers in other files use: none there either. */
#if defined(__x86_64__) && defined(__gnu_linux__) && !defined(__clang__)       \
    && __GNUC__ >= 12 && !defined(__SANITIZE_ADDRESS__)                        \
    && !defined(__SANITIZE_THREAD__)
#define KERN_CLONES                                                            \
    __attribute__ ((target_clones ("arch=x86-64-v3", "default")))
#else
#define KERN_CLONES
#endif

/* gcc would follow the clamps of exp into the code behind it and divide once a
 * path: 2.6 times the time for SwiGLU. */
#if defined(__GNUC__) && !defined(__clang__)
#pragma GCC optimize("no-thread-jumps")
#endif

/* exp without a branch or a table, so that loops around it become vector code:
 * exp (x) = 2^n exp (r), n = rint (x / ln 2), |r| <= ln 2 / 2. The Taylor
 * series is cut where the rest is below half an ulp (5e-9 of the result in
 * f32, 4e-18 in f64); the error of the whole is under 2^-23 of the
 * result, 2^-52 in f64. The argument is clamped, so the result is never 0 or
 * Inf; a NaN stays one. */
KERN_INLINE float exp_f32 (float x)
{
    const float magic = 0x1.8p23f; /* adding it leaves rint in the low bits */
    float shifted, n, r, y, power;
    uint32_t bits;

    x = x < -87.3f ? -87.3f : x;
    x = x > 88.3f ? 88.3f : x;
    shifted = x * 0x1.715476p0f + magic;
    n = shifted - magic;
    /* ln 2 in two parts: n times the first is exact */
    r = (x - n * 0x1.62e4p-1f) - n * 0x1.7f7d1cp-20f;
    y = 1.0f / 5040;
    y = y * r + 1.0f / 720;
    y = y * r + 1.0f / 120;
    y = y * r + 1.0f / 24;
    y = y * r + 1.0f / 6;
    y = y * r + 0.5f;
    y = y * r + 1.0f;
    y = y * r + 1.0f;
    memcpy (&bits, &shifted, sizeof (bits));
    bits = (bits << 23) + 0x3f800000u; /* 2^n */
    memcpy (&power, &bits, sizeof (power));
    return y * power;
}

KERN_INLINE double exp_f64 (double x)
{
    const double magic = 0x1.8p52;
    double shifted, n, r, y, power;
    uint64_t bits;

    x = x < -708.0 ? -708.0 : x;
    x = x > 709.0 ? 709.0 : x;
    shifted = x * 0x1.71547652b82fep0 + magic;
    n = shifted - magic;
    r = (x - n * 0x1.62e42feep-1) - n * 0x1.a39ef35793c76p-33;
    y = 1.0 / 6227020800;
    y = y * r + 1.0 / 479001600;
    y = y * r + 1.0 / 39916800;
    y = y * r + 1.0 / 3628800;
    y = y * r + 1.0 / 362880;
    y = y * r + 1.0 / 40320;
    y = y * r + 1.0 / 5040;
    y = y * r + 1.0 / 720;
    y = y * r + 1.0 / 120;
    y = y * r + 1.0 / 24;
    y = y * r + 1.0 / 6;
    y = y * r + 0.5;
    y = y * r + 1.0;
    y = y * r + 1.0;
    memcpy (&bits, &shifted, sizeof (bits));
    bits = (bits << 52) + 0x3ff0000000000000u;
    memcpy (&power, &bits, sizeof (power));
    return y * power;
}

KERN_INLINE float sqrt_f32 (float x)
{
    return sqrtf (x);
}

KERN_INLINE double sqrt_f64 (double x)
{
    return sqrt (x);
}

#endif
