/* SPDX-License-Identifier: Apache-2.0
 * test_optim.c - AdamW and clipping against values worked out elsewhere
 *
 * The table was computed in Python, in double, by the formula that PyTorch's
 * documentation of torch.optim.AdamW gives. */
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <setjmp.h>
#include <cmocka.h>
#include <math.h>
#include <stdlib.h>
#include <string.h>

#include <train/optim.h>

#include "libtrain/optim.h"

#include "kernels/half.h"

#define N 4 /* elements: two that decay, two that do not */

static const train_adamw_options_t good = {
    .size = sizeof (train_adamw_options_t),
    .beta1 = 0.9,
    .beta2 = 0.95,
    .eps = 1e-8,
    .weight_decay = 0.5,
};

static const train_param_t params[] = {
    {.name = "a",
     .ndim = 1,
     .shape = {1},
     .offset = 0,
     .count = 1,
     .decay = true},
    {.name = "b",
     .ndim = 1,
     .shape = {1},
     .offset = 1,
     .count = 1,
     .decay = true},
    {.name = "c",
     .ndim = 1,
     .shape = {2},
     .offset = 2,
     .count = 2,
     .decay = false},
};

static const double start[N] = {1.0, -2.0, 0.5, 0.25};

static const struct {
    double g[N], norm, scale, p[N], m[N], v[N];
} table[] = {
    {{.5, -.25, 1., 0.},
     1.14564392373896,
     0.8728707990398727,
     {0.8125000028641123, -1.7500000057282243, 0.37500000143205614, 0.25},
     {0.043643539951993625, -0.021821769975996812, 0.08728707990398725, 0.0},
     {0.009523792897706333, 0.002380948224426583, 0.03809517159082533, 0.0}},
    {{-1.5, 2., .125, .75},
     2.613068120045859,
     0.38269175213491863,
     {0.7850241191321736, -1.7064278446106071, 0.2851453572166581,
      0.15813000418176973},
     {-0.018124576863443514, 0.05689875744858657, 0.083342018815275,
      0.02870188141011889},
     {0.025523563182431604, 0.03155249624362408, 0.03630482939968414,
      0.004118989982402647}},
    {{0., 0., 0., 0.},
     0.0,
     1,
     {0.7542081620853511, -1.6512995819793157, 0.21478936941478027,
      0.086196001088794},
     {-0.016312119177099165, 0.051208881703727914, 0.0750078169337475,
      0.025831693269107},
     {0.024247385023310024, 0.029974871431442875, 0.03448958792969993,
      0.003913040483282514}},
    {{.001, -.002, .003, -.004},
     0.005477225575051661,
     1,
     {0.7221096134038475, -1.5906629555048049, 0.15614741505482285,
      0.02753696841706381},
     {-0.01458090725938925, 0.045887993533355126, 0.06780703524037275,
      0.0228485239421963},
     {0.023035065772144522, 0.02847632785987073, 0.03276555853321493,
      0.0037181884591183886}},
};

static void refuse (train_adamw_options_t o, const char *word)
{
    train_adamw_t *a = NULL;
    train_error_t err = {0};

    assert_int_equal (
        train_adamw_create (&o, TRAIN_F32, N, params, 3, &a, &err),
        TRAIN_EINVAL);
    assert_null (a);
    assert_non_null (strstr (err.text, word));
}

#define REFUSE(field, value, word)                                             \
    do {                                                                       \
        train_adamw_options_t o_ = good;                                       \
        o_.field = (value);                                                    \
        refuse (o_, word);                                                     \
    } while (0)

static void test_bad_options (void **state)
{
    train_adamw_t *a = NULL;

    (void)state;
    assert_int_equal (
        train_adamw_create (NULL, TRAIN_F32, N, params, 3, &a, NULL),
        TRAIN_EINVAL);
    REFUSE (size, 0, "size");
    REFUSE (beta1, 1.0, "beta1");
    REFUSE (beta1, -0.1, "beta1");
    REFUSE (beta1, (double)NAN, "beta1");
    REFUSE (beta2, 1.0, "beta2");
    REFUSE (beta2, (double)NAN, "beta2");
    REFUSE (eps, 0.0, "eps");
    REFUSE (eps, (double)NAN, "eps");
    REFUSE (weight_decay, -1.0, "weight_decay");
    REFUSE (weight_decay, (double)INFINITY, "weight_decay");
    train_adamw_destroy (NULL);
}

