/* SPDX-License-Identifier: Apache-2.0
 * layer_bench.c - times of the layers' kernels on a GPU
 *
 *   layer_bench [NAME]   one line a kernel whose name begins so: median
 *                        microseconds of 15 times CALLS, the bytes that must
 *                        move at least, the rate, and that beside the rate of a
 *                        copy on the card in the same run
 *
 * kernels_torch_layers.py has the same rows of PyTorch. */
#include "config.h"

#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include <cuda_runtime_api.h>

#include "kernels/kernels.h"

#include "gpu_time.h"

#define CALLS  4
#define ROWS   ((size_t)16384)
#define WIDTH  ((size_t)4096)
#define FFN    ((size_t)8192)
#define HEADS  ((size_t)32)
#define GROUPS ((size_t)8)
#define HEAD   ((size_t)128)
#define QKV    ((HEADS + 2 * GROUPS) * HEAD)
#define T      ((size_t)2048)
#define EMBED  ((size_t)2048)
#define VOCAB  ((size_t)50304)

static struct {
    uint16_t *a[6], *w; /* (ROWS, 2 FFN) each */
    float *dw, *rstd, *cosine, *sine;
    int32_t *tokens;
    void *scratch;
    double copy_rate;
    const char *only;
} b;

static void measure (const char *name, void (*run) (void), double bytes)
{
    float ms[ROUNDS];
    double rate;

    if (b.copy_rate > 0 && strncmp (name, b.only, strlen (b.only)) != 0)
        return;
    times (ms, run, CALLS);
    rate = bytes / ms[ROUNDS / 2] / 1e6;
    if (b.copy_rate == 0)
        b.copy_rate = rate;
    printf ("%-24s %7.1f us (best %.1f) %.3f GB %.0f GB/s, %.3f of the copy\n",
            name, 1e3 * (double)ms[ROUNDS / 2], 1e3 * (double)ms[0],
            bytes / 1e9, rate, rate / b.copy_rate);
    fflush (stdout);
}

static void run_copy (void)
{
    must (cudaMemcpyAsync (b.a[0], b.a[1], 2 * 2 * ROWS * FFN,
                           cudaMemcpyDeviceToDevice, NULL));
}

static void run_rmsnorm (void)
{
    kern_rmsnorm_fwd_bf16_cuda (b.a[0], b.rstd, b.a[1], b.w, ROWS, WIDTH, 1e-5,
                                NULL);
}

static void run_rmsnorm_bwd (void)
{
    kern_addnorm_bwd_bf16_cuda (b.a[2], b.dw, b.a[3], NULL, b.a[1], b.w, b.rstd,
                                ROWS, WIDTH, b.scratch, NULL);
}

static void run_rmsnorm_both (void)
{
    run_rmsnorm ();
    run_rmsnorm_bwd ();
}

static void run_addnorm (void)
{
    kern_addnorm_fwd_bf16_cuda (b.a[0], b.a[1], b.rstd, b.a[2], b.a[3], b.w,
                                ROWS, WIDTH, 1e-5, NULL);
}

static void run_addnorm_bwd (void)
{
    kern_addnorm_bwd_bf16_cuda (b.a[2], b.dw, b.a[3], b.a[4], b.a[1], b.w,
                                b.rstd, ROWS, WIDTH, b.scratch, NULL);
}

static void run_addnorm_2048 (void)
{
    kern_addnorm_fwd_bf16_cuda (b.a[0], b.a[1], b.rstd, b.a[2], b.a[3], b.w,
                                2 * ROWS, WIDTH / 2, 1e-5, NULL);
}

static void run_addnorm_2048_bwd (void)
{
    kern_addnorm_bwd_bf16_cuda (b.a[2], b.dw, b.a[3], b.a[4], b.a[1], b.w,
                                b.rstd, 2 * ROWS, WIDTH / 2, b.scratch, NULL);
}

static void run_swiglu (void)
{
    kern_swiglu_fwd_bf16_cuda (b.a[0], b.a[1], ROWS, FFN, NULL);
}

static void run_swiglu_bwd (void)
{
    kern_swiglu_bwd_bf16_cuda (b.a[2], b.a[3], b.a[1], ROWS, FFN, NULL);
}

static void run_rope (void)
{
    kern_rope_fwd_bf16_cuda (b.a[0], b.cosine, b.sine, ROWS / T, T,
                             HEADS + GROUPS, HEAD, QKV, NULL);
}

static void run_headnorm (void)
{
    kern_headnorm_fwd_bf16_cuda (b.a[0], b.a[1], b.rstd, b.w, b.w, ROWS, HEADS,
                                 GROUPS, HEAD, 1e-5, NULL);
}

static void run_headnorm_bwd (void)
{
    kern_headnorm_bwd_bf16_cuda (b.a[0], b.dw, b.dw + HEAD, b.a[1], b.rstd, b.w,
                                 b.w, ROWS, HEADS, GROUPS, HEAD, b.scratch,
                                 NULL);
}

static void run_residual (void)
{
    kern_residual_fwd_bf16_cuda (b.a[0], b.a[1], b.a[2], ROWS * FFN, NULL);
}

static void run_bias (void)
{
    kern_bias_fwd_bf16_cuda (b.a[0], b.w, ROWS, QKV, NULL);
}

static void run_bias_bwd (void)
{
    kern_bias_bwd_bf16_cuda (b.dw, b.a[0], ROWS, QKV, b.scratch, NULL);
}

