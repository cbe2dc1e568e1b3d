/* SPDX-License-Identifier: Apache-2.0
 * test_docs.c - attention within documents against its definition, its gradient
 * against central differences, each document against itself alone, the other
 * dtypes against f64; positions */
#include "half_check.h"

#include <stdbool.h>

#include "kernels/docs.h"

#define H   4
#define G   2
#define D   4
#define ROW ((H + 2 * G) * D)

/* Rows of T positions; [lengths] of their documents, row by row, 0 ends. */
struct docs {
    size_t B, T;
    const int *lengths;
    int32_t *starts;
    double *qkv, *y, *lse, *scratch, *r;
};

static void make (struct docs *a)
{
    size_t n = a->B * a->T;

    a->starts = calloc (n, sizeof (*a->starts));
    assert_non_null (a->starts);
    for (size_t i = 0, k = 0; a->lengths[k]; k++)
        for (int j = 0; j < a->lengths[k]; j++, i++)
            a->starts[i] = (int32_t)((i - (size_t)j) % a->T);
    a->qkv = numbers (n * ROW, 1);
    a->r = numbers (n * H * D, 2);
    a->y = zeros (n * H * D);
    a->lse = zeros (n * H);
    a->scratch = zeros (kern_attention_scratch (a->T));
    for (size_t i = 0; i < n * ROW; i++)
        a->qkv[i] *= 2;
}

static void drop (struct docs *a)
{
    free (a->starts);
    free (a->qkv);
    free (a->r);
    free (a->y);
    free (a->lse);
    free (a->scratch);
}

static double value (void *arg)
{
    struct docs *a = arg;

    kern_attention_docs_fwd_f64_host (a->y, a->lse, a->qkv, a->starts,
                                      a->scratch, a->B, a->T, H, G, D, 0.5,
                                      NULL);
    return dot (a->y, a->r, a->B * a->T * H * D);
}

static double *backward (struct docs *a)
{
    double *grad = numbers (a->B * a->T * ROW, 3); /* overwritten */

    value (a);
    kern_attention_docs_bwd_f64_host (grad, a->r, a->y, a->lse, a->qkv,
                                      a->starts, a->scratch, a->B, a->T, H, G,
                                      D, 0.5, NULL);
    return grad;
}

/* One output row by the formula, nothing shared with the kernel. */
static void by_definition (const struct docs *a, size_t b, size_t t, size_t h,
                           double *y, double *ret_lse)
{
    const double *base = a->qkv + b * a->T * ROW;
    const double *q = base + t * ROW + h * D;
    double sum = 0;

    memset (y, 0, D * sizeof (*y));
    for (size_t u = (size_t)a->starts[b * a->T + t]; u <= t; u++) {
        const double *k = base + u * ROW + (H + h / (H / G)) * D;
        double p = exp (0.5 * dot (q, k, D));

        sum += p;
        for (size_t d = 0; d < D; d++)
            y[d] += p * k[G * D + d];
    }
    for (size_t d = 0; d < D; d++)
        y[d] /= sum;
    *ret_lse = log (sum);
}

static const int few[] = {3, 1, 5, 9, 4, 4, 1, 0};
static const int blocks[] = {64, 65, 1, 70, 200, 0}; /* around 64 rows */
static const struct docs cases[] = {{3, 9, few, 0, 0, 0, 0, 0, 0},
                                    {2, 200, blocks, 0, 0, 0, 0, 0, 0}};

static void test_forward (void **state)
{
    double want[D], lse;

    (void)state;
    for (size_t i = 0; i < LENGTH (cases); i++) {
        struct docs a = cases[i];

        make (&a);
        value (&a);
        for (size_t n = 0; n < a.B * a.T * H; n++) {
            size_t h = n % H, t = n / H % a.T, b = n / H / a.T;

            by_definition (&a, b, t, h, want, &lse);
            check_close ("attention", a.y + n * D, want, D, 1e-13);
            assert_true (fabs (a.lse[(b * H + h) * a.T + t] - lse) < 1e-13);
        }
        drop (&a);
    }
}

static void test_gradient (void **state)
{
    struct docs a = cases[0];
    double *grad;

    (void)state;
    make (&a);
    grad = backward (&a);
    check_grad ("attention dqkv", grad, a.qkv, a.B * a.T * ROW, value, &a);
    free (grad);
    drop (&a);
}

