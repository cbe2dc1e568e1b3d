/* SPDX-License-Identifier: Apache-2.0
 * rows.cu - rows in another order, by the widest words that all rows begin at */
#include "kernels/rows.h"

#define THREADS 256

template <typename W>
static __global__ void __launch_bounds__ (THREADS)
    rows (W *y, const W *x, const int32_t *from, size_t N, size_t words)
{
    size_t i = (size_t)blockIdx.x * THREADS + threadIdx.x, n = i / words;

    if (n < N)
        y[i] = from[n] < 0 ? W () : x[(size_t)from[n] * words + i % words];
}

template <typename W>
static void launch (void *y, const void *x, const int32_t *from, size_t N,
                    size_t bytes, void *stream)
{
    size_t words = bytes / sizeof (W);

    if (N * words > 0)
        rows<<<(unsigned)((N * words + THREADS - 1) / THREADS), THREADS, 0,
               (cudaStream_t)stream>>> ((W *)y, (const W *)x, from, N, words);
}

void kern_rows_cuda (void *y, const void *x, const int32_t *from, size_t N,
                     size_t bytes, void *stream)
{
    size_t all = (size_t)y | (size_t)x | bytes;

    if (all % 16 == 0)
        launch<uint4> (y, x, from, N, bytes, stream);
    else if (all % 4 == 0)
        launch<uint32_t> (y, x, from, N, bytes, stream);
    else
        launch<uint16_t> (y, x, from, N, bytes, stream);
}