static void run_embedding (void)
{
    kern_embedding_fwd_bf16_cuda (b.a[0], b.a[1], b.tokens, ROWS, EMBED, NULL);
}

static void run_embedding_bwd (void)
{
    kern_embedding_bwd_bf16_cuda (b.dw, b.a[0], b.tokens, ROWS, EMBED, VOCAB,
                                  b.scratch, NULL);
}

/* Numbers of about one in size: pseudo-random bf16 bits. */
static void fill (uint16_t *to, size_t n)
{
    enum { PIECE = 1 << 20 };
    uint16_t *piece = malloc (PIECE * 2);
    uint32_t seed = 1;

    for (size_t i = 0; i < PIECE; i++) {
        seed = seed * 1664525u + 1013904223u;
        piece[i] = (uint16_t)(0x3e80 + (seed >> 24) + (seed >> 8 & 0x8000));
    }
    for (size_t i = 0; i < n; i += PIECE)
        must (cudaMemcpy (to + i, piece, (n - i < PIECE ? n - i : PIECE) * 2,
                          cudaMemcpyHostToDevice));
    free (piece);
}

/* Tokens at random, or most of them few, as words are: rank r about as often as
 * 1 / r. Returns how many different ones. */
static size_t fill_tokens (int words)
{
    static int32_t tokens[ROWS];
    static unsigned char seen[VOCAB];
    uint32_t seed = 7;
    size_t distinct = 0;

    memset (seen, 0, sizeof (seen));
    for (size_t n = 0; n < ROWS; n++) {
        uint32_t pick;

        seed = seed * 1664525u + 1013904223u;
        pick = (seed >> 8) % (uint32_t)VOCAB;
        if (words) { /* log-uniform: 2^(0..15.6) */
            double rank = 1;

            for (uint32_t k = 0; k < (seed >> 8) * 15.6 * 0x1p-24 * 64; k++)
                rank *= 1.0108892860517005; /* 2^(1/64) */
            pick = (uint32_t)rank % (uint32_t)VOCAB;
        }
        tokens[n] = (int32_t)pick;
        distinct += !seen[pick];
        seen[pick] = 1;
    }
    must (
        cudaMemcpy (b.tokens, tokens, sizeof (tokens), cudaMemcpyHostToDevice));
    return distinct;
}

static void embeddings (void)
{
    static const char *const names[] = {"embedding bwd, any", "embedding bwd, "
                                                              "words"};
    const double row = 2.0 * ROWS * EMBED;

    for (int words = 0; words < 2; words++) {
        double distinct = (double)fill_tokens (words);

        if (words == 0)
            measure ("embedding fwd", run_embedding,
                     row + 2 * distinct * EMBED);
        measure (names[words], run_embedding_bwd, row + 8 * distinct * EMBED);
    }
}

int main (int argc, char **argv)
{
    const double row = 2.0 * ROWS * WIDTH, ffn = 2.0 * ROWS * FFN;
    const double heads = 2.0 * ROWS * (HEADS + GROUPS) * HEAD;
    struct cudaDeviceProp prop;

    b.only = argc > 1 ? argv[1] : "";
    must (cudaGetDeviceProperties (&prop, 0));
    printf ("%s, CUDA %d\n", prop.name, CUDART_VERSION);
    for (int i = 0; i < 6; i++) {
        b.a[i] = on_gpu (2 * 2 * ROWS * FFN);
        fill (b.a[i], 2 * ROWS * FFN);
    }
    b.w = on_gpu (2 * 2 * FFN);
    fill (b.w, 2 * FFN);
    b.dw = on_gpu (4 * VOCAB * EMBED);
    b.rstd = on_gpu (4 * ROWS * (HEADS + GROUPS));
    b.cosine = on_gpu (4 * T * HEAD / 2);
    b.sine = on_gpu (4 * T * HEAD / 2);
    b.tokens = on_gpu (4 * ROWS);
    b.scratch = on_gpu ((size_t)64 << 20);
    measure ("copy of 512 MiB", run_copy, 2 * 2 * ffn);
    measure ("residual", run_residual, 3 * ffn);
    measure ("rmsnorm fwd", run_rmsnorm, 2 * row);
    measure ("rmsnorm bwd", run_rmsnorm_bwd, 3 * row);
    measure ("rmsnorm fwd, bwd", run_rmsnorm_both, 5 * row);
    measure ("addnorm fwd", run_addnorm, 4 * row);
    measure ("addnorm bwd", run_addnorm_bwd, 4 * row);
    measure ("addnorm fwd, 2048", run_addnorm_2048, 4 * row);
    measure ("addnorm bwd, 2048", run_addnorm_2048_bwd, 4 * row);
    measure ("swiglu fwd", run_swiglu, 3 * ffn);
    measure ("swiglu bwd", run_swiglu_bwd, 5 * ffn);
    measure ("rope", run_rope, 2 * heads);
    measure ("headnorm fwd", run_headnorm, 3 * heads);
    measure ("headnorm bwd", run_headnorm_bwd, 3 * heads);
    measure ("bias fwd", run_bias, 4.0 * ROWS * QKV);
    measure ("bias bwd", run_bias_bwd, 2.0 * ROWS * QKV);
    embeddings ();
    must (cudaDeviceSynchronize ());
    return 0;
}
