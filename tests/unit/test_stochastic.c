/* SPDX-License-Identifier: Apache-2.0
 * test_stochastic.c - bf16 weights that AdamW rounds by chance: without bias,
 * the same however the model is shared, and once more from masters */
#include <math.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>
#include <stdlib.h>
#include <string.h>

#include <cmocka.h>

#include <train/optim.h>

#include "kernels/half.h"
#include "libtrain/optim.h"

#define N 1003

static const train_adamw_options_t opts = {
    .size = sizeof (opts),
    .beta1 = 0.9,
    .beta2 = 0.95,
    .eps = 1e-8,
    .weight_decay = 0.1,
    .stochastic = true,
    .seed = (uint64_t)5 << 33 | 7,
};

/* Part [from], [from] + n of a model of N elements: three parameters. */
struct part {
    size_t from, n;
    float *p, *g;
    uint16_t *copy;
    train_adamw_t *a;
    train_tensor_t w, grad;
};

static void open_part (struct part *k, size_t from, size_t n)
{
    static const size_t ends[] = {100, 505, N};
    train_param_t params[3] = {{0}};
    uint64_t first[3];
    size_t count = 0, begin = 0;
    int64_t shape[1] = {(int64_t)n};
    train_error_t err = {0};

    *k = (struct part){.from = from, .n = n};
    for (size_t i = 0; i < 3; begin = ends[i++]) {
        size_t low = begin > from ? begin : from;
        size_t high = ends[i] < from + n ? ends[i] : from + n;

        if (low >= high)
            continue;
        params[count].offset = low - from;
        params[count].count = high - low;
        params[count].decay = i != 1;
        first[count++] = low;
    }
    k->p = calloc (n, sizeof (*k->p));
    k->g = calloc (n, sizeof (*k->g));
    k->copy = calloc (n, sizeof (*k->copy));
    assert_true (k->p && k->g && k->copy);
    for (size_t i = 0; i < n; i++) {
        k->p[i] = (float)sin ((double)(from + i));
        k->g[i] = (float)cos (3 * (double)(from + i));
    }
    assert_int_equal (adamw_create_at (&opts, TRAIN_F32, n, params, first,
                                       count, false, &k->a, &err),
                      TRAIN_OK);
    assert_int_equal (
        train_tensor_view (&k->w, k->p, TRAIN_F32, 1, shape, &err), 0);
    assert_int_equal (
        train_tensor_view (&k->grad, k->g, TRAIN_F32, 1, shape, &err), 0);
}

static void step (struct part *k)
{
    train_error_t err = {0};

    assert_int_equal (adamw_enqueue_copy (k->a, &k->w.t, k->copy, &k->grad.t,
                                          1e-3, NULL, NULL, &err),
                      TRAIN_OK);
    train_adamw_set_updates (k->a, train_adamw_updates (k->a) + 1);
}

static void close_part (struct part *k)
{
    train_adamw_destroy (k->a);
    free (k->p);
    free (k->g);
    free (k->copy);
}

/* Parts that cut parameters and blocks of draws have the whole's bits. */
static void test_parts (void **state)
{
    static const size_t cuts[] = {0, 3, 100, 257, 258, 800, N};
    struct part whole, part;

    (void)state;
    open_part (&whole, 0, N);
    for (int s = 0; s < 3; s++)
        step (&whole);
    for (size_t c = 0; c + 1 < sizeof (cuts) / sizeof (*cuts); c++) {
        open_part (&part, cuts[c], cuts[c + 1] - cuts[c]);
        for (int s = 0; s < 3; s++)
            step (&part);
        assert_memory_equal (part.p, whole.p + part.from,
                             part.n * sizeof (*part.p));
        assert_memory_equal (part.copy, whole.copy + part.from,
                             part.n * sizeof (*part.copy));
        close_part (&part);
    }
    close_part (&whole);
}

/* Each is a neighbour of its master, some not the nearest; and once more from
 * the masters it is the same, by either kind of optimizer. */
