/* SPDX-License-Identifier: Apache-2.0
 * test_dropout.c - what dropout drops, how often, and that no split changes it */
#include "half_check.h"

#include "kernels/dropout.h"

#define N 40000

static const struct kern_dropout some = {
    .seed = 7, .step = 3, .first = 0, .site = 5, .cut = 6554};

static double *ones (size_t n)
{
    double *x = zeros (n);

    for (size_t i = 0; i < n; i++)
        x[i] = 1;
    return x;
}

static double *masked (const struct kern_dropout *d, size_t n)
{
    double *x = ones (n);

    kern_dropout_f64_host (x, x, n, d, NULL);
    return x;
}

static size_t differ (const double *a, const double *b, size_t n)
{
    size_t count = 0;

    for (size_t i = 0; i < n; i++)
        count += a[i] != b[i];
    return count;
}

/* 0 or the factor; as often as wanted within 5 deviations; neighbours do not
 * know of each other. */
static void test_rate (void **state)
{
    const double rates[] = {0, 0.1, 0.5, 0.9};

    (void)state;
    for (size_t k = 0; k < LENGTH (rates); k++) {
        struct kern_dropout d = some;
        double *x, p, kept = 0, pairs = 0, q;

        d.cut = kern_dropout_cut (rates[k]);
        p = d.cut / 65536.0;
        q = 1 - p;
        assert_true (fabs (p - rates[k]) <= 0.5 / 65536);
        x = masked (&d, N);
        for (size_t i = 0; i < N; i++) {
            assert_true (x[i] == 0 || fabs (x[i] * q - 1) < 1e-6);
            kept += x[i] != 0;
            pairs += i && x[i] != 0 && x[i - 1] != 0;
        }
        assert_true (fabs (kept - q * N) <= 5 * sqrt (p * q * N));
        assert_true (fabs (pairs - q * q * N) <= 1 + 10 * sqrt (p * q * N));
        free (x);
    }
    assert_int_equal (kern_dropout_cut (1), 65535);
}

/* Any part, of any length and place, has the bits of the whole. */
static void test_split (void **state)
{
    const size_t cuts[] = {0, 1, 7, 8, 9, 100, 1003, N};
    double *whole = masked (&some, N);

    (void)state;
    for (size_t k = 0; k + 1 < LENGTH (cuts); k++) {
        struct kern_dropout d = some;
        size_t n = cuts[k + 1] - cuts[k];
        double *part;

        d.first = cuts[k];
        part = masked (&d, n);
        assert_memory_equal (part, whole + cuts[k], n * sizeof (*part));
        free (part);
    }
    free (whole);
}

/* Another seed, step or site is another mask; high bits count too. */
static void test_keys (void **state)
{
    struct kern_dropout d[6] = {some, some, some, some, some, some};
    double *a = masked (&some, N);

    (void)state;
    d[0].seed++;
    d[1].seed ^= (uint64_t)1 << 40;
    d[2].step++;
    d[3].site++;
    d[4].first = (uint64_t)1 << 40;
    d[5].site |= 0x8000;
    for (size_t k = 0; k < LENGTH (d); k++) {
        double *b = masked (&d[k], N);

        /* of two independent ones 18 % differ */
        assert_true (differ (a, b, N) > N / 8 && differ (a, b, N) < N / 4);
        free (b);
    }
    free (a);
}

/* What is dropped is 0 even of NaN and -1; the rest is rounded once. */
static void test_types (void **state)
{
    double *mask = masked (&some, N), *x = numbers (N, 1);
    float *f = narrow (x, N);

    (void)state;
    kern_dropout_f32_host (f, f, N, &some, NULL);
    for (size_t i = 0; i < N; i++)
        assert_true (f[i] == (float)((float)x[i] * (float)mask[i])
                     && (mask[i] != 0 || !signbit (f[i])));
    for (int k = 0; k < 2; k++) {
        const struct half_type *t = &half_types[k];
        double *exact = zeros (N);
        uint16_t *h = halves (t, exact, N, 3), *y = poisoned (t, N);

        (k ? kern_dropout_f16_host : kern_dropout_bf16_host) (y, h, N, &some,
                                                              NULL);
        for (size_t i = 0; i < N; i++)
            exact[i] *= mask[i];
        check_half (t, "dropout", y, exact, N, 0);
        free (exact), free (h), free (y);
    }
    f[0] = NAN;
    for (size_t i = 1; i < 64; i++)
        f[i] = NAN;
    kern_dropout_f32_host (f, f, 64, &some, NULL);
    for (size_t i = 0; i < 64; i++)
        assert_true (mask[i] == 0 ? f[i] == 0 : isnan (f[i]));
    free (mask), free (x), free (f);
}

int main (void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test (test_rate),
        cmocka_unit_test (test_split),
        cmocka_unit_test (test_keys),
        cmocka_unit_test (test_types),
    };

    return cmocka_run_group_tests (tests, NULL, NULL);
}
