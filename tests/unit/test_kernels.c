/* SPDX-License-Identifier: Apache-2.0
 * test_kernels.c - row-wise host kernels: gradients by central differences in
 * f64, and f32 against f64. Odd widths, one row, one column pair. */
#include "kern_check.h"

#include "kernels/host.h"

#define EPS 0.01 /* large enough to be missed */

struct shape {
    size_t N, C;
};

static const struct shape shapes[] = {{1, 1}, {1, 7}, {3, 33}, {5, 16}};

/* One kernel under test: inputs, the fixed r, outputs. */
struct rows {
    struct shape s;
    double *x, *w, *r, *y, *rstd;
};

/* The header promises 2^-23 and 2^-52 inside the clamp, finite outside. */
static void test_exp (void **state)
{
    double worst32 = 0, worst64 = 0;

    (void)state;
    for (int i = -87000; i <= 88000; i += 7) {
        float x = (float)i * 1e-3f;
        double y = exp ((double)x), z = (double)i * 8e-3;
        long double w = expl ((long double)z);

        worst32 = fmax (worst32, fabs ((double)exp_f32 (x) - y) / y * 0x1p24);
        worst64 =
            fmax (worst64, (double)(fabsl (exp_f64 (z) - w) / w * 0x1p53L));
    }
    if (worst32 > 2 || worst64 > 2)
        fail_msg ("exp: %g times 2^-24 in f32, %g times 2^-53 in f64", worst32,
                  worst64);
    assert_true (exp_f32 (0) == 1 && exp_f64 (0) == 1);
    assert_true (exp_f32 (-INFINITY) > 0 && exp_f32 (-INFINITY) < 2e-38f);
    assert_true (exp_f64 (-INFINITY) > 0 && exp_f64 (-INFINITY) < 1e-307);
    assert_true (isfinite (exp_f32 (INFINITY)) && exp_f32 (INFINITY) > 1e38f);
    assert_true (isfinite (exp_f64 (INFINITY)) && exp_f64 (INFINITY) > 1e307);
    assert_true (isnan (exp_f32 (NAN)) && isnan (exp_f64 (NAN)));
}

static double rmsnorm_value (void *arg)
{
    struct rows *a = arg;

    kern_rmsnorm_fwd_f64_host (a->y, a->rstd, a->x, a->w, a->s.N, a->s.C, EPS,
                               NULL);
    return dot (a->y, a->r, a->s.N * a->s.C);
}

static void rmsnorm_f32 (const struct rows *a, const double *dx,
                         const double *dw)
{
    size_t n = a->s.N * a->s.C;
    float *x = narrow (a->x, n), *w = narrow (a->w, a->s.C);
    float *r = narrow (a->r, n), *y = narrow (a->r, n);
    float *rstd = narrow (a->x, a->s.N);
    float *gx = calloc (n, sizeof (*gx)), *gw = calloc (a->s.C, sizeof (*gw));

    kern_rmsnorm_fwd_f32_host (y, rstd, x, w, a->s.N, a->s.C, EPS, NULL);
    check_f32 ("rmsnorm f32", y, a->y, n, F32_BOUND);
    kern_rmsnorm_bwd_f32_host (gx, gw, r, x, w, rstd, a->s.N, a->s.C, NULL,
                               NULL);
    /* with one column dx is a difference of nearly equal terms */
    if (a->s.C > 1)
        check_f32 ("rmsnorm dx f32", gx, dx, n, F32_BOUND);
    check_f32 ("rmsnorm dw f32", gw, dw, a->s.C, F32_BOUND);
    free (x);
    free (w);
    free (r);
    free (y);
    free (rstd);
    free (gx);
    free (gw);
}

static void test_rmsnorm (void **state)
{
    (void)state;
    for (size_t i = 0; i < LENGTH (shapes); i++) {
        struct rows a = {.s = shapes[i]};
        size_t n = a.s.N * a.s.C;
        double *dx = zeros (n), *dw = zeros (a.s.C), *dx2;

        a.x = numbers (n, 1);
        a.w = numbers (a.s.C, 2);
        a.r = numbers (n, 3);
        a.y = zeros (n);
        a.rstd = zeros (a.s.N);
        rmsnorm_value (&a);
        assert_true (fabs (a.rstd[0] * a.x[0] * a.w[0] - a.y[0]) < 1e-14);
        assert_true (fabs (a.rstd[0] * a.rstd[0]
                               * (dot (a.x, a.x, a.s.C) / (double)a.s.C + EPS)
                           - 1)
                     < 1e-14);
        kern_rmsnorm_bwd_f64_host (dx, dw, a.r, a.x, a.w, a.rstd, a.s.N, a.s.C,
                                   NULL, NULL);
        check_grad ("rmsnorm dw", dw, a.w, a.s.C, rmsnorm_value, &a);
        if (a.s.C > 1)
            check_grad ("rmsnorm dx", dx, a.x, n, rmsnorm_value, &a);
        rmsnorm_value (&a);
        rmsnorm_f32 (&a, dx, dw);
        /* both gradients are added to what is there */
        dx2 = numbers (n, 9);
        for (size_t j = 0; j < n; j++)
            dx[j] += dx2[j];
        kern_rmsnorm_bwd_f64_host (dx2, dw, a.r, a.x, a.w, a.rstd, a.s.N, a.s.C,
                                   NULL, NULL);
        check_close ("rmsnorm adds", dx2, dx, n, 1e-14);
        free (dx2);
        free (dx);
        free (dw);
        free (a.x);
        free (a.w);
        free (a.r);
        free (a.y);
        free (a.rstd);
    }
}

