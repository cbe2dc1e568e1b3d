/* SPDX-License-Identifier: Apache-2.0
 * test_mixed.c - what mixed precision adds, on the host: AdamW with a bf16 copy,
 * the gradient's factor, accumulation, log-probabilities over bf16 logits */
#include "kern_check.h"

#include "kernels/finite.h"
#include "kernels/half.h"

struct state {
    float *p, *m, *v, *g;
    uint16_t *copy;
};

static struct state made (size_t n)
{
    double *x[4];
    struct state s;

    for (uint32_t i = 0; i < 4; i++)
        x[i] = numbers (n, 7 + i);
    for (size_t i = 0; i < n; i++)
        x[2][i] *= x[2][i];
    s.p = narrow (x[0], n);
    s.m = narrow (x[1], n);
    s.v = narrow (x[2], n);
    s.g = narrow (x[3], n);
    s.copy = calloc (n + 1, sizeof (*s.copy));
    assert_non_null (s.copy);
    for (int i = 0; i < 4; i++)
        free (x[i]);
    return s;
}

static void freed (struct state *s)
{
    free (s->p);
    free (s->m);
    free (s->v);
    free (s->g);
    free (s->copy);
}

static void step_of (struct state *s, size_t n, const float *factor,
                     uint64_t first, const uint32_t *key)
{
    kern_adamw_bf16_host (s->p, s->copy, s->m, s->v, s->g, factor, n, 1e-2, 0.9,
                          0.95, 1e-8, 0.1, 3, first, key, NULL);
}

/* As adamw alone, and the copy is the nearest bf16. */
static void test_adamw (void **state)
{
    static const size_t sizes[] = {0, 1, 7, 8, 1003};
    const float factor = 0.25f;

    (void)state;
    for (size_t i = 0; i < LENGTH (sizes); i++) {
        size_t n = sizes[i];
        struct state a = made (n), b = made (n);

        step_of (&a, n, &factor, 0, NULL);
        kern_adamw_f32_host (b.p, b.m, b.v, b.g, n, 1e-2, 0.9, 0.95, 1e-8, 0.1,
                             0.25, 3, NULL);
        for (size_t k = 0; k < n; k++) {
            assert_true (fabsf (a.p[k] - b.p[k])
                         <= 4e-7f * (1 + fabsf (b.p[k])));
            assert_true (fabsf (a.v[k] - b.v[k]) <= 4e-7f);
            assert_int_equal (a.copy[k], half_to_bf16 (a.p[k]));
        }
        freed (&a);
        freed (&b);
    }
}

/* A factor that is not finite leaves a step out. */
static void test_left_out (void **state)
{
    static const float factors[] = {NAN, INFINITY};

    (void)state;
    for (size_t i = 0; i < LENGTH (factors); i++) {
        struct state a = made (9), b = made (9);

        step_of (&a, 9, &factors[i], 0, NULL);
        assert_memory_equal (a.p, b.p, 9 * sizeof (float));
        assert_memory_equal (a.m, b.m, 9 * sizeof (float));
        assert_memory_equal (a.v, b.v, 9 * sizeof (float));
        assert_memory_equal (a.copy, b.copy, 9 * sizeof (uint16_t));
        freed (&a);
        freed (&b);
    }
}

/* A shard draws what the whole does, whatever it begins with; the mean of many
 * draws is the weight; another key draws otherwise. */
