/* SPDX-License-Identifier: Apache-2.0
 * shard_run.c - a text, a decoder of two layers on a made-up GPU, a trainer */
#include "own_dir.h"

#include <unistd.h>

#include <train/watch.h>

#include "fake_decoder.h"
#include "libtrain/group_impl.h"
#include "shard_run.h"

static const train_scaler_options_t scaler = {
    .size = sizeof (scaler), .init = 1 << 21, .interval = 100};

struct shard_run run = {.prefetch = 1};

train_trainer_options_t options (train_group_t *gpus)
{
    return (train_trainer_options_t){
        .size = sizeof (train_trainer_options_t),
        .batch = 5,
        .micro_batch = 2,
        .clip = 1,
        .adamw = {.size = sizeof (train_adamw_options_t),
                  .beta1 = 0.9,
                  .beta2 = 0.95,
                  .eps = 1e-8,
                  .weight_decay = 0.1,
                  .stochastic = run.stochastic,
                  .seed = 5},
        .schedule = {.size = sizeof (train_schedule_t),
                     .kind = TRAIN_SCHEDULE_COSINE,
                     .lr = 0.01,
                     .warmup = 2,
                     .steps = 20},
        .strategy = run.strategy,
        .prefetch = run.prefetch,
        .scaler = run.dtype == TRAIN_F16 ? &scaler : NULL,
        .device_group = gpus,
        .offload = run.offload,
        .offload_weights = run.weights,
        .frozen = run.frozen,
    };
}

train_status_t parts (struct made *m, train_error_t *err)
{
    const train_data_options_t text = {.size = sizeof (text),
                                       .files = "text",
                                       .seq = 8,
                                       .shuffle = true,
                                       .seed = 3};
    train_decoder_config_t c = {.size = sizeof (c),
                                .layers = 2,
                                .dim = 8,
                                .heads = 2,
                                .kv_heads = 1,
                                .ffn = 24,
                                .vocab = 256,
                                .tie = true,
                                .rope_theta = 10000,
                                .norm_eps = 1e-5,
                                .dtype = run.dtype,
                                .lora = run.lora};
    train_status_t status = train_data_open (&text, &m->data, err);

    if (status == TRAIN_OK)
        status = run.strategy >= TRAIN_SHARD_GRAD_OP
                     ? train_decoder_create_bare (&c, &m->decoder, err)
                     : train_decoder_create (&c, &m->decoder, err);
    return status;
}

void drop (struct made *m)
{
    train_trainer_destroy (m->trainer);
    train_decoder_destroy (m->decoder);
    train_data_close (m->data);
}

train_status_t assemble (struct made *m, train_group_t *host,
                         train_group_t *gpus, train_error_t *err)
{
    train_trainer_options_t o = options (gpus);
    train_status_t status = parts (m, err);

    if (status == TRAIN_OK)
        status = fake_decoder_move (m->decoder, gpus->where.device, err);
    if (status == TRAIN_OK)
        status = train_trainer_create (&o, host, m->data, m->decoder,
                                       &m->trainer, err);
    if (status == TRAIN_OK)
        fake_decoder_hook (m->decoder);
    return status;
}

train_status_t begin (struct made *m, train_group_t *host, train_group_t *gpus,
                      train_error_t *err)
{
    train_status_t status = assemble (m, host, gpus, err);

    if (status != TRAIN_OK)
        return status;
    return run.loads ? train_trainer_load (m->trainer, "ckpt", err)
                     : train_trainer_init (m->trainer, 3, err);
}

train_status_t evaluate (const struct made *m, double *ret, train_error_t *err)
{
    const train_eval_options_t o = {
        .size = sizeof (o), .data = m->data, .samples = 5, .rows = 2};
    train_eval_t got = {0};
    train_status_t status = train_trainer_eval (m->trainer, &o, &got, err);

    *ret = got.loss;
    return status;
}

void refuse_on_host (const char *why)
{
    train_group_t *group = NULL;
    train_error_t err = {0};
    struct made m = {0};
    train_trainer_options_t o;

    unsetenv ("RANK");
    setenv ("RV_BOOT", "single", 1);
    assert_int_equal (train_group_create (NULL, &group, NULL), 0);
    assert_int_equal (parts (&m, NULL), 0);
    o = options (NULL);
    assert_int_equal (
        train_trainer_create (&o, group, m.data, m.decoder, &m.trainer, &err),
        TRAIN_EINVAL);
    assert_non_null (strstr (err.text, why));
    drop (&m);
    train_group_destroy (group);
    unsetenv ("RV_BOOT");
}

int set_up (void **state)
{
    FILE *f;

    if (make_dir (state) < 0 || chdir (dir) < 0 || !(f = fopen ("text", "we")))
        return -1;
    for (int i = 0; i < 40; i++)
        if (fprintf (f, "The quick brown fox number %03d jumps over.\n", i) < 0)
            return -1;
    return fclose (f);
}

int tear_down (void **state)
{
    return chdir ("/") || remove_dir (state);
}
