/* SPDX-License-Identifier: Apache-2.0
 * test_decoder_spent.c - gradients that a step writes instead of adds to, and
 * whose memory holds activations before */
#include "config.h"

#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdlib.h>
#include <string.h>

#include <cmocka.h>

#include "decoder_impl.h"

#define B 2
#define T 8

static int32_t tokens[B * T], targets[B * T];

/* Units of whole lines of 256 bytes, so that their gradients can lend. */
static train_decoder_config_t config (train_dtype_t dtype, bool tie, int how)
{
    return (train_decoder_config_t){
        .size = sizeof (train_decoder_config_t),
        .layers = 3,
        .dim = 64,
        .heads = 4,
        .kv_heads = 2,
        .ffn = 64,
        .vocab = 64,
        .tie = tie,
        .rope_theta = 100.0,
        .norm_eps = 1e-5,
        .dtype = dtype,
        .recompute = (train_recompute_t)how,
    };
}

static train_decoder_t *make (const train_decoder_config_t *c)
{
    train_decoder_t *m = NULL;
    train_error_t err = {0};

    if (train_decoder_create (c, &m, &err) != TRAIN_OK)
        fail_msg ("%s", err.text);
    train_decoder_init (m, 11);
    return m;
}

static double step (train_decoder_t *m)
{
    train_error_t err = {0};
    double loss;
    int64_t n;

    if (train_decoder_step (m, tokens, targets, B, T, 1.0 / 16, &loss, &n, &err)
        != TRAIN_OK)
        fail_msg ("%s", err.text);
    return loss;
}

static double forward (train_decoder_t *m)
{
    train_error_t err = {0};
    double loss;
    int64_t n;

    if (train_decoder_forward (m, NULL, tokens, targets, B, T, &loss, &n, &err)
        != TRAIN_OK)
        fail_msg ("%s", err.text);
    return loss;
}

/* What nobody may read. */
static void poison (train_decoder_t *m)
{
    memset (train_decoder_grads (m)->data, 0xff,
            train_tensor_bytes (train_decoder_grads (m)));
}

static void same_grads (train_decoder_t *a, train_decoder_t *b)
{
    assert_memory_equal (train_decoder_grads (a)->data,
                         train_decoder_grads (b)->data,
                         train_tensor_bytes (train_decoder_grads (a)));
}

/* Of one configuration: with zeros, written over poison, and with activations
 * lent; then one more step, which adds. */
static void compare (const train_decoder_config_t *c)
{
    train_decoder_t *plain = make (c), *over = make (c), *lent = make (c);
    double loss = step (plain);

    poison (over);
    decoder_spend_grads (over, false);
    assert_true (step (over) == loss);
    assert_int_equal (over->layout.lent, 0);
    same_grads (plain, over);
    poison (lent);
    decoder_spend_grads (lent, true);
    assert_true (forward (lent) == forward (plain)); /* ends nothing */
    assert_true (step (lent) == loss);
    assert_true (lent->layout.lent > 0);
    assert_true (lent->layout.bytes < plain->layout.bytes);
    same_grads (plain, lent);
    step (plain);
    assert_true (step (lent) == loss);
    assert_int_equal (lent->layout.lent, 0);
    same_grads (plain, lent);
    train_decoder_destroy (plain);
    train_decoder_destroy (over);
    train_decoder_destroy (lent);
}

static void test_lent (void **state)
{
    static const train_dtype_t dtypes[] = {TRAIN_F32, TRAIN_F64, TRAIN_BF16};

    (void)state;
    for (int i = 0; i < 3 * 2 * 3; i++) {
        train_decoder_config_t c =
            config (dtypes[i / 6], i / 3 % 2 == 1, i % 3);

        compare (&c);
    }
}

/* The stream into block l lies in gradients of the units below that block's;
 * where the head is tied, and unit 0's are not lent, not block 0's. */
static void test_places (void **state)
{
    (void)state;
    for (int tie = 0; tie < 2; tie++) {
        train_decoder_config_t c = config (TRAIN_BF16, tie, 0);
        train_decoder_t *m = make (&c);
        const char *grads = train_decoder_grads (m)->data;

        decoder_spend_grads (m, true);
        step (m);
        for (size_t l = 0; l <= m->dims.L; l++) {
            const char *at = decoder_act (m, m->layout.x, l);
            size_t first = m->units[tie].first, end = m->units[l + 1].first;

            assert_int_equal (at >= grads + first * sizeof (float)
                                  && at + (size_t)B * T * m->dims.C * 2
                                         <= grads + end * sizeof (float),
                              l > 0 || tie == 0);
        }
        train_decoder_destroy (m);
    }
}

/* What a backward that is over leaves of a loan is others': they write there. */
struct lender {
    char *memory;
    const size_t *until;
};

static train_status_t take_back (void *arg, size_t unit, bool backward,
                                 train_error_t *err)
{
    const struct lender *l = arg;
    size_t from = unit > 1 ? l->until[unit - 2] : 0;

    (void)err;
    if (backward && unit >= 1 && l->until[unit - 1] > from)
        memset (l->memory + from, 0xff, l->until[unit - 1] - from);
    return TRAIN_OK;
}

