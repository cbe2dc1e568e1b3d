/* SPDX-License-Identifier: Apache-2.0
 * beside.cu - work of a receiver while a copy arrives: x * x * x * x as PyTorch
 * runs it, three kernels that only move memory */
#include "beside.h"

#define THREADS 256

static __global__ void times (float4 *out, const float4 *a, const float4 *b)
{
    size_t i = (size_t)blockIdx.x * THREADS + threadIdx.x;
    float4 x = a[i], y = b[i];

    out[i] = make_float4 (x.x * y.x, x.y * y.y, x.z * y.z, x.w * y.w);
}

void beside_power (float *out, float *room, const float *x, size_t n,
                   void *stream)
{
    unsigned blocks = (unsigned)(n / 4 / THREADS);
    cudaStream_t s = (cudaStream_t)stream;
    const float4 *in = (const float4 *)x;
    float4 *a = (float4 *)out, *b = (float4 *)room;

    times<<<blocks, THREADS, 0, s>>> (a, in, in);
    times<<<blocks, THREADS, 0, s>>> (b, a, in);
    times<<<blocks, THREADS, 0, s>>> (a, b, in);
}
