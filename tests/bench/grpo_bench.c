/* SPDX-License-Identifier: Apache-2.0
 * grpo_bench.c - steps of GRPO, each GPU a process: grpo_bench PRESET STEPS
 * [WORD...]. Words: old (log-probabilities before the update are made), cheap,
 * blocks, mN (N rows a pass), host (f32, no GPU). Of each GPU 8 prompts of 128
 * tokens, 8 completions of 256 tokens of each, random weights and rewards, as
 * PyTorch's twin has it; of "tiny" less. ddp, where there are several, grad_op or
 * full: how they share. Rank 0 prints its steps, then one JSON line: medians
 * behind the first step, of those that write completions */
#include "config.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#if HAVE_CUDA
#include <cuda_runtime.h>
#endif

#include <train.h>

#include "decoder_impl.h"
#include "group_impl.h"

static const struct {
    const char *name;
    int layers, dim, heads, kv_heads, ffn, vocab;
    int prompts, group, length, fresh; /* of one GPU */
} presets[] = {
    {"tiny", 2, 32, 4, 2, 64, 256, 2, 4, 8, 8},
    {"124m", 12, 768, 12, 12, 2048, 50304, 8, 8, 128, 256},
    {"350m", 24, 1024, 16, 16, 2816, 50304, 8, 8, 128, 256},
    {"1b", 16, 2048, 32, 8, 8192, 50304, 8, 8, 128, 256},
};

enum { PRESETS = sizeof (presets) / sizeof (*presets), MOST = 1000 };

static struct bench {
    int preset, steps, rank, world, prompts, length;
    bool host;
    train_strategy_t strategy;
    train_decoder_config_t config;
    train_grpo_trainer_options_t options;
    train_group_t *group, *gpus;
    train_decoder_t *decoder;
    train_grpo_trainer_t *trainer;
    int32_t *ids; /* (prompts, length) */
    size_t before, most;
    int whole; /* steps so far that wrote completions */
    double rollout[MOST], logps[MOST], update[MOST], all[MOST];
} b;

static train_error_t err;

static void need (train_status_t status)
{
    if (status == TRAIN_OK)
        return;
    fprintf (stderr, "grpo_bench: %s\n", err.text);
    exit (1);
}

/* 0 for what is no number of use. */
static int number (const char *text)
{
    char *end;
    long n = strtol (text, &end, 10);

    return *end || n < 1 || n > MOST ? 0 : (int)n;
}

static const int32_t *ids_of (void *arg, int64_t i, size_t *ret_n)
{
    (void)arg;
    *ret_n = (size_t)b.length;
    return b.ids + (size_t)i * (size_t)b.length;
}

/* Any number will do. */
static train_status_t score (void *arg, const train_grpo_sample_t *s, int n,
                             float *ret, train_error_t *e)
{
    (void)arg, (void)e;
    for (int i = 0; i < n; i++)
        ret[i] =
            (float)(((unsigned)s[i].ids[0] * 2654435761u + (unsigned)i * 97u)
                    % 1000u)
            / 1000;
    return TRAIN_OK;
}

static bool take_word (const char *word)
{
    if (strcmp (word, "old") == 0)
        b.options.iterations = 2;
    else if (strcmp (word, "cheap") == 0)
        b.config.recompute = TRAIN_RECOMPUTE_CHEAP;
    else if (strcmp (word, "blocks") == 0)
        b.config.recompute = TRAIN_RECOMPUTE_BLOCKS;
    else if (strcmp (word, "ddp") == 0)
        b.strategy = TRAIN_DDP;
    else if (strcmp (word, "grad_op") == 0)
        b.strategy = TRAIN_SHARD_GRAD_OP;
    else if (strcmp (word, "full") == 0)
        b.strategy = TRAIN_FULL_SHARD;
    else if (strcmp (word, "host") == 0)
        b.host = true, b.config.dtype = TRAIN_F32;
    else if (word[0] == 'm' && number (word + 1) > 0)
        b.options.trainer.micro_batch = number (word + 1);
    else
        return false;
    return true;
}

static bool take (int argc, char **argv)
{
    int i = 0;

    if (argc < 3 || (b.steps = number (argv[2])) == 0)
        return false;
    while (i < PRESETS && strcmp (presets[i].name, argv[1]) != 0)
        i++;
    if ((b.preset = i) == PRESETS)
        return false;
    b.config = (train_decoder_config_t){.size = sizeof (b.config),
                                        .layers = presets[i].layers,
                                        .dim = presets[i].dim,
                                        .heads = presets[i].heads,
                                        .kv_heads = presets[i].kv_heads,
                                        .ffn = presets[i].ffn,
                                        .vocab = presets[i].vocab,
                                        .rope_theta = 10000,
                                        .norm_eps = 1e-6,
                                        .dtype = TRAIN_BF16};
    b.options.trainer.micro_batch = 16;
    b.strategy = TRAIN_DDP;
    for (i = 3; i < argc; i++)
        if (!take_word (argv[i]))
            return false;
    return true;
}

/* Two groups: the host's for texts and rewards, the GPUs' for gradients. */
static void meet (void)
{
    const train_group_options_t nccl = {
        .size = sizeof (nccl), .backend = "nccl", .name = "GPUs"};

    need (train_group_create (NULL, &b.group, &err));
    b.rank = train_group_rank (b.group);
    b.world = train_group_size (b.group);
    b.config.device = (DLDevice){b.host ? kDLCPU : kDLCUDA, 0};
    if (b.world == 1 && b.strategy == TRAIN_DDP)
        b.strategy = TRAIN_NO_SHARD;
    if (b.host || b.strategy == TRAIN_NO_SHARD)
        return;
    need (train_group_create (&nccl, &b.gpus, &err));
    b.config.device.device_id = b.gpus->where.device;
}