/* Initial values are drawn once: that takes longer than a step. */
static train_decoder_t *make_like (const train_decoder_config_t *c,
                                   train_decoder_t *other)
{
    train_decoder_t *m = NULL;
    train_error_t err = {0};

    if (train_decoder_create (c, &m, &err) != TRAIN_OK)
        fail_msg ("%s", err.text);
    memcpy (train_decoder_weights (m)->data,
            train_decoder_weights (other)->data,
            train_tensor_bytes (train_decoder_weights (m)));
    return m;
}

/* Is every byte 0xff? */
static bool untouched (const char *memory, size_t n)
{
    return n == 0
           || (memory[0] == (char)0xff
               && memcmp (memory, memory + 1, n - 1) == 0);
}

/* A loan that somebody else gives: what of an embedding and each block is used is
 * never read again once its backward is over, and nothing behind it is touched. */
static void test_given_loan (void **state)
{
    static const size_t sizes[] = {0, 256, 1024, 5120, 40000, 100000};
    static char memory[1 << 20] __attribute__ ((aligned (256)));
    int heads = 0;

    (void)state;
    for (int i = 0; i < 2 * 2 * 3 * 36; i++) {
        train_decoder_config_t c =
            config (i % 2 ? TRAIN_F32 : TRAIN_BF16, i / 2 % 2, i / 4 % 3);
        train_decoder_t *plain, *m;
        size_t until[4], embed = sizes[i / 12 % 6], block = sizes[i / 72];
        struct lender lender = {memory, until};
        const struct decoder_hooks hooks = {NULL, take_back, &lender};

        c.vocab = i % 5 ? 64 : 2048; /* the head works in more than blocks */
        plain = make (&c);
        m = make_like (&c, plain);
        for (size_t l = 0; l < 4; l++)
            until[l] = embed + (l + 1) * block;
        memset (memory, 0xff, sizeof (memory));
        poison (m);
        decoder_set_loan (m, memory, until);
        decoder_set_hooks (m, &hooks);
        decoder_spend_grads (m, true);
        assert_true (step (m) == step (plain));
        same_grads (plain, m);
        if (block >= 5120)
            assert_true (m->layout.lent > 0);
        heads += m->layout.logits.lent > 0;
        assert_true (untouched (memory + m->layout.lent,
                                sizeof (memory) - m->layout.lent));
        decoder_set_hooks (m, NULL);
        decoder_set_loan (m, NULL, NULL);
        decoder_spend_grads (m, true);
        assert_true (step (m) == step (plain));
        train_decoder_destroy (plain);
        train_decoder_destroy (m);
    }
    assert_true (heads > 0);
}

/* Steps that alternate with and without keep their arena, and a batch too large
 * for the gradients keeps its arrays where they were. */
static void test_room (void **state)
{
    train_decoder_config_t c = config (TRAIN_F32, false, 0);
    train_decoder_t *m = make (&c);
    size_t bytes;

    (void)state;
    decoder_spend_grads (m, true);
    step (m);
    bytes = m->acts_bytes;
    decoder_spend_grads (m, true);
    step (m);
    assert_int_equal (m->acts_bytes, bytes);
    step (m);
    assert_true (m->acts_bytes > bytes);
    assert_true (m->layout.lent == 0);
    train_decoder_destroy (m);
}

static void test_settle (void **state)
{
    train_decoder_config_t c = config (TRAIN_F32, false, 0);
    train_decoder_t *m = make (&c);
    const float *g = train_decoder_grads (m)->data;
    train_error_t err = {0};

    (void)state;
    poison (m);
    decoder_spend_grads (m, false);
    assert_int_equal (decoder_settle_grads (m, &err), TRAIN_OK);
    for (size_t i = 0; i < train_decoder_numel (m); i++)
        assert_true (g[i] == 0);
    step (m);
    assert_int_equal (decoder_settle_grads (m, &err), TRAIN_OK);
    assert_true (g[m->norm_f] != 0); /* not spent: they stay */
    train_decoder_destroy (m);
}

/* A model that only looks has no gradients; they come with the first backward,
 * or who asks for them, and are of zeros. */
static void test_none_before (void **state)
{
    (void)state;
    for (int k = 0; k < 2; k++) {
        train_decoder_config_t c = config (k ? TRAIN_BF16 : TRAIN_F32, k, 0);
        train_decoder_t *m = make (&c), *asked = make (&c), *early = make (&c);
        const float *g;
        double loss;

        decoder_spend_grads (early, true); /* of rooms that are not there */
        loss = forward (early);
        assert_null (early->grads.t.data);
        assert_true (forward (m) == loss);
        assert_null (m->grads.t.data);
        assert_null (m->places[1].grads);
        loss = step (m);
        assert_true (step (early) == loss);
        assert_non_null (m->grads.t.data);
        g = train_decoder_grads (asked)->data;
        for (size_t i = 0; i < asked->numel; i++)
            assert_true (g[i] == 0);
        assert_true (step (asked) == loss);
        same_grads (asked, m);
        same_grads (early, m);
        train_decoder_destroy (m);
        train_decoder_destroy (asked);
        train_decoder_destroy (early);
    }
}

int main (void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test (test_lent),       cmocka_unit_test (test_places),
        cmocka_unit_test (test_given_loan), cmocka_unit_test (test_room),
        cmocka_unit_test (test_settle),     cmocka_unit_test (test_none_before),
    };

    for (int i = 0; i < B * T; i++) {
        tokens[i] = i * 7 % 64;
        targets[i] = i % 5 == 0 ? -1 : i * 11 % 64;
    }
    return cmocka_run_group_tests (tests, NULL, NULL);
}
