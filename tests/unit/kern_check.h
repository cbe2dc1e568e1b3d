/* SPDX-License-Identifier: Apache-2.0
 * kern_check.h - how tests look at kernels: made-up numbers, errors in the
 * 2-norm, derivatives by central differences.
 *
 * A kernel is y = f (x), seen through the scalar sum (y * r) with fixed r;
 * then dy = r, and the kernel's backward must give the differences' gradient.
 * Central differences with h = 1e-5 err by about h^2 of the third derivative
 * and by 1e-16 / h of the value, so GRAD_BOUND 1e-8 leaves little room for a
 * wrong term. F32_BOUND: a handful of roundings of 6e-8, summed. */
#ifndef KERN_CHECK_H
#define KERN_CHECK_H

#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdlib.h>
#include <string.h>
#include <math.h>

#include <cmocka.h>

#include "kernels/kernels.h"

#define GRAD_BOUND 1e-8
#define F32_BOUND  2e-6
#define LENGTH(a)  (sizeof (a) / sizeof (a[0]))

/* Numbers in (-1,1), each 24 bits so that f32 holds them exactly; the same in
 * every run. Freed by the caller. */
static inline double *numbers (size_t n, uint32_t seed)
{
    double *x = malloc ((n + 1) * sizeof (*x));

    assert_non_null (x);
    for (size_t i = 0; i < n; i++) {
        seed = seed * 1664525u + 1013904223u;
        x[i] = (double)(seed >> 8) * 0x1p-23 - 1.0;
    }
    return x;
}

static inline double *zeros (size_t n)
{
    double *x = calloc (n + 1, sizeof (*x));

    assert_non_null (x);
    return x;
}

/* A rounded copy. */
static inline float *narrow (const double *x, size_t n)
{
    float *y = malloc ((n + 1) * sizeof (*y));

    assert_non_null (y);
    for (size_t i = 0; i < n; i++)
        y[i] = (float)x[i];
    return y;
}

static inline double dot (const double *a, const double *b, size_t n)
{
    double sum = 0;

    for (size_t i = 0; i < n; i++)
        sum += a[i] * b[i];
    return sum;
}

/* |a - b| / |b|; |a - b| where b is 0; a NaN anywhere gives NaN. */
static inline double error_of (const double *a, const double *b, size_t n)
{
    double diff = 0, norm = 0;

    for (size_t i = 0; i < n; i++) {
        diff += (a[i] - b[i]) * (a[i] - b[i]);
        norm += b[i] * b[i];
    }
    return sqrt (diff) / (norm > 0 ? sqrt (norm) : 1.0);
}

static inline void check_close (const char *what, const double *a,
                                const double *b, size_t n, double bound)
{
    double error = error_of (a, b, n);

    if (!(error <= bound))
        fail_msg ("%s: error %g, bound %g", what, error, bound);
}

static inline void check_f32 (const char *what, const float *a, const double *b,
                              size_t n, double bound)
{
    double *wide = zeros (n);

    for (size_t i = 0; i < n; i++)
        wide[i] = (double)a[i];
    check_close (what, wide, b, n, bound);
    free (wide);
}

/* Compare [grad] with the central differences of value (arg) over x. */
static inline void check_grad (const char *what, const double *grad, double *x,
                               size_t n, double (*value) (void *), void *arg)
{
    const double h = 1e-5;
    double *want = zeros (n);

    for (size_t i = 0; i < n; i++) {
        double keep = x[i], up;

        x[i] = keep + h;
        up = value (arg);
        x[i] = keep - h;
        want[i] = (up - value (arg)) / (2 * h);
        x[i] = keep;
    }
    check_close (what, grad, want, n, GRAD_BOUND);
    free (want);
}

#endif
