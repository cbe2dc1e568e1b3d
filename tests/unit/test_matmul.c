/* SPDX-License-Identifier: Apache-2.0
 * test_matmul.c - products against the triple loop: the plain C, whatever
 * configure chose, and the forms that a linear layer uses */
#include "kern_check.h"

#include "kernels/gemm.h"

typedef void (*gemm_f) (bool, bool, size_t, size_t, size_t, double,
                        const double *, size_t, const double *, size_t, double,
                        double *, size_t);
typedef void (*gemm_f32_f) (bool, bool, size_t, size_t, size_t, double,
                            const float *, size_t, const float *, size_t,
                            double, float *, size_t);

/* Around every block edge of the plain version. */
static const struct {
    size_t m, n, k;
} shapes[] = {
    {1, 1, 1},   {1, 9, 3},    {6, 16, 8},    {7, 17, 5},
    {5, 31, 70}, {97, 33, 13}, {13, 19, 257}, {191, 65, 300},
};

struct product {
    bool ta, tb;
    size_t m, n, k, lda, ldb, ldc;
    double alpha, beta;
    double *a, *b;
};

static double at (const double *x, size_t ld, bool t, size_t i, size_t j)
{
    return t ? x[j * ld + i] : x[i * ld + j];
}

static void by_definition (const struct product *p, double *c)
{
    for (size_t i = 0; i < p->m; i++) {
        for (size_t j = 0; j < p->n; j++) {
            double *out = &c[i * p->ldc + j], sum = 0;

            for (size_t l = 0; l < p->k; l++)
                sum += at (p->a, p->lda, p->ta, i, l)
                       * at (p->b, p->ldb, p->tb, l, j);
            *out = p->alpha * sum + (p->beta == 0 ? 0 : p->beta * *out);
        }
    }
}

static void check_product (struct product *p, gemm_f f64, gemm_f32_f f32)
{
    size_t n = p->m * p->ldc;
    double *want, *got;
    float *a, *b, *c;

    p->a = numbers ((p->ta ? p->k : p->m) * p->lda, 1);
    p->b = numbers ((p->tb ? p->n : p->k) * p->ldb, 2);
    want = numbers (n, 3);
    got = numbers (n, 3);
    a = narrow (p->a, (p->ta ? p->k : p->m) * p->lda);
    b = narrow (p->b, (p->tb ? p->n : p->k) * p->ldb);
    c = narrow (want, n);
    if (p->beta == 0) /* c is not read, the gap between rows not written */
        for (size_t i = 0; i < p->m; i++)
            for (size_t j = 0; j < p->n; j++)
                got[i * p->ldc + j] = c[i * p->ldc + j] = NAN;
    by_definition (p, want);
    f64 (p->ta, p->tb, p->m, p->n, p->k, p->alpha, p->a, p->lda, p->b, p->ldb,
         p->beta, got, p->ldc);
    check_close ("gemm", got, want, n, 1e-14);
    f32 (p->ta, p->tb, p->m, p->n, p->k, p->alpha, a, p->lda, b, p->ldb,
         p->beta, c, p->ldc);
    check_f32 ("gemm f32", c, want, n, F32_BOUND);
    free (p->a);
    free (p->b);
    free (want);
    free (got);
    free (a);
    free (b);
    free (c);
}

static void check_all (gemm_f f64, gemm_f32_f f32)
{
    static const double betas[] = {0, 1, -0.5};

    for (size_t i = 0; i < LENGTH (shapes) * 12; i++) {
        struct product p = {
            .ta = i & 1,
            .tb = i & 2,
            .m = shapes[i / 12].m,
            .n = shapes[i / 12].n,
            .k = shapes[i / 12].k,
            .alpha = i & 1 ? 1 : 0.25,
            .beta = betas[i / 4 % 3],
        };

        p.lda = (p.ta ? p.m : p.k) + 3;
        p.ldb = (p.tb ? p.k : p.n) + 1;
        p.ldc = p.n + 2;
        check_product (&p, f64, f32);
    }
}

static void test_plain (void **state)
{
    (void)state;
    check_all (gemm_plain_f64, gemm_plain_f32);
}

static void test_chosen (void **state)
{
    (void)state;
    check_all (gemm_f64, gemm_f32);
}

enum { ROWS = 5, IN = 7, OUT = 3 };

struct layer {
    double *x, *w, *r, *y;
};

static double layer_value (void *arg)
{
    struct layer *l = arg;

    kern_matmul_fwd_f64_host (l->y, l->x, l->w, ROWS, IN, OUT, NULL);
    return dot (l->y, l->r, (size_t)ROWS * OUT);
}

static void test_layer (void **state)
{
    struct layer l = {numbers (ROWS * IN, 1), numbers (OUT * IN, 2),
                      numbers (ROWS * OUT, 3), zeros (ROWS * OUT)};
    double dx[ROWS * IN], dw[OUT * IN] = {0}, twice[OUT * IN];
    float *x = narrow (l.x, ROWS * IN), *w = narrow (l.w, OUT * IN);
    float *r = narrow (l.r, ROWS * OUT), y[ROWS * OUT], gx[ROWS * IN];
    float gw[OUT * IN] = {0};

    (void)state;
    kern_matmul_bwd_f64_host (dx, dw, l.r, l.x, l.w, ROWS, IN, OUT, NULL);
    check_grad ("matmul dx", dx, l.x, ROWS * IN, layer_value, &l);
    check_grad ("matmul dw", dw, l.w, OUT * IN, layer_value, &l);
    layer_value (&l);
    kern_matmul_fwd_f32_host (y, x, w, ROWS, IN, OUT, NULL);
    check_f32 ("matmul f32", y, l.y, ROWS * OUT, F32_BOUND);
    kern_matmul_bwd_f32_host (gx, gw, r, x, w, ROWS, IN, OUT, NULL);
    check_f32 ("matmul dx f32", gx, dx, ROWS * IN, F32_BOUND);
    check_f32 ("matmul dw f32", gw, dw, OUT * IN, F32_BOUND);
    /* dw is added to, and either may be left out */
    for (size_t i = 0; i < OUT * IN; i++)
        twice[i] = 2 * dw[i];
    kern_matmul_bwd_f64_host (NULL, dw, l.r, l.x, l.w, ROWS, IN, OUT, NULL);
    check_close ("matmul dw adds", dw, twice, OUT * IN, 1e-15);
    memset (l.x, 0, sizeof (dx));
    kern_matmul_bwd_f64_host (l.x, NULL, l.r, NULL, l.w, ROWS, IN, OUT, NULL);
    check_close ("matmul dx alone", l.x, dx, ROWS * IN, 1e-15);
    free (l.x);
    free (l.w);
    free (l.r);
    free (l.y);
    free (x);
    free (w);
    free (r);
}

int main (void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test (test_plain),
        cmocka_unit_test (test_chosen),
        cmocka_unit_test (test_layer),
    };

    return cmocka_run_group_tests (tests, NULL, NULL);
}