static void test_bad_arenas (void **state)
{
    train_param_t bad[2] = {params[0], params[1]};
    train_adamw_t *a = NULL;
    train_error_t err = {0};

    (void)state;
#define CREATE(dtype, numel, p, n)                                             \
    train_adamw_create (&good, dtype, numel, p, n, &a, &err)
    assert_int_equal (CREATE (TRAIN_I32, N, params, 3), TRAIN_EINVAL);
    assert_non_null (strstr (err.text, "dtype"));
    assert_int_equal (CREATE (TRAIN_F32, 0, params, 3), TRAIN_EINVAL);
    assert_int_equal (CREATE (TRAIN_F32, N, NULL, 3), TRAIN_EINVAL);
    assert_int_equal (CREATE (TRAIN_F32, 3, params, 3), TRAIN_EINVAL);
    assert_non_null (strstr (err.text, "parameter 2"));
    bad[1].offset = 0;
    assert_int_equal (CREATE (TRAIN_F32, N, bad, 2), TRAIN_EINVAL);
    assert_non_null (strstr (err.text, "parameter 1"));
    bad[1].offset = 1;
    bad[1].count = SIZE_MAX;
    assert_int_equal (CREATE (TRAIN_F32, N, bad, 2), TRAIN_EINVAL);
    assert_int_equal (CREATE (TRAIN_F64, SIZE_MAX / 8, params, 3),
                      TRAIN_ENOMEM);
#undef CREATE
    assert_null (a);
}

static uint16_t round_to (train_dtype_t dtype, float x)
{
    return dtype == TRAIN_BF16 ? half_to_bf16 (x) : half_to_f16 (x);
}

/* Masters make the steps of f32 weights, too small for a half to see one by one;
 * the weights are their rounded copy. */
static void masters_of (train_dtype_t dtype)
{
    float single[N], g[N], want;
    uint16_t half[N];
    int64_t four[1] = {N};
    train_tensor_t weights, grads, twin;
    train_adamw_t *a = NULL, *b = NULL;
    const float *masters;

    for (int i = 0; i < N; i++) {
        single[i] = (float)start[i];
        half[i] = round_to (dtype, single[i]);
        g[i] = 0.125f * (float)(i + 1);
    }
    train_tensor_view (&weights, half, dtype, 1, four, NULL);
    train_tensor_view (&grads, g, TRAIN_F32, 1, four, NULL);
    train_tensor_view (&twin, single, TRAIN_F32, 1, four, NULL);
    assert_int_equal (train_adamw_create (&good, dtype, N, params, 3, &a, NULL),
                      TRAIN_OK);
    assert_int_equal (
        train_adamw_create (&good, TRAIN_F32, N, params, 3, &b, NULL),
        TRAIN_OK);
    assert_null (train_adamw_masters (b));
    assert_int_equal (train_adamw_step (a, &grads.t, &grads.t, 1e-4, 0.5, NULL),
                      TRAIN_EINVAL);
    for (int i = 0; i < 40; i++) {
        assert_int_equal (
            train_adamw_step (a, &weights.t, &grads.t, 1e-4, 0.5, NULL),
            TRAIN_OK);
        assert_int_equal (
            train_adamw_step (b, &twin.t, &grads.t, 1e-4, 0.5, NULL), TRAIN_OK);
    }
    masters = train_adamw_masters (a)->data;
    for (int i = 0; i < N; i++) {
        want = single[i];
        assert_true (fabsf (masters[i] - want) <= 1e-6f * fabsf (want));
        assert_int_equal (half[i], round_to (dtype, masters[i]));
    }
    assert_true (masters[0] < 1 - 0.003f);
    train_adamw_destroy (a);
    train_adamw_destroy (b);
}

static void test_masters (void **state)
{
    (void)state;
    masters_of (TRAIN_BF16);
    masters_of (TRAIN_F16);
}