static size_t used (void)
{
    size_t there = 0, all = 0;
#if HAVE_CUDA
    if (!b.host)
        cudaMemGetInfo (&there, &all);
#endif
    return all - there;
}

static void set_options (void)
{
    train_trainer_options_t *t = &b.options.trainer;

    t->size = sizeof (*t);
    t->batch = b.world * presets[b.preset].prompts * presets[b.preset].group;
    t->clip = 1;
    t->device_group = b.gpus;
    t->strategy = b.strategy;
    t->prefetch = 1;
    t->adamw = (train_adamw_options_t){.size = sizeof (t->adamw),
                                       .beta1 = 0.9,
                                       .beta2 = 0.999,
                                       .eps = 1e-8,
                                       .weight_decay = 0.01};
    t->schedule = (train_schedule_t){.size = sizeof (t->schedule),
                                     .kind = TRAIN_SCHEDULE_CONSTANT,
                                     .lr = 1e-6,
                                     .steps = MOST};
    b.options.size = sizeof (b.options);
    b.options.group = presets[b.preset].group;
    b.options.max_new = presets[b.preset].fresh;
    b.options.seed = 1;
    b.options.loss = (train_grpo_options_t){.size = sizeof (b.options.loss),
                                            .kind = TRAIN_GRPO_DAPO};
}

static void make (void)
{
    train_grpo_prompts_t prompts = {.size = sizeof (prompts), .ids = ids_of};
    bool bare;
    size_t n;

    b.prompts = b.world * presets[b.preset].prompts;
    b.length = presets[b.preset].length;
    n = (size_t)b.prompts * (size_t)b.length;
    b.ids = malloc (n * sizeof (*b.ids));
    if (!b.ids)
        exit (1);
    for (size_t i = 0; i < n; i++)
        b.ids[i] = (int32_t)((unsigned)(i + 1) * 2654435761u
                             % (unsigned)b.config.vocab);
    prompts.count = b.prompts;
    set_options ();
    bare = b.strategy >= TRAIN_SHARD_GRAD_OP;
    need (bare ? train_decoder_create_bare (&b.config, &b.decoder, &err)
               : train_decoder_create (&b.config, &b.decoder, &err));
    if (!bare)
        need (train_decoder_draw (b.decoder, 1, &err));
    need (train_grpo_trainer_create (&b.options, b.group, &prompts, score, NULL,
                                     b.decoder, NULL, &b.trainer, &err));
    if (bare)
        need (
            train_trainer_init (train_grpo_trainer_base (b.trainer), 1, &err));
}

static void one_step (int i)
{
    train_grpo_metrics_t m = {.size = sizeof (m)};
    double all;

    need (train_grpo_trainer_step (b.trainer, false, &m, &err));
    b.most = used () > b.most ? used () : b.most;
    all = m.rollout_s + m.reward_s + m.logps_s + m.update_s;
    b.rollout[b.whole] = m.rollout_s;
    b.logps[b.whole] = m.logps_s;
    b.update[b.whole] = m.update_s;
    b.all[b.whole] = all;
    b.whole += m.rollout_tokens > 0;
    if (b.rank != 0)
        return;
    printf ("step %d: rollout %.3f s (%.0f tok/s), rewards %.3f, logps "
            "%.3f, update %.3f, in all %.3f; loss %.5f, norm %.4f, "
            "entropy %.3f, ratio %.6f, length %.1f\n",
            i + 1, m.rollout_s,
            m.rollout_s > 0 ? (double)m.rollout_tokens / m.rollout_s : 0,
            m.reward_s, m.logps_s, m.update_s, all, m.base.loss,
            m.base.grad_norm, m.entropy, m.ratio, m.length);
    fflush (stdout);
}

static int by_value (const void *x, const void *y)
{
    double d = *(const double *)x - *(const double *)y;

    return (d > 0) - (d < 0);
}

/* Behind the first step, where there are more. */
static double median (double *v)
{
    int skip = b.whole > 1, n = b.whole - skip;

    qsort (v + skip, (size_t)n, sizeof (*v), by_value);
    return v[skip + n / 2];
}

static void print (void)
{
    static const char *const names[] = {"no_shard", "ddp", "grad_op", "full"};
    double s = median (b.all);

    if (b.rank != 0)
        return;
    printf ("{\"op\": \"grpo\", \"who\": \"libtrain\", \"preset\": \"%s\", "
            "\"world\": %d, \"strategy\": \"%s\", \"completions\": %d, "
            "\"dtype\": \"%s\", ",
            presets[b.preset].name, b.world, names[b.strategy],
            b.options.trainer.batch, train_dtype_name (b.config.dtype));
    printf ("\"rollout_s\": %.4f, \"logps_s\": %.4f, \"update_s\": %.4f, "
            "\"step_s\": %.4f, \"completions_s\": %.2f, \"gib\": %.2f}\n",
            median (b.rollout), median (b.logps), median (b.update), s,
            b.options.trainer.batch / s,
            (double)(b.most - b.before) / (1024.0 * 1024 * 1024));
}

int main (int argc, char **argv)
{
    if (!take (argc, argv)) {
        fprintf (stderr, "usage: grpo_bench tiny|124m|350m|1b STEPS [old] "
                         "[cheap] [blocks] [mN] [ddp|grad_op|full] [host]\n");
        return 2;
    }
    meet ();
    b.before = used ();
    make ();
    for (int i = 0; i < b.steps; i++)
        one_step (i);
    print ();
    train_grpo_trainer_destroy (b.trainer);
    train_decoder_destroy (b.decoder);
    train_group_destroy (b.gpus);
    train_group_destroy (b.group);
    free (b.ids);
    return 0;
}
