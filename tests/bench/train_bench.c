/* SPDX-License-Identifier: Apache-2.0
 * train_bench.c - a training step of one GPU: train_bench PRESET BATCH SEQ STEPS
 * [WORD...], words: det, cheap, blocks, f32; models are those of PyTorch's twin,
 * a Llama shape of 50304 words */
#include "config.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>

#include <cuda_runtime.h>

#include "decoder_impl.h"
#include "gpu_step.h"

static const struct {
    const char *name;
    int layers, dim, heads, kv_heads, ffn;
} presets[] = {
    {"124m", 12, 768, 12, 12, 2048},
    {"350m", 24, 1024, 16, 16, 2816},
    {"1b", 16, 2048, 32, 8, 8192},
    {"3b", 28, 3072, 24, 8, 8192},
};

static void need (train_status_t status, const train_error_t *err)
{
    if (status == TRAIN_OK)
        return;
    fprintf (stderr, "train_bench: %s\n", err->text);
    exit (1);
}

static int number (const char *text)
{
    long n = strtol (text, NULL, 10);

    if (n < 1 || n > 1 << 20) {
        fprintf (stderr, "train_bench: '%s' is not in 1..%d\n", text, 1 << 20);
        exit (2);
    }
    return (int)n;
}

static double now (void)
{
    struct timespec ts;

    clock_gettime (CLOCK_MONOTONIC, &ts);
    return (double)ts.tv_sec * 1e3 + (double)ts.tv_nsec * 1e-6;
}

static int by_value (const void *a, const void *b)
{
    const double *x = a, *y = b;

    return (*x > *y) - (*x < *y);
}

static train_decoder_config_t config_of (const char *name)
{
    train_decoder_config_t c = {.size = sizeof (c),
                                .vocab = 50304,
                                .rope_theta = 10000,
                                .norm_eps = 1e-6,
                                .dtype = TRAIN_BF16,
                                .device = {kDLCUDA, 0}};

    for (size_t i = 0; i < sizeof (presets) / sizeof (*presets); i++) {
        if (strcmp (presets[i].name, name) != 0)
            continue;
        c.layers = presets[i].layers;
        c.dim = presets[i].dim;
        c.heads = presets[i].heads;
        c.kv_heads = presets[i].kv_heads;
        c.ffn = presets[i].ffn;
    }
    return c;
}

static train_adamw_t *adamw_of (train_decoder_t *m)
{
    train_adamw_options_t o = {.size = sizeof (o),
                               .beta1 = 0.9,
                               .beta2 = 0.999,
                               .eps = 1e-8,
                               .weight_decay = 0.01,
                               .device = {kDLCUDA, 0}};
    size_t n = train_decoder_n_params (m);
    train_param_t *params = calloc (n, sizeof (*params));
    train_adamw_t *a = NULL;
    train_error_t err = {0};

    for (size_t i = 0; i < n; i++)
        params[i] = *train_decoder_param (m, i);
    need (train_adamw_create (&o, train_decoder_config (m)->dtype,
                              train_decoder_numel (m), params, n, &a, &err),
          &err);
    free (params);
    return a;
}

int main (int argc, char **argv)
{
    train_decoder_config_t c;
    train_decoder_t *m = NULL;
    train_adamw_t *a;
    struct gpu_step *s = NULL;
    struct gpu_step_report r = {0};
    train_error_t err = {0};
    int B, T, steps;
    int32_t *tokens, *targets;
    double *ms, first = 0;
    size_t before = 0, after = 0, total;
    int64_t n;

    if (argc < 5)
        return fprintf (stderr, "train_bench PRESET BATCH SEQ STEPS [WORD]\n");
    c = config_of (argv[1]);
    B = number (argv[2]), T = number (argv[3]), steps = number (argv[4]);
    for (int i = 5; i < argc; i++) {
        c.deterministic |= strcmp (argv[i], "det") == 0;
        if (strcmp (argv[i], "cheap") == 0)
            c.recompute = TRAIN_RECOMPUTE_CHEAP;
        if (strcmp (argv[i], "blocks") == 0)
            c.recompute = TRAIN_RECOMPUTE_BLOCKS;
        if (strcmp (argv[i], "f32") == 0)
            c.dtype = TRAIN_F32;
    }
    cudaFree (NULL);
    cudaMemGetInfo (&before, &total);
    need (train_decoder_create (&c, &m, &err), &err);
    need (train_decoder_draw (m, 1, &err), &err);
    a = adamw_of (m);
    need (gpu_step_create (m, a, &s, &err), &err);
    tokens = malloc ((size_t)(B * T) * sizeof (*tokens));
    targets = malloc ((size_t)(B * T) * sizeof (*targets));
    ms = calloc ((size_t)steps, sizeof (*ms));
    for (int i = 0; i < B * T; i++) {
        tokens[i] = (int32_t)((unsigned)i * 2654435761u % 50304u);
        targets[i] = (int32_t)((unsigned)(i + 1) * 2654435761u % 50304u);
    }
    for (int k = 0; k < steps; k++) {
        double t = now ();

        need (gpu_step_begin (s, &err), &err);
        need (decoder_step_add (m, tokens, targets, B, T, 1.0 / (B * T), &n,
                                &err),
              &err);
        need (gpu_step_end (s, 3e-4, 1, &r, &err), &err);
        ms[k] = now () - t;
        if (k == 0)
            first = r.loss / (B * T);
    }
    cudaMemGetInfo (&after, &total);
    qsort (ms + steps / 3, (size_t)(steps - steps / 3), sizeof (*ms), by_value);
    ms[0] = ms[steps / 3 + (steps - steps / 3) / 2];
    printf ("{\"op\": \"train\", \"who\": \"libtrain\", \"preset\": \"%s\", "
            "\"params\": %zu, \"batch\": %d, \"seq\": %d, \"dtype\": \"%s\", "
            "\"deterministic\": %d, \"recompute\": %d, \"ms\": %.2f, "
            "\"tok_s\": %.0f, \"gib\": %.2f, \"acts_gib\": %.2f, "
            "\"first_loss\": %.3f, \"loss\": %.3f, \"norm\": %.3f}\n",
            argv[1], train_decoder_numel (m), B, T, train_dtype_name (c.dtype),
            c.deterministic, (int)c.recompute, ms[0], B * T / ms[0] * 1e3,
            (double)(before - after) / (1 << 30),
            (double)m->acts_bytes / (1 << 30), first, r.loss / (B * T), r.norm);
    gpu_step_destroy (s);
    train_adamw_destroy (a);
    train_decoder_destroy (m);
    free (tokens), free (targets), free (ms);
    return 0;
}