static void test_bad_steps (void **state)
{
    double w[N] = {1, 1, 1, 1}, g[N] = {0}, norm = -1;
    float f[N] = {0};
    int64_t four[1] = {N}, three[1] = {N - 1};
    train_tensor_t weights, grads, single, few;
    train_adamw_t *a = NULL;

    (void)state;
    train_tensor_view (&weights, w, TRAIN_F64, 1, four, NULL);
    train_tensor_view (&grads, g, TRAIN_F64, 1, four, NULL);
    train_tensor_view (&single, f, TRAIN_F32, 1, four, NULL);
    train_tensor_view (&few, w, TRAIN_F64, 1, three, NULL);
    assert_int_equal (
        train_adamw_create (&good, TRAIN_F64, N, params, 3, &a, NULL),
        TRAIN_OK);
#define STEP(p, q, lr, scale) train_adamw_step (a, p, q, lr, scale, NULL)
    assert_int_equal (STEP (NULL, &grads.t, 1, 1), TRAIN_EINVAL);
    assert_int_equal (STEP (&weights.t, NULL, 1, 1), TRAIN_EINVAL);
    assert_int_equal (STEP (&single.t, &grads.t, 1, 1), TRAIN_EINVAL);
    assert_int_equal (STEP (&weights.t, &single.t, 1, 1), TRAIN_EINVAL);
    assert_int_equal (STEP (&few.t, &grads.t, 1, 1), TRAIN_EINVAL);
    assert_int_equal (STEP (&weights.t, &grads.t, -1, 1), TRAIN_EINVAL);
    assert_int_equal (STEP (&weights.t, &grads.t, NAN, 1), TRAIN_EINVAL);
    assert_int_equal (STEP (&weights.t, &grads.t, 1, INFINITY), TRAIN_EINVAL);
#undef STEP
    assert_int_equal (train_adamw_updates (a), 0);
    for (int i = 0; i < N; i++)
        assert_true (w[i] == 1);
    assert_int_equal (train_norm (NULL, &norm, NULL), TRAIN_EINVAL);
    assert_int_equal (train_norm (&weights.t, NULL, NULL), TRAIN_EINVAL);
    train_tensor_view (&few, f, TRAIN_I32, 1, three, NULL);
    assert_int_equal (train_norm (&few.t, &norm, NULL), TRAIN_ENOTSUP);
    assert_true (norm == -1);
    train_adamw_destroy (a);
}

static void near (double got, double want, double rel)
{
    if (!(fabs (got - want) <= rel * (fabs (want) + 1e-3)))
        fail_msg ("%.17g and not %.17g", got, want);
}

/* Run the table in one dtype; [real] arrays hold weights and gradients. */
#define RUN(real, dtype, rel)                                                  \
    do {                                                                       \
        real w[N], g[N];                                                       \
        int64_t shape[1] = {N};                                                \
        train_tensor_t weights, grads;                                         \
        train_adamw_t *a = NULL;                                               \
        for (int i = 0; i < N; i++)                                            \
            w[i] = (real)start[i];                                             \
        train_tensor_view (&weights, w, dtype, 1, shape, NULL);                \
        train_tensor_view (&grads, g, dtype, 1, shape, NULL);                  \
        assert_int_equal (                                                     \
            train_adamw_create (&good, dtype, N, params, 3, &a, NULL), 0);     \
        for (size_t s = 0; s < sizeof (table) / sizeof (*table); s++) {        \
            double norm;                                                       \
            for (int i = 0; i < N; i++)                                        \
                g[i] = (real)table[s].g[i];                                    \
            assert_int_equal (train_norm (&grads.t, &norm, NULL), 0);          \
            near (norm, table[s].norm, rel);                                   \
            near (train_clip_scale (norm, 1), table[s].scale, rel);            \
            assert_int_equal (                                                 \
                train_adamw_step (a, &weights.t, &grads.t, 0.125,              \
                                  train_clip_scale (norm, 1), NULL),           \
                0);                                                            \
            assert_int_equal (train_adamw_updates (a), s + 1);                 \
            for (int i = 0; i < N; i++) {                                      \
                near (w[i], table[s].p[i], rel);                               \
                near (((real *)train_adamw_m (a)->data)[i], table[s].m[i],     \
                      rel);                                                    \
                near (((real *)train_adamw_v (a)->data)[i], table[s].v[i],     \
                      rel);                                                    \
            }                                                                  \
        }                                                                      \
        train_adamw_destroy (a);                                               \
    } while (0)

static void test_table_f64 (void **state)
{
    (void)state;
    RUN (double, TRAIN_F64, 1e-14);
}

static void test_table_f32 (void **state)
{
    (void)state;
    RUN (float, TRAIN_F32, 1e-6);
}

/* What belongs to no parameter (padding) is left alone. */
static void test_gaps (void **state)
{
    double w[N] = {1, 1, 1, 1}, g[N] = {1, 1, 1, 1};
    int64_t shape[1] = {N};
    train_tensor_t weights, grads;
    train_param_t two[2] = {params[0], params[0]};
    train_adamw_t *a = NULL;

    (void)state;
    two[1].offset = 2;
    train_tensor_view (&weights, w, TRAIN_F64, 1, shape, NULL);
    train_tensor_view (&grads, g, TRAIN_F64, 1, shape, NULL);
    assert_int_equal (
        train_adamw_create (&good, TRAIN_F64, N, two, 2, &a, NULL), TRAIN_OK);
    assert_int_equal (train_adamw_step (a, &weights.t, &grads.t, 0.1, 1, NULL),
                      TRAIN_OK);
    assert_true (w[0] < 1 && w[2] == w[0]);
    assert_true (w[1] == 1 && w[3] == 1);
    train_adamw_destroy (a);
}

