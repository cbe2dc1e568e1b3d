/* SPDX-License-Identifier: Apache-2.0
 * shard_bench.c - a training step over the GPUs whose processes start it, one
 * each, by any strategy: shard_bench STRATEGY PRESET BATCH SEQ STEPS [WORD...]
 *
 * STRATEGY is no_shard, ddp, grad_op or full; BATCH is one GPU's. Words: det,
 * cheap, blocks, f32, bf16wire, offload, weights (that are offloaded), late,
 * prefetch=N; host: f32, no GPU. RANK and the like are set, as for nccl_bench.
 * Rank 0 prints one JSON line; models are those of PyTorch's twin, 8b is Llama
 * 3's shape, tiny is for tests. */
#include "config.h"

#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>

#if HAVE_CUDA
#include <cuda_runtime.h>
#endif

#include <train/group.h>

#include "decoder_impl.h"
#include "fsdp.h"
#include "group_impl.h"

static const struct {
    const char *name;
    int layers, dim, heads, kv_heads, ffn, vocab;
} presets[] = {
    {"tiny", 2, 32, 4, 2, 64, 256},
    {"124m", 12, 768, 12, 12, 2048, 50304},
    {"350m", 24, 1024, 16, 16, 2816, 50304},
    {"1b", 16, 2048, 32, 8, 8192, 50304},
    {"3b", 28, 3072, 24, 8, 8192, 50304},
    {"8b", 32, 4096, 32, 8, 14336, 128256},
};

static const char *const strategies[] = {"no_shard", "ddp", "grad_op", "full"};

struct bench {
    const char *preset;
    train_decoder_config_t config;
    struct fsdp_options options;
    train_group_t *group;
    train_decoder_t *m;
    struct fsdp *fsdp;
    train_adamw_t *adamw;
    struct fsdp_report last;
    int rank, world, B, T, steps;
    int32_t *tokens, *targets;
    double *ms, first; /* first: mean loss of step 0 */
    size_t bytes;
    bool host;
};

static train_error_t err;

static void need (train_status_t status)
{
    if (status == TRAIN_OK)
        return;
    fprintf (stderr, "shard_bench: %s\n", err.text);
    exit (1);
}

static void wrong (const char *what, const char *text)
{
    fprintf (stderr, "shard_bench: no %s '%s'\n", what, text);
    exit (2);
}

static int number (const char *text)
{
    long n = strtol (text, NULL, 10);

    if (n < 0 || n > 1 << 20)
        wrong ("number", text);
    return (int)n;
}

static double now (void)
{
    struct timespec ts;

    clock_gettime (CLOCK_MONOTONIC, &ts);
    return (double)ts.tv_sec * 1e3 + (double)ts.tv_nsec * 1e-6;
}

static void set_preset (struct bench *b, const char *name)
{
    train_decoder_config_t *c = &b->config;
    size_t i = 0, n = sizeof (presets) / sizeof (*presets);

    while (i < n && strcmp (presets[i].name, name) != 0)
        i++;
    if (i == n)
        wrong ("preset", name);
    b->preset = name;
    *c = (train_decoder_config_t){.size = sizeof (*c),
                                  .layers = presets[i].layers,
                                  .dim = presets[i].dim,
                                  .heads = presets[i].heads,
                                  .kv_heads = presets[i].kv_heads,
                                  .ffn = presets[i].ffn,
                                  .vocab = presets[i].vocab,
                                  .rope_theta = 10000,
                                  .norm_eps = 1e-6,
                                  .dtype = TRAIN_BF16};
}

static void set_strategy (struct bench *b, const char *name)
{
    int i = 0;

    while (i < 4 && strcmp (strategies[i], name) != 0)
        i++;
    if (i == 4)
        wrong ("strategy", name);
    b->options = (struct fsdp_options){
        .strategy = (train_strategy_t)i, .prefetch = 1, .reduce = TRAIN_F32};
}