static void test_again (void **state)
{
    uint16_t kept[N], low[N];
    size_t far = 0;
    int64_t shape[1] = {N};
    train_param_t param = {.count = N, .decay = true};
    train_adamw_t *half = NULL;
    train_tensor_t t;
    struct part k;
    train_error_t err = {0};

    (void)state;
    open_part (&k, 0, N);
    step (&k);
    step (&k);
    for (size_t i = 0; i < N; i++) {
        float near = half_from_bf16 (half_to_bf16 (k.p[i]));
        float got = half_from_bf16 (k.copy[i]);

        assert_true (fabsf (got - k.p[i]) < 0x1p-7f * fabsf (k.p[i]));
        far += got < near || got > near;
    }
    assert_true (far > N / 8 && far < N / 2); /* a quarter */
    memcpy (kept, k.copy, sizeof (kept));
    memset (k.copy, 0xff, sizeof (kept));
    adamw_round (k.a, k.p, k.copy, NULL);
    assert_memory_equal (k.copy, kept, sizeof (kept));
    assert_int_equal (
        train_adamw_create (&opts, TRAIN_BF16, N, &param, 1, &half, &err), 0);
    memcpy (train_adamw_masters (half)->data, k.p, sizeof (*k.p) * N);
    train_adamw_set_updates (half, 2);
    assert_int_equal (train_tensor_view (&t, low, TRAIN_BF16, 1, shape, &err),
                      0);
    assert_int_equal (adamw_narrow (half, &t.t, &err), TRAIN_OK);
    assert_memory_equal (low, kept, sizeof (kept));
    train_adamw_set_updates (half, 3); /* another update, other draws */
    assert_int_equal (adamw_narrow (half, &t.t, &err), TRAIN_OK);
    assert_true (memcmp (low, kept, sizeof (kept)) != 0);
    train_adamw_destroy (half);
    close_part (&k);
}

/* A tenth of a step above 1: nearest would be 1 each time. */
static void test_mean (void **state)
{
    enum { MANY = 200000 };
    const double above = 0.1;
    train_param_t param = {.count = MANY};
    float *p = malloc (MANY * sizeof (*p));
    uint16_t *copy = malloc (MANY * sizeof (*copy));
    train_adamw_t *a = NULL;
    train_error_t err = {0};
    double sum = 0;

    (void)state;
    assert_true (p && copy);
    for (size_t i = 0; i < MANY; i++)
        p[i] = (float)(1 + above * 0x1p-7);
    assert_int_equal (
        train_adamw_create (&opts, TRAIN_F32, MANY, &param, 1, &a, &err), 0);
    adamw_round (a, p, copy, NULL);
    for (size_t i = 0; i < MANY; i++) {
        float got = half_from_bf16 (copy[i]);

        assert_true (copy[i] == 0x3f80 || copy[i] == 0x3f81);
        sum += ((double)got - 1) * 0x1p7;
    }
    assert_true (fabs (sum / MANY - above)
                 < 5 * sqrt (above * (1 - above) / MANY));
    train_adamw_destroy (a);
    free (p);
    free (copy);
}

static void test_refused (void **state)
{
    const train_param_t param = {.count = 3};
    train_adamw_t *a = NULL;
    train_error_t err = {0};

    (void)state;
    assert_int_equal (
        train_adamw_create (&opts, TRAIN_F16, 3, &param, 1, &a, &err),
        TRAIN_EINVAL);
    assert_int_equal (
        train_adamw_create (&opts, TRAIN_F64, 3, &param, 1, &a, &err),
        TRAIN_EINVAL);
    assert_non_null (strstr (err.text, "BF16"));
}

int main (void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test (test_parts),
        cmocka_unit_test (test_again),
        cmocka_unit_test (test_mean),
        cmocka_unit_test (test_refused),
    };

    return cmocka_run_group_tests (tests, NULL, NULL);
}
