/* SPDX-License-Identifier: Apache-2.0
 * linear_ce.c - linear layer and cross-entropy on a GPU, a chunk of rows at a
 * time */
#include "config.h"

#include "linear_ce.h"

#include <cuda_runtime_api.h>

#include "gemm_lt_impl.h"
#include "kernels.h"
#include "linear_ce_parts.h"

/* 2048 rows of 151936 logits in bf16. */
#define BUFFER ((size_t)604 << 20)
#define TILE   128 /* rows of the products' tiles */
#define WIDE   256 /* their columns */
#define SMS    132 /* of an H100 or H200; elsewhere a guess is as good */

static size_t bytes_of (enum gemm_lt_dtype dtype)
{
    return dtype == GEMM_LT_F32 ? 4 : 2;
}

static size_t lesser (size_t a, size_t b)
{
    return a < b ? a : b;
}

/* How long the tiles of dh take, (rows,C) a chunk, where each multiprocessor has
 * one at a time; a chunk more reads and writes dw once more. */
static double rounds (size_t N, size_t C, size_t rows)
{
    size_t chunks = (N + rows - 1) / rows;
    size_t tiles = (rows + TILE - 1) / TILE * ((C + WIDE - 1) / WIDE);

    return (double)(chunks * ((tiles + SMS - 1) / SMS)) + 0.1 * (double)chunks;
}

/* The fewest rows that are nearly as fast as the best. */
size_t linear_ce_rows (enum gemm_lt_dtype dtype, size_t N, size_t C, size_t V)
{
    size_t most = BUFFER / (V * bytes_of (dtype)), rows;
    double best;

    if (N <= TILE || most <= TILE)
        return N <= most ? lesser (N, most) + (N == 0) : most > 0 ? most : 1;
    most = lesser (most, (N + TILE - 1) / TILE * TILE) / TILE * TILE;
    best = rounds (N, C, most);
    for (rows = most; rows >= TILE; rows -= TILE)
        best = rounds (N, C, rows) < best ? rounds (N, C, rows) : best;
    for (rows = TILE; rounds (N, C, rows) > 1.02 * best;)
        rows += TILE;
    return lesser (rows, N);
}

/* logp and dlogp of all rows, then the chunk's logits. */
static size_t logits_at (size_t N)
{
    return (2 * N * sizeof (float) + 255) / 256 * 256;
}

size_t linear_ce_scratch (enum gemm_lt_dtype dtype, size_t N, size_t C,
                          size_t V)
{
    return logits_at (N)
           + linear_ce_rows (dtype, N, C, V) * V * bytes_of (dtype);
}

struct work {
    struct gemm_lt *g;
    float *logp, *entropy, *dw;
    char *dh;
    const char *h;
    const void *w;
    const int32_t *targets;
    const float *dlogp;
    void *logits;
    enum gemm_lt_dtype dtype;
    size_t C, V;
    double inv_temperature;
    void *stream;
    char *why;
};

static void logprob (const struct work *k, size_t from, size_t rows)
{
    float *entropy = k->entropy ? k->entropy + from : NULL;
    const float *dlogp = k->dlogp ? k->dlogp + from : NULL;

    if (k->dtype == GEMM_LT_F32)
        kern_logprob_f32_cuda (k->logits, k->logp + from, entropy,
                               k->targets + from, dlogp, rows, k->V,
                               k->inv_temperature, k->stream);
    else if (k->dtype == GEMM_LT_BF16)
        kern_logprob_bf16_cuda (k->logits, k->logp + from, entropy,
                                k->targets + from, dlogp, rows, k->V,
                                k->inv_temperature, k->stream);
    else
        kern_logprob_f16_cuda (k->logits, k->logp + from, entropy,
                               k->targets + from, dlogp, rows, k->V,
                               k->inv_temperature, k->stream);
}

static enum gemm_lt_status chunk (const struct work *k, size_t from,
                                  size_t rows)
{
    size_t skip = from * k->C * bytes_of (k->dtype);
    enum gemm_lt_status status =
        gemm_lt_fwd (k->g, k->logits, k->h + skip, k->w, NULL, k->dtype, rows,
                     k->C, k->V, k->stream, k->why);
    cudaError_t e;

    if (status != GEMM_LT_OK)
        return status;
    logprob (k, from, rows);
    e = cudaGetLastError ();
    if (e != cudaSuccess)
        return gemm_lt_say (k->why, GEMM_LT_EDEVICE, "logprob: %s",
                            cudaGetErrorString (e));
    if (k->dlogp && k->dh)
        status = gemm_lt_dx (k->g, k->dh + skip, k->logits, k->w, k->dtype,
                             rows, k->C, k->V, k->stream, k->why);
    if (status == GEMM_LT_OK && k->dlogp && k->dw)
        status =
            gemm_lt_dw (k->g, k->dw, GEMM_LT_F32, true, k->logits, k->h + skip,
                        k->dtype, rows, k->C, k->V, k->stream, k->why);
    return status;
}

enum gemm_lt_status linear_logprob (struct gemm_lt *g, float *logp,
                                    float *entropy, void *dh, float *dw,
                                    const void *h, const void *w,
                                    const int32_t *targets, const float *dlogp,
                                    enum gemm_lt_dtype dtype, size_t N,
                                    size_t C, size_t V, double inv_temperature,
                                    void *scratch, void *stream, char *why)
{
    struct work k = {g,     logp, entropy, dw, dh, h, w,      targets,
                     dlogp, NULL, dtype,   C,  V,  0, stream, why};
    size_t rows = linear_ce_rows (dtype, N, C, V);
    enum gemm_lt_status status = GEMM_LT_OK;

    k.logits = (char *)scratch + logits_at (N);
    k.inv_temperature = inv_temperature;
    for (size_t from = 0; from < N && status == GEMM_LT_OK; from += rows)
        status = chunk (&k, from, lesser (rows, N - from));
    return status;
}

enum gemm_lt_status linear_ce (struct gemm_lt *g, double *sum, int64_t *counted,
                               void *dh, float *dw, const void *h,
                               const void *w, const int32_t *targets,
                               enum gemm_lt_dtype dtype, size_t N, size_t C,
                               size_t V, double scale, const float *factor,
                               void *scratch, void *stream, char *why)
{
    float *logp = scratch, *dlogp = logp + N;
    enum gemm_lt_status status;
    cudaError_t e;

    if (scale != 0)
        linear_ce_seed (dlogp, factor, scale, N, stream);
    status = linear_logprob (g, logp, NULL, dh, dw, h, w, targets,
                             scale != 0 ? dlogp : NULL, dtype, N, C, V, 1,
                             scratch, stream, why);
    if (status != GEMM_LT_OK)
        return status;
    linear_ce_sum (sum, counted, logp, targets, N, stream);
    e = cudaGetLastError ();
    if (e != cudaSuccess)
        return gemm_lt_say (why, GEMM_LT_EDEVICE, "cross-entropy: %s",
                            cudaGetErrorString (e));
    return GEMM_LT_OK;
}