static void set_word (struct bench *b, const char *word)
{
    if (strcmp (word, "det") == 0)
        b->config.deterministic = true;
    else if (strcmp (word, "cheap") == 0)
        b->config.recompute = TRAIN_RECOMPUTE_CHEAP;
    else if (strcmp (word, "blocks") == 0)
        b->config.recompute = TRAIN_RECOMPUTE_BLOCKS;
    else if (strcmp (word, "f32") == 0)
        b->config.dtype = TRAIN_F32;
    else if (strcmp (word, "bf16wire") == 0)
        b->options.reduce = TRAIN_BF16;
    else if (strcmp (word, "offload") == 0)
        b->options.offload = true;
    else if (strcmp (word, "weights") == 0)
        b->options.offload_weights = true;
    else if (strcmp (word, "late") == 0)
        b->options.round_late = true;
    else if (strcmp (word, "host") == 0)
        b->host = true, b->config.dtype = TRAIN_F32;
    else if (strncmp (word, "prefetch=", 9) == 0)
        b->options.prefetch = number (word + 9);
    else
        wrong ("word", word);
}

static void meet (struct bench *b)
{
    train_group_options_t o = {.size = sizeof (o),
                               .backend = b->host ? "host" : "nccl"};

    need (train_group_create (&o, &b->group, &err));
    b->rank = train_group_rank (b->group);
    b->world = train_group_size (b->group);
    b->config.device = (DLDevice){kDLCPU, 0};
#if HAVE_CUDA
    if (b->host)
        return;
    b->config.device = (DLDevice){kDLCUDA, b->group->where.device};
    cudaSetDevice (b->group->where.device);
#endif
}

/* What is left of the GPU's memory; NCCL's and contexts are in it. */
static size_t left (const struct bench *b)
{
    size_t there = 0;
#if HAVE_CUDA
    size_t total;

    if (!b->host)
        cudaMemGetInfo (&there, &total);
#endif
    (void)b;
    return there;
}

static void make (struct bench *b)
{
    const train_adamw_options_t o = {.size = sizeof (o),
                                     .beta1 = 0.9,
                                     .beta2 = 0.999,
                                     .eps = 1e-8,
                                     .weight_decay = 0.01,
                                     .device = b->config.device};
    size_t n = (size_t)b->B * (size_t)b->T;
    unsigned vocab = (unsigned)b->config.vocab;

    need (b->options.strategy >= TRAIN_SHARD_GRAD_OP
              ? train_decoder_create_bare (&b->config, &b->m, &err)
              : train_decoder_create (&b->config, &b->m, &err));
    need (fsdp_of_decoder (&b->options, b->group, b->m, &b->fsdp, &err));
    need (fsdp_adamw (b->fsdp, b->m, &o, &b->adamw, &err));
    need (fsdp_init_decoder (b->fsdp, b->m, NULL, 1, b->adamw, &err));
    b->tokens = malloc (n * sizeof (*b->tokens));
    b->targets = malloc (n * sizeof (*b->targets));
    b->ms = calloc ((size_t)b->steps, sizeof (*b->ms));
    for (size_t i = 0; i < n; i++) {
        unsigned k = (unsigned)(i + (size_t)b->rank * n);

        b->tokens[i] = (int32_t)(k * 2654435761u % vocab);
        b->targets[i] = (int32_t)((k + 1) * 2654435761u % vocab);
    }
}

/* What fsdp_finish does on a GPU: the sums, the norm, clipping, AdamW. */
static void one_host_step (struct bench *b, double lr, double clip)
{
    const int64_t shape[1] = {2};
    double sums[2];
    train_tensor_t view;
    int64_t n;

    need (train_decoder_step (b->m, b->tokens, b->targets, b->B, b->T,
                              1.0 / (b->world * b->B * b->T), &sums[0], &n,
                              &err));
    need (fsdp_end (b->fsdp, &err));
    sums[1] = fsdp_sumsq (b->fsdp);
    need (train_tensor_view (&view, sums, TRAIN_F64, 1, shape, &err));
    need (train_all_reduce (b->group, &view.t, TRAIN_SUM, &err));
    b->last.loss = sums[0];
    b->last.norm = sqrt (sums[1]);
    need (train_adamw_step (b->adamw, fsdp_weights (b->fsdp),
                            fsdp_grads (b->fsdp), lr,
                            train_clip_scale (b->last.norm, clip), &err));
    fsdp_updated (b->fsdp);
}

