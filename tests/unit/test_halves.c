/* SPDX-License-Identifier: Apache-2.0
 * test_halves.c - row-wise host kernels, products and attention in bf16 and f16
 * beside f64 on the same numbers. Odd sizes, one row, NaN, Inf, poisoned
 * outputs. */
#include "half_check.h"

#define EPS 0.01

struct shape {
    size_t N, C;
};

static const struct shape shapes[] = {{1, 1}, {1, 7}, {3, 33}, {5, 16}};

static void rmsnorm (const struct half_type *t, size_t N, size_t C)
{
    size_t n = N * C;
    double *wide = zeros (4 * n + C), *x = wide, *w = x + n, *dy = w + C;
    double *dx = dy + n, *y = dx + n, *rstd = zeros (N), *dw = zeros (C);
    uint16_t *hx = halves (t, x, n, 1), *hw = halves (t, w, C, 2);
    uint16_t *hdy = halves (t, dy, n, 3), *hdx = halves (t, dx, n, 4);
    uint16_t *hy = poisoned (t, n);
    float *r = calloc (N + 1, 4), *hdw = calloc (C + 1, 4);

    hdx[n] = t->nan;
    kern_rmsnorm_fwd_f64_host (y, rstd, x, w, N, C, EPS, NULL);
    HALF_CALL (t, rmsnorm_fwd, hy, r, hx, hw, N, C, EPS, NULL);
    check_half (t, "rmsnorm", hy, y, n, 0);
    check_f32 ("rstd", r, rstd, N, F32_BOUND);
    for (size_t c = 0; c < C; c++)
        dw[c] = hdw[c] = 0.5f;
    kern_rmsnorm_bwd_f64_host (dx, dw, dy, x, w, rstd, N, C, NULL, NULL);
    HALF_CALL (t, rmsnorm_bwd, hdx, hdw, hdy, hx, hw, r, N, C, NULL, NULL);
    check_half (t, "rmsnorm dx", hdx, dx, n, 1);
    check_f32 ("rmsnorm dw", hdw, dw, C, F32_BOUND);
    free (wide);
    free (rstd);
    free (dw);
    free (hx);
    free (hw);
    free (hdy);
    free (hdx);
    free (hy);
    free (r);
    free (hdw);
}

static void test_rmsnorm (void **state)
{
    (void)state;
    for (size_t i = 0; i < LENGTH (shapes); i++)
        for (int k = 0; k < 2; k++)
            rmsnorm (&half_types[k], shapes[i].N, shapes[i].C);
}

static void swiglu (const struct half_type *t, size_t N, size_t F)
{
    size_t n = N * F;
    double *gu = zeros (2 * n), *dy = zeros (n), *y = zeros (n);
    double *dgu = zeros (2 * n);
    uint16_t *hgu = halves (t, gu, 2 * n, 5), *hdy = halves (t, dy, n, 6);
    uint16_t *hy = poisoned (t, n), *hdgu = poisoned (t, 2 * n), *again;

    for (size_t i = 0; i < 2 * n; i++) { /* both ends of the sigmoid */
        gu[i] *= 8;
        hgu[i] = t->put ((float)gu[i]);
    }
    kern_swiglu_fwd_f64_host (y, gu, N, F, NULL);
    HALF_CALL (t, swiglu_fwd, hy, hgu, N, F, NULL);
    check_half (t, "swiglu", hy, y, n, 0);
    kern_swiglu_bwd_f64_host (dgu, dy, gu, N, F, NULL);
    HALF_CALL (t, swiglu_bwd, hdgu, hdy, hgu, N, F, NULL);
    check_half (t, "swiglu d", hdgu, dgu, 2 * n, 0.01);
    hgu[2 * n] = t->nan;
    again = poisoned (t, 2 * n);
    memcpy (again, hgu, 2 * n * 2);
    HALF_CALL (t, swiglu_bwd, hgu, hdy, hgu, N, F, NULL); /* in place */
    assert_memory_equal (hgu, hdgu, 2 * n * 2);
    HALF_CALL (t, swiglu_again_bwd, again, hdy, hdy, again, N, F, NULL);
    assert_memory_equal (again, hdgu, 2 * n * 2);
    assert_memory_equal (hdy, hy, n * 2); /* y, in dy's place */
    free (again);
    free (gu);
    free (dy);
    free (y);
    free (dgu);
    free (hgu);
    free (hdy);
    free (hy);
    free (hdgu);
}

static void test_swiglu (void **state)
{
    (void)state;
    for (size_t i = 0; i < LENGTH (shapes); i++)
        for (int k = 0; k < 2; k++)
            swiglu (&half_types[k], shapes[i].N, shapes[i].C);
}

