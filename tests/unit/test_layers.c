/* SPDX-License-Identifier: Apache-2.0
 * test_layers.c - addnorm, headnorm and bias on the host: gradients by central
 * differences in f64, as the kernels that they fuse, and the other dtypes beside
 * f64 */
#include "half_check.h"

#define EPS 0.01

struct norm {
    size_t N, C;
    double *x, *t, *w, *r, *rmid, *y, *mid, *rstd;
};

/* Seen through both outputs, as the stream and the norm hang on mid. */
static double addnorm_value (void *arg)
{
    struct norm *a = arg;

    kern_addnorm_fwd_f64_host (a->y, a->mid, a->rstd, a->x, a->t, a->w, a->N,
                               a->C, EPS, NULL);
    return dot (a->y, a->r, a->N * a->C) + dot (a->mid, a->rmid, a->N * a->C);
}

static void addnorm (size_t N, size_t C)
{
    size_t n = N * C;
    struct norm a = {N,
                     C,
                     numbers (n, 1),
                     numbers (n, 2),
                     numbers (C, 3),
                     numbers (n, 4),
                     numbers (n, 5),
                     zeros (n),
                     zeros (n),
                     zeros (N)};
    double *dx = zeros (n), *dw = numbers (C, 6), *was = numbers (C, 6);
    double *same = zeros (n);

    memset (dx, 0xff, n * sizeof (*dx));
    addnorm_value (&a);
    kern_addnorm_bwd_f64_host (dx, dw, a.r, a.rmid, a.mid, a.w, a.rstd, N, C,
                               NULL, NULL);
    for (size_t c = 0; c < C; c++)
        dw[c] -= was[c];
    check_grad ("addnorm dw", dw, a.w, C, addnorm_value, &a);
    check_grad ("addnorm dx", dx, a.x, n, addnorm_value, &a);
    check_grad ("addnorm dt", dx, a.t, n, addnorm_value, &a);
    addnorm_value (&a);
    memcpy (same, a.rmid, n * sizeof (*same)); /* in place */
    kern_addnorm_bwd_f64_host (same, dw, a.r, same, a.mid, a.w, a.rstd, N, C,
                               NULL, NULL);
    assert_memory_equal (same, dx, n * sizeof (*same));
    kern_addnorm_bwd_f64_host (same, dw, a.r, NULL, a.mid, a.w, a.rstd, N, C,
                               NULL, NULL);
    for (size_t i = 0; i < n; i++)
        dx[i] -= a.rmid[i];
    check_close ("addnorm without dmid", same, dx, n, 1e-14);
    free (a.x);
    free (a.t);
    free (a.w);
    free (a.r);
    free (a.rmid);
    free (a.y);
    free (a.mid);
    free (a.rstd);
    free (dx);
    free (dw);
    free (was);
    free (same);
}

static void test_addnorm (void **state)
{
    (void)state;
    addnorm (1, 2);
    addnorm (3, 33);
    addnorm (5, 16);
}

/* The backward that makes the forward's y again, in dy's place, gives the bits of
 * both. */
static void addnorm_again (const struct half_type *t, const uint16_t *dy,
                           const uint16_t *mid, const uint16_t *w,
                           const float *rstd, size_t N, size_t C)
{
    size_t n = N * C;
    uint16_t *y = poisoned (t, n), *dx = poisoned (t, n), *dx2, *both;
    float *dw = calloc (C, 4), *dw2 = calloc (C, 4), *r = calloc (N, 4);

    dx2 = poisoned (t, n);
    both = poisoned (t, n);
    memcpy (both, dy, n * 2);
    HALF_CALL (t, rmsnorm_fwd, y, r, mid, w, N, C, EPS, NULL);
    assert_memory_equal (r, rstd, N * 4);
    HALF_CALL (t, addnorm_bwd, dx, dw, dy, NULL, mid, w, rstd, N, C, NULL,
               NULL);
    HALF_CALL (t, addnorm_again_bwd, dx2, both, dw2, both, NULL, mid, w, rstd,
               N, C, NULL, NULL);
    assert_memory_equal (both, y, n * 2);
    assert_memory_equal (dx2, dx, n * 2);
    assert_memory_equal (dw2, dw, C * 4);
    assert_int_equal (both[n], t->nan);
    HALF_CALL (t, addnorm_bwd, dx, dw, dy, mid, mid, w, rstd, N, C, NULL, NULL);
    memcpy (both, dy, n * 2);
    HALF_CALL (t, addnorm_again_bwd, dx2, both, dw2, both, mid, mid, w, rstd, N,
               C, NULL, NULL);
    assert_memory_equal (dx2, dx, n * 2);
    free (y);
    free (dx);
    free (dx2);
    free (both);
    free (dw);
    free (dw2);
    free (r);
}

