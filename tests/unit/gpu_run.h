/* SPDX-License-Identifier: Apache-2.0
 * gpu_run.h - a small trainer by the step of one device, here the host, or by the
 * engine's, in a folder of its own; for one test program, static */
#ifndef GPU_RUN_H
#define GPU_RUN_H

#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <cmocka.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include <train/trainer.h>

#include "plan/fsio.h"
#include "trainer.h"

static char dir[] = "/tmp/test_trainer_gpu.XXXXXX";
static train_group_t *group;
static bool lines; /* units of whole lines, whose gradients can lend */

struct run {
    train_data_t *data;
    train_decoder_t *decoder;
    train_trainer_t *trainer;
};

static const train_trainer_options_t good = {
    .size = sizeof (train_trainer_options_t),
    .batch = 5,
    .micro_batch = 2,
    .clip = 1,
    .max_skips = 3,
    .adamw = {.size = sizeof (train_adamw_options_t),
              .beta1 = 0.9,
              .beta2 = 0.95,
              .eps = 1e-8,
              .weight_decay = 0.1},
    .schedule = {.size = sizeof (train_schedule_t),
                 .kind = TRAIN_SCHEDULE_COSINE,
                 .lr = 0.01,
                 .warmup = 2,
                 .steps = 20},
};

static const train_scaler_options_t scaler = {
    .size = sizeof (train_scaler_options_t), .init = 1024, .interval = 4};

static struct run make (train_trainer_options_t o, train_dtype_t dtype)
{
    const train_data_options_t text = {.size = sizeof (text),
                                       .files = "text",
                                       .seq = 16,
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
                                .dtype = dtype};
    train_error_t err = {0};
    struct run r = {0};

    if (o.frozen && strcmp (o.frozen, "lora") == 0) {
        o.frozen = NULL;
        c.lora = (train_lora_t){.rank = 2, .alpha = 4, .targets = 0x7f};
    }
    if (lines)
        c.dim = c.ffn = 64;
    assert_int_equal (train_data_open (&text, &r.data, NULL), 0);
    assert_int_equal (train_decoder_create (&c, &r.decoder, NULL), 0);
    if (train_trainer_create (&o, group, r.data, r.decoder, &r.trainer, &err)
            != TRAIN_OK
        || train_trainer_init (r.trainer, 3, &err) != TRAIN_OK)
        fail_msg ("%s", err.text);
    return r;
}

static void drop (struct run *r)
{
    train_trainer_destroy (r->trainer);
    train_decoder_destroy (r->decoder);
    train_data_close (r->data);
}

static int set_up (void **state)
{
    FILE *f;

    (void)state;
    unsetenv ("RANK"); /* alone, wherever the test runs */
    setenv ("RV_BOOT", "single", 1);
    if (!mkdtemp (dir) || chdir (dir) < 0 || !(f = fopen ("text", "we"))
        || train_group_create (NULL, &group, NULL) != TRAIN_OK)
        return -1;
    for (int i = 0; i < 40; i++)
        if (fprintf (f, "The quick brown fox number %03d jumps over.\n", i) < 0)
            return -1;
    return fclose (f);
}

static int tear_down (void **state)
{
    (void)state;
    train_group_destroy (group);
    return chdir ("/") || fsio_remove_tree (dir, NULL);
}

static int use_device (void **state)
{
    (void)state;
    trainer_gpu_always (true);
    return 0;
}

static int use_engine (void **state)
{
    (void)state;
    trainer_gpu_always (false);
    return 0;
}

static train_metrics_t steps (struct run *r, int n)
{
    train_metrics_t m = {0};
    train_error_t err = {0};

    for (int i = 0; i < n; i++)
        if (train_trainer_step (r->trainer, false, &m, &err) != TRAIN_OK)
            fail_msg ("%s", err.text);
    return m;
}

static bool same_bits (const DLTensor *a, const DLTensor *b)
{
    return train_tensor_bytes (a) == train_tensor_bytes (b)
           && memcmp (a->data, b->data, train_tensor_bytes (a)) == 0;
}

/* Masters too, where they are not what a trainer calls its weights. */
static bool same (struct run *a, struct run *b)
{
    const DLTensor *x = train_adamw_masters (a->trainer->adamw);
    const DLTensor *y = train_adamw_masters (b->trainer->adamw);

    return (!x || !y || same_bits (x, y))
           && same_bits (train_trainer_weights (a->trainer),
                         train_trainer_weights (b->trainer))
           && same_bits (train_trainer_m (a->trainer),
                         train_trainer_m (b->trainer))
           && same_bits (train_trainer_v (a->trainer),
                         train_trainer_v (b->trainer))
           && same_bits (train_decoder_weights (a->decoder),
                         train_decoder_weights (b->decoder));
}

#endif
