/* SPDX-License-Identifier: Apache-2.0
 * linear_ce_parts.cu - the gradient that a loss sends to each row, and the sum of
 * all rows */
#include "kernels/linear_ce_parts.h"

#define THREADS 256
#define SUMMERS 1024

static __global__ void __launch_bounds__ (THREADS)
    seed (float *dlogp, const float *factor, double scale, size_t N)
{
    size_t i = (size_t)blockIdx.x * THREADS + threadIdx.x;

    if (i < N)
        dlogp[i] = (float)(-scale * (factor ? (double)*factor : 1));
}

void linear_ce_seed (float *dlogp, const float *factor, double scale, size_t N,
                     void *stream)
{
    if (N > 0)
        seed<<<(unsigned)((N + THREADS - 1) / THREADS), THREADS, 0,
               (cudaStream_t)stream>>> (dlogp, factor, scale, N);
}

static __global__ void __launch_bounds__ (SUMMERS)
    sum (double *ret_sum, int64_t *ret_n, const float *logp,
         const int32_t *targets, size_t N)
{
    __shared__ double sums[SUMMERS];
    __shared__ int64_t counts[SUMMERS];
    unsigned at = threadIdx.x;
    double mine = 0;
    int64_t counted = 0;

    for (size_t i = at; i < N; i += SUMMERS) {
        bool counts_too = targets[i] >= 0;

        mine -= counts_too ? (double)logp[i] : 0;
        counted += counts_too;
    }
    sums[at] = mine;
    counts[at] = counted;
    __syncthreads ();
    for (unsigned half = SUMMERS / 2; half > 0; half /= 2) {
        if (at < half) {
            sums[at] += sums[at + half];
            counts[at] += counts[at + half];
        }
        __syncthreads ();
    }
    if (at == 0 && ret_sum)
        *ret_sum += sums[0];
    if (at == 0 && ret_n)
        *ret_n += counts[0];
}

void linear_ce_sum (double *ret_sum, int64_t *ret_n, const float *logp,
                    const int32_t *targets, size_t N, void *stream)
{
    sum<<<1, SUMMERS, 0, (cudaStream_t)stream>>> (ret_sum, ret_n, logp, targets,
                                                  N);
}
