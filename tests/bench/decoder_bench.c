/* SPDX-License-Identifier: Apache-2.0
 * decoder_bench.c - tokens per second of a decoder's training step on the host
 *
 * decoder_bench [key=value...]: layers, dim, heads, kv_heads, ffn, vocab, seq,
 * batch, seconds, dtype (fp32, fp64). A step is forward, loss, backward, norm
 * and AdamW over made-up tokens. Prints one JSON line: the median step's
 * tokens/s, and its arithmetic beside that of one large product through the
 * same matrix library. Threads are the library's (OPENBLAS_NUM_THREADS). */
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>

#include <train/decoder.h>

#include "kernels/kernels.h"

#define MAX_STEPS 100000

struct setup {
    long layers, dim, heads, kv_heads, ffn, vocab, seq, batch, seconds;
    train_dtype_t dtype;
};

struct arrays {
    void *m, *v;
    int32_t *tokens, *targets;
};

static double now (void)
{
    struct timespec t;

    clock_gettime (CLOCK_MONOTONIC, &t);
    return (double)t.tv_sec + 1e-9 * (double)t.tv_nsec;
}

static int by_value (const void *a, const void *b)
{
    double x = *(const double *)a, y = *(const double *)b;

    return x < y ? -1 : x > y;
}

static int parse (struct setup *s, const char *word)
{
    const struct {
        const char *key;
        long *value;
    } keys[] = {
        {"layers", &s->layers},   {"dim", &s->dim},
        {"heads", &s->heads},     {"kv_heads", &s->kv_heads},
        {"ffn", &s->ffn},         {"vocab", &s->vocab},
        {"seq", &s->seq},         {"batch", &s->batch},
        {"seconds", &s->seconds},
    };
    const char *eq = strchr (word, '=');
    char *end;

    if (!eq)
        return -1;
    if (strcmp (word, "dtype=fp64") == 0) {
        s->dtype = TRAIN_F64;
        return 0;
    }
    if (strcmp (word, "dtype=fp32") == 0)
        return 0;
    for (size_t i = 0; i < sizeof (keys) / sizeof (keys[0]); i++) {
        if (strncmp (word, keys[i].key, (size_t)(eq - word)) != 0
            || keys[i].key[eq - word] != '\0')
            continue;
        *keys[i].value = strtol (eq + 1, &end, 10);
        return *end == '\0' && *keys[i].value > 0 && *keys[i].value < 1000000
                   ? 0
                   : -1;
    }
    return -1;
}

/* Multiply-adds twice, of the three products of a step; causal attention is
 * counted as half a square. */
static double step_flops (const struct setup *s)
{
    double d = (double)s->dim, head = d / (double)s->heads;
    double qkv = d + 2 * head * (double)s->kv_heads;
    double layer = d * qkv + d * d + 3 * d * (double)s->ffn;
    double weights = (double)s->layers * layer + d * (double)s->vocab;
    double attention = (double)s->layers * d * (double)s->seq;

    return 6 * (double)(s->batch * s->seq) * (weights + attention);
}

/* GFLOP/s of the matrix library: the median of products of 512 x 512. */
static double gemm_rate (train_dtype_t dtype)
{
    enum { N = 512, REPEATS = 15 };
    size_t bytes = (size_t)N * N * train_dtype_size (dtype);
    void *x = calloc (1, bytes), *w = calloc (1, bytes);
    void *y = calloc (1, bytes);
    double t[REPEATS];

    for (int i = 0; i < REPEATS && x && w && y; i++) {
        t[i] = now ();
        if (dtype == TRAIN_F32)
            kern_matmul_fwd_f32_host (y, x, w, N, N, N, NULL);
        else
            kern_matmul_fwd_f64_host (y, x, w, N, N, N, NULL);
        t[i] = now () - t[i];
    }
    qsort (t, REPEATS, sizeof (t[0]), by_value);
    free (x);
    free (w);
    free (y);
    return 2.0 * N * N * N / t[REPEATS / 2] * 1e-9;
}

