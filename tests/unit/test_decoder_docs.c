/* SPDX-License-Identifier: Apache-2.0
 * test_decoder_docs.c - several documents in a row: loss and gradients are the
 * sums of the documents' alone, and those of central differences */
#include <math.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdlib.h>
#include <string.h>

#include <cmocka.h>

#include "small_decoder.h"

#define B 2
#define T 12

static const int lengths[] = {5, 1, 6, 9, 3};
#define N_DOCS (sizeof (lengths) / sizeof (*lengths))

struct batch {
    int32_t tokens[B * T], targets[B * T], starts[B * T];
};

static struct batch batch_of (void)
{
    struct batch b;
    size_t n = 0;

    for (size_t k = 0; k < N_DOCS; k++) {
        for (int j = 0; j < lengths[k]; j++, n++) {
            b.tokens[n] = (int32_t)((n * 7 + 3) % 11);
            b.targets[n] =
                j + 1 < lengths[k] ? (int32_t)((n * 7 + 10) % 11) : -1;
            b.starts[n] = (int32_t)((n - (size_t)j) % T);
        }
    }
    return b;
}

static train_decoder_t *make (const train_decoder_config_t *config)
{
    train_decoder_t *m = decoder_of (config);

    train_decoder_init (m, 5);
    for (size_t i = 0;
         config->dtype == TRAIN_F64 && i < train_decoder_numel (m);
         i++) /* so that all that can differ does */
        ((double *)train_decoder_weights (m)->data)[i] *= 5;
    return m;
}

static double step (train_decoder_t *m, const int32_t *tokens,
                    const int32_t *targets, const int32_t *starts, int rows,
                    int positions)
{
    train_error_t err = {0};
    double loss;
    int64_t n;

    train_decoder_documents (m, starts);
    if (train_decoder_step (m, tokens, targets, rows, positions, 0.25, &loss,
                            &n, &err)
        != TRAIN_OK)
        fail_msg ("%s", err.text);
    return loss;
}

static void check_sum (train_recompute_t recompute)
{
    train_decoder_config_t config = small;
    train_decoder_t *one, *each;
    const double *a, *b;
    struct batch in = batch_of ();
    double whole, sum = 0, diff = 0, norm = 0;

    config.recompute = recompute;
    one = make (&config), each = make (&config);
    whole = step (one, in.tokens, in.targets, in.starts, B, T);
    for (size_t k = 0, n = 0; k < N_DOCS; n += (size_t)lengths[k++])
        sum += step (each, in.tokens + n, in.targets + n, NULL, 1, lengths[k]);
    assert_true (fabs (whole - sum) <= 1e-13 * sum);
    a = train_decoder_grads (one)->data, b = train_decoder_grads (each)->data;
    for (size_t i = 0; i < train_decoder_numel (one); i++) {
        diff += (a[i] - b[i]) * (a[i] - b[i]);
        norm += b[i] * b[i];
    }
    assert_true (sqrt (diff) <= 1e-12 * sqrt (norm));
    /* and a row that is one document is not that sum */
    whole = step (one, in.tokens, in.targets, NULL, B, T);
    assert_true (fabs (whole - sum) > 1e-3);
    train_decoder_destroy (one);
    train_decoder_destroy (each);
}

static void test_sum (void **state)
{
    (void)state;
    check_sum (TRAIN_RECOMPUTE_NOTHING);
    check_sum (TRAIN_RECOMPUTE_CHEAP);
    check_sum (TRAIN_RECOMPUTE_BLOCKS);
}

/* Loss with weight [w] moved by [by]. */
static double moved (train_decoder_t *m, const struct batch *in, double *w,
                     double by)
{
    double keep = *w, loss;
    int64_t n;

    *w = keep + by;
    assert_int_equal (train_decoder_forward (m, NULL, in->tokens, in->targets,
                                             B, T, &loss, &n, NULL),
                      TRAIN_OK);
    *w = keep;
    return loss;
}

/* By differences of fourth order: those of second order have an error of their
 * own above 1e-7 here. */
static void test_gradient (void **state)
{
    static const double h = 1e-4;
    train_decoder_t *m = make (&small);
    struct batch in = batch_of ();
    double *w = train_decoder_weights (m)->data;
    double *g = train_decoder_grads (m)->data, diff = 0, norm = 0;

    (void)state;
    step (m, in.tokens, in.targets, in.starts, B, T);
    for (size_t i = 0; i < train_decoder_numel (m); i += 3) {
        double near = moved (m, &in, w + i, h) - moved (m, &in, w + i, -h);
        double far =
            moved (m, &in, w + i, 2 * h) - moved (m, &in, w + i, -2 * h);
        double want = 0.25 * (8 * near - far) / (12 * h);

        diff += (g[i] - want) * (g[i] - want);
        norm += want * want;
    }
    assert_true (sqrt (diff) <= 1e-8 * sqrt (norm));
    train_decoder_destroy (m);
}

/* bf16 beside f64 of the same rounded weights; f32 too. */
static void test_types (void **state)
{
    static const struct {
        train_dtype_t dtype;
        double bound;
    } types[] = {{TRAIN_F32, 1e-6}, {TRAIN_BF16, 1e-2}, {TRAIN_F16, 1e-3}};
    train_decoder_config_t config = small;
    struct batch in = batch_of ();

    (void)state;
    for (size_t i = 0; i < 3; i++) {
        train_decoder_t *m;
        double packed, sum = 0;

        config.dtype = types[i].dtype;
        m = make (&config);
        packed = step (m, in.tokens, in.targets, in.starts, B, T);
        for (size_t k = 0, n = 0; k < N_DOCS; n += (size_t)lengths[k++])
            sum += step (m, in.tokens + n, in.targets + n, NULL, 1, lengths[k]);
        assert_true (fabs (packed - sum) <= types[i].bound * sum);
        train_decoder_destroy (m);
    }
}

static void test_refused (void **state)
{
    train_decoder_t *m = make (&small);
    struct batch in = batch_of ();
    train_error_t err = {0};
    double loss;
    int64_t n;

    (void)state;
    train_decoder_documents (m, in.starts);
    in.starts[7] = 3;
    assert_int_equal (
        train_decoder_step (m, in.tokens, in.targets, B, T, 1, &loss, &n, &err),
        TRAIN_EINVAL);
    assert_string_equal (err.text,
                         "document of sequence 0, position 7 begins at 3: it "
                         "must begin there, or where that of the position "
                         "before does");
    in.starts[7] = 6;
    in.starts[T] = 1;
    assert_int_equal (
        train_decoder_step (m, in.tokens, in.targets, B, T, 1, &loss, &n, &err),
        TRAIN_EINVAL);
    train_decoder_destroy (m);
}

int main (void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test (test_sum),
        cmocka_unit_test (test_gradient),
        cmocka_unit_test (test_types),
        cmocka_unit_test (test_refused),
    };

    return cmocka_run_group_tests (tests, NULL, NULL);
}
