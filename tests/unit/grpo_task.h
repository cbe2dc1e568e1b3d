/* SPDX-License-Identifier: Apache-2.0
 * grpo_task.h - a task of one token for the loop of GRPO, and a run of it. */
#ifndef RV_TEST_GRPO_TASK_H
#define RV_TEST_GRPO_TASK_H

#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>

#include <cmocka.h>

#include <train/grpo_trainer.h>

/* A prompt is one of the first eight tokens; the token behind it is asked for,
 * and token END after it. */
enum { PROMPTS = 8, V = 12, END = 11 };

static const int32_t prompt[PROMPTS] = {0, 1, 2, 3, 4, 5, 6, 7};

static inline const int32_t *ids_of (void *arg, int64_t i, size_t *ret_n)
{
    (void)arg;
    *ret_n = 1;
    return &prompt[i];
}

static const train_grpo_prompts_t prompts = {
    .size = sizeof (prompts), .count = PROMPTS, .ids = ids_of, .hash = 8};

static inline train_status_t score (void *arg, const train_grpo_sample_t *s,
                                    int n, float *ret, train_error_t *err)
{
    (void)arg, (void)err;
    for (int i = 0; i < n; i++)
        ret[i] = s[i].ids[0] == (s[i].prompt + 1) % PROMPTS;
    return TRAIN_OK;
}

static const int32_t ends[] = {END};

static inline train_grpo_trainer_options_t options (void)
{
    return (train_grpo_trainer_options_t){
        .size = sizeof (train_grpo_trainer_options_t),
        .trainer = {.size = sizeof (train_trainer_options_t),
                    .batch = 64,
                    .clip = 1,
                    .adamw = {.size = sizeof (train_adamw_options_t),
                              .beta1 = 0.9,
                              .beta2 = 0.99,
                              .eps = 1e-8},
                    .schedule = {.size = sizeof (train_schedule_t),
                                 .kind = TRAIN_SCHEDULE_CONSTANT,
                                 .lr = 0.006,
                                 .steps = 1000}},
        .group = 8,
        .max_new = 3,
        .ends = ends,
        .n_ends = 1,
        .loss = {.size = sizeof (train_grpo_options_t),
                 .kind = TRAIN_GRPO_DAPO},
        .seed = 5,
        .shuffle = true,
    };
}

/* Of runs that are opened; zeros: no adapters. */
static train_lora_t adapters;
static int layers = 1;
static bool tie = true;

/* One run's parts; what scores is given the decoder. */
struct run {
    train_decoder_t *decoder;
    train_reference_t *reference;
    train_grpo_trainer_t *trainer;
};

/* In parts over [group], if there is one. */
static inline train_status_t open_reference (struct run *r,
                                             const train_decoder_config_t *c,
                                             train_group_t *group,
                                             train_error_t *err)
{
    const train_reference_units_options_t o = {
        .size = sizeof (o), .group = group, .seed = 3};

    if (c->lora.rank > 0)
        return train_reference_open_base (r->decoder, &r->reference, err);
    if (group)
        return train_reference_open_units (c, &o, &r->reference, err);
    return train_reference_open_copy (r->decoder, &r->reference, err);
}

static inline train_status_t open_run (
    struct run *r, const train_grpo_trainer_options_t *o, train_group_t *group,
    train_dtype_t dtype, train_grpo_score_t by, train_error_t *err)
{
    const train_decoder_config_t c = {.size = sizeof (c),
                                      .layers = layers,
                                      .dim = 16,
                                      .heads = 2,
                                      .kv_heads = 2,
                                      .ffn = 24,
                                      .vocab = V,
                                      .tie = tie,
                                      .rope_theta = 10000,
                                      .norm_eps = 1e-5,
                                      .dtype = dtype,
                                      .lora = adapters};
    bool bare = o->trainer.strategy >= TRAIN_SHARD_GRAD_OP;
    train_status_t status;

    *r = (struct run){0};
    status = bare ? train_decoder_create_bare (&c, &r->decoder, err)
                  : train_decoder_create (&c, &r->decoder, err);
    if (status == TRAIN_OK && !bare)
        train_decoder_init (r->decoder, 3);
    if (status == TRAIN_OK && o->loss.beta > 0)
        status = open_reference (r, &c, bare ? group : NULL, err);
    if (status == TRAIN_OK)
        status = train_grpo_trainer_create (o, group, &prompts, by, r->decoder,
                                            r->decoder, r->reference,
                                            &r->trainer, err);
    if (status == TRAIN_OK && bare)
        status =
            train_trainer_init (train_grpo_trainer_base (r->trainer), 3, err);
    return status;
}

static inline void close_run (struct run *r)
{
    train_grpo_trainer_destroy (r->trainer);
    train_reference_close (r->reference);
    train_decoder_destroy (r->decoder);
}

static inline train_grpo_metrics_t step (struct run *r)
{
    train_grpo_metrics_t m = {.size = sizeof (m)};
    train_error_t err = {0};

    if (train_grpo_trainer_step (r->trainer, false, &m, &err) != TRAIN_OK)
        fail_msg ("%s", err.text);
    return m;
}

#endif
