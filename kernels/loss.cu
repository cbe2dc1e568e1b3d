/* SPDX-License-Identifier: Apache-2.0
 * loss.cu - the loss of rows of logits, piece by piece
 *
 * bf16 is logprob.cu's; f32 and f16 take one block a row and three looks at it,
 * the later two from the L2 cache where the row fits. Sums run in one order. */
#include "kernels/loss.h"

#include <float.h>

#include "kernels/half.h"
#include "kernels/kernels.h"

#define THREADS 512

static __device__ float get (float x)
{
    return x;
}

static __device__ float get (uint16_t x)
{
    return half_from_f16 (x);
}

static __device__ void put (float *y, float x)
{
    *y = x;
}

static __device__ void put (uint16_t *y, float x)
{
    *y = half_to_f16 (x);
}

/* The same tree every time; all threads get the result. */
template <typename T, typename F> static __device__ T block_fold (T x, F fold)
{
    __shared__ T part[THREADS];

    __syncthreads ();
    part[threadIdx.x] = x;
    __syncthreads ();
    for (unsigned half = THREADS / 2; half > 0; half /= 2) {
        if (threadIdx.x < half)
            part[threadIdx.x] =
                fold (part[threadIdx.x], part[threadIdx.x + half]);
        __syncthreads ();
    }
    return part[0];
}

template <typename T>
static __device__ float log_sum (const T *z, size_t V, float *ret_most)
{
    float most = -FLT_MAX, sum = 0;

    for (size_t v = threadIdx.x; v < V; v += THREADS)
        most = fmaxf (most, get (z[v]));
    most = block_fold (most, [] (float a, float b) { return fmaxf (a, b); });
    for (size_t v = threadIdx.x; v < V; v += THREADS)
        sum += expf (get (z[v]) - most);
    sum = block_fold (sum, [] (float a, float b) { return a + b; });
    *ret_most = most;
    return logf (sum);
}

template <typename T>
static __global__ void __launch_bounds__ (THREADS)
    pick (T *logits, float *logp, const int32_t *targets, const float *dlogp,
          size_t V)
{
    T *z = logits + (size_t)blockIdx.x * V;
    int32_t t = targets[blockIdx.x];
    float most = 0, rest = t < 0 ? 0 : log_sum (z, V, &most), up;

    if (threadIdx.x == 0)
        logp[blockIdx.x] = t < 0 ? 0 : (get (z[t]) - most) - rest;
    if (!dlogp)
        return;
    up = t < 0 ? 0 : dlogp[blockIdx.x];
    __syncthreads ();
    for (size_t v = threadIdx.x; v < V; v += THREADS) {
        float p = expf ((get (z[v]) - most) - rest);

        put (&z[v], t < 0 ? 0 : up * ((int64_t)v == t ? 1 - p : -p));
    }
}

void kern_pick_f32_cuda (float *logits, float *logp, const int32_t *targets,
                         const float *dlogp, size_t N, size_t V, void *stream)
{
    if (N > 0)
        pick<<<(unsigned)N, THREADS, 0, (cudaStream_t)stream>>> (
            logits, logp, targets, dlogp, V);
}

void kern_pick_f16_cuda (uint16_t *logits, float *logp, const int32_t *targets,
                         const float *dlogp, size_t N, size_t V, void *stream)
{
    if (N > 0)
        pick<<<(unsigned)N, THREADS, 0, (cudaStream_t)stream>>> (
            logits, logp, targets, dlogp, V);
}

void kern_pick_bf16_cuda (uint16_t *logits, float *logp, const int32_t *targets,
                          const float *dlogp, size_t N, size_t V, void *stream)
{
    kern_logprob_bf16_cuda (logits, logp, NULL, targets, dlogp, N, V, 1,
                            stream);
}

static __global__ void fill (float *y, float value, size_t n)
{
    size_t i = (size_t)blockIdx.x * THREADS + threadIdx.x;

    if (i < n)
        y[i] = value;
}

void kern_fill_f32_cuda (float *y, float value, size_t n, void *stream)
{
    if (n > 0)
        fill<<<(unsigned)((n + THREADS - 1) / THREADS), THREADS, 0,
               (cudaStream_t)stream>>> (y, value, n);
}

static __global__ void __launch_bounds__ (THREADS)
    loss_sum (double *sum, const float *logp, size_t N)
{
    double own = 0;

    for (size_t n = threadIdx.x; n < N; n += THREADS)
        own -= (double)logp[n];
    own = block_fold (own, [] (double a, double b) { return a + b; });
    if (threadIdx.x == 0)
        *sum += own;
}

void kern_loss_sum_cuda (double *sum, const float *logp, size_t N, void *stream)
{
    if (N > 0)
        loss_sum<<<1, THREADS, 0, (cudaStream_t)stream>>> (sum, logp, N);
}
