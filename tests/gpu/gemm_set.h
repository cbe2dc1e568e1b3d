/* SPDX-License-Identifier: Apache-2.0
 * gemm_set.h - numbers of three dtypes for the tests of products on a GPU */
#ifndef GEMM_SET_H
#define GEMM_SET_H

#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>

#include <cuda_runtime_api.h>

#include "kernels/gemm_lt.h"
#include "kernels/half.h"

#define GUARD 64 /* bytes after an array, which must stay */

static const char *const names[] = {"f32", "bf16", "f16"};
static uint32_t seed = 1;

static double number (void)
{
    seed = seed * 1664525u + 1013904223u;
    return (double)(seed >> 8) * 0x1p-23 - 1;
}

static void must (cudaError_t e)
{
    if (e == cudaSuccess)
        return;
    printf ("Bail out! %s\n", cudaGetErrorString (e));
    exit (1);
}

static size_t size_of (enum gemm_lt_dtype t)
{
    return t == GEMM_LT_F32 ? 4 : 2;
}

static void put (void *to, size_t i, enum gemm_lt_dtype t, double x)
{
    if (t == GEMM_LT_F32)
        ((float *)to)[i] = (float)x;
    else
        ((uint16_t *)to)[i] = t == GEMM_LT_BF16 ? half_to_bf16 ((float)x)
                                                : half_to_f16 ((float)x);
}

static double get (const void *from, size_t i, enum gemm_lt_dtype t)
{
    if (t == GEMM_LT_F32)
        return (double)((const float *)from)[i];
    return (double)(t == GEMM_LT_BF16
                        ? half_from_bf16 (((const uint16_t *)from)[i])
                        : half_from_f16 (((const uint16_t *)from)[i]));
}

#endif
