/* SPDX-License-Identifier: Apache-2.0
 * finite.cu - the first Inf or NaN: the least of what the threads find
 *
 * A thread's own elements come in order, so its first is its least; a minimum
 * of integers is the same in any order. */
#include "kernels/finite.h"

#define THREADS 256
#define BLOCKS  2048u /* more would only begin and end */

static __global__ void set (unsigned long long *ret, unsigned long long value)
{
    *ret = value;
}

template <typename T>
static __global__ void __launch_bounds__ (THREADS)
    first (unsigned long long *ret, const T *x, size_t n, T ones)
{
    size_t step = (size_t)gridDim.x * THREADS;

    for (size_t i = (size_t)blockIdx.x * THREADS + threadIdx.x; i < n;
         i += step) {
        if ((x[i] & ones) != ones)
            continue;
        atomicMin (ret, (unsigned long long)i);
        return;
    }
}

template <typename T>
static void launch (uint64_t *ret, const T *x, size_t n, T ones, void *stream)
{
    unsigned long long *to = (unsigned long long *)ret;
    size_t blocks = (n + THREADS - 1) / THREADS;

    set<<<1, 1, 0, (cudaStream_t)stream>>> (to, n);
    if (blocks > BLOCKS)
        blocks = BLOCKS;
    if (n > 0)
        first<<<(unsigned)blocks, THREADS, 0, (cudaStream_t)stream>>> (to, x, n,
                                                                       ones);
}

void kern_first_nonfinite_f32_cuda (uint64_t *ret, const float *x, size_t n,
                                    void *stream)
{
    launch (ret, (const uint32_t *)x, n, 0x7f800000u, stream);
}

void kern_first_nonfinite_bf16_cuda (uint64_t *ret, const uint16_t *x, size_t n,
                                     void *stream)
{
    launch (ret, x, n, (uint16_t)0x7f80, stream);
}

void kern_first_nonfinite_f16_cuda (uint64_t *ret, const uint16_t *x, size_t n,
                                    void *stream)
{
    launch (ret, x, n, (uint16_t)0x7c00, stream);
}
