/* SPDX-License-Identifier: Apache-2.0
 * grpo_bench.c - steps of GRPO on one GPU: grpo_bench PRESET STEPS [WORD...].
 * Words: old (log-probabilities before the update are made), cheap, blocks, mN
 * (N rows a pass). 8 prompts of 128 tokens, 8 completions of 256 tokens of each,
 * random weights and rewards, as PyTorch's twin has it */
#include "config.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include <cuda_runtime.h>

#include <train.h>

static const struct {
    const char *name;
    int layers, dim, heads, kv_heads, ffn;
} presets[] = {
    {"124m", 12, 768, 12, 12, 2048},
    {"350m", 24, 1024, 16, 16, 2816},
    {"1b", 16, 2048, 32, 8, 8192},
};

enum { PROMPTS = 8, GROUP = 8, LENGTH = 128, NEW = 256, V = 50304 };

static void need (train_status_t status, const train_error_t *err)
{
    if (status == TRAIN_OK)
        return;
    fprintf (stderr, "grpo_bench: %s\n", err->text);
    exit (1);
}

/* 0 for what is no number of use. */
static int number (const char *text)
{
    char *end;
    long n = strtol (text, &end, 10);

    return *end || n < 1 || n > 1 << 20 ? 0 : (int)n;
}

static int32_t prompt[PROMPTS][LENGTH];

static const int32_t *ids_of (void *arg, int64_t i, size_t *ret_n)
{
    (void)arg;
    *ret_n = LENGTH;
    return prompt[i];
}

/* Any number will do. */
static train_status_t score (void *arg, const train_grpo_sample_t *s, int n,
                             float *ret, train_error_t *err)
{
    (void)arg, (void)err;
    for (int i = 0; i < n; i++)
        ret[i] =
            (float)(((unsigned)s[i].ids[0] * 2654435761u + (unsigned)i * 97u)
                    % 1000u)
            / 1000;
    return TRAIN_OK;
}

static train_decoder_config_t config_of (const char *name, int argc,
                                         char **argv)
{
    train_decoder_config_t c = {.size = sizeof (c),
                                .vocab = V,
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
    for (int i = 3; i < argc; i++) {
        if (strcmp (argv[i], "cheap") == 0)
            c.recompute = TRAIN_RECOMPUTE_CHEAP;
        if (strcmp (argv[i], "blocks") == 0)
            c.recompute = TRAIN_RECOMPUTE_BLOCKS;
    }
    return c;
}

static train_grpo_trainer_options_t options (int argc, char **argv)
{
    train_grpo_trainer_options_t o = {
        .size = sizeof (o),
        .trainer = {.size = sizeof (o.trainer),
                    .batch = PROMPTS * GROUP,
                    .micro_batch = 16,
                    .clip = 1,
                    .adamw = {.size = sizeof (o.trainer.adamw),
                              .beta1 = 0.9,
                              .beta2 = 0.999,
                              .eps = 1e-8,
                              .weight_decay = 0.01},
                    .schedule = {.size = sizeof (o.trainer.schedule),
                                 .kind = TRAIN_SCHEDULE_CONSTANT,
                                 .lr = 1e-6,
                                 .steps = 1000}},
        .group = GROUP,
        .max_new = NEW,
        .loss = {.size = sizeof (o.loss), .kind = TRAIN_GRPO_DAPO},
        .seed = 1,
    };

    for (int i = 3; i < argc; i++) {
        if (strcmp (argv[i], "old") == 0)
            o.iterations = 2;
        if (argv[i][0] == 'm' && number (argv[i] + 1) > 0)
            o.trainer.micro_batch = number (argv[i] + 1);
    }
    return o;
}

static size_t used (void)
{
    size_t there = 0, all = 0;

    cudaMemGetInfo (&there, &all);
    return all - there;
}

int main (int argc, char **argv)
{
    train_grpo_metrics_t m = {.size = sizeof (m)};
    const train_grpo_prompts_t prompts = {
        .size = sizeof (prompts), .count = PROMPTS, .ids = ids_of};
    train_grpo_trainer_options_t o;
    train_decoder_config_t c;
    train_decoder_t *decoder = NULL;
    train_group_t *group = NULL;
    train_grpo_trainer_t *t = NULL;
    train_error_t err = {0};
    size_t before, most = 0;
    int steps = argc > 2 ? number (argv[2]) : 0;

    if (steps < 1 || (c = config_of (argv[1], argc, argv)).layers == 0) {
        fprintf (stderr, "usage: grpo_bench 124m|350m|1b STEPS [old] [cheap] "
                         "[blocks] [mN]\n");
        return 2;
    }
    o = options (argc, argv);
    for (int i = 0; i < PROMPTS; i++)
        for (int j = 0; j < LENGTH; j++)
            prompt[i][j] = (int32_t)((unsigned)(i * LENGTH + j + 1)
                                     * 2654435761u % (unsigned)V);
    before = used ();
    need (train_group_create (NULL, &group, &err), &err);
    need (train_decoder_create (&c, &decoder, &err), &err);
    need (train_decoder_draw (decoder, 1, &err), &err);
    need (train_grpo_trainer_create (&o, group, &prompts, score, NULL, decoder,
                                     NULL, &t, &err),
          &err);
    for (int i = 0; i < steps; i++) {
        need (train_grpo_trainer_step (t, false, &m, &err), &err);
        if (used () > most)
            most = used ();
        printf ("step %d: rollout %.3f s (%.0f tok/s), rewards %.3f, logps "
                "%.3f, update %.3f, in all %.3f; loss %.5f, norm %.4f, "
                "entropy %.3f, ratio %.6f, length %.1f\n",
                i + 1, m.rollout_s,
                m.rollout_s > 0 ? (double)m.rollout_tokens / m.rollout_s : 0,
                m.reward_s, m.logps_s, m.update_s,
                m.rollout_s + m.reward_s + m.logps_s + m.update_s, m.base.loss,
                m.base.grad_norm, m.entropy, m.ratio, m.length);
        fflush (stdout);
    }
    printf ("%s: %.2f GiB\n", argv[1],
            (double)(most - before) / (1024.0 * 1024 * 1024));
    train_grpo_trainer_destroy (t);
    train_decoder_destroy (decoder);
    train_group_destroy (group);
    return 0;
}
