/* SPDX-License-Identifier: Apache-2.0
 * half_check.h - how tests look at kernels in bf16 and f16: beside the f64
 * kernel on the same rounded numbers.
 *
 * A result that is rounded once errs by half a step at most: 2^-9 of it in bf16,
 * 2^-12 in f16; [step] is the whole, which leaves room for f32's own
 * errors where sums cancel. Per element the room is relative to the larger of
 * the element and [floor], which a test sets to the size of what is summed. */
#ifndef HALF_CHECK_H
#define HALF_CHECK_H

#include "kern_check.h"

#include "kernels/half.h"

struct half_type {
    const char *name;
    uint16_t (*put) (float);
    float (*get) (uint16_t);
    double step; /* of the type: twice the largest error of rounding once */
    uint16_t nan, inf;
};

static uint16_t bf16_put (float x)
{
    return half_to_bf16 (x);
}

static float bf16_get (uint16_t h)
{
    return half_from_bf16 (h);
}

static uint16_t f16_put (float x)
{
    return half_to_f16 (x);
}

static float f16_get (uint16_t h)
{
    return half_from_f16 (h);
}

static const struct half_type half_types[2] = {
    {"bf16", bf16_put, bf16_get, 0x1p-8, 0x7fc0, 0x7f80},
    {"f16", f16_put, f16_get, 0x1p-11, 0x7e00, 0x7c00},
};

/* [n] made-up numbers that the type holds, as bits; [wide] (n) gets them too. */
static inline uint16_t *halves (const struct half_type *t, double *wide,
                                size_t n, uint32_t seed)
{
    double *x = numbers (n, seed);
    uint16_t *h = malloc ((n + 1) * sizeof (*h));

    assert_non_null (h);
    for (size_t i = 0; i < n; i++) {
        h[i] = t->put ((float)x[i]);
        wide[i] = (double)t->get (h[i]);
    }
    free (x);
    return h;
}

/* Storage that nothing has written: NaN in each element, and a guard. */
static inline uint16_t *poisoned (const struct half_type *t, size_t n)
{
    uint16_t *h = malloc ((n + 1) * sizeof (*h));

    assert_non_null (h);
    for (size_t i = 0; i <= n; i++)
        h[i] = t->nan;
    return h;
}

/* Each element of [h] is [want] within a step, [floor] as above; the guard
 * stands. */
static inline void check_half (const struct half_type *t, const char *what,
                               const uint16_t *h, const double *want, size_t n,
                               double floor)
{
    for (size_t i = 0; i < n; i++) {
        double got = (double)t->get (h[i]);
        double room = t->step * (fabs (want[i]) + 0.02 * floor) + 1e-7;

        if (!(fabs (got - want[i]) <= room))
            fail_msg ("%s %s [%zu]: %g, want %g within %g", what, t->name, i,
                      got, want[i], room);
    }
    if (h[n] != t->nan)
        fail_msg ("%s %s: written past the end", what, t->name);
}

/* The kernel of a type, by its name. */
#define HALF_CALL(t, op, ...)                                                  \
    do {                                                                       \
        if ((t) == &half_types[0])                                             \
            kern_##op##_bf16_host (__VA_ARGS__);                               \
        else                                                                   \
            kern_##op##_f16_host (__VA_ARGS__);                                \
    } while (0)

#endif
