/* SPDX-License-Identifier: Apache-2.0
 * attention_bench.c - causal attention on a GPU: times, and cases for PyTorch
 *
 *   attention_bench time [cudnn | own | hopper]
 *                       bf16, a line a shape and engine: median
 *                      milliseconds of 15, of forward and of forward and
 *                      backward, and the TFLOP/s of the causal half (2 B H T T D
 *                      forward, 5 backward)
 *   attention_bench write DIR            inputs and outputs of small cases as raw
 *                      files, for `attention_torch.py check DIR`
 *
 * tests/bench/attention_torch.py times PyTorch's, in the same run of a script. */
#include "config.h"

#include <math.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include <cuda_runtime_api.h>

#include "kernels/attention.h"
#include "kernels/half.h"

#define ROUNDS 15

static const char *const engine_names[] = {"own", "cudnn", "hopper"};

static void must (cudaError_t e)
{
    if (e == cudaSuccess)
        return;
    fprintf (stderr, "attention_bench: %s\n", cudaGetErrorString (e));
    exit (1);
}

/* One shape, its arrays on the GPU. */
struct work {
    struct attention *a;
    struct attention_shape s;
    struct attention_choice c;
    size_t n_qkv, n_y;
    uint16_t *qkv, *dy, *y, *dqkv;
    float *lse;
    void *fwd, *bwd;
};

static void *on_gpu (size_t bytes)
{
    void *at;

    must (cudaMalloc (&at, bytes + 1));
    must (cudaMemset (at, 0, bytes + 1));
    return at;
}

static void check (const struct work *w, bool good)
{
    if (good)
        return;
    fprintf (stderr, "attention_bench: %s\n", attention_error (w->a));
    exit (1);
}

/* Nearly normal numbers, variance 1. */
static uint16_t *random_half (size_t n, uint32_t seed, enum attention_dtype t)
{
    uint16_t *x = malloc (n * 2);

    for (size_t i = 0; i < n; i++) {
        float sum = -2;

        for (int k = 0; k < 4; k++) {
            seed = seed * 1664525u + 1013904223u;
            sum += (float)(seed >> 8) * 0x1p-24f;
        }
        sum *= 1.7320508f;
        x[i] = t == ATTENTION_F16 ? half_to_f16 (sum) : half_to_bf16 (sum);
    }
    return x;
}

static uint16_t *random_on_gpu (size_t n, uint32_t seed, enum attention_dtype t)
{
    uint16_t *at = on_gpu (n * 2), *x = random_half (n, seed, t);

    must (cudaMemcpy (at, x, n * 2, cudaMemcpyHostToDevice));
    free (x);
    return at;
}

static void make (struct work *w, struct attention *a,
                  const struct attention_shape *s)
{
    *w = (struct work){.a = a, .s = *s};
    check (w, attention_choose (a, s, &w->c));
    w->n_qkv = s->B * s->T * (s->H + 2 * s->G) * s->D;
    w->n_y = s->B * s->T * s->H * s->D;
    w->qkv = random_on_gpu (w->n_qkv, 1, s->dtype);
    w->dy = random_on_gpu (w->n_y, 2, s->dtype);
    w->y = on_gpu (w->n_y * 2);
    w->dqkv = on_gpu (w->n_qkv * 2);
    w->lse = on_gpu (s->B * s->T * s->H * 4);
    w->fwd = on_gpu (w->c.scratch_fwd);
    w->bwd = on_gpu (w->c.scratch_bwd);
}

static void drop (struct work *w)
{
    void *const all[] = {w->qkv, w->dy, w->y, w->dqkv, w->lse, w->fwd, w->bwd};

    for (size_t i = 0; i < sizeof (all) / sizeof (*all); i++)
        must (cudaFree (all[i]));
}

static void run (struct work *w, bool both)
{
    double scale = 1 / sqrt ((double)w->s.D);

    check (w, attention_fwd (w->a, &w->s, w->y, w->lse, w->qkv, scale, w->fwd,
                             NULL));
    if (both)
        check (w, attention_bwd (w->a, &w->s, w->dqkv, w->dy, w->y, w->lse,
                                 w->qkv, scale, w->bwd, NULL));
}

static int by_value (const void *x, const void *y)
{
    float a = *(const float *)x, c = *(const float *)y;

    return (a > c) - (a < c);
}

static double measure (struct work *w, bool both)
{
    float ms[ROUNDS];
    cudaEvent_t from, to;

    must (cudaEventCreate (&from));
    must (cudaEventCreate (&to));
    for (int i = -5; i < ROUNDS; i++) {
        float took;

        must (cudaEventRecord (from, NULL));
        run (w, both);
        must (cudaEventRecord (to, NULL));
        must (cudaEventSynchronize (to));
        must (cudaEventElapsedTime (&took, from, to));
        if (i >= 0)
            ms[i] = took;
    }
    must (cudaEventDestroy (from));
    must (cudaEventDestroy (to));
    qsort (ms, ROUNDS, sizeof (*ms), by_value);
    return (double)ms[ROUNDS / 2];
}

static void time_one (struct attention *a, const struct attention_shape *s)
{
    double flop =
        2.0 * (double)(s->B * s->H) * (double)(s->T * s->T) * (double)s->D;
    struct work w;
    double fwd, both;

    make (&w, a, s);
    fwd = measure (&w, false);
    both = measure (&w, true);
    printf (
        "ours %s%s %zux%zux%zux%zu G %zu: fwd %.4f ms %.1f TFLOP/s, fwd+bwd "
        "%.4f ms %.1f TFLOP/s; scratch %.1f MiB; %s\n",
        engine_names[w.c.bwd], s->deterministic ? " det" : "", s->B, s->H, s->T,
        s->D, s->G, fwd, flop / fwd / 1e9, both, 3.5 * flop / both / 1e9,
        (double)w.c.scratch_bwd / 1048576, w.c.why);
    fflush (stdout);
    drop (&w);
}

