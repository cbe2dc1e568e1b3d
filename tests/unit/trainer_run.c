/* SPDX-License-Identifier: Apache-2.0
 * trainer_run.c - a folder, a text, a decoder of one layer, a trainer */
#include "config.h"

#include "trainer_run.h"

#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <setjmp.h>
#include <cmocka.h>
#include <stdio.h>
#include <stdlib.h>
#include <unistd.h>

#include "plan/fsio.h"

static char dir[] = "/tmp/test_trainer.XXXXXX";
train_group_t *group;

const train_trainer_options_t good = {
    .size = sizeof (train_trainer_options_t),
    .batch = 4,
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

const train_data_options_t text = {
    .size = sizeof (train_data_options_t),
    .files = "text",
    .seq = 16,
    .shuffle = true,
    .seed = 3,
};

void open_parts (struct run *r, train_dtype_t dtype, int dim,
                 const train_data_options_t *data)
{
    train_decoder_config_t c = {.size = sizeof (c),
                                .layers = 1,
                                .dim = dim,
                                .heads = 2,
                                .kv_heads = 2,
                                .ffn = 24,
                                .vocab = 256,
                                .tie = true,
                                .rope_theta = 10000,
                                .norm_eps = 1e-5,
                                .dtype = dtype};

    *r = (struct run){0};
    assert_int_equal (train_data_open (data, &r->data, NULL), 0);
    assert_int_equal (train_decoder_create (&c, &r->decoder, NULL), 0);
    train_decoder_init (r->decoder, 3);
}

struct run make (train_trainer_options_t o, train_dtype_t dtype)
{
    train_error_t err = {0};
    struct run r;

    open_parts (&r, dtype, 8, &text);
    if (train_trainer_create (&o, group, r.data, r.decoder, &r.trainer, &err)
        != TRAIN_OK)
        fail_msg ("%s", err.text);
    return r;
}

void drop (struct run *r)
{
    train_trainer_destroy (r->trainer);
    train_decoder_destroy (r->decoder);
    train_data_close (r->data);
}

int set_up (void **state)
{
    char line[] = "The quick brown fox number 000 jumps over the lazy dog.\n";
    FILE *f;

    (void)state;
    unsetenv ("RANK"); /* alone, wherever the test runs */
    setenv ("RV_BOOT", "single", 1);
    if (!mkdtemp (dir) || chdir (dir) < 0 || !(f = fopen ("text", "we"))
        || train_group_create (NULL, &group, NULL) != TRAIN_OK)
        return -1;
    for (int i = 0; i < 40; i++) {
        line[28] = (char)('0' + i / 10);
        line[29] = (char)('0' + i % 10);
        if (fputs (line, f) < 0)
            return -1;
    }
    return fclose (f);
}

int tear_down (void **state)
{
    (void)state;
    train_group_destroy (group);
    return chdir ("/") || fsio_remove_tree (dir, NULL);
}