static double swiglu_value (void *arg)
{
    struct rows *a = arg;

    kern_swiglu_fwd_f64_host (a->y, a->x, a->s.N, a->s.C, NULL);
    return dot (a->y, a->r, a->s.N * a->s.C);
}

static void test_swiglu (void **state)
{
    (void)state;
    for (size_t i = 0; i < LENGTH (shapes); i++) {
        struct rows a = {.s = shapes[i]};
        size_t n = a.s.N * a.s.C;
        double *dx = zeros (2 * n);
        float *x, *y, *r;

        a.x = numbers (2 * n, 4);
        a.r = numbers (n, 5);
        a.y = zeros (n);
        for (size_t j = 0; j < 2 * n; j++)
            a.x[j] *= 8; /* both ends of the sigmoid */
        kern_swiglu_bwd_f64_host (dx, a.r, a.x, a.s.N, a.s.C, NULL);
        check_grad ("swiglu dx", dx, a.x, 2 * n, swiglu_value, &a);
        swiglu_value (&a);
        assert_true (fabs (a.y[0] - a.x[0] / (1 + exp (-a.x[0])) * a.x[a.s.C])
                     < 1e-14);
        x = narrow (a.x, 2 * n);
        r = narrow (a.r, n);
        y = narrow (a.r, n);
        kern_swiglu_fwd_f32_host (y, x, a.s.N, a.s.C, NULL);
        check_f32 ("swiglu f32", y, a.y, n, F32_BOUND);
        kern_swiglu_bwd_f32_host (x, r, x, a.s.N, a.s.C, NULL); /* in place */
        check_f32 ("swiglu dx f32", x, dx, 2 * n, F32_BOUND);
        free (x);
        free (r);
        free (y);
        free (dx);
        free (a.x);
        free (a.r);
        free (a.y);
    }
}

/* Far out, silu is its limit and no NaN: the clamp of exp shows here. */
static void test_swiglu_far (void **state)
{
    double far[6] = {-1e300, 1e300, -800, 1, 1, 1}, y[3], d[6];
    float far32[6] = {-1e30f, 1e30f, -200, 1, 1, 1}, y32[3];
    const double r[3] = {1, 1, 1};

    (void)state;
    kern_swiglu_fwd_f64_host (y, far, 1, 3, NULL);
    assert_true (fabs (y[0]) < 1e-5 && y[1] == 1e300 && fabs (y[2]) < 1e-300);
    kern_swiglu_bwd_f64_host (d, r, far, 1, 3, NULL);
    assert_true (d[1] == 1 && d[4] == 1e300 && fabs (d[2]) < 1e-300);
    kern_swiglu_fwd_f32_host (y32, far32, 1, 3, NULL);
    assert_true (fabsf (y32[0]) < 1e-7f && y32[1] == 1e30f
                 && fabsf (y32[2]) < 1e-30f);
    far[0] = NAN;
    kern_swiglu_fwd_f64_host (y, far, 1, 3, NULL);
    assert_true (isnan (y[0]) && !isnan (y[1]));
}

struct rope {
    size_t B, T, heads, D, row;
    double *x, *cosine, *sine, *r;
};

static void rope_tables (const struct rope *a)
{
    for (size_t t = 0; t < a->T; t++) {
        for (size_t j = 0; j < a->D / 2; j++) {
            double angle =
                (double)t * pow (100, -2.0 * (double)j / (double)a->D);

            a->cosine[t * a->D / 2 + j] = cos (angle);
            a->sine[t * a->D / 2 + j] = sin (angle);
        }
    }
}

static double rope_value (void *arg)
{
    struct rope *a = arg;
    size_t n = a->B * a->T * a->row;
    double *y = zeros (n), value;

    memcpy (y, a->x, n * sizeof (*y));
    kern_rope_fwd_f64_host (y, a->cosine, a->sine, a->B, a->T, a->heads, a->D,
                            a->row, NULL);
    value = dot (y, a->r, n);
    free (y);
    return value;
}