static int step (train_decoder_t *m, const struct setup *s,
                 const struct arrays *a, int64_t count)
{
    size_t n = train_decoder_numel (m);
    void *w = train_decoder_weights (m)->data,
         *g = train_decoder_grads (m)->data;
    double loss, square, factor;
    int64_t tokens;
    train_error_t err;

    memset (g, 0, n * train_dtype_size (s->dtype));
    if (train_decoder_step (m, a->tokens, a->targets, (int)s->batch,
                            (int)s->seq, 1.0 / (double)(s->batch * s->seq),
                            &loss, &tokens, &err)
        != TRAIN_OK) {
        fprintf (stderr, "decoder_bench: %s\n", err.text);
        return -1;
    }
    if (s->dtype == TRAIN_F32) {
        kern_sumsq_f32_host (&square, g, n, NULL);
        factor = fmin (1.0, 1.0 / (sqrt (square) + 1e-6));
        kern_adamw_f32_host (w, a->m, a->v, g, n, 1e-3, 0.9, 0.95, 1e-8, 0.1,
                             factor, count, NULL);
    } else {
        kern_sumsq_f64_host (&square, g, n, NULL);
        factor = fmin (1.0, 1.0 / (sqrt (square) + 1e-6));
        kern_adamw_f64_host (w, a->m, a->v, g, n, 1e-3, 0.9, 0.95, 1e-8, 0.1,
                             factor, count, NULL);
    }
    return 0;
}

/* Median seconds of a step, after two that warm up; negative on failure. */
static double measure (train_decoder_t *m, const struct setup *s,
                       const struct arrays *a, int *ret_steps)
{
    double *t = malloc (MAX_STEPS * sizeof (*t));
    double end = now () + (double)s->seconds, median = -1;
    int n = 0;

    if (!t || step (m, s, a, 1) < 0 || step (m, s, a, 2) < 0)
        goto out;
    while (n < MAX_STEPS && (n < 3 || now () < end)) {
        t[n] = now ();
        if (step (m, s, a, n + 3) < 0)
            goto out;
        t[n] = now () - t[n];
        n++;
    }
    qsort (t, (size_t)n, sizeof (*t), by_value);
    median = t[n / 2];
    *ret_steps = n;
out:
    free (t);
    return median;
}

static int fill (struct arrays *a, const struct setup *s, size_t numel)
{
    size_t n = (size_t)(s->batch * s->seq);

    a->m = calloc (numel, train_dtype_size (s->dtype));
    a->v = calloc (numel, train_dtype_size (s->dtype));
    a->tokens = calloc (n, sizeof (*a->tokens));
    a->targets = calloc (n, sizeof (*a->targets));
    if (!a->m || !a->v || !a->tokens || !a->targets)
        return -1;
    for (size_t i = 0; i < n; i++) {
        a->tokens[i] = (int32_t)(i * 7919 % (size_t)s->vocab);
        a->targets[i] = (int32_t)((i + 1) * 7919 % (size_t)s->vocab);
    }
    return 0;
}

int main (int argc, char **argv)
{
    struct setup s = {4, 128, 4, 2, 352, 256, 128, 16, 5, TRAIN_F32};
    train_decoder_config_t c = {
        .size = sizeof (c), .tie = true, .rope_theta = 10000, .norm_eps = 1e-5};
    struct arrays a = {0};
    train_decoder_t *m = NULL;
    train_error_t err;
    double t = -1, rate, gflops;
    int steps = 0;

    for (int i = 1; i < argc; i++) {
        if (parse (&s, argv[i]) < 0) {
            fprintf (stderr, "decoder_bench: cannot read '%s'\n", argv[i]);
            return 2;
        }
    }
    c.layers = (int)s.layers;
    c.dim = (int)s.dim;
    c.heads = (int)s.heads;
    c.kv_heads = (int)s.kv_heads;
    c.ffn = (int)s.ffn;
    c.vocab = (int)s.vocab;
    c.dtype = s.dtype;
    if (train_decoder_create (&c, &m, &err) != TRAIN_OK) {
        fprintf (stderr, "decoder_bench: %s\n", err.text);
        return 2;
    }
    train_decoder_init (m, 1);
    if (fill (&a, &s, train_decoder_numel (m)) == 0)
        t = measure (m, &s, &a, &steps);
    rate = gemm_rate (s.dtype);
    gflops = step_flops (&s) / t * 1e-9;
    if (t > 0)
        printf ("{\"tok_per_s\": %.0f, \"step_s\": %.6f, \"steps\": %d, "
                "\"params\": %zu, \"gflop_per_s\": %.1f, "
                "\"gemm_gflop_per_s\": %.1f, \"share\": %.2f}\n",
                (double)(s.batch * s.seq) / t, t, steps,
                train_decoder_numel (m), gflops, rate, gflops / rate);
    free (a.m);
    free (a.v);
    free (a.tokens);
    free (a.targets);
    train_decoder_destroy (m);
    return t > 0 ? 0 : 1;
}
