/* SPDX-License-Identifier: Apache-2.0
 * test_decoder_dropout.c - a decoder's dropout: its gradient against differences,
 * the same masks however a batch is split, recomputed or stored */
#include <math.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>
#include <stdlib.h>
#include <string.h>

#include <cmocka.h>

#include "small_decoder.h"

#define B 3
#define T 5

static int32_t tokens[B * T], targets[B * T];

static train_decoder_t *make (train_dtype_t dtype, train_recompute_t recompute)
{
    train_decoder_config_t config = small;
    train_decoder_t *m;

    config.dtype = dtype;
    config.recompute = recompute;
    m = decoder_of (&config);
    train_decoder_init (m, 5);
    for (size_t i = 0; dtype == TRAIN_F64 && i < train_decoder_numel (m); i++)
        ((double *)train_decoder_weights (m)->data)[i] *= 5;
    for (int32_t i = 0; i < B * T; i++) {
        tokens[i] = (i * 7 + 3) % 11;
        targets[i] = (i * 5 + 1) % 11;
    }
    return m;
}

/* Rows [row] to [row] + n of the batch, gradients added. */
static double step (train_decoder_t *m, double rate, uint64_t at, int row,
                    int n)
{
    train_error_t err = {0};
    double loss = 0;
    int64_t counted;

    if (train_decoder_dropout (m, rate, 9, at, row, &err) != TRAIN_OK
        || train_decoder_step (m, tokens + row * T, targets + row * T, n, T,
                               0.25, &loss, &counted, &err)
               != TRAIN_OK)
        fail_msg ("%s", err.text);
    return loss;
}

static double off (train_decoder_t *a, train_decoder_t *b)
{
    const double *x = train_decoder_grads (a)->data;
    const double *y = train_decoder_grads (b)->data;
    double diff = 0, norm = 0;

    for (size_t i = 0; i < train_decoder_numel (a); i++) {
        diff += (x[i] - y[i]) * (x[i] - y[i]);
        norm += y[i] * y[i];
    }
    return sqrt (diff / norm);
}

static double moved (train_decoder_t *m, double *w, double by)
{
    double keep = *w, loss;
    int64_t n;

    *w = keep + by;
    assert_int_equal (
        train_decoder_forward (m, NULL, tokens, targets, B, T, &loss, &n, NULL),
        TRAIN_OK);
    *w = keep;
    return loss;
}

static void test_gradient (void **state)
{
    static const double h = 1e-4;
    train_decoder_t *m = make (TRAIN_F64, TRAIN_RECOMPUTE_NOTHING);
    double *w = train_decoder_weights (m)->data;
    double *g = train_decoder_grads (m)->data, diff = 0, norm = 0;

    (void)state;
    step (m, 0.3, 1, 0, B);
    for (size_t i = 0; i < train_decoder_numel (m); i += 3) {
        double near = moved (m, w + i, h) - moved (m, w + i, -h);
        double far = moved (m, w + i, 2 * h) - moved (m, w + i, -2 * h);
        double want = 0.25 * (8 * near - far) / (12 * h);

        diff += (g[i] - want) * (g[i] - want);
        norm += want * want;
    }
    assert_true (sqrt (diff) <= 1e-7 * sqrt (norm));
    train_decoder_destroy (m);
}

/* Recompute gives the bits, parts of the batch the sum. */
static void test_same (void **state)
{
    train_decoder_t *whole = make (TRAIN_F64, TRAIN_RECOMPUTE_NOTHING);
    double loss = step (whole, 0.3, 1, 0, B), sum;

    (void)state;
    for (int r = TRAIN_RECOMPUTE_CHEAP; r <= TRAIN_RECOMPUTE_BLOCKS; r++) {
        train_decoder_t *m = make (TRAIN_F64, (train_recompute_t)r);

        assert_true (step (m, 0.3, 1, 0, B) == loss);
        assert_true (off (m, whole) == 0);
        train_decoder_destroy (m);
        m = make (TRAIN_F64, (train_recompute_t)r);
        sum = step (m, 0.3, 1, 0, 1) + step (m, 0.3, 1, 1, 2);
        assert_true (fabs (sum - loss) < 1e-12 * loss);
        assert_true (off (m, whole) < 1e-12);
        train_decoder_destroy (m);
    }
    train_decoder_destroy (whole);
}

/* Another step is another mask; a rate of 0 is no dropout, to the bit. */
static void test_other (void **state)
{
    train_decoder_t *m = make (TRAIN_F64, TRAIN_RECOMPUTE_NOTHING);
    double none = 0, one, two;
    int64_t n;

    (void)state;
    assert_int_equal (
        train_decoder_step (m, tokens, targets, B, T, 0.25, &none, &n, NULL),
        TRAIN_OK);
    one = step (m, 0.3, 1, 0, B);
    two = step (m, 0.3, 2, 0, B);
    assert_true (one != none && two != none && one != two);
    assert_true (step (m, 0.3, 1, 0, B) == one);
    assert_true (step (m, 0, 1, 0, B) == none);
    train_decoder_destroy (m);
}

/* f32 and halves have f64's masks. */
static void test_types (void **state)
{
    static const struct {
        train_dtype_t dtype;
        double bound;
    } types[] = {{TRAIN_F32, 1e-6}, {TRAIN_BF16, 1e-2}, {TRAIN_F16, 1e-3}};

    (void)state;
    for (size_t i = 0; i < 3; i++) {
        train_decoder_t *m = make (types[i].dtype, TRAIN_RECOMPUTE_NOTHING);
        train_decoder_t *wide = make (TRAIN_F64, TRAIN_RECOMPUTE_NOTHING);
        double *w = train_decoder_weights (wide)->data, loss, want;

        for (size_t k = 0; k < train_decoder_numel (wide); k++)
            w[k] /= 5;
        loss = step (m, 0.5, 4, 0, B);
        want = step (wide, 0.5, 4, 0, B);
        assert_true (fabs (loss - want) <= types[i].bound * want);
        train_decoder_destroy (m);
        train_decoder_destroy (wide);
    }
}

static void test_refused (void **state)
{
    train_decoder_t *m = make (TRAIN_F64, TRAIN_RECOMPUTE_NOTHING);
    const double bad[] = {-0.1, 1, NAN, INFINITY};
    train_error_t err = {0};

    (void)state;
    for (size_t i = 0; i < 4; i++)
        assert_int_equal (train_decoder_dropout (m, bad[i], 0, 0, 0, &err),
                          TRAIN_EINVAL);
    assert_int_equal (train_decoder_dropout (m, 0.1, 0, 0, -1, &err),
                      TRAIN_EINVAL);
    train_decoder_destroy (m);
}

int main (void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test (test_gradient), cmocka_unit_test (test_same),
        cmocka_unit_test (test_other),    cmocka_unit_test (test_types),
        cmocka_unit_test (test_refused),
    };

    return cmocka_run_group_tests (tests, NULL, NULL);
}