static void rope (const struct half_type *t, size_t B, size_t T, size_t heads,
                  size_t D, size_t row)
{
    size_t n = B * T * row, half = T * D / 2;
    double *x = zeros (n), *c = numbers (half, 7), *s = numbers (half, 8);
    float *c32 = narrow (c, half), *s32 = narrow (s, half);
    uint16_t *h = halves (t, x, n, 9);

    h[n] = t->nan;
    kern_rope_fwd_f64_host (x, c, s, B, T, heads, D, row, NULL);
    HALF_CALL (t, rope_fwd, h, c32, s32, B, T, heads, D, row, NULL);
    check_half (t, "rope", h, x, n, 0);
    for (size_t i = 0; i < n; i++)
        x[i] = (double)t->get (h[i]);
    kern_rope_bwd_f64_host (x, c, s, B, T, heads, D, row, NULL);
    HALF_CALL (t, rope_bwd, h, c32, s32, B, T, heads, D, row, NULL);
    check_half (t, "rope back", h, x, n, 0);
    free (x);
    free (c);
    free (s);
    free (c32);
    free (s32);
    free (h);
}

static void test_rope (void **state)
{
    (void)state;
    for (int k = 0; k < 2; k++) {
        rope (&half_types[k], 1, 1, 1, 2, 2);
        rope (&half_types[k], 2, 5, 3, 6, 25);
        rope (&half_types[k], 1, 4, 2, 18, 36);
    }
}

static void embedding (const struct half_type *t)
{
    const int32_t tokens[5] = {2, 0, 2, 2, 1};
    double w[21], dy[35], dw[21], y[35];
    uint16_t *hw = halves (t, w, 21, 8), *hdy = halves (t, dy, 35, 9);
    uint16_t *hy = poisoned (t, 35);
    float hdw[21];

    for (size_t i = 0; i < 21; i++)
        dw[i] = hdw[i] = 0.5f;
    kern_embedding_fwd_f64_host (y, w, tokens, 5, 7, NULL);
    HALF_CALL (t, embedding_fwd, hy, hw, tokens, 5, 7, NULL);
    for (size_t i = 0; i < 35; i++)
        assert_true ((double)t->get (hy[i]) == y[i]);
    assert_int_equal (hy[35], t->nan);
    kern_embedding_bwd_f64_host (dw, dy, tokens, 5, 7, 3, NULL, NULL);
    HALF_CALL (t, embedding_bwd, hdw, hdy, tokens, 5, 7, 3, NULL, NULL);
    check_f32 ("embedding dw", hdw, dw, 21, F32_BOUND);
    free (hw);
    free (hdy);
    free (hy);
}

static void residual (const struct half_type *t)
{
    double x[37], r[37];
    uint16_t *hx = halves (t, x, 37, 10), *hr = halves (t, r, 37, 11);
    uint16_t *y = poisoned (t, 37);

    HALF_CALL (t, residual_fwd, y, hx, hr, 37, NULL);
    HALF_CALL (t, residual_fwd, hx, hx, hr, 37, NULL);
    assert_memory_equal (y, hx, 37 * 2);
    for (size_t i = 0; i < 37; i++)
        assert_int_equal (y[i], t->put ((float)(x[i] + r[i])));
    assert_int_equal (y[37], t->nan);
    free (hx);
    free (hr);
    free (y);
}

static void test_embedding_residual (void **state)
{
    (void)state;
    for (int k = 0; k < 2; k++) {
        embedding (&half_types[k]);
        residual (&half_types[k]);
    }
}

static void matmul (const struct half_type *t, size_t N, size_t in, size_t out)
{
    double *x = zeros (N * in), *w = zeros (out * in), *dy = zeros (N * out);
    double *y = zeros (N * out), *dx = zeros (N * in), *dw = zeros (out * in);
    uint16_t *hx = halves (t, x, N * in, 1), *hw = halves (t, w, out * in, 2);
    uint16_t *hdy = halves (t, dy, N * out, 3), *hy = poisoned (t, N * out);
    uint16_t *hdx = poisoned (t, N * in);
    float *hdw = calloc (out * in + 1, 4);

    kern_matmul_fwd_f64_host (y, x, w, N, in, out, NULL);
    HALF_CALL (t, matmul_fwd, hy, hx, hw, N, in, out, NULL);
    check_half (t, "matmul", hy, y, N * out, 1);
    for (size_t i = 0; i < out * in; i++)
        dw[i] = hdw[i] = 0.25f;
    kern_matmul_bwd_f64_host (dx, dw, dy, x, w, N, in, out, NULL);
    HALF_CALL (t, matmul_bwd, hdx, hdw, hdy, hx, hw, N, in, out, NULL);
    check_half (t, "matmul dx", hdx, dx, N * in, 1);
    check_f32 ("matmul dw", hdw, dw, out * in, F32_BOUND);
    HALF_CALL (t, matmul_bwd, NULL, NULL, hdy, hx, hw, N, in, out, NULL);
    free (x);
    free (w);
    free (dy);
    free (y);
    free (dx);
    free (dw);
    free (hx);
    free (hw);
    free (hdy);
    free (hy);
    free (hdx);
    free (hdw);
}