/* The bits of a document are those that it has alone in a row. */
static void test_alone (void **state)
{
    struct docs a = cases[1];
    double *grad, *y, *lse, *own;

    (void)state;
    make (&a);
    grad = backward (&a);
    y = zeros (a.T * H * D), lse = zeros (a.T * H), own = zeros (a.T * ROW);
    for (size_t k = 0, at = 0; a.lengths[k]; k++) {
        size_t n = (size_t)a.lengths[k], v = at * H * D;

        kern_attention_fwd_f64_host (y, lse, a.qkv + at * ROW, a.scratch, 1, n,
                                     H, G, D, 0.5, NULL);
        assert_memory_equal (y, a.y + v, n * H * D * sizeof (*y));
        kern_attention_bwd_f64_host (own, a.r + v, y, lse, a.qkv + at * ROW,
                                     a.scratch, 1, n, H, G, D, 0.5, NULL);
        assert_memory_equal (own, grad + at * ROW, n * ROW * sizeof (*own));
        at += n;
    }
    free (grad);
    free (y);
    free (lse);
    free (own);
    drop (&a);
}

static void halves_of (const struct docs *a, const struct half_type *t)
{
    size_t n = a->B * a->T, in = n * ROW, out = n * H * D;
    bool bf16 = t == &half_types[0];
    double *qkv = zeros (in), *dy = zeros (out), *y = zeros (out);
    double *dqkv = zeros (in), *lse = zeros (n * H);
    float *s = calloc (kern_attention_half_scratch (a->T, H, G, D), 4);
    float *hlse = calloc (n * H, 4);
    uint16_t *hqkv = halves (t, qkv, in, 1), *hdy = halves (t, dy, out, 2);
    uint16_t *hy = poisoned (t, out), *hdqkv = poisoned (t, in);

    assert_true (s && hlse);
    kern_attention_docs_fwd_f64_host (y, lse, qkv, a->starts, a->scratch, a->B,
                                      a->T, H, G, D, 0.5, NULL);
    kern_attention_docs_bwd_f64_host (dqkv, dy, y, lse, qkv, a->starts,
                                      a->scratch, a->B, a->T, H, G, D, 0.5,
                                      NULL);
    (bf16 ? kern_attention_docs_fwd_bf16_host
          : kern_attention_docs_fwd_f16_host) (hy, hlse, hqkv, a->starts, s,
                                               a->B, a->T, H, G, D, 0.5, NULL);
    (bf16 ? kern_attention_docs_bwd_bf16_host
          : kern_attention_docs_bwd_f16_host) (hdqkv, hdy, hy, hlse, hqkv,
                                               a->starts, s, a->B, a->T, H, G,
                                               D, 0.5, NULL);
    check_half (t, "attention", hy, y, out, 1);
    check_f32 ("lse", hlse, lse, n * H, F32_BOUND);
    check_half (t, "attention d", hdqkv, dqkv, in, 100);
    free (qkv), free (dy), free (y), free (dqkv), free (lse), free (s);
    free (hlse), free (hqkv), free (hdy), free (hy), free (hdqkv);
}

static void test_types (void **state)
{
    struct docs a = cases[1];
    size_t n = a.B * a.T;
    double *grad;
    float *qkv, *r, *y, *lse, *scratch, *g;

    (void)state;
    make (&a);
    grad = backward (&a);
    qkv = narrow (a.qkv, n * ROW), r = narrow (a.r, n * H * D);
    y = narrow (a.r, n * H * D), lse = narrow (a.lse, n * H);
    scratch = narrow (a.scratch, kern_attention_scratch (a.T));
    g = narrow (a.qkv, n * ROW);
    kern_attention_docs_fwd_f32_host (y, lse, qkv, a.starts, scratch, a.B, a.T,
                                      H, G, D, 0.5, NULL);
    kern_attention_docs_bwd_f32_host (g, r, y, lse, qkv, a.starts, scratch, a.B,
                                      a.T, H, G, D, 0.5, NULL);
    check_f32 ("attention f32", y, a.y, n * H * D, F32_BOUND);
    check_f32 ("attention dqkv f32", g, grad, n * ROW, F32_BOUND);
    halves_of (&a, &half_types[0]);
    halves_of (&a, &half_types[1]);
    free (grad), free (qkv), free (r), free (y), free (lse), free (scratch);
    free (g);
    drop (&a);
}

static void test_positions (void **state)
{
    static const int32_t starts[6] = {0, 0, 2, 0, 1, 1};
    const double table[6] = {1, 2, 3, 4, 5, 6};
    const double want[12] = {1, 2, 3, 4, 1, 2, 1, 2, 1, 2, 3, 4};
    double y[12];

    (void)state;
    kern_positions_f64_host (y, table, starts, 6, 3, 2, NULL);
    assert_memory_equal (y, want, sizeof (want));
}

int main (void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test (test_forward),   cmocka_unit_test (test_gradient),
        cmocka_unit_test (test_alone),     cmocka_unit_test (test_types),
        cmocka_unit_test (test_positions),
    };

    return cmocka_run_group_tests (tests, NULL, NULL);
}
