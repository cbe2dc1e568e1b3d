/* SPDX-License-Identifier: Apache-2.0
 * cast_host.c - f32 to bf16 or f16 and back */
#include "kernels.h"

#include "half.h"

void kern_cast_f32_bf16_host (uint16_t *y, const float *x, size_t n,
                              void *stream)
{
    (void)stream;
    for (size_t i = 0; i < n; i++)
        y[i] = half_to_bf16 (x[i]);
}

void kern_cast_bf16_f32_host (float *y, const uint16_t *x, size_t n,
                              void *stream)
{
    (void)stream;
    for (size_t i = 0; i < n; i++)
        y[i] = half_from_bf16 (x[i]);
}

void kern_cast_f32_f16_host (uint16_t *y, const float *x, size_t n,
                             void *stream)
{
    (void)stream;
    for (size_t i = 0; i < n; i++)
        y[i] = half_to_f16 (x[i]);
}

void kern_cast_f16_f32_host (float *y, const uint16_t *x, size_t n,
                             void *stream)
{
    (void)stream;
    for (size_t i = 0; i < n; i++)
        y[i] = half_from_f16 (x[i]);
}
