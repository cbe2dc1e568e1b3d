/* SPDX-License-Identifier: Apache-2.0
 * train_bench.c - a training step of one GPU: train_bench PRESET BATCH SEQ
 * STEPS [WORD...], words: det, cheap, blocks, f32, graph; models are those of
 * PyTorch's twin, a Llama shape of 50304 words */
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

struct bench {
    train_decoder_config_t config;
    train_decoder_t *m;
    train_adamw_t *adamw;
    struct gpu_step *step;
    struct gpu_step_report last;
    int B, T, steps;
    int32_t *tokens, *targets;
    bool graph;
    double *ms, draw_ms, first; /* first: mean loss of step 0 */
    float zero, pass, update; /* GPU's milliseconds of the last step's parts */
    cudaEvent_t at[4];
    size_t bytes;
};

static void options (struct bench *b, int argc, char **argv)
{
    b->config = config_of (argv[1]);
    b->B = number (argv[2]), b->T = number (argv[3]);
    b->steps = number (argv[4]);
    for (int i = 5; i < argc; i++) {
        b->config.deterministic |= strcmp (argv[i], "det") == 0;
        b->graph |= strcmp (argv[i], "graph") == 0;
        if (strcmp (argv[i], "cheap") == 0)
            b->config.recompute = TRAIN_RECOMPUTE_CHEAP;
        if (strcmp (argv[i], "blocks") == 0)
            b->config.recompute = TRAIN_RECOMPUTE_BLOCKS;
        if (strcmp (argv[i], "f32") == 0)
            b->config.dtype = TRAIN_F32;
    }
}

static void make (struct bench *b)
{
    size_t n = (size_t)b->B * (size_t)b->T;
    train_error_t err = {0};
    double t;

    need (train_decoder_create (&b->config, &b->m, &err), &err);
    t = now ();
    need (train_decoder_draw (b->m, 1, &err), &err);
    b->draw_ms = now () - t;
    if (b->graph)
        need (decoder_set_replay (b->m, true, &err), &err);
    b->adamw = adamw_of (b->m);
    need (gpu_step_create (b->m, b->adamw, &b->step, &err), &err);
    b->tokens = malloc (n * sizeof (*b->tokens));
    b->targets = malloc (n * sizeof (*b->targets));
    b->ms = calloc ((size_t)b->steps, sizeof (*b->ms));
    for (size_t i = 0; i < n; i++) {
        b->tokens[i] = (int32_t)((unsigned)i * 2654435761u % 50304u);
        b->targets[i] = (int32_t)((unsigned)(i + 1) * 2654435761u % 50304u);
    }
    for (int i = 0; i < 4; i++)
        cudaEventCreate (&b->at[i]);
}

static void one_step (struct bench *b, int k)
{
    cudaStream_t stream = b->m->stream;
    train_error_t err = {0};
    double t = now ();
    int64_t n;

    cudaEventRecord (b->at[0], stream);
    gpu_step_begin (b->step, 1);
    cudaEventRecord (b->at[1], stream);
    need (decoder_step_add (b->m, b->tokens, b->targets, b->B, b->T,
                            1.0 / (b->B * b->T), &n, &err),
          &err);
    cudaEventRecord (b->at[2], stream);
    need (gpu_step_end (b->step, 3e-4, 1, 1, &b->last, &err), &err);
    b->ms[k] = now () - t;
    cudaEventRecord (b->at[3], stream);
    if (k == 0)
        b->first = b->last.loss / (b->B * b->T);
}

static void parts (struct bench *b)
{
    cudaEventSynchronize (b->at[3]);
    cudaEventElapsedTime (&b->zero, b->at[0], b->at[1]);
    cudaEventElapsedTime (&b->pass, b->at[1], b->at[2]);
    cudaEventElapsedTime (&b->update, b->at[2], b->at[3]);
}

/* Of the later two thirds. */
static double median (struct bench *b)
{
    int skip = b->steps / 3;

    qsort (b->ms + skip, (size_t)(b->steps - skip), sizeof (*b->ms), by_value);
    return b->ms[skip + (b->steps - skip) / 2];
}

static void print (struct bench *b, const char *preset)
{
    double ms = median (b), tokens = b->B * b->T;

    printf ("{\"op\": \"train\", \"who\": \"libtrain\", \"preset\": \"%s\", "
            "\"params\": %zu, \"batch\": %d, \"seq\": %d, \"dtype\": \"%s\", "
            "\"deterministic\": %d, \"graph\": %d, \"recompute\": %d, \"ms\": "
            "%.2f, "
            "\"tok_s\": %.0f, \"gib\": %.2f, \"acts_gib\": %.2f, ",
            preset, train_decoder_numel (b->m), b->B, b->T,
            train_dtype_name (b->config.dtype), b->config.deterministic,
            b->graph, (int)b->config.recompute, ms, tokens / ms * 1e3,
            (double)b->bytes / (1 << 30), (double)b->m->acts_bytes / (1 << 30));
    printf ("\"zero_ms\": %.2f, \"pass_ms\": %.2f, \"update_ms\": %.2f, "
            "\"draw_ms\": %.0f, \"first_loss\": %.3f, \"loss\": %.3f, "
            "\"norm\": %.3f}\n",
            (double)b->zero, (double)b->pass, (double)b->update, b->draw_ms,
            b->first, b->last.loss / tokens, b->last.norm);
}

static void drop (struct bench *b)
{
    for (int i = 0; i < 4; i++)
        cudaEventDestroy (b->at[i]);
    gpu_step_destroy (b->step);
    train_adamw_destroy (b->adamw);
    train_decoder_destroy (b->m);
    free (b->tokens), free (b->targets), free (b->ms);
}

int main (int argc, char **argv)
{
    struct bench b = {0};
    size_t before = 0, after = 0, total;

    if (argc < 5)
        return fprintf (stderr, "train_bench PRESET BATCH SEQ STEPS [WORD]\n");
    options (&b, argc, argv);
    cudaFree (NULL);
    cudaMemGetInfo (&before, &total);
    make (&b);
    for (int k = 0; k < b.steps; k++)
        one_step (&b, k);
    parts (&b);
    cudaMemGetInfo (&after, &total);
    b.bytes = before - after;
    print (&b, argv[1]);
    drop (&b);
    return 0;
}