static void time_all (enum attention_engine e)
{
    static const struct attention_shape shapes[] = {
        {.B = 8, .T = 2048, .H = 32, .G = 8, .D = 128},
        {.B = 8, .T = 2048, .H = 32, .G = 8, .D = 64},
        {.B = 32, .T = 1024, .H = 12, .G = 12, .D = 64},
        {.B = 8, .T = 2048, .H = 16, .G = 16, .D = 64},
        {.B = 16, .T = 512, .H = 16, .G = 16, .D = 64},
        {.B = 1, .T = 512, .H = 32, .G = 8, .D = 64},
        {.B = 1, .T = 2048, .H = 32, .G = 8, .D = 64},
        {.B = 64, .T = 256, .H = 12, .G = 12, .D = 64},
        {.B = 2, .T = 8192, .H = 32, .G = 8, .D = 64},
    };
    struct attention *a = attention_create ();

    attention_engine_only (a, e);
    for (size_t i = 0; i < sizeof (shapes) / sizeof (*shapes); i++) {
        struct attention_shape s = shapes[i];

        if (e == ATTENTION_HOPPER && s.D != 64)
            continue;
        s.dtype = ATTENTION_BF16;
        s.grad = true;
        s.deterministic = e != ATTENTION_CUDNN;
        time_one (a, &s);
        s.deterministic = true;
        if (e == ATTENTION_CUDNN)
            time_one (a, &s);
    }
    attention_destroy (a);
}

static void write_file (const char *dir, const char *name, const char *what,
                        const void *at, size_t bytes)
{
    char path[4096];
    char *host = malloc (bytes);
    FILE *f;

    must (cudaMemcpy (host, at, bytes, cudaMemcpyDefault));
    snprintf (path, sizeof (path), "%s/%s.%s", dir, name, what);
    f = fopen (path, "w");
    if (!f || fwrite (host, 1, bytes, f) != bytes || fclose (f) != 0) {
        perror (path);
        exit (1);
    }
    free (host);
}

static void write_one (struct attention *a, const struct attention_shape *s,
                       const char *dir, enum attention_engine e)
{
    const char *dtype = s->dtype == ATTENTION_F16 ? "f16" : "bf16";
    char name[128], meta[256];
    struct work w;
    int n;

    make (&w, a, s);
    run (&w, true);
    must (cudaDeviceSynchronize ());
    snprintf (name, sizeof (name), "%s%s-%s-%zux%zux%zux%zu-g%zu",
              engine_names[e], s->deterministic ? "-det" : "", dtype, s->B,
              s->H, s->T, s->D, s->G);
    n = snprintf (meta, sizeof (meta),
                  "{\"B\":%zu,\"T\":%zu,\"H\":%zu,\"G\":%zu,\"D\":%zu,"
                  "\"dtype\":\"%s\"}\n",
                  s->B, s->T, s->H, s->G, s->D, dtype);
    write_file (dir, name, "qkv", w.qkv, w.n_qkv * 2);
    write_file (dir, name, "dy", w.dy, w.n_y * 2);
    write_file (dir, name, "y", w.y, w.n_y * 2);
    write_file (dir, name, "dqkv", w.dqkv, w.n_qkv * 2);
    write_file (dir, name, "json", meta, (size_t)n);
    drop (&w);
}

static void write_all (const char *dir, enum attention_engine e)
{
    static const struct attention_shape shapes[] = {
        {.B = 2, .T = 1024, .H = 8, .G = 8, .D = 64},
        {.B = 1, .T = 2048, .H = 8, .G = 2, .D = 128},
        {.B = 2, .T = 333, .H = 8, .G = 1, .D = 64},
        {.B = 2, .T = 200, .H = 4, .G = 4, .D = 80},
    };
    struct attention *a = attention_create ();

    attention_engine_only (a, e);
    for (size_t i = 0; i < sizeof (shapes) / sizeof (*shapes); i++) {
        for (int det = 0; det <= (e == ATTENTION_CUDNN); det++) {
            struct attention_shape s = shapes[i];

            if (e == ATTENTION_HOPPER && s.D != 64)
                continue;
            s.dtype = i == 0 && det ? ATTENTION_F16 : ATTENTION_BF16;
            s.grad = true;
            s.deterministic = det;
            write_one (a, &s, dir, e);
        }
    }
    attention_destroy (a);
}

int main (int argc, char **argv)
{
    const char *only =
        argc == 3 && strcmp (argv[1], "time") == 0 ? argv[2] : "";
    struct cudaDeviceProp prop;

    if (argc < 2 || (strcmp (argv[1], "time") != 0 && argc != 3)) {
        fprintf (stderr,
                 "usage: attention_bench time [cudnn|own|hopper] | write "
                 "DIR\n");
        return 2;
    }
    must (cudaGetDeviceProperties (&prop, 0));
    printf ("%s, CUDA %d\n", prop.name, CUDART_VERSION);
    for (int e = ATTENTION_HOPPER; e >= ATTENTION_OWN; e--) {
        if (only[0] && strcmp (only, engine_names[e]) != 0)
            continue;
        if (strcmp (argv[1], "time") == 0)
            time_all ((enum attention_engine)e);
        else
            write_all (argv[2], (enum attention_engine)e);
    }
    must (cudaDeviceSynchronize ());
    return 0;
}