static void test_random (void **state)
{
    enum { N = 4099, FROM = 1037 };
    struct state whole = made (N), shard = made (N), other = made (N);
    const uint32_t key[2] = {1, 2}, key2[2] = {1, 3};
    double error = 0, bound = 0;
    size_t differ = 0;

    (void)state;
    step_of (&whole, N, NULL, 64, key);
    step_of (&other, N, NULL, 64, key2);
    shard.p += FROM, shard.m += FROM, shard.v += FROM, shard.g += FROM;
    step_of (&shard, N - FROM, NULL, 64 + FROM, key);
    assert_memory_equal (shard.copy, whole.copy + FROM,
                         (N - FROM) * sizeof (uint16_t));
    shard.p -= FROM, shard.m -= FROM, shard.v -= FROM, shard.g -= FROM;
    for (size_t i = 0; i < N; i++) {
        double ulp =
            (double)half_from_bf16 (half_to_bf16 (whole.p[i])) * 0x1p-7;
        double away = (double)half_from_bf16 (whole.copy[i]) - whole.p[i];

        assert_true (fabs (away) < fabs (ulp) * 1.01 + 1e-30);
        error += away;
        bound += ulp * ulp / 4;
        differ += whole.copy[i] != other.copy[i];
    }
    assert_true (fabs (error) < 5 * sqrt (bound));
    assert_true (differ > N / 8 && differ < N);
    freed (&whole);
    freed (&shard);
    freed (&other);
}

static void test_factor (void **state)
{
    static const struct {
        double sumsq, inv_scale, max_norm, norm;
        float factor;
    } cases[] = {
        {16, 1, 0, 4, 1},       {16, 0.5, 0, 2, 0.5f}, {16, 0.5, 8, 2, 0.5f},
        {16, 0.5, 1, 2, 0.25f}, {0, 1, 1, 0, 1},
    };
    double norm;
    float factor;

    (void)state;
    for (size_t i = 0; i < LENGTH (cases); i++) {
        kern_clip_factor_host (&factor, &norm, &cases[i].sumsq,
                               cases[i].inv_scale, cases[i].max_norm, NULL);
        assert_true (norm == cases[i].norm);
        assert_true (fabsf (factor - cases[i].factor) < 1e-6f);
    }
    for (int i = 0; i < 2; i++) {
        double bad = i ? NAN : INFINITY;

        kern_clip_factor_host (&factor, &norm, &bad, 1, 1, NULL);
        assert_true (isnan (factor));
    }
}

static void test_accumulate (void **state)
{
    float sum[3] = {1, 2, 3};
    const float x[3] = {0.5f, -2, 1e30f};
    const uint16_t h[3] = {0x3f80, 0xc000, 0x0000};

    (void)state;
    kern_accumulate_f32_host (sum, x, 3, NULL);
    kern_accumulate_bf16_host (sum, h, 2, NULL);
    assert_true (sum[0] == 2.5f && sum[1] == -2 && sum[2] == 1e30f);
    kern_accumulate_f32_host (sum, x, 0, NULL);
    assert_true (sum[0] == 2.5f);
}

struct rows {
    size_t N, V;
    const int32_t *targets;
    const float *weights;
    double inv_t;
};

/* sum of weights * logp, in double from doubles. */
static double objective (const struct rows *a, const double *z)
{
    double sum = 0;

    for (size_t r = 0; r < a->N; r++) {
        double most = -INFINITY, total = 0;

        if (a->targets[r] < 0)
            continue;
        for (size_t v = 0; v < a->V; v++)
            most = fmax (most, a->inv_t * z[r * a->V + v]);
        for (size_t v = 0; v < a->V; v++)
            total += exp (a->inv_t * z[r * a->V + v] - most);
        sum += a->weights[r]
               * (a->inv_t * z[r * a->V + (size_t)a->targets[r]] - most
                  - log (total));
    }
    return sum;
}

