/* SPDX-License-Identifier: Apache-2.0
 * test_trainer.c - one rank's steps: refusals, passes, skips, resume */
#include "config.h"

#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <setjmp.h>
#include <cmocka.h>
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "plan/fsio.h"
#include "trainer_run.h"

static void refuse (train_trainer_options_t o, const char *word)
{
    struct run r;
    train_error_t err = {0};

    open_parts (&r, TRAIN_F32, 8, &text);
    assert_int_equal (
        train_trainer_create (&o, group, r.data, r.decoder, &r.trainer, &err),
        TRAIN_EINVAL);
    assert_null (r.trainer);
    if (!strstr (err.text, word))
        fail_msg ("'%s' does not say '%s'", err.text, word);
    drop (&r);
}

#define REFUSE(field, value, word)                                             \
    do {                                                                       \
        train_trainer_options_t o_ = good;                                     \
        o_.field = (value);                                                    \
        refuse (o_, word);                                                     \
    } while (0)

static void test_bad_arguments (void **state)
{
    train_trainer_t *t = NULL;

    (void)state;
    assert_int_equal (train_trainer_create (NULL, group, NULL, NULL, &t, NULL),
                      TRAIN_EINVAL);
    assert_int_equal (train_trainer_create (&good, group, NULL, NULL, &t, NULL),
                      TRAIN_EINVAL);
    assert_null (t);
    REFUSE (size, 1, "size");
    REFUSE (batch, 0, "batch 0");
    REFUSE (micro_batch, -1, "micro_batch -1");
    REFUSE (strategy, TRAIN_FULL_SHARD, "without arenas");
    REFUSE (strategy, (train_strategy_t)9, "no strategy 9");
    REFUSE (clip, -1.0, "clip");
    REFUSE (clip, (double)NAN, "clip");
    REFUSE (max_skips, -1, "max_skips");
    REFUSE (schedule.lr, 0.0, "lr");
    REFUSE (adamw.beta1, 2.0, "beta1");
    train_trainer_destroy (NULL);
}

static void take (struct run *r, int n, double *losses)
{
    for (int i = 0; i < n; i++) {
        train_metrics_t m;
        train_error_t err = {0};

        if (train_trainer_step (r->trainer, false, &m, &err) != TRAIN_OK)
            fail_msg ("%s", err.text);
        losses[i] = m.loss;
    }
}

static void test_metrics (void **state)
{
    struct run r = make (good, TRAIN_F64);
    train_metrics_t m = {0};

    (void)state;
    for (int i = 1; i <= 20; i++) {
        assert_int_equal (train_trainer_step (r.trainer, i == 7, &m, NULL),
                          TRAIN_OK);
        assert_int_equal (m.step, i);
        assert_int_equal (m.tokens, i * 4 * 16);
        assert_true (m.lr == train_schedule_lr (&good.schedule, i - 1));
        assert_true (m.grad_norm > 0 && m.step_s > 0);
        assert_int_equal (m.stop, i == 7);
        assert_false (m.skipped);
        if (i == 1)
            assert_true (fabs (m.loss - log (256)) < 0.1);
    }
    assert_true (m.loss < 5);
    assert_int_equal (train_trainer_steps (r.trainer), 20);
    drop (&r);
}

/* The same batch in one pass, in two and in four. */
static void test_passes (void **state)
{
    double want[6], got[6];
    train_trainer_options_t o = good;
    struct run r = make (o, TRAIN_F64);

    (void)state;
    take (&r, 6, want);
    drop (&r);
    for (o.micro_batch = 1; o.micro_batch <= 8; o.micro_batch *= 2) {
        r = make (o, TRAIN_F64);
        take (&r, 6, got);
        for (int i = 0; i < 6; i++)
            assert_true (fabs (got[i] - want[i]) < 1e-12);
        drop (&r);
    }
}

/* A mean over tokens: the first loss is that of the forward pass alone. */
static void test_loss_is_the_mean (void **state)
{
    struct run r = make (good, TRAIN_F64);
    int32_t tokens[4 * 16], targets[4 * 16];
    double sum, loss;
    int64_t n;

    (void)state;
    for (int i = 0; i < 4; i++)
        train_data_get (r.data, i, tokens + i * 16, targets + i * 16);
    assert_int_equal (train_decoder_forward (r.decoder, NULL, tokens, targets,
                                             4, 16, &sum, &n, NULL),
                      TRAIN_OK);
    take (&r, 1, &loss);
    assert_true (fabs (loss - sum / (double)n) < 1e-12);
    drop (&r);
}

static void test_skips (void **state)
{
    struct run r = make (good, TRAIN_F32);
    double losses[2];
    float *w = train_decoder_weights (r.decoder)->data, was = w[5];
    train_metrics_t m;
    train_error_t err = {0};

    (void)state;
    take (&r, 2, losses);
    was = w[5];
    for (int i = 0; i < 2; i++) {
        w[5] = NAN;
        assert_int_equal (train_trainer_step (r.trainer, false, &m, NULL), 0);
        assert_true (m.skipped && m.n_skips == i + 1);
        assert_int_equal (m.step, 3 + i);
    }
    w[5] = was; /* nothing else was touched: it goes on, the row is over */
    assert_int_equal (train_trainer_step (r.trainer, false, &m, NULL), 0);
    assert_true (!m.skipped && m.n_skips == 2 && isfinite (m.loss));
    w[5] = INFINITY;
    for (int i = 0; i < 2; i++)
        assert_int_equal (train_trainer_step (r.trainer, false, &m, NULL), 0);
    assert_int_equal (train_trainer_step (r.trainer, false, &m, &err),
                      TRAIN_ENONFINITE);
    assert_non_null (strstr (err.text, "3 steps in a row"));
    drop (&r);
}

