/* SPDX-License-Identifier: Apache-2.0
 * test_decoder_rope.c - tables of the rotation: sent when they change, and what
 * a batch finds is what a new decoder would have */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <cmocka.h>

#include <string.h>

#include "libtrain/decoder_impl.h"
#include "small_decoder.h"

static const struct backend_ops *host;
static int n_copies, fail_at;

static train_status_t counted (void *dst, const void *src, size_t bytes,
                               void *stream, train_error_t *err)
{
    return ++n_copies == fail_at ? TRAIN_EDEVICE
                                 : host->copy (dst, src, bytes, stream, err);
}

/* A decoder of the host that sends its tables as one of a GPU does. */
static train_decoder_t *sender (train_decoder_config_t *c,
                                struct backend_ops *ops)
{
    train_decoder_t *m = decoder_of (c);

    host = m->ops;
    *ops = *m->ops;
    ops->copy = counted;
    m->ops = ops;
    m->gpu = true;
    n_copies = fail_at = 0;
    return m;
}

/* How often a batch of (B,T) copied; its tables are those of its T. */
static int copies (train_decoder_t *m, int B, int T)
{
    size_t bytes = (size_t)T * m->dims.D / 2 * sizeof (double);
    double cosine[256], sine[256];
    train_error_t err = {0};
    int before = n_copies;

    assert_true (bytes <= sizeof (cosine));
    if (decoder_prepare (m, B, T, &err) != TRAIN_OK)
        fail_msg ("%s", err.text);
    decoder_rope_tables (m, (size_t)T, cosine, sine);
    assert_memory_equal (decoder_act (m, m->layout.cosine, 0), cosine, bytes);
    assert_memory_equal (decoder_act (m, m->layout.sine, 0), sine, bytes);
    return n_copies - before;
}

static void test_sent (void **state)
{
    train_decoder_config_t c = small;
    struct backend_ops ops;
    train_decoder_t *m = sender (&c, &ops);

    (void)state;
    assert_int_equal (copies (m, 4, 8), 2);
    for (int i = 0; i < 3; i++) { /* steps whose last micro-batch is smaller */
        assert_int_equal (copies (m, 1, 8), 0);
        assert_int_equal (copies (m, 4, 8), 0);
        assert_int_equal (copies (m, 2, 5), 0);
    }
    assert_int_equal (copies (m, 1, 16), 2); /* more positions */
    assert_int_equal (copies (m, 4, 8), 2);  /* which leave no room for these */
    assert_int_equal (copies (m, 9, 8), 2);  /* another arena */
    assert_int_equal (copies (m, 3, 8), 0);
    train_decoder_destroy (m);
}

/* Rates that follow from how many positions there are. */
static void test_dynamic (void **state)
{
    train_decoder_config_t c = small;
    struct backend_ops ops;
    train_decoder_t *m;

    (void)state;
    c.rope = (train_rope_t){.kind = TRAIN_ROPE_DYNAMIC, .factor = 2};
    c.rope.original = 6;
    m = sender (&c, &ops);
    assert_int_equal (copies (m, 4, 8), 2);
    assert_int_equal (copies (m, 1, 8), 0);
    assert_int_equal (copies (m, 1, 7), 2);
    assert_int_equal (copies (m, 1, 6), 2);
    assert_int_equal (copies (m, 2, 5), 0);
    train_decoder_destroy (m);
}

static void test_not_sent (void **state)
{
    train_decoder_config_t c = small;
    struct backend_ops ops;
    train_decoder_t *m = sender (&c, &ops);

    (void)state;
    assert_int_equal (copies (m, 4, 8), 2);
    fail_at = n_copies + 1;
    assert_int_equal (decoder_prepare (m, 1, 16, NULL), TRAIN_EDEVICE);
    fail_at = 0;
    assert_int_equal (copies (m, 2, 8), 2);
    train_decoder_destroy (m);
}

static double loss_of (train_decoder_t *m, int B, int T)
{
    int32_t tokens[64], targets[64];
    train_error_t err = {0};
    double loss = 0;
    int64_t n = 0;

    for (int i = 0; i < B * T; i++) {
        tokens[i] = i * 5 % small.vocab;
        targets[i] = i * 7 % small.vocab;
    }
    if (train_decoder_forward (m, NULL, tokens, targets, B, T, &loss, &n, &err)
        != TRAIN_OK)
        fail_msg ("%s", err.text);
    return loss;
}

/* On the host nothing is sent; the numbers are those of a decoder that saw no
 * other batch. */
static void test_same (void **state)
{
    static const train_rope_t rope[] = {
        {.kind = TRAIN_ROPE_DEFAULT},
        {.kind = TRAIN_ROPE_DYNAMIC, .factor = 3, .original = 6},
        {TRAIN_ROPE_YARN, 4, 16, 1, 32, 1.25, true},
    };
    static const int shapes[][2] = {{4, 8}, {1, 8},  {4, 8}, {3, 5},
                                    {2, 7}, {1, 16}, {4, 8}, {8, 8}};

    (void)state;
    for (size_t r = 0; r < 3; r++) {
        train_decoder_config_t c = small;
        train_decoder_t *m;

        c.rope = rope[r];
        m = decoder_of (&c);
        train_decoder_init (m, 7);
        for (size_t i = 0; i < sizeof (shapes) / sizeof (*shapes); i++) {
            train_decoder_t *one = decoder_of (&c);
            int B = shapes[i][0], T = shapes[i][1];

            train_decoder_init (one, 7);
            assert_true (loss_of (m, B, T) == loss_of (one, B, T));
            train_decoder_destroy (one);
        }
        train_decoder_destroy (m);
    }
}

int main (void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test (test_sent),
        cmocka_unit_test (test_dynamic),
        cmocka_unit_test (test_not_sent),
        cmocka_unit_test (test_same),
    };

    return cmocka_run_group_tests_name ("decoder_rope", tests, NULL, NULL);
}