static void one_step (struct bench *b, int k)
{
    const struct fsdp_update update = {3e-4, 1, 1};
    double t = now ();
    int64_t n;

    need (fsdp_begin (b->fsdp, &err));
    need (fsdp_pass (b->fsdp, true, &err));
    if (b->host) {
        one_host_step (b, update.lr, update.clip);
    } else {
        need (decoder_step_add (b->m, b->tokens, b->targets, b->B, b->T,
                                1.0 / (b->world * b->B * b->T), &n, &err));
        need (
            fsdp_finish (b->fsdp, b->adamw, &update, NULL, 0, &b->last, &err));
    }
    b->ms[k] = now () - t;
    if (k == 0)
        b->first = b->last.loss / (b->world * b->B * b->T);
}

static int by_value (const void *a, const void *b)
{
    const double *x = a, *y = b;

    return (*x > *y) - (*x < *y);
}

/* Of the later two thirds. */
static double median (struct bench *b)
{
    int skip = b->steps / 3;

    qsort (b->ms + skip, (size_t)(b->steps - skip), sizeof (*b->ms), by_value);
    return b->ms[skip + (b->steps - skip) / 2];
}

static void print (struct bench *b)
{
    double ms = median (b), tokens = (double)b->world * b->B * b->T;

    if (b->rank != 0)
        return;
    printf (
        "{\"op\": \"train\", \"who\": \"libtrain\", \"strategy\": \"%s\", "
        "\"preset\": \"%s\", \"params\": %zu, \"world\": %d, \"batch\": %d, "
        "\"seq\": %d, \"dtype\": \"%s\", \"deterministic\": %d, "
        "\"recompute\": %d, \"prefetch\": %d, \"reduce\": \"%s\", "
        "\"offload\": %d, \"offload_weights\": %d, \"late\": %d, ",
        strategies[b->options.strategy], b->preset, train_decoder_numel (b->m),
        b->world, b->B, b->T, train_dtype_name (b->config.dtype),
        b->config.deterministic, (int)b->config.recompute, b->options.prefetch,
        train_dtype_name (b->options.reduce), b->options.offload,
        b->options.offload_weights, b->options.round_late);
    printf ("\"ms\": %.2f, \"tok_s\": %.0f, \"gib\": %.2f, \"first_loss\": "
            "%.3f, \"loss\": %.9g, \"norm\": %.9g}\n",
            ms, tokens / ms * 1e3, (double)b->bytes / (1 << 30), b->first,
            b->last.loss / tokens, b->last.norm);
}

static void drop (struct bench *b)
{
    train_adamw_destroy (b->adamw);
    fsdp_destroy (b->fsdp);
    train_decoder_destroy (b->m);
    train_group_destroy (b->group);
    free (b->tokens), free (b->targets), free (b->ms);
}

int main (int argc, char **argv)
{
    struct bench b = {0};
    size_t before;

    if (argc < 6)
        return fprintf (stderr, "shard_bench STRATEGY PRESET BATCH SEQ STEPS "
                                "[WORD...]\n");
    set_preset (&b, argv[2]);
    set_strategy (&b, argv[1]);
    b.B = number (argv[3]), b.T = number (argv[4]), b.steps = number (argv[5]);
    for (int i = 6; i < argc; i++)
        set_word (&b, argv[i]);
    meet (&b);
    before = left (&b);
    make (&b);
    for (int k = 0; k < b.steps; k++)
        one_step (&b, k);
    b.bytes = before - left (&b);
    print (&b);
    drop (&b);
    return 0;
}