/* The bits of the two kernels that it fuses. */
static void addnorm_half (const struct half_type *t, size_t N, size_t C)
{
    size_t n = N * C;
    double *wide = zeros (n + C);
    uint16_t *x = halves (t, wide, n, 1), *d = halves (t, wide, n, 2);
    uint16_t *w = halves (t, wide, C, 3), *dy = halves (t, wide, n, 4);
    uint16_t *mid = poisoned (t, n), *y = poisoned (t, n);
    uint16_t *mid2 = poisoned (t, n), *y2 = poisoned (t, n);
    float *rstd = calloc (2 * (N + C), 4), *rstd2 = rstd + N;
    float *dw = rstd2 + N, *dw2 = dw + C;

    HALF_CALL (t, addnorm_fwd, y, mid, rstd, x, d, w, N, C, EPS, NULL);
    HALF_CALL (t, residual_fwd, mid2, x, d, n, NULL);
    HALF_CALL (t, rmsnorm_fwd, y2, rstd2, mid2, w, N, C, EPS, NULL);
    assert_memory_equal (mid, mid2, (n + 1) * 2);
    assert_memory_equal (y, y2, (n + 1) * 2);
    assert_memory_equal (rstd, rstd2, N * 4);
    HALF_CALL (t, addnorm_bwd, y, dw, dy, x, mid, w, rstd, N, C, NULL, NULL);
    HALF_CALL (t, rmsnorm_bwd, x, dw2, dy, mid, w, rstd, N, C, NULL, NULL);
    assert_memory_equal (y, x, n * 2);
    assert_memory_equal (dw, dw2, C * 4);
    assert_int_equal (y[n], t->nan);
    addnorm_again (t, dy, mid, w, rstd, N, C);
    HALF_CALL (t, addnorm_fwd, y, d, rstd, mid, d, w, N, C, EPS, NULL);
    HALF_CALL (t, addnorm_fwd, y2, mid, rstd2, mid, mid2, w, 0, C, EPS, NULL);
    assert_memory_equal (mid, mid2, (n + 1) * 2); /* no rows: not written */
    free (wide);
    free (x);
    free (d);
    free (w);
    free (dy);
    free (mid);
    free (y);
    free (mid2);
    free (y2);
    free (rstd);
}

static void test_addnorm_half (void **state)
{
    (void)state;
    for (int k = 0; k < 2; k++) {
        addnorm_half (&half_types[k], 1, 1);
        addnorm_half (&half_types[k], 3, 33);
        addnorm_half (&half_types[k], 5, 64);
    }
}

struct heads {
    size_t N, H, G, D;
    double *x, *wq, *wk, *r, *y, *raw, *rstd;
};

static double headnorm_value (void *arg)
{
    struct heads *a = arg;
    size_t n = a->N * (a->H + 2 * a->G) * a->D;

    memcpy (a->y, a->x, n * sizeof (*a->y));
    kern_headnorm_fwd_f64_host (a->y, a->raw, a->rstd, a->wq, a->wk, a->N, a->H,
                                a->G, a->D, EPS, NULL);
    return dot (a->y, a->r, n);
}

/* The half dtypes beside f64. */
static void headnorm_half (const struct half_type *t, size_t N, size_t H,
                           size_t G, size_t D)
{
    size_t n = N * (H + 2 * G) * D, kept = N * (H + G) * D;
    double *x = zeros (n), *dy = zeros (n), *raw = zeros (kept);
    double *w = zeros (2 * D), *dw = zeros (2 * D), *rstd = zeros (N * (H + G));
    uint16_t *hx = halves (t, x, n, 1), *hdy = halves (t, dy, n, 2);
    uint16_t *hw = halves (t, w, 2 * D, 3), *hraw = poisoned (t, kept);
    float *hdw = calloc (2 * D + 1, 4), *hr = calloc (N * (H + G) + 1, 4);

    hx[n] = hdy[n] = t->nan;
    kern_headnorm_fwd_f64_host (x, raw, rstd, w, w + D, N, H, G, D, EPS, NULL);
    HALF_CALL (t, headnorm_fwd, hx, hraw, hr, hw, hw + D, N, H, G, D, EPS,
               NULL);
    check_half (t, "headnorm", hx, x, n, 0);
    check_half (t, "headnorm raw", hraw, raw, kept, 0);
    check_f32 ("headnorm rstd", hr, rstd, N * (H + G), F32_BOUND);
    kern_headnorm_bwd_f64_host (dy, dw, dw + D, raw, rstd, w, w + D, N, H, G, D,
                                NULL, NULL);
    HALF_CALL (t, headnorm_bwd, hdy, hdw, hdw + D, hraw, hr, hw, hw + D, N, H,
               G, D, NULL, NULL);
    check_half (t, "headnorm d", hdy, dy, n, 1);
    check_f32 ("headnorm dw", hdw, dw, 2 * D, F32_BOUND);
    free (x);
    free (dy);
    free (raw);
    free (w);
    free (dw);
    free (rstd);
    free (hx);
    free (hdy);
    free (hw);
    free (hraw);
    free (hdw);
    free (hr);
}