/* Moments of what trains alone: the same updates, and as the weights lie. */
static void test_own_moments (void **state)
{
    double w[N] = {1, 1, 1, 1}, again[N] = {1, 1, 1, 1}, g[N] = {1, 9, 2, 9};
    int64_t shape[1] = {N};
    train_tensor_t weights, others, grads;
    train_param_t two[2] = {params[0], params[0]};
    train_adamw_t *a = NULL, *b = NULL;
    struct adamw_wide wide;

    (void)state;
    two[1].offset = 2;
    train_tensor_view (&weights, w, TRAIN_F64, 1, shape, NULL);
    train_tensor_view (&others, again, TRAIN_F64, 1, shape, NULL);
    train_tensor_view (&grads, g, TRAIN_F64, 1, shape, NULL);
    assert_int_equal (
        train_adamw_create (&good, TRAIN_F64, N, two, 2, &a, NULL), TRAIN_OK);
    assert_int_equal (
        adamw_create_at (&good, TRAIN_F64, N, two, NULL, 2, true, &b, NULL),
        TRAIN_OK);
    assert_int_equal (train_tensor_numel (train_adamw_m (b)), 2);
    for (int i = 0; i < 3; i++) {
        assert_int_equal (
            train_adamw_step (a, &weights.t, &grads.t, 0.1, 1, NULL), 0);
        assert_int_equal (
            train_adamw_step (b, &others.t, &grads.t, 0.1, 1, NULL), 0);
    }
    assert_memory_equal (w, again, sizeof (w));
    assert_int_equal (adamw_spread (b, &others.t, &wide, NULL), 0);
    assert_memory_equal (wide.m, train_adamw_m (a)->data, sizeof (w));
    assert_memory_equal (wide.v, train_adamw_v (a)->data, sizeof (w));
    assert_null (wide.masters);
    ((double *)wide.m)[2] = 5;
    ((double *)wide.m)[3] = 7; /* of nobody */
    assert_int_equal (adamw_gather (b, &others.t, &wide, NULL), 0);
    assert_true (((double *)train_adamw_m (b)->data)[1] == 5);
    adamw_wide_free (&wide);
    assert_int_equal (adamw_spread (a, &weights.t, &wide, NULL), 0);
    assert_null (wide.m);
    train_adamw_destroy (a);
    train_adamw_destroy (b);
}

static void test_norm_and_clip (void **state)
{
    float x[3] = {3, 4, 0};
    int64_t shape[1] = {3};
    train_tensor_t t;
    double norm;

    (void)state;
    train_tensor_view (&t, x, TRAIN_F32, 1, shape, NULL);
    assert_int_equal (train_norm (&t.t, &norm, NULL), TRAIN_OK);
    assert_true (norm == 5);
    x[2] = NAN;
    assert_int_equal (train_norm (&t.t, &norm, NULL), TRAIN_OK);
    assert_true (isnan (norm));
    x[2] = -INFINITY;
    assert_int_equal (train_norm (&t.t, &norm, NULL), TRAIN_OK);
    assert_true (isinf (norm));
    x[2] = 3e38f; /* its square is no float, and a double */
    assert_int_equal (train_norm (&t.t, &norm, NULL), TRAIN_OK);
    near (norm, 3e38f, 1e-7);
    assert_true (train_clip_scale (5, 0) == 1);
    assert_true (train_clip_scale (0.5, 1) == 1);
    assert_true (train_clip_scale (0, 1) == 1);
    near (train_clip_scale (4, 1), 1 / 4.000001, 1e-15);
}

int main (void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test (test_bad_options),
        cmocka_unit_test (test_bad_arenas),
        cmocka_unit_test (test_bad_steps),
        cmocka_unit_test (test_masters),
        cmocka_unit_test (test_table_f64),
        cmocka_unit_test (test_table_f32),
        cmocka_unit_test (test_gaps),
        cmocka_unit_test (test_own_moments),
        cmocka_unit_test (test_norm_and_clip),
    };

    return cmocka_run_group_tests_name ("optim", tests, NULL, NULL);
}
