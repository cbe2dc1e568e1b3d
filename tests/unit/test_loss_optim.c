/* SPDX-License-Identifier: Apache-2.0
 * test_loss_optim.c - cross-entropy, AdamW and the sum of squares on the host */
#include "kern_check.h"

struct loss {
    size_t N, V;
    double *z;
    const int32_t *targets;
};

static double loss_value (void *arg)
{
    struct loss *a = arg;
    double sum;
    int64_t n;

    kern_cross_entropy_fwd_f64_host (&sum, &n, a->z, a->targets, a->N, a->V,
                                     NULL);
    return 0.25 * sum;
}

static void test_gradient (void **state)
{
    static const int32_t targets[4] = {0, 2, -1, 1};
    static const size_t widths[] = {3, 17, 256};

    (void)state;
    for (size_t i = 0; i < LENGTH (widths); i++) {
        struct loss a = {4, widths[i], numbers (4 * widths[i], 1), targets};
        size_t n = a.N * a.V;
        double *grad = numbers (n, 1), sum;
        float *z = narrow (a.z, n);
        int64_t counted;

        kern_cross_entropy_bwd_f64_host (grad, &sum, &counted, targets, a.N,
                                         a.V, 0.25, NULL);
        assert_int_equal (counted, 3);
        assert_true (fabs (0.25 * sum - loss_value (&a)) < 1e-14 * sum);
        for (size_t v = 0; v < a.V; v++)
            assert_true (grad[2 * a.V + v] == 0);
        check_grad ("cross entropy", grad, a.z, n, loss_value, &a);
        kern_cross_entropy_fwd_f32_host (&sum, &counted, z, targets, a.N, a.V,
                                         NULL);
        assert_true (fabs (0.25 * sum - loss_value (&a)) < F32_BOUND * sum);
        kern_cross_entropy_bwd_f32_host (z, &sum, &counted, targets, a.N, a.V,
                                         0.25, NULL);
        assert_int_equal (counted, 3);
        check_f32 ("cross entropy f32", z, grad, n, F32_BOUND);
        free (grad);
        free (z);
        free (a.z);
    }
}

/* A target far below the maximum: the loss is the distance, not Inf. */
static void test_huge (void **state)
{
    static const int32_t targets[2] = {1, 0};
    double z[6] = {1e6, -1e6, 0, 1e300, 1e300, -1e300}, sum;
    float f[6] = {1e6f, -1e6f, 0, 1e30f, 1e30f, -1e30f};
    int64_t n;

    (void)state;
    kern_cross_entropy_fwd_f64_host (&sum, &n, z, targets, 2, 3, NULL);
    assert_true (n == 2 && fabs (sum - (2e6 + log (2))) < 1e-8);
    kern_cross_entropy_bwd_f64_host (z, &sum, &n, targets, 2, 3, 1, NULL);
    assert_true (fabs (sum - (2e6 + log (2))) < 1e-8);
    assert_true (z[0] == 1 && z[1] == -1 && fabs (z[2]) < 1e-300);
    assert_true (z[3] == -0.5 && z[4] == 0.5 && fabs (z[5]) < 1e-300);
    kern_cross_entropy_bwd_f32_host (f, &sum, &n, targets, 2, 3, 1, NULL);
    assert_true (n == 2 && fabs (sum - (2e6 + log (2))) < 1e-6);
    assert_true (f[0] == 1 && f[1] == -1 && f[3] == -0.5f && f[4] == 0.5f);
}

static void test_not_finite (void **state)
{
    static const int32_t targets[1] = {0};
    double z[3] = {0, NAN, 1}, sum;
    int64_t n;

    (void)state;
    kern_cross_entropy_fwd_f64_host (&sum, &n, z, targets, 1, 3, NULL);
    assert_true (isnan (sum));
    z[1] = INFINITY;
    kern_cross_entropy_fwd_f64_host (&sum, &n, z, targets, 1, 3, NULL);
    assert_true (!isfinite (sum));
}

static void test_none_counted (void **state)
{
    static const int32_t targets[2] = {-1, -1};
    double z[4] = {1, 2, 3, 4}, sum = 9;
    int64_t n = 9;

    (void)state;
    kern_cross_entropy_bwd_f64_host (z, &sum, &n, targets, 2, 2, 1, NULL);
    assert_true (sum == 0 && n == 0 && z[0] == 0 && z[3] == 0);
}

/* The algorithm as the paper writes it, in long double. */
static void adamw_by_definition (double *p, const double *g, size_t n,
                                 int steps)
{
    const long double b1 = 0.9L, b2 = 0.999L, lr = 0.01L, wd = 0.1L;

    for (size_t i = 0; i < n; i++) {
        long double m = 0, v = 0, w = p[i];

        for (int t = 1; t <= steps; t++) {
            long double x = 0.5L * g[i] * (long double)t;

            m = b1 * m + (1 - b1) * x;
            v = b2 * v + (1 - b2) * x * x;
            w -= lr * wd * w;
            w -= lr * (m / (1 - powl (b1, t)))
                 / (sqrtl (v / (1 - powl (b2, t))) + 1e-8L);
        }
        p[i] = (double)w;
    }
}

static void test_adamw (void **state)
{
    enum { N = 37, STEPS = 5 };
    double *p = numbers (N, 1), *want = numbers (N, 1), *g0 = numbers (N, 2);
    double g[N], m[N] = {0}, v[N] = {0};
    float *p32 = narrow (p, N), g32[N], m32[N] = {0}, v32[N] = {0};

    (void)state;
    adamw_by_definition (want, g0, N, STEPS);
    for (int t = 1; t <= STEPS; t++) {
        for (size_t i = 0; i < N; i++) {
            g[i] = g0[i] * t;
            g32[i] = (float)g[i];
        }
        kern_adamw_f64_host (p, m, v, g, N, 0.01, 0.9, 0.999, 1e-8, 0.1, 0.5, t,
                             NULL);
        kern_adamw_f32_host (p32, m32, v32, g32, N, 0.01, 0.9, 0.999, 1e-8, 0.1,
                             0.5, t, NULL);
    }
    check_close ("adamw", p, want, N, 1e-13);
    check_f32 ("adamw f32", p32, want, N, F32_BOUND);
    free (p);
    free (p32);
    free (want);
    free (g0);
}

static void test_sumsq (void **state)
{
    static const size_t sizes[] = {0, 1, 7, 8, 9, 64, 1001};

    (void)state;
    for (size_t i = 0; i < LENGTH (sizes); i++) {
        size_t n = sizes[i];
        double *x = numbers (n, 3), got, got32, want = dot (x, x, n);
        float *f = narrow (x, n);

        kern_sumsq_f64_host (&got, x, n, NULL);
        kern_sumsq_f32_host (&got32, f, n, NULL);
        assert_true (fabs (got - want) <= 1e-13 * want);
        assert_true (fabs (got32 - want) <= 1e-13 * want);
        if (n > 0) {
            f[n - 1] = INFINITY;
            kern_sumsq_f32_host (&got32, f, n, NULL);
            assert_true (isinf (got32));
            f[0] = NAN;
            kern_sumsq_f32_host (&got32, f, n, NULL);
            assert_true (isnan (got32));
        }
        free (x);
        free (f);
    }
}

int main (void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test (test_gradient),     cmocka_unit_test (test_huge),
        cmocka_unit_test (test_not_finite),   cmocka_unit_test (test_adamw),
        cmocka_unit_test (test_none_counted), cmocka_unit_test (test_sumsq),
    };

    return cmocka_run_group_tests (tests, NULL, NULL);
}