static void headnorm (size_t N, size_t H, size_t G, size_t D)
{
    size_t n = N * (H + 2 * G) * D, heads = H + G;
    struct heads a = {N,
                      H,
                      G,
                      D,
                      numbers (n, 1),
                      numbers (D, 2),
                      numbers (D, 3),
                      numbers (n, 4),
                      zeros (n),
                      zeros (N * heads * D),
                      zeros (N * heads)};
    double *dx = numbers (n, 4), *dw = zeros (2 * D);

    headnorm_value (&a);
    for (size_t i = 0; i < N; i++) /* values pass */
        assert_memory_equal (a.y + i * (heads + G) * D + heads * D,
                             a.x + i * (heads + G) * D + heads * D,
                             G * D * sizeof (double));
    kern_headnorm_bwd_f64_host (dx, dw, dw + D, a.raw, a.rstd, a.wq, a.wk, N, H,
                                G, D, NULL, NULL);
    check_grad ("headnorm dx", dx, a.x, n, headnorm_value, &a);
    check_grad ("headnorm dwq", dw, a.wq, D, headnorm_value, &a);
    check_grad ("headnorm dwk", dw + D, a.wk, D, headnorm_value, &a);
    for (int k = 0; k < 2; k++)
        headnorm_half (&half_types[k], N, H, G, D);
    free (a.x);
    free (a.wq);
    free (a.wk);
    free (a.r);
    free (a.y);
    free (a.raw);
    free (a.rstd);
    free (dx);
    free (dw);
}

static void test_headnorm (void **state)
{
    (void)state;
    headnorm (1, 1, 1, 2);
    headnorm (3, 4, 2, 6);
    headnorm (2, 3, 1, 34);
}

static void test_bias (void **state)
{
    enum { N = 5, C = 33 };
    double x[N * C], b[C];

    (void)state;
    for (int k = 0; k < 2; k++) {
        const struct half_type *t = &half_types[k];
        uint16_t *hx = halves (t, x, N * C, 1), *hb = halves (t, b, C, 2);
        double db[C], sums[C];
        float hdb[C], f[N * C], fb[C];

        hx[N * C] = t->nan;
        for (size_t c = 0; c < C; c++) {
            db[c] = sums[c] = hdb[c] = 0.5f;
            fb[c] = (float)b[c];
            for (size_t n = 0; n < N; n++) {
                f[n * C + c] = (float)x[n * C + c];
                sums[c] += x[n * C + c];
            }
        }
        kern_bias_bwd_f64_host (db, x, N, C, NULL, NULL);
        HALF_CALL (t, bias_bwd, hdb, hx, N, C, NULL, NULL);
        check_close ("db", db, sums, C, 1e-15);
        check_f32 ("db of halves", hdb, sums, C, F32_BOUND);
        for (size_t c = 0; c < C; c++)
            hdb[c] = 0.5f;
        kern_bias_bwd_f32_host (hdb, f, N, C, NULL, NULL);
        check_f32 ("db f32", hdb, sums, C, F32_BOUND);
        kern_bias_fwd_f32_host (f, fb, N, C, NULL);
        HALF_CALL (t, bias_fwd, hx, hb, N, C, NULL);
        for (size_t i = 0; i < N * C; i++)
            x[i] += b[i % C];
        check_f32 ("bias f32", f, x, N * C, F32_BOUND);
        check_half (t, "bias", hx, x, N * C, 0);
        for (size_t i = 0; i < N * C; i++)
            x[i] -= b[i % C];
        kern_bias_fwd_f64_host (x, b, N, C, NULL);
        check_f32 ("bias f64", f, x, N * C, F32_BOUND);
        free (hx);
        free (hb);
    }
}

int main (void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test (test_addnorm),
        cmocka_unit_test (test_addnorm_half),
        cmocka_unit_test (test_headnorm),
        cmocka_unit_test (test_bias),
    };

    return cmocka_run_group_tests (tests, NULL, NULL);
}
