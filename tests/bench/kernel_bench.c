/* SPDX-License-Identifier: Apache-2.0
 * kernel_bench.c - times of the kernels of the optimizer and the loss on a GPU
 *
 *   kernel_bench       one line a kernel: median milliseconds of 15, the bytes
 *                      that must move at least, the rate, and that beside the
 *                      rate of a copy on the card in the same run
 *
 * Every array is larger than the L2 cache. tests/bench names the PyTorch rows
 * that stand beside it. */
#include "config.h"

#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include <cuda_runtime_api.h>

#include "kernels/kernels.h"

#include "gpu_time.h"

#define N     ((size_t)1 << 28)
#define ROWS  ((size_t)8192)
#define VOCAB ((size_t)151936)

static struct {
    float *p, *m, *v, *g, *factor, *logp, *dlogp;
    uint16_t *copy, *logits;
    double *sum, *parts, *norm;
    int32_t *targets;
    double copy_rate;
} b;

static void measure (const char *name, void (*run) (void), double bytes)
{
    float ms[ROUNDS];
    double rate;

    times (ms, run, 1);
    rate = bytes / ms[ROUNDS / 2] / 1e6;
    if (b.copy_rate == 0)
        b.copy_rate = rate;
    printf ("%-28s %.4f ms (best %.4f) %.2f GB %.0f GB/s, %.3f of the copy\n",
            name, (double)ms[ROUNDS / 2], (double)ms[0], bytes / 1e9, rate,
            rate / b.copy_rate);
    fflush (stdout);
}

static void run_copy (void)
{
    must (cudaMemcpyAsync (b.p, b.m, N * 4, cudaMemcpyDeviceToDevice, NULL));
}

static void run_adamw (void)
{
    kern_adamw_bf16_cuda (b.p, b.copy, b.m, b.v, b.g, b.factor, N, 1e-4, 0.9,
                          0.95, 1e-8, 0.1, 3, 0, NULL, NULL);
}

static void run_adamw_random (void)
{
    static const uint32_t key[2] = {1, 2};

    kern_adamw_bf16_cuda (b.p, b.copy, b.m, b.v, b.g, b.factor, N, 1e-4, 0.9,
                          0.95, 1e-8, 0.1, 3, 0, key, NULL);
}

static void run_norm (void)
{
    kern_sumsq_f32_cuda (b.sum, b.parts, b.g, N, NULL);
    kern_clip_factor_cuda (b.factor, b.norm, b.sum, 1, 1, NULL);
}

static void run_accumulate (void)
{
    kern_accumulate_bf16_cuda (b.g, b.copy, N, NULL);
}

static void run_logprob (void)
{
    kern_logprob_bf16_cuda (b.logits, b.logp, NULL, b.targets, b.dlogp, ROWS,
                            VOCAB, 1, NULL);
}

static void run_logprob_fwd (void)
{
    kern_logprob_bf16_cuda (b.logits, b.logp, NULL, b.targets, NULL, ROWS,
                            VOCAB, 1, NULL);
}

static void run_logprob_entropy (void)
{
    kern_logprob_bf16_cuda (b.logits, b.logp, b.dlogp, b.targets, NULL, ROWS,
                            VOCAB, 1, NULL);
}

/* Logits of about one in size: pseudo-random bf16 bits. */
static void fill_logits (void)
{
    uint16_t *row = malloc (VOCAB * 2);
    uint32_t seed = 1;

    for (size_t v = 0; v < VOCAB; v++) {
        seed = seed * 1664525u + 1013904223u;
        row[v] = (uint16_t)(0x3e80 + (seed >> 24) + (seed >> 8 & 0x8000));
    }
    for (size_t r = 0; r < ROWS; r++)
        must (cudaMemcpy (b.logits + r * VOCAB, row, VOCAB * 2,
                          cudaMemcpyHostToDevice));
    free (row);
}

int main (void)
{
    struct cudaDeviceProp prop;

    must (cudaGetDeviceProperties (&prop, 0));
    printf ("%s, CUDA %d\n", prop.name, CUDART_VERSION);
    b.p = on_gpu (N * 4);
    b.m = on_gpu (N * 4);
    b.v = on_gpu (N * 4);
    b.g = on_gpu (N * 4);
    b.copy = on_gpu (N * 2);
    b.factor = on_gpu (4);
    b.sum = on_gpu (8);
    b.norm = on_gpu (8);
    b.parts = on_gpu (KERN_SUMSQ_PARTS * 8);
    b.logits = on_gpu (ROWS * VOCAB * 2);
    b.logp = on_gpu (ROWS * 4);
    b.dlogp = on_gpu (ROWS * 4);
    b.targets = on_gpu (ROWS * 4);
    measure ("copy of 1 GiB", run_copy, 8.0 * N);
    run_norm ();
    measure ("adamw, bf16 to nearest", run_adamw, 30.0 * N);
    measure ("adamw, bf16 at random", run_adamw_random, 30.0 * N);
    measure ("norm, check and factor", run_norm, 4.0 * N);
    measure ("accumulate bf16", run_accumulate, 10.0 * N);
    fill_logits ();
    measure ("logprob forward", run_logprob_fwd, 2.0 * ROWS * VOCAB);
    measure ("logprob, entropy", run_logprob_entropy, 2.0 * ROWS * VOCAB);
    fill_logits ();
    measure ("logprob forward, backward", run_logprob, 4.0 * ROWS * VOCAB);
    must (cudaDeviceSynchronize ());
    return 0;
}
