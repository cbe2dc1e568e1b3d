/* SPDX-License-Identifier: Apache-2.0
 * grpo.cu - the policy loss of rows of tokens on a GPU
 *
 * A block takes a row. Sums go over threads in a fixed order. */
#include "kernels/grpo_elem.h"

#define THREADS 128

struct grpo_args {
    struct kern_grpo_row *rows;
    float *grad;
    struct kern_grpo o;
    const float *logp, *old, *ref, *sampled, *adv;
    const uint8_t *mask;
    size_t T;
};

/* The sum over the block, which every thread gets. */
static __device__ double block_sum (double x)
{
    __shared__ double part[THREADS / 32];
    double sum = 0;

    for (int step = 16; step > 0; step /= 2)
        x += __shfl_xor_sync (~0u, x, step);
    __syncthreads (); /* who still reads the last one's parts */
    if (threadIdx.x % 32 == 0)
        part[threadIdx.x / 32] = x;
    __syncthreads ();
    for (int w = 0; w < THREADS / 32; w++)
        sum += part[w];
    return sum;
}

static __device__ struct grpo_row look (const struct grpo_args &a, size_t b)
{
    double n = 0, moved = 0, strayed = 0, drifted = 0;

    for (size_t t = threadIdx.x; t < a.T; t += THREADS) {
        size_t i = b * a.T + t;
        double lp, was, from;

        if (!a.mask[i])
            continue;
        lp = a.logp[i];
        was = a.old ? a.old[i] : lp;
        from = a.sampled ? a.sampled[i] : was;
        n++;
        moved += lp - was;
        strayed += grpo_known (was - from);
        drifted += grpo_known (from - lp);
    }
    n = block_sum (n);
    moved = block_sum (moved);
    strayed = block_sum (strayed);
    drifted = block_sum (drifted);
    return grpo_row_of (&a.o, a.adv[b], n, moved, strayed, drifted);
}

static __device__ void put_sums (const struct grpo_args &a, size_t b,
                                 const struct grpo_row &row,
                                 const struct kern_grpo_row &own)
{
    struct kern_grpo_row all;

    all.policy = block_sum (own.policy);
    all.kl = block_sum (own.kl);
    all.kl_sum = block_sum (own.kl_sum);
    all.ratio = block_sum (own.ratio);
    all.correction = block_sum (own.correction);
    all.clipped_low = block_sum (own.clipped_low);
    all.clipped_high = block_sum (own.clipped_high);
    all.loss = all.policy + a.o.beta * all.kl;
    all.tokens = row.n;
    all.dropped = 1 - row.keep;
    if (threadIdx.x == 0)
        a.rows[b] = all;
}

static __global__ void __launch_bounds__ (THREADS) rows_of (struct grpo_args a)
{
    size_t b = blockIdx.x;
    struct grpo_row row = look (a, b);
    struct kern_grpo_row own = {};
    double shared = 0;

    for (size_t t = threadIdx.x; t < a.T; t += THREADS) {
        size_t i = b * a.T + t;
        double g = 0;

        if (a.mask[i]) {
            double lp = a.logp[i], was = a.old ? a.old[i] : lp;

            g = grpo_token (&a.o, &row, lp, was, a.ref ? a.ref[i] : lp,
                            a.sampled ? a.sampled[i] : was, &own, &shared);
        }
        if (a.grad)
            a.grad[i] = (float)g;
    }
    put_sums (a, b, row, own);
    if (!a.grad || !a.o.by_row || row.n == 0)
        return;
    shared = block_sum (shared) / row.n;
    for (size_t t = threadIdx.x; t < a.T; t += THREADS)
        if (a.mask[b * a.T + t]) /* its own thread's, written above */
            a.grad[b * a.T + t] += (float)shared;
}

void kern_grpo_f32_cuda (struct kern_grpo_row *rows, float *grad,
                         const struct kern_grpo *o, const float *logp,
                         const float *old, const float *ref,
                         const float *sampled, const float *adv,
                         const uint8_t *mask, size_t B, size_t T, void *stream)
{
    struct grpo_args a = {rows, grad,    *o,  logp, old,
                          ref,  sampled, adv, mask, T};

    if (B > 0)
        rows_of<<<(unsigned)B, THREADS, 0, (cudaStream_t)stream>>> (a);
}