/* Values, and the gradient beside central differences: bf16 has 8 bits. */
static void test_logprob (void **state)
{
    static const int32_t targets[3] = {2, -1, 0};
    static const float weights[3] = {-0.5f, 9, 2};
    struct rows a = {3, 17, targets, weights, 1 / 0.7};
    double *z = numbers (a.N * a.V, 3), value = 0;
    uint16_t *h = malloc (a.N * a.V * sizeof (*h));
    float logp[3], entropy[3];

    (void)state;
    for (size_t i = 0; i < a.N * a.V; i++) {
        h[i] = half_to_bf16 ((float)(4 * z[i]));
        z[i] = half_from_bf16 (h[i]);
    }
    kern_logprob_bf16_host (h, logp, entropy, targets, NULL, a.N, a.V, a.inv_t,
                            NULL);
    for (size_t r = 0; r < a.N; r++)
        value += weights[r] * (double)logp[r];
    assert_true (fabs (value - objective (&a, z)) < 1e-6);
    assert_true (logp[1] == 0 && entropy[1] == 0);
    assert_true (entropy[0] > 0 && entropy[0] < logf (17));
    kern_logprob_bf16_host (h, logp, NULL, targets, weights, a.N, a.V, a.inv_t,
                            NULL);
    for (size_t i = 0; i < a.N * a.V; i++) {
        double keep = z[i], up, down, want;

        z[i] = keep + 1e-5;
        up = objective (&a, z);
        z[i] = keep - 1e-5;
        down = objective (&a, z);
        z[i] = keep;
        want = (up - down) / 2e-5;
        assert_true (fabs (half_from_bf16 (h[i]) - want)
                     <= 0x1p-8 * fabs (want) + 1e-8);
    }
    free (z);
    free (h);
}

/* Masked logits are -Inf; a NaN is told. */
static void test_logprob_special (void **state)
{
    uint16_t h[4] = {0xff80, 0x3f80, 0xff80, 0x3f80}, bad[2] = {0x7fc0, 0};
    const int32_t target = 1, none = 0;
    const float one = 1;
    float logp;

    (void)state;
    kern_logprob_bf16_host (h, &logp, NULL, &target, &one, 1, 4, 1, NULL);
    assert_true (fabsf (logp + logf (2)) < 1e-6f);
    assert_int_equal (h[0] & 0x7fff, 0);
    assert_int_equal (h[1], half_to_bf16 (0.5f));
    assert_int_equal (h[3], half_to_bf16 (-0.5f));
    kern_logprob_bf16_host (bad, &logp, NULL, &none, NULL, 1, 2, 1, NULL);
    assert_true (isnan (logp));
}

/* The first of two, at the ends of the blocks that the host looks at. */
static void test_first_nonfinite (void **state)
{
    enum { N = 9000 };
    static const size_t at[] = {0, 1, 4095, 4096, 8191, N - 2, N};
    static float f[N];
    static double d[N];
    static uint16_t b[N], h[N];
    uint64_t got[4];

    (void)state;
    for (size_t i = 0; i < LENGTH (at); i++) {
        memset (f, 0x7e, sizeof (f)); /* large, and finite */
        memset (d, 0x7e, sizeof (d));
        memset (b, 0x7e, sizeof (b));
        memset (h, 0x7a, sizeof (h));
        for (size_t k = at[i]; k < N; k += N - 1 - at[i]) {
            f[k] = k == at[i] ? -INFINITY : NAN;
            d[k] = k == at[i] ? (double)NAN : (double)INFINITY;
            b[k] = k == at[i] ? 0xff80 : 0x7fc0;
            h[k] = k == at[i] ? 0x7c01 : 0xfc00;
        }
        kern_first_nonfinite_f32_host (&got[0], f, N, NULL);
        kern_first_nonfinite_f64_host (&got[1], d, N, NULL);
        kern_first_nonfinite_bf16_host (&got[2], b, N, NULL);
        kern_first_nonfinite_f16_host (&got[3], h, N, NULL);
        for (size_t k = 0; k < LENGTH (got); k++)
            assert_int_equal (got[k], at[i]);
    }
}

int main (void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test (test_adamw),
        cmocka_unit_test (test_left_out),
        cmocka_unit_test (test_random),
        cmocka_unit_test (test_factor),
        cmocka_unit_test (test_accumulate),
        cmocka_unit_test (test_logprob),
        cmocka_unit_test (test_logprob_special),
        cmocka_unit_test (test_first_nonfinite),
    };

    return cmocka_run_group_tests (tests, NULL, NULL);
}
