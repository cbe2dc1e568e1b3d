/* SPDX-License-Identifier: Apache-2.0
 * test_linear_ce.c - linear layer and cross-entropy in chunks: beside PyTorch's
 * numbers, and beside the kernels that hold all logits */
#include "kern_check.h"

#include "kernels/half.h"

/* torch.nn.functional.cross_entropy (h @ w.T, targets, ignore_index=-1,
 * reduction='sum') in fp64 by PyTorch 1.13, its gradients times 0.25, over
 * h = 4 numbers (15, 1) and w = 2 numbers (21, 2). */
static const double golden_sum = 10.80855446814824;
static const double golden_dh[] = {
    0.091579893856585548,
    -0.15054611086801939,
    -0.15876279244051816,
    0,
    0,
    0,
    0.4845607487600469,
    0.25090605514010489,
    -0.075647157308859653,
    -0.47952345108574118,
    -0.33077428037053791,
    -0.52425664647223413,
    0.016970848330480258,
    0.0087064280040285418,
    0.01869919615656946,
};
static const double golden_dw[] = {
    -0.69723338293434656,  -0.19229532277966419, 0.96380616025368704,
    0.41011249577706355,   0.40590749395926912,  -0.82652657189698153,
    0.3307813897205058,    0.16120315138658359,  -0.0061761235481591903,
    0.13966561239171307,   -0.34165786555211891, -0.12253697598834519,
    0.0051045197265115489, 0.022251573721794319, -0.02020764487735446,
    0.065466536792872135,  -0.50963211099929195, -0.12965770398817777,
    -0.25389717147431945,  0.45422308026342811,  0.14129886004533082,
};

static double *scaled (size_t n, uint32_t seed, double by)
{
    double *x = numbers (n, seed);

    for (size_t i = 0; i < n; i++)
        x[i] *= by;
    return x;
}

static void test_golden (void **state)
{
    static const int32_t targets[] = {2, -1, 0, 6, 3};
    double *h = scaled (15, 1, 4), *w = scaled (21, 2, 2),
           *dh = numbers (15, 9);
    double *dw = zeros (21), *scratch = zeros (kern_linear_ce_scratch (7)),
           sum = 2;
    int64_t n = 5;

    (void)state;
    for (size_t i = 0; i < 21; i++)
        dw[i] = 1;
    kern_linear_ce_f64_host (&sum, &n, dh, dw, h, w, targets, 5, 3, 7, 0.25,
                             scratch, NULL);
    for (size_t i = 0; i < 21; i++)
        dw[i] -= 1;
    assert_int_equal (n, 5 + 4);
    assert_true (fabs (sum - 2 - golden_sum) < 1e-13);
    check_close ("dh", dh, golden_dh, 15, 1e-14);
    check_close ("dw", dw, golden_dw, 21, 1e-14);
    free (h), free (w), free (dh), free (dw), free (scratch);
}

/* Past one chunk; V odd. */
enum { N = 150, C = 20, V = 37 };

struct head {
    double *h, *w, *dh, *dw, sum;
    int32_t targets[N];
    int64_t n;
};

/* By the kernels that hold all logits, from numbers that every dtype has. */
static struct head unfused (double scale)
{
    struct head a = {.h = scaled (N * C, 3, 1), .w = scaled (V * C, 4, 1)};
    double *z = zeros (N * V);

    for (size_t i = 0; i < N * C; i++)
        a.h[i] = (double)half_from_bf16 (half_to_bf16 ((float)a.h[i]));
    for (size_t i = 0; i < V * C; i++)
        a.w[i] = (double)half_from_bf16 (half_to_bf16 ((float)a.w[i]));
    for (size_t i = 0; i < N; i++)
        a.targets[i] = i % 7 == 3 ? -1 : (int32_t)(i * 11 % V);
    a.dh = zeros (N * C);
    a.dw = zeros (V * C);
    kern_matmul_fwd_f64_host (z, a.h, a.w, N, C, V, NULL);
    kern_cross_entropy_bwd_f64_host (z, &a.sum, &a.n, a.targets, N, V, scale,
                                     NULL);
    kern_matmul_bwd_f64_host (a.dh, a.dw, z, a.h, a.w, N, C, V, NULL);
    free (z);
    return a;
}

static void drop (struct head *a)
{
    free (a->h), free (a->w), free (a->dh), free (a->dw);
}

static void test_f32 (void **state)
{
    struct head a = unfused (0.5);
    float *h = narrow (a.h, N * C), *w = narrow (a.w, V * C);
    float *dh = narrow (a.h, N * C), *dw = calloc (V * C, sizeof (*dw));
    float *scratch = malloc (kern_linear_ce_scratch (V) * sizeof (*scratch));
    double sum = 0;
    int64_t n = 0;

    (void)state;
    kern_linear_ce_f32_host (&sum, &n, dh, dw, h, w, a.targets, N, C, V, 0.5,
                             scratch, NULL);
    assert_int_equal (n, a.n);
    assert_true (fabs (sum - a.sum) < 1e-6 * a.sum);
    check_f32 ("dh", dh, a.dh, N * C, F32_BOUND);
    check_f32 ("dw", dw, a.dw, V * C, F32_BOUND);
    /* no gradient wanted: both stay */
    kern_linear_ce_f32_host (NULL, NULL, dh, dw, h, w, a.targets, N, C, V, 0,
                             scratch, NULL);
    check_f32 ("dh", dh, a.dh, N * C, F32_BOUND);
    check_f32 ("dw", dw, a.dw, V * C, F32_BOUND);
    /* one of them wanted: dw is added to, so it doubles */
    kern_linear_ce_f32_host (&sum, &n, NULL, dw, h, w, a.targets, N, C, V, 0.5,
                             scratch, NULL);
    for (size_t i = 0; i < V * C; i++)
        a.dw[i] *= 2;
    check_f32 ("dw", dw, a.dw, V * C, F32_BOUND);
    kern_linear_ce_f32_host (&sum, &n, dh, NULL, h, w, a.targets, N, C, V, 0.5,
                             scratch, NULL);
    check_f32 ("dh", dh, a.dh, N * C, F32_BOUND);
    free (h), free (w), free (dh), free (dw), free (scratch);
    drop (&a);
}

