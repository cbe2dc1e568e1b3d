/* SPDX-License-Identifier: Apache-2.0
 * gemm_bench.c - products of the training presets, and the head with its loss, on
 * a GPU
 *
 *   gemm_bench [deterministic | untimed | own]
 *       products of presets 124m (32768 rows) and 1b (16384 rows): forward, dx, dw
 *       (f32, added to) and dw (bf16); then linear + cross-entropy forward and
 *       backward. One line each: median milliseconds of 11 after 250 of warming up,
 *       TFLOP/s. Then what was chosen.
 *
 * gemm_torch.py prints PyTorch's lines for the same. */
#include "config.h"

#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include <cuda_runtime_api.h>

#include "kernels/gemm_lt.h"
#include "kernels/linear_ce.h"

#define ROUNDS  11
#define WARM_MS 250 /* of the same work before: the clock settles */

static struct gemm_lt *g;
static char why[GEMM_LT_WHY];

static void must (cudaError_t e)
{
    if (e == cudaSuccess)
        return;
    fprintf (stderr, "gemm_bench: %s\n", cudaGetErrorString (e));
    exit (1);
}

static void done (enum gemm_lt_status status)
{
    if (status == GEMM_LT_OK)
        return;
    fprintf (stderr, "gemm_bench: %s\n", why);
    exit (1);
}

/* Numbers in (-1,1) as bf16, a stretch of them again and again. */
static void *numbers (size_t n)
{
    enum { STRETCH = 1 << 20 };
    static uint16_t some[STRETCH];
    static uint32_t seed = 1;
    char *at;

    must (cudaMalloc ((void **)&at, n * 2));
    for (size_t i = 0; i < STRETCH; i++) {
        float x;
        uint32_t u;

        seed = seed * 1664525u + 1013904223u;
        x = (float)(seed >> 8) * 0x1p-23f - 1;
        memcpy (&u, &x, sizeof (u));
        some[i] = (uint16_t)(u >> 16);
    }
    for (size_t i = 0; i < n; i += STRETCH)
        must (cudaMemcpy (at + i * 2, some,
                          (n - i < STRETCH ? n - i : STRETCH) * 2,
                          cudaMemcpyHostToDevice));
    return at;
}

static void *zeros (size_t bytes)
{
    void *at;

    must (cudaMalloc (&at, bytes));
    must (cudaMemset (at, 0, bytes));
    return at;
}

struct layer {
    const char *name;
    size_t N, in, out;
};

struct arrays {
    struct layer l;
    void *x, *w, *dy, *y, *dx, *dw, *dw16;
};

static void fwd (void *arg)
{
    struct arrays *a = arg;

    done (gemm_lt_fwd (g, a->y, a->x, a->w, NULL, GEMM_LT_BF16, a->l.N, a->l.in,
                       a->l.out, NULL, why));
}

static void dx (void *arg)
{
    struct arrays *a = arg;

    done (gemm_lt_dx (g, a->dx, a->dy, a->w, GEMM_LT_BF16, a->l.N, a->l.in,
                      a->l.out, NULL, why));
}

static void dw (void *arg)
{
    struct arrays *a = arg;

    done (gemm_lt_dw (g, a->dw, GEMM_LT_F32, true, a->dy, a->x, GEMM_LT_BF16,
                      a->l.N, a->l.in, a->l.out, NULL, why));
}

static void dw16 (void *arg)
{
    struct arrays *a = arg;

    done (gemm_lt_dw (g, a->dw16, GEMM_LT_BF16, false, a->dy, a->x,
                      GEMM_LT_BF16, a->l.N, a->l.in, a->l.out, NULL, why));
}

static int by_value (const void *x, const void *y)
{
    float a = *(const float *)x, c = *(const float *)y;

    return (a > c) - (a < c);
}

static float measure (void (*run) (void *), void *arg)
{
    float ms[ROUNDS], warm = 0;
    cudaEvent_t from, to;

    must (cudaEventCreate (&from));
    must (cudaEventCreate (&to));
    for (int i = 0; i < ROUNDS;) {
        float took;

        must (cudaEventRecord (from, NULL));
        run (arg);
        must (cudaEventRecord (to, NULL));
        must (cudaEventSynchronize (to));
        must (cudaEventElapsedTime (&took, from, to));
        if (warm >= WARM_MS)
            ms[i++] = took;
        warm += took;
    }
    must (cudaEventDestroy (from));
    must (cudaEventDestroy (to));
    qsort (ms, ROUNDS, sizeof (*ms), by_value);
    return ms[ROUNDS / 2];
}

static void print (const char *name, const char *what, double flops, float ms)
{
    printf ("%-12s %-10s %8.4f ms %7.1f TFLOP/s\n", name, what, (double)ms,
            flops / (double)ms / 1e9);
    fflush (stdout);
}