static bool same_bits (DLTensor *a, DLTensor *b)
{
    return memcmp (a->data, b->data, train_tensor_bytes (a)) == 0;
}

/* Ten steps, and five, saved, loaded by a new trainer, five: the same bits. */
static void resume (train_dtype_t dtype, const char *to)
{
    struct run a = make (good, dtype), b = make (good, dtype), c;
    double straight[10], halves[10];
    train_metrics_t m, n;

    take (&a, 10, straight);
    take (&b, 5, halves);
    assert_int_equal (train_trainer_save (b.trainer, to, 1, NULL), TRAIN_OK);
    take (&b, 1, halves + 5); /* what is saved does not follow */
    drop (&b);
    c = make (good, dtype);
    take (&c, 2, halves + 5);
    assert_int_equal (train_trainer_load (c.trainer, to, NULL), TRAIN_OK);
    assert_int_equal (train_trainer_steps (c.trainer), 5);
    take (&c, 5, halves + 5);
    assert_memory_equal (straight, halves, sizeof (straight));
    assert_true (same_bits (train_decoder_weights (a.decoder),
                            train_decoder_weights (c.decoder)));
    /* m and v, seen through the next updates */
    for (int i = 0; i < 2; i++) {
        assert_int_equal (train_trainer_step (a.trainer, false, &m, NULL), 0);
        assert_int_equal (train_trainer_step (c.trainer, false, &n, NULL), 0);
        assert_int_equal (m.tokens, n.tokens);
    }
    assert_true (same_bits (train_decoder_weights (a.decoder),
                            train_decoder_weights (c.decoder)));
    drop (&a);
    drop (&c);
}

static void test_resume (void **state)
{
    (void)state;
    resume (TRAIN_F32, "f32");
    resume (TRAIN_F64, "f64");
}

/* Where nothing is rounded as it is gathered, that is said, not left out. */
static void test_round_late (void **state)
{
    train_trainer_options_t o = good;
    train_error_t err = {0};
    struct run r;

    (void)state;
    o.round_late = true;
    for (int i = 0; i < 2; i++) {
        open_parts (&r, i ? TRAIN_BF16 : TRAIN_F32, 8, &text);
        o.strategy = i ? TRAIN_DDP : TRAIN_NO_SHARD;
        assert_int_equal (train_trainer_create (&o, group, r.data, r.decoder,
                                                &r.trainer, &err),
                          TRAIN_EINVAL);
        assert_non_null (strstr (err.text, "shards nothing"));
        drop (&r);
    }
    open_parts (&r, TRAIN_F32, 8, &text);
    train_decoder_config_t c = *train_decoder_config (r.decoder);
    train_decoder_destroy (r.decoder);
    assert_int_equal (train_decoder_create_bare (&c, &r.decoder, NULL), 0);
    o.strategy = TRAIN_FULL_SHARD;
    assert_int_equal (
        train_trainer_create (&o, group, r.data, r.decoder, &r.trainer, &err),
        TRAIN_EINVAL);
    assert_non_null (strstr (err.text, "BF16 and F16 are"));
    drop (&r);
}

/* Another run's checkpoint: every difference by name, and no step taken. */
static void test_other_run (void **state)
{
    struct run r = make (good, TRAIN_F32);
    train_trainer_options_t o = good;
    train_data_options_t d = text;
    train_error_t err = {0};

    (void)state;
    assert_int_equal (train_trainer_save (r.trainer, "run", 1, NULL), 0);
    drop (&r);
    d.seq = 8;
    d.seed = 4;
    d.shuffle = false;
    d.files = "text,text2";
    assert_int_equal (fsio_write ("text2", "more", 4, 0600, NULL), 0);
    o.batch = 2;
    open_parts (&r, TRAIN_F32, 8, &d);
    assert_int_equal (
        train_trainer_create (&o, group, r.data, r.decoder, &r.trainer, NULL),
        TRAIN_OK);
    assert_int_equal (train_trainer_load (r.trainer, "run", &err),
                      TRAIN_EINVAL);
    assert_non_null (strstr (err.text,
                             "seq is 16 there and 8 here, batch is 4 there and "
                             "2 here, seed is 3 there and 4 here, shuffle is 1 "
                             "there and 0 here, the XXH3 of the text, and "
                             "of what is held out, differs"));
    drop (&r);
    open_parts (&r, TRAIN_F32, 12, &text);
    assert_int_equal (train_trainer_create (&good, group, r.data, r.decoder,
                                            &r.trainer, NULL),
                      TRAIN_OK);
    assert_int_equal (train_trainer_load (r.trainer, "run", &err),
                      TRAIN_EINVAL);
    assert_non_null (strstr (err.text, "dim is 8 there and 12 here"));
    assert_int_equal (train_trainer_load (r.trainer, "none", &err),
                      TRAIN_ENOTFOUND);
    drop (&r);
}

int main (void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test (test_bad_arguments),
        cmocka_unit_test (test_metrics),
        cmocka_unit_test (test_passes),
        cmocka_unit_test (test_loss_is_the_mean),
        cmocka_unit_test (test_skips),
        cmocka_unit_test (test_resume),
        cmocka_unit_test (test_other_run),
        cmocka_unit_test (test_round_late),
    };

    return cmocka_run_group_tests_name ("trainer", tests, set_up, tear_down);
}
