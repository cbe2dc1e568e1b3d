/* SPDX-License-Identifier: Apache-2.0
 * cast.cu - f32 to bf16 or f16 and back, one element a thread and round */
#include "kernels/kernels.h"

#include "kernels/half.h"

#define THREADS    256
#define MAX_BLOCKS 65535u

static __global__ void to_bf16 (uint16_t *y, const float *x, size_t n)
{
    size_t stride = (size_t)gridDim.x * blockDim.x;

    for (size_t i = (size_t)blockIdx.x * blockDim.x + threadIdx.x; i < n;
         i += stride)
        y[i] = half_to_bf16 (x[i]);
}

static __global__ void from_bf16 (float *y, const uint16_t *x, size_t n)
{
    size_t stride = (size_t)gridDim.x * blockDim.x;

    for (size_t i = (size_t)blockIdx.x * blockDim.x + threadIdx.x; i < n;
         i += stride)
        y[i] = half_from_bf16 (x[i]);
}

static __global__ void to_f16 (uint16_t *y, const float *x, size_t n)
{
    size_t stride = (size_t)gridDim.x * blockDim.x;

    for (size_t i = (size_t)blockIdx.x * blockDim.x + threadIdx.x; i < n;
         i += stride)
        y[i] = half_to_f16 (x[i]);
}

static __global__ void from_f16 (float *y, const uint16_t *x, size_t n)
{
    size_t stride = (size_t)gridDim.x * blockDim.x;

    for (size_t i = (size_t)blockIdx.x * blockDim.x + threadIdx.x; i < n;
         i += stride)
        y[i] = half_from_f16 (x[i]);
}

static unsigned blocks_of (size_t n)
{
    size_t blocks = (n + THREADS - 1) / THREADS;

    return blocks < MAX_BLOCKS ? (unsigned)blocks : MAX_BLOCKS;
}

/* An empty grid would be a launch error, so no element means no launch. */
void kern_cast_f32_bf16_cuda (uint16_t *y, const float *x, size_t n,
                              void *stream)
{
    if (n > 0)
        to_bf16<<<blocks_of (n), THREADS, 0, (cudaStream_t)stream>>> (y, x, n);
}

void kern_cast_bf16_f32_cuda (float *y, const uint16_t *x, size_t n,
                              void *stream)
{
    if (n > 0)
        from_bf16<<<blocks_of (n), THREADS, 0, (cudaStream_t)stream>>> (y, x,
                                                                        n);
}

void kern_cast_f32_f16_cuda (uint16_t *y, const float *x, size_t n,
                             void *stream)
{
    if (n > 0)
        to_f16<<<blocks_of (n), THREADS, 0, (cudaStream_t)stream>>> (y, x, n);
}

void kern_cast_f16_f32_cuda (float *y, const uint16_t *x, size_t n,
                             void *stream)
{
    if (n > 0)
        from_f16<<<blocks_of (n), THREADS, 0, (cudaStream_t)stream>>> (y, x, n);
}