static const struct kind {
    float (*widen) (uint16_t);
    uint16_t (*narrow) (float);
    void (*run) (double *, int64_t *, uint16_t *, float *, const uint16_t *,
                 const uint16_t *, const int32_t *, size_t, size_t, size_t,
                 double, void *, void *);
    double step; /* half a unit in the last place */
} kinds[] = {
    {half_from_bf16, half_to_bf16, kern_linear_ce_bf16_host, 0x1p-8},
    {half_from_f16, half_to_f16, kern_linear_ce_f16_host, 0x1p-11},
};

static uint16_t *halved (const double *x, size_t n, const struct kind *k)
{
    uint16_t *h = malloc ((n + 1) * sizeof (*h));

    assert_non_null (h);
    for (size_t i = 0; i < n; i++)
        h[i] = k->narrow ((float)x[i]);
    return h;
}

/* Logits, their gradient and dh are each rounded once. */
static void check_kind (const struct kind *k)
{
    struct head a = unfused (0.5);
    uint16_t *h = halved (a.h, N * C, k), *w = halved (a.w, V * C, k);
    uint16_t *dh = halved (a.h, N * C, k), nan = k->narrow (NAN);
    uint16_t *scratch = malloc (kern_linear_ce_scratch (V) * sizeof (*h));
    float *dw = calloc (V * C, sizeof (*dw));
    double *wide = zeros (N * C), sum = 0;
    int64_t n = 0;

    k->run (&sum, &n, dh, dw, h, w, a.targets, N, C, V, 0.5, scratch, NULL);
    assert_int_equal (n, a.n);
    assert_true (fabs (sum - a.sum) < 0.5 * k->step * a.sum);
    for (size_t i = 0; i < N * C; i++)
        wide[i] = (double)k->widen (dh[i]);
    check_close ("dh", wide, a.dh, N * C, 1.5 * k->step);
    check_f32 ("dw", dw, a.dw, V * C, 1.5 * k->step);
    h[5] = nan;
    k->run (&sum, &n, dh, NULL, h, w, a.targets, N, C, V, 0.5, scratch, NULL);
    assert_true (isnan (sum));
    assert_true (isnan (k->widen (dh[0])) && !isnan (k->widen (dh[C])));
    free (h), free (w), free (dh), free (dw), free (scratch), free (wide);
    drop (&a);
}

static void test_halves (void **state)
{
    (void)state;
    for (size_t i = 0; i < LENGTH (kinds); i++)
        check_kind (&kinds[i]);
}

/* logprob of the other dtypes, over logits that all of them have: the values of
 * bf16's, the gradient of f32's rounded. */
static void test_logprob (void **state)
{
    enum { ROWS = 3, WORDS = 29 };
    static const int32_t targets[ROWS] = {4, -1, 28};
    static const float dlogp[ROWS] = {-0.5f, 1, 2};
    double *z = scaled (ROWS * WORDS, 5, 4);
    uint16_t *b = halved (z, ROWS * WORDS, &kinds[0]), *h;
    float *f = narrow (z, ROWS * WORDS), p[3][ROWS], e[3][ROWS];

    (void)state;
    for (size_t i = 0; i < ROWS * WORDS; i++) {
        f[i] = half_from_bf16 (b[i]);
        z[i] = (double)f[i];
    }
    h = halved (z, ROWS * WORDS, &kinds[1]);
    kern_logprob_f32_host (f, p[0], e[0], targets, dlogp, ROWS, WORDS, 0.5,
                           NULL);
    kern_logprob_bf16_host (b, p[1], e[1], targets, dlogp, ROWS, WORDS, 0.5,
                            NULL);
    kern_logprob_f16_host (h, p[2], e[2], targets, dlogp, ROWS, WORDS, 0.5,
                           NULL);
    for (int r = 0; r < ROWS; r++) {
        assert_true (p[0][r] == p[1][r] && p[0][r] == p[2][r]);
        assert_true (e[0][r] == e[1][r] && e[0][r] == e[2][r]);
    }
    for (size_t i = 0; i < ROWS * WORDS; i++) {
        assert_int_equal (b[i], half_to_bf16 (f[i]));
        assert_int_equal (h[i], half_to_f16 (f[i]));
        assert_true (isfinite (f[i]));
    }
    assert_true (p[0][0] < 0 && p[0][1] == 0 && f[4] < 0 && f[WORDS] == 0);
    free (z), free (b), free (h), free (f);
}

int main (void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test (test_golden),
        cmocka_unit_test (test_f32),
        cmocka_unit_test (test_halves),
        cmocka_unit_test (test_logprob),
    };

    return cmocka_run_group_tests (tests, NULL, NULL);
}