static void test_rope (void **state)
{
    static const struct rope shapes_rope[] = {
        {.B = 1, .T = 1, .heads = 1, .D = 2, .row = 2},
        {.B = 2, .T = 5, .heads = 3, .D = 6, .row = 25},
        {.B = 1, .T = 4, .heads = 2, .D = 18, .row = 36},
    };

    (void)state;
    for (size_t i = 0; i < LENGTH (shapes_rope); i++) {
        struct rope a = shapes_rope[i];
        size_t n = a.B * a.T * a.row, half = a.T * a.D / 2;
        double *grad;
        float *x, *c, *s;

        a.x = numbers (n, 6);
        a.r = numbers (n, 7);
        a.cosine = zeros (half);
        a.sine = zeros (half);
        rope_tables (&a);
        grad = zeros (n);
        memcpy (grad, a.r, n * sizeof (*grad));
        kern_rope_bwd_f64_host (grad, a.cosine, a.sine, a.B, a.T, a.heads, a.D,
                                a.row, NULL);
        check_grad ("rope", grad, a.x, n, rope_value, &a);
        x = narrow (a.x, n);
        c = narrow (a.cosine, half);
        s = narrow (a.sine, half);
        kern_rope_fwd_f32_host (x, c, s, a.B, a.T, a.heads, a.D, a.row, NULL);
        /* a rotation keeps the past of each row and turns back */
        kern_rope_fwd_f64_host (a.x, a.cosine, a.sine, a.B, a.T, a.heads, a.D,
                                a.row, NULL);
        check_f32 ("rope f32", x, a.x, n, F32_BOUND);
        kern_rope_bwd_f64_host (a.x, a.cosine, a.sine, a.B, a.T, a.heads, a.D,
                                a.row, NULL);
        free (grad);
        grad = numbers (n, 6);
        check_close ("rope there and back", a.x, grad, n, 1e-14);
        free (x);
        free (c);
        free (s);
        free (grad);
        free (a.x);
        free (a.r);
        free (a.cosine);
        free (a.sine);
    }
}

/* By hand: D = 2, angle t. */
static void test_rope_vector (void **state)
{
    double x[4] = {1, 0, 1, 0};
    const double c[2] = {1, 0.6}, s[2] = {0, 0.8};

    (void)state;
    kern_rope_fwd_f64_host (x, c, s, 1, 2, 1, 2, 2, NULL);
    assert_true (x[0] == 1 && x[1] == 0 && x[2] == 0.6 && x[3] == 0.8);
}

static void test_embedding (void **state)
{
    const int32_t tokens[5] = {2, 0, 2, 2, 1};
    double *w = numbers (3 * 7, 8), *dy = numbers (5 * 7, 9);
    double y[5 * 7], dw[3 * 7], want[3 * 7];
    float *w32 = narrow (w, 3 * 7), *dy32 = narrow (dy, 5 * 7), y32[5 * 7];

    (void)state;
    kern_embedding_fwd_f64_host (y, w, tokens, 5, 7, NULL);
    kern_embedding_fwd_f32_host (y32, w32, tokens, 5, 7, NULL);
    for (size_t i = 0; i < 35; i++)
        assert_true (y[i] == w[tokens[i / 7] * 7 + (int)(i % 7)]
                     && y32[i] == (float)y[i]);
    for (size_t i = 0; i < 21; i++)
        dw[i] = want[i] = 0.5;
    for (size_t i = 0; i < 35; i++)
        want[tokens[i / 7] * 7 + (int)(i % 7)] += dy[i];
    kern_embedding_bwd_f64_host (dw, dy, tokens, 5, 7, 3, NULL, NULL);
    check_close ("embedding dw", dw, want, 21, 1e-15);
    for (size_t i = 0; i < 21; i++)
        w32[i] = 0.5f;
    kern_embedding_bwd_f32_host (w32, dy32, tokens, 5, 7, 3, NULL, NULL);
    check_f32 ("embedding dw f32", w32, want, 21, F32_BOUND);
    free (w);
    free (dy);
    free (w32);
    free (dy32);
}

static void test_residual (void **state)
{
    double *x = numbers (37, 10), *r = numbers (37, 11);
    float *x32 = narrow (x, 37), *r32 = narrow (r, 37);

    (void)state;
    kern_residual_fwd_f32_host (x32, x32, r32, 37, NULL);
    for (size_t i = 0; i < 37; i++)
        r[i] += x[i];
    check_f32 ("residual f32", x32, r, 37, F32_BOUND);
    for (size_t i = 0; i < 37; i++)
        r[i] -= x[i];
    kern_residual_fwd_f64_host (r, x, r, 37, NULL);
    check_f32 ("residual", x32, r, 37, F32_BOUND);
    free (x);
    free (r);
    free (x32);
    free (r32);
}

int main (void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test (test_rmsnorm),     cmocka_unit_test (test_swiglu),
        cmocka_unit_test (test_swiglu_far),  cmocka_unit_test (test_rope),
        cmocka_unit_test (test_rope_vector), cmocka_unit_test (test_embedding),
        cmocka_unit_test (test_residual),    cmocka_unit_test (test_exp),
    };

    return cmocka_run_group_tests (tests, NULL, NULL);
}
