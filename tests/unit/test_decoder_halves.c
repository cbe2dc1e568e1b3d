/* SPDX-License-Identifier: Apache-2.0
 * test_decoder_halves.c - a decoder in bf16 and f16 on the host beside f64 on the
 * same weights, its logits in pieces, and activations made again */
#include "config.h"

#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdlib.h>
#include <string.h>
#include <math.h>
#include <sched.h>

#include <cmocka.h>

#include "decoder_impl.h"

#include "kernels/half.h"

#define B 2
#define T 9

static int32_t tokens[B * T], targets[B * T];

static train_decoder_config_t config (train_dtype_t dtype, bool more)
{
    return (train_decoder_config_t){
        .size = sizeof (train_decoder_config_t),
        .layers = 3,
        .dim = 48,
        .heads = 4,
        .kv_heads = 2,
        .ffn = 40,
        .vocab = 61,
        .tie = more,
        .rope_theta = 100.0,
        .norm_eps = 1e-5,
        .dtype = dtype,
        .qkv_bias = more,
        .qk_norm = more,
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
    assert_int_equal (n, B * T - 2);
    return loss;
}

static float as_float (train_dtype_t dtype, uint16_t bits)
{
    return dtype == TRAIN_BF16 ? half_from_bf16 (bits) : half_from_f16 (bits);
}

/* The half's weights, exact, in a decoder of f64. */
static train_decoder_t *wide_of (train_decoder_t *half, bool more)
{
    train_decoder_config_t c = config (TRAIN_F64, more);
    train_decoder_t *wide = make (&c);
    const uint16_t *from = train_decoder_weights (half)->data;
    double *to = train_decoder_weights (wide)->data;

    for (size_t i = 0; i < train_decoder_numel (wide); i++)
        to[i] = (double)as_float (half->config.dtype, from[i]);
    return wide;
}

/* Per tensor, norm-wise. An activation is rounded to 2^-9 (bf16) or 2^-12 of
 * itself at each of some ten places on its way through three blocks and back;
 * the errors are independent, and gradients near the input see most of them. */
static void check (train_dtype_t dtype, bool more, double bound)
{
    train_decoder_config_t c = config (dtype, more);
    train_decoder_t *half = make (&c), *wide = wide_of (half, more);
    const float *g = train_decoder_grads (half)->data;
    const double *want = train_decoder_grads (wide)->data;
    double loss = step (half), right = step (wide);

    assert_int_equal (train_decoder_grads (half)->dtype.bits, 32);
    assert_true (fabs (loss - right) < bound * right / 10);
    for (size_t i = 0; i < train_decoder_n_params (half); i++) {
        const train_param_t *p = train_decoder_param (half, i);
        double diff = 0, norm = 0;

        for (size_t e = p->offset; e < p->offset + p->count; e++) {
            diff += ((double)g[e] - want[e]) * ((double)g[e] - want[e]);
            norm += want[e] * want[e];
        }
        /* what a bias of keys adds to a row's logits softmax takes off again */
        if (strstr (p->name, "k_proj.bias"))
            continue;
        if (!(sqrt (diff) <= bound * sqrt (norm)) || !(norm > 0))
            fail_msg ("%s: error %g of %g", p->name, sqrt (diff), sqrt (norm));
    }
    train_decoder_destroy (half);
    train_decoder_destroy (wide);
}

static void test_beside_wide (void **state)
{
    (void)state;
    check (TRAIN_BF16, false, 0.03);
    check (TRAIN_BF16, true, 0.03);
    check (TRAIN_F16, false, 0.004);
    check (TRAIN_F16, true, 0.004);
}

/* Gradients are added, and a step again with what was made before is the same. */
static void test_added (void **state)
{
    train_decoder_config_t c = config (TRAIN_BF16, false);
    train_decoder_t *m = make (&c);
    float *g = train_decoder_grads (m)->data, *once;
    size_t n = train_decoder_numel (m);
    double loss = step (m);

    (void)state;
    once = malloc (n * sizeof (*once));
    memcpy (once, g, n * sizeof (*once));
    assert_true (step (m) == loss);
    for (size_t i = 0; i < n; i++)
        assert_true (fabsf (g[i] - 2 * once[i])
                     <= 1e-5f * fabsf (once[i]) + 1e-7f);
    free (once);
    train_decoder_destroy (m);
}

/* What is made again has the bits of what was kept, in less memory. */
static void test_recompute (void **state)
{
    static const train_dtype_t dtypes[] = {TRAIN_F32, TRAIN_F64, TRAIN_BF16};

    (void)state;
    for (size_t d = 0; d < 3; d++) {
        train_decoder_config_t c = config (dtypes[d], d == 1);
        train_decoder_t *kept = make (&c), *again;
        size_t bytes = train_tensor_bytes (train_decoder_grads (kept));
        double loss = step (kept);
        size_t room = kept->layout.bytes;

        for (int r = TRAIN_RECOMPUTE_CHEAP; r <= TRAIN_RECOMPUTE_BLOCKS; r++) {
            c.recompute = (train_recompute_t)r;
            again = make (&c);
            assert_true (step (again) == loss);
            assert_memory_equal (train_decoder_grads (again)->data,
                                 train_decoder_grads (kept)->data, bytes);
            assert_true (again->layout.bytes < room);
            room = again->layout.bytes;
            train_decoder_destroy (again);
        }
        train_decoder_destroy (kept);
    }
}

/* The loss of a forward alone, with and without a place for the logits, is the
 * step's. */
static void test_forward (void **state)
{
    train_decoder_config_t c = config (TRAIN_BF16, true);
    train_decoder_t *m = make (&c);
    uint16_t *logits = calloc (B * T * 61, sizeof (*logits));
    double loss = step (m), own;
    int64_t n;

    (void)state;
    for (int with = 0; with < 2; with++) {
        assert_int_equal (train_decoder_forward (m, with ? logits : NULL,
                                                 tokens, targets, B, T, &own,
                                                 &n, NULL),
                          TRAIN_OK);
        /* of whole logits each row's loss is rounded to f32 */
        assert_true (fabs (own - loss) <= (with ? 1e-7 * loss : 0));
        assert_int_equal (n, B * T - 2);
    }
    assert_true (logits[0] != 0 && logits[B * T * 61 - 1] != 0);
    free (logits);
    train_decoder_destroy (m);
}

/* Enough for threads, which this one's CPUs bound: the same bits by one. */
static void test_init_threads (void **state)
{
    train_decoder_config_t c = config (TRAIN_BF16, true);
    train_decoder_t *many, *one;
    cpu_set_t all, single;
    int first = 0;

    (void)state;
    c.vocab = 8011;
    many = make (&c);
    assert_int_equal (sched_getaffinity (0, sizeof (all), &all), 0);
    while (!CPU_ISSET (first, &all))
        first++;
    CPU_ZERO (&single);
    CPU_SET (first, &single);
    assert_int_equal (sched_setaffinity (0, sizeof (single), &single), 0);
    one = make (&c);
    assert_int_equal (sched_setaffinity (0, sizeof (all), &all), 0);
    assert_memory_equal (train_decoder_weights (many)->data,
                         train_decoder_weights (one)->data,
                         train_decoder_numel (one) * sizeof (uint16_t));
    train_decoder_destroy (many);
    train_decoder_destroy (one);
}

int main (void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test (test_beside_wide),  cmocka_unit_test (test_added),
        cmocka_unit_test (test_recompute),    cmocka_unit_test (test_forward),
        cmocka_unit_test (test_init_threads),
    };

    for (int i = 0; i < B * T; i++) {
        tokens[i] = i * 37 % 61;
        targets[i] = i % 9 == 4 ? -1 : i * 11 % 61;
    }
    return cmocka_run_group_tests (tests, NULL, NULL);
}