static void one_layer (const struct layer *l)
{
    struct arrays a = {.l = *l};
    double flops = 2.0 * (double)l->N * (double)l->in * (double)l->out;

    a.x = numbers (l->N * l->in);
    a.w = numbers (l->out * l->in);
    a.dy = numbers (l->N * l->out);
    a.y = zeros (l->N * l->out * 2);
    a.dx = zeros (l->N * l->in * 2);
    a.dw = zeros (l->out * l->in * 4);
    a.dw16 = zeros (l->out * l->in * 2);
    print (l->name, "fwd", flops, measure (fwd, &a));
    print (l->name, "dx", flops, measure (dx, &a));
    print (l->name, "dw_f32_add", flops, measure (dw, &a));
    print (l->name, "dw_bf16", flops, measure (dw16, &a));
    must (cudaFree (a.x)), must (cudaFree (a.w)), must (cudaFree (a.dy));
    must (cudaFree (a.y)), must (cudaFree (a.dx)), must (cudaFree (a.dw));
    must (cudaFree (a.dw16));
}

struct head {
    size_t N, C, V;
    void *h, *w, *dh, *dw, *scratch;
    int32_t *targets;
    double *sum;
    int64_t *n;
};

static void head (void *arg)
{
    struct head *a = arg;

    done (linear_ce (g, a->sum, a->n, a->dh, a->dw, a->h, a->w, a->targets,
                     GEMM_LT_BF16, a->N, a->C, a->V, 1.0 / (double)a->N, NULL,
                     a->scratch, NULL, why));
}

static void one_head (size_t N, size_t C, size_t V)
{
    struct head a = {.N = N, .C = C, .V = V};
    size_t scratch = linear_ce_scratch (GEMM_LT_BF16, N, C, V);
    int32_t *targets = malloc (N * sizeof (*targets));
    size_t before, after, all;
    char name[64];
    double sum;

    for (size_t i = 0; i < N; i++)
        targets[i] = (int32_t)(i * 977 % V);
    a.h = numbers (N * C);
    a.w = numbers (V * C);
    a.dh = zeros (N * C * 2);
    a.dw = zeros (V * C * 4);
    a.targets = zeros (N * sizeof (*targets));
    must (cudaMemcpy (a.targets, targets, N * sizeof (*targets),
                      cudaMemcpyHostToDevice));
    a.sum = zeros (8);
    a.n = zeros (8);
    must (cudaMemGetInfo (&before, &all));
    a.scratch = zeros (scratch);
    snprintf (name, sizeof (name), "%zux%zux%zu", N, C, V);
    print (name, "linear+ce", 6.0 * (double)N * (double)C * (double)V,
           measure (head, &a));
    must (cudaMemGetInfo (&after, &all));
    must (cudaMemset (a.sum, 0, 8));
    head (&a);
    must (cudaMemcpy (&sum, a.sum, 8, cudaMemcpyDeviceToHost));
    printf ("  chunks of %zu rows; %.3f GiB beyond dh and f32 dw, and %.3f of "
            "workspace; mean loss %.6f\n",
            linear_ce_rows (GEMM_LT_BF16, N, C, V),
            (double)(before - after) / 0x1p30,
            (double)gemm_lt_workspace () / 0x1p30, sum / (double)N);
    must (cudaFree (a.h)), must (cudaFree (a.w)), must (cudaFree (a.dh));
    must (cudaFree (a.dw)), must (cudaFree (a.targets)),
        must (cudaFree (a.sum));
    must (cudaFree (a.n)), must (cudaFree (a.scratch));
    free (targets);
}

static void line (void *arg, const char *text)
{
    (void)arg;
    printf ("# %s\n", text);
}

static const struct layer layers[] = {
    {"124m qkv", 32768, 768, 2304},   {"124m o", 32768, 768, 768},
    {"124m gu", 32768, 768, 4096},    {"124m down", 32768, 2048, 768},
    {"124m head", 32768, 768, 50304}, {"1b qkv", 16384, 2048, 3072},
    {"1b o", 16384, 2048, 2048},      {"1b gu", 16384, 2048, 16384},
    {"1b down", 16384, 8192, 2048},   {"1b head", 16384, 2048, 50304},
};

int main (int argc, char **argv)
{
    struct gemm_lt_opts opts = {.size = sizeof (opts)};
    struct cudaDeviceProp prop;

    for (int i = 1; i < argc; i++) {
        opts.deterministic |= strcmp (argv[i], "deterministic") == 0;
        opts.untimed |= strcmp (argv[i], "untimed") == 0;
        opts.own |= strcmp (argv[i], "own") == 0;
    }
    must (cudaGetDeviceProperties (&prop, 0));
    printf ("%s, CUDA %d%s%s%s\n", prop.name, CUDART_VERSION,
            opts.deterministic ? ", deterministic" : "",
            opts.untimed ? ", first candidate" : "", opts.own ? ", own" : "");
    done (gemm_lt_create (&g, &opts, why));
    for (size_t i = 0; i < sizeof (layers) / sizeof (*layers); i++)
        one_layer (&layers[i]);
    one_head (8192, 2048, 151936);
    one_head (32768, 768, 50304);
    gemm_lt_report (g, line, NULL);
    gemm_lt_destroy (g);
    return 0;
}
