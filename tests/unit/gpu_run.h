/* SPDX-License-Identifier: Apache-2.0
 * gpu_run.h - a trainer of two layers by the step of one device, here the host, or
 * by the engine's; for one test program, static */
#ifndef GPU_RUN_H
#define GPU_RUN_H

#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <cmocka.h>
#include <string.h>

#include <train/trainer.h>

#include "trainer.h"
#include "trainer_run.h"

static bool lines; /* units of whole lines, whose gradients can lend */

/* In passes of two rows. */
static train_trainer_options_t in_passes (void)
{
    train_trainer_options_t o = good;

    o.batch = 5;
    o.micro_batch = 2;
    return o;
}

static const train_scaler_options_t scaler = {
    .size = sizeof (train_scaler_options_t), .init = 1024, .interval = 4};

static struct run make_two (train_trainer_options_t o, train_dtype_t dtype)
{
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
