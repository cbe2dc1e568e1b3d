/* SPDX-License-Identifier: Apache-2.0
 * test_attention.c - attention against its definition, its gradient against
 * central differences, f32 against f64; one position, groups of 1, 2 and 4,
 * sequences around the kernel's block of rows */
#include "kern_check.h"

struct attention {
    size_t B, T, H, G, D;
    double *qkv, *y, *lse, *scratch, *r;
};

static size_t row_of (const struct attention *a)
{
    return (a->H + 2 * a->G) * a->D;
}

static double scale_of (const struct attention *a)
{
    return 1 / sqrt ((double)a->D);
}

static void make (struct attention *a)
{
    size_t n = a->B * a->T;

    a->qkv = numbers (n * row_of (a), 1);
    a->r = numbers (n * a->H * a->D, 2);
    a->y = zeros (n * a->H * a->D);
    a->lse = zeros (n * a->H);
    a->scratch = zeros (kern_attention_scratch (a->T));
    for (size_t i = 0; i < n * row_of (a); i++)
        a->qkv[i] *= 2;
    /* garbage that would show */
    for (size_t i = 0; i < kern_attention_scratch (a->T); i++)
        a->scratch[i] = NAN;
}

static void drop (struct attention *a)
{
    free (a->qkv);
    free (a->r);
    free (a->y);
    free (a->lse);
    free (a->scratch);
}

static double value (void *arg)
{
    struct attention *a = arg;

    kern_attention_fwd_f64_host (a->y, a->lse, a->qkv, a->scratch, a->B, a->T,
                                 a->H, a->G, a->D, scale_of (a), NULL);
    return dot (a->y, a->r, a->B * a->T * a->H * a->D);
}

/* One output row by the formula, nothing shared with the kernel. */
static void by_definition (const struct attention *a, size_t b, size_t t,
                           size_t h, double *y, double *ret_lse)
{
    size_t row = row_of (a), g = h / (a->H / a->G);
    const double *base = a->qkv + b * a->T * row;
    const double *q = base + t * row + h * a->D;
    double sum = 0;

    memset (y, 0, a->D * sizeof (*y));
    for (size_t u = 0; u <= t; u++) {
        const double *k = base + u * row + (a->H + g) * a->D;
        const double *v = k + a->G * a->D;
        double p = exp (scale_of (a) * dot (q, k, a->D));

        sum += p;
        for (size_t d = 0; d < a->D; d++)
            y[d] += p * v[d];
    }
    for (size_t d = 0; d < a->D; d++)
        y[d] /= sum;
    *ret_lse = log (sum);
}

static void check_forward (struct attention *a)
{
    double *want = zeros (a->D), lse;

    value (a);
    for (size_t b = 0; b < a->B; b++) {
        for (size_t t = 0; t < a->T; t++) {
            for (size_t h = 0; h < a->H; h++) {
                by_definition (a, b, t, h, want, &lse);
                check_close ("attention",
                             a->y + ((b * a->T + t) * a->H + h) * a->D, want,
                             a->D, 1e-13);
                assert_true (fabs (a->lse[(b * a->H + h) * a->T + t] - lse)
                             < 1e-13);
            }
        }
    }
    free (want);
}

static double *backward (struct attention *a)
{
    double *grad = numbers (a->B * a->T * row_of (a), 3); /* overwritten */

    value (a);
    kern_attention_bwd_f64_host (grad, a->r, a->y, a->lse, a->qkv, a->scratch,
                                 a->B, a->T, a->H, a->G, a->D, scale_of (a),
                                 NULL);
    return grad;
}

static void check_f32_twin (struct attention *a)
{
    size_t n = a->B * a->T, out = n * a->H * a->D, in = n * row_of (a);
    size_t n_scratch = kern_attention_scratch (a->T);
    float *qkv = narrow (a->qkv, in), *r = narrow (a->r, out);
    float *y = narrow (a->r, out), *lse = narrow (a->lse, n * a->H);
    float *scratch = narrow (a->scratch, n_scratch), *g = narrow (a->qkv, in);
    double *grad = backward (a);

    kern_attention_fwd_f32_host (y, lse, qkv, scratch, a->B, a->T, a->H, a->G,
                                 a->D, scale_of (a), NULL);
    check_f32 ("attention f32", y, a->y, out, F32_BOUND);
    kern_attention_bwd_f32_host (g, r, y, lse, qkv, scratch, a->B, a->T, a->H,
                                 a->G, a->D, scale_of (a), NULL);
    if (a->T > 1) /* at one position q and k have no gradient: rounding */
        check_f32 ("attention dqkv f32", g, grad, in, F32_BOUND);
    free (grad);
    free (qkv);
    free (r);
    free (y);
    free (lse);
    free (scratch);
    free (g);
}

static const struct attention small[] = {
    {.B = 1, .T = 1, .H = 1, .G = 1, .D = 2},
    {.B = 2, .T = 1, .H = 2, .G = 1, .D = 3},
    {.B = 2, .T = 7, .H = 3, .G = 3, .D = 5},
    {.B = 1, .T = 9, .H = 4, .G = 2, .D = 4},
    {.B = 1, .T = 5, .H = 4, .G = 1, .D = 6},
};

/* Past one block of rows, exactly one, and one more than two. */
static const struct attention large[] = {
    {.B = 1, .T = 64, .H = 2, .G = 1, .D = 8},
    {.B = 1, .T = 65, .H = 2, .G = 2, .D = 8},
    {.B = 2, .T = 129, .H = 4, .G = 2, .D = 6},
};

static void test_forward (void **state)
{
    (void)state;
    for (size_t i = 0; i < LENGTH (small) + LENGTH (large); i++) {
        struct attention a =
            i < LENGTH (small) ? small[i] : large[i - LENGTH (small)];

        make (&a);
        check_forward (&a);
        check_f32_twin (&a);
        drop (&a);
    }
}

static void test_gradient (void **state)
{
    (void)state;
    for (size_t i = 0; i < LENGTH (small) + 1; i++) {
        struct attention a = i < LENGTH (small) ? small[i] : large[1];
        double *grad;

        if (i == LENGTH (small)) /* over a block's edge, but quick */
            a.H = a.G = 1, a.D = 2;
        make (&a);
        grad = backward (&a);
        check_grad ("attention dqkv", grad, a.qkv, a.B * a.T * row_of (&a),
                    value, &a);
        free (grad);
        drop (&a);
    }
}

/* No position sees a later one: changing the last changes no earlier row. */
static void test_causal (void **state)
{
    struct attention a = large[2];
    size_t row = row_of (&a), out = a.H * a.D;
    double *before;

    (void)state;
    make (&a);
    value (&a);
    before = zeros (a.B * a.T * out);
    memcpy (before, a.y, a.B * a.T * out * sizeof (*before));
    for (size_t i = 0; i < row; i++)
        a.qkv[(a.T - 1) * row + i] = 1e3;
    value (&a);
    assert_memory_equal (before, a.y, (a.T - 1) * out * sizeof (*before));
    assert_memory_not_equal (before + (a.T - 1) * out, a.y + (a.T - 1) * out,
                             out * sizeof (*before));
    free (before);
    drop (&a);
}

int main (void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test (test_forward),
        cmocka_unit_test (test_gradient),
        cmocka_unit_test (test_causal),
    };

    return cmocka_run_group_tests (tests, NULL, NULL);
}
