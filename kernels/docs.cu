/* SPDX-License-Identifier: Apache-2.0
 * docs.cu - rows of a table by the position in the document */
#include "kernels/docs.h"

#define THREADS 256

static __global__ void __launch_bounds__ (THREADS)
    positions (float *y, const float *table, const int32_t *starts, size_t N,
               size_t T, size_t W)
{
    size_t i = (size_t)blockIdx.x * THREADS + threadIdx.x, n = i / W;

    if (n < N)
        y[i] = table[(n % T - (size_t)starts[n]) * W + i % W];
}

void kern_positions_f32_cuda (float *y, const float *table,
                              const int32_t *starts, size_t N, size_t T,
                              size_t W, void *stream)
{
    positions<<<(unsigned)((N * W + THREADS - 1) / THREADS), THREADS, 0,
                (cudaStream_t)stream>>> (y, table, starts, N, T, W);
}
