/* SPDX-License-Identifier: Apache-2.0
 * norm_cuda.h - what the forward and the backward of the norms on a GPU share
 *
 * A line is what is normed: a row, or a head of one. TEAM threads take a line and
 * keep K vectors of it each in registers; with K 0 a line has any length and is
 * read twice, the second time out of the caches. */
#ifndef KERN_NORM_CUDA_H
#define KERN_NORM_CUDA_H

#include "kernels/layers_cuda.h"

/* Where line [i] of (N, heads) stands in rows of [ld] elements, which begin with
 * [heads] of C. The first [first] heads of a row take the first of two weights. */
struct norm_lines {
    size_t N, C, heads, first, ld;
};

/* The sum over a team; every thread of it gets it. All threads of the block come
 * here the same number of times; [turn] counts them. */
template <int TEAM> static __device__ float team_sum (float x, int turn)
{
    __shared__ float part[2][THREADS / 32];
    float sum = 0;

#pragma unroll
    for (int step = (TEAM < 32 ? TEAM : 32) / 2; step > 0; step /= 2)
        x += __shfl_xor_sync (~0u, x, step);
    if (TEAM <= 32)
        return x;
    if (threadIdx.x % 32 == 0)
        part[turn % 2][threadIdx.x / 32] = x;
    __syncthreads ();
#pragma unroll
    for (int w = 0; w < THREADS / 32; w++)
        sum += part[turn % 2][w];
    return sum;
}

#endif