/* Sizes on both sides of a tile and of its depth. */
static void test_matmul (void **state)
{
    (void)state;
    for (int k = 0; k < 2; k++) {
        matmul (&half_types[k], 1, 1, 1);
        matmul (&half_types[k], 1, 257, 5);
        matmul (&half_types[k], 130, 3, 129);
        matmul (&half_types[k], 128, 300, 64);
        matmul (&half_types[k], 261, 129, 131);
    }
}

static void attention (const struct half_type *t, size_t B, size_t T, size_t H,
                       size_t G, size_t D)
{
    size_t in = B * T * (H + 2 * G) * D, out = B * T * H * D, rows = B * H * T;
    double *qkv = zeros (in), *dy = zeros (out), *y = zeros (out);
    double *dqkv = zeros (in), *lse = zeros (rows);
    double *scratch = zeros (kern_attention_scratch (T));
    float *s = malloc (kern_attention_half_scratch (T, H, G, D) * 4 + 4);
    float *hlse = malloc (rows * 4);
    uint16_t *hqkv = halves (t, qkv, in, 1), *hdy = halves (t, dy, out, 2);
    uint16_t *hy = poisoned (t, out), *hdqkv = poisoned (t, in);

    memset (s, 0xff, kern_attention_half_scratch (T, H, G, D) * 4 + 4);
    kern_attention_fwd_f64_host (y, lse, qkv, scratch, B, T, H, G, D, 0.5,
                                 NULL);
    HALF_CALL (t, attention_fwd, hy, hlse, hqkv, s, B, T, H, G, D, 0.5, NULL);
    check_half (t, "attention", hy, y, out, 1);
    check_f32 ("lse", hlse, lse, rows, F32_BOUND);
    kern_attention_bwd_f64_host (dqkv, dy, y, lse, qkv, scratch, B, T, H, G, D,
                                 0.5, NULL);
    HALF_CALL (t, attention_bwd, hdqkv, hdy, hy, hlse, hqkv, s, B, T, H, G, D,
               0.5, NULL);
    /* delta = dy . y is taken from the rounded y */
    check_half (t, "attention d", hdqkv, dqkv, in, 100);
    assert_memory_equal (s + kern_attention_half_scratch (T, H, G, D),
                         "\xff\xff\xff\xff", 4);
    free (qkv);
    free (dy);
    free (y);
    free (dqkv);
    free (lse);
    free (scratch);
    free (s);
    free (hlse);
    free (hqkv);
    free (hdy);
    free (hy);
    free (hdqkv);
}

static void test_attention (void **state)
{
    (void)state;
    for (int k = 0; k < 2; k++) {
        attention (&half_types[k], 1, 1, 1, 1, 2);
        attention (&half_types[k], 2, 67, 4, 2, 6);
        attention (&half_types[k], 1, 130, 3, 1, 10);
    }
}

/* What is not finite stays so, and in its own row. */
static void test_not_finite (void **state)
{
    (void)state;
    for (int k = 0; k < 2; k++) {
        const struct half_type *t = &half_types[k];
        uint16_t one = t->put (1), x[6] = {one, one, one, one, one, one};
        uint16_t w[3] = {one, one, one}, y[6];
        float rstd[2];

        x[1] = t->nan;
        HALF_CALL (t, rmsnorm_fwd, y, rstd, x, w, 2, 3, 1e-5, NULL);
        assert_true (isnan (t->get (y[0])) && isnan (rstd[0]));
        assert_true (y[3] == one && isfinite (rstd[1]));
        HALF_CALL (t, residual_fwd, y, x, x, 6, NULL);
        assert_true (isnan (t->get (y[1])) && t->get (y[0]) == 2);
        x[1] = t->inf;
        HALF_CALL (t, residual_fwd, y, x, x, 6, NULL);
        assert_int_equal (y[1], t->inf);
        HALF_CALL (t, swiglu_fwd, y, x, 1, 3, NULL);
        assert_int_equal (y[1], t->inf);
        HALF_CALL (t, matmul_fwd, y, x, w, 2, 3, 1, NULL);
        assert_true (y[0] == t->inf && t->get (y[1]) == 3);
    }
    {
        uint16_t big[1] = {half_to_f16 (60000)}, y[1]; /* too large a sum */

        kern_residual_fwd_f16_host (y, big, big, 1, NULL);
        assert_int_equal (y[0], 0x7c00);
    }
}

int main (void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test (test_rmsnorm),
        cmocka_unit_test (test_swiglu),
        cmocka_unit_test (test_rope),
        cmocka_unit_test (test_embedding_residual),
        cmocka_unit_test (test_matmul),
        cmocka_unit_test (test_attention),
        cmocka_unit_test (test_not_finite),
    };

    return cmocka_run_group_tests (tests, NULL, NULL);
}
