/* SPDX-License-Identifier: Apache-2.0
 * test_linear_ce.c - linear layer and cross-entropy in chunks, and
 * log-probabilities of each dtype, on a GPU beside the host
 *   test_linear_ce [own]   own: without cuBLASLt's kernels, for a checker of races */
#include "config.h"

#include "tap.h"

#include <math.h>
#include <stdint.h>

#if HAVE_CUDA
#include <cuda_runtime_api.h>

#include "kernels/kernels.h"
#include "kernels/linear_ce.h"

#include "gemm_set.h"

/* [bytes] of the host's, on the GPU before a guard; NULL: 0xff, a NaN. */
static char *given (const void *from, size_t bytes)
{
    char *at;

    must (cudaMalloc ((void **)&at, bytes + GUARD));
    must (cudaMemset (at, 0xff, bytes));
    must (cudaMemset (at + bytes, 0xa5, GUARD));
    if (from)
        must (cudaMemcpy (at, from, bytes, cudaMemcpyHostToDevice));
    return at;
}

/* Back to [to], and freed; whether the guard is whole. */
static bool taken (char *at, void *to, size_t bytes)
{
    unsigned char guard[GUARD];
    bool whole = true;

    must (cudaMemcpy (guard, at + bytes, GUARD, cudaMemcpyDeviceToHost));
    if (to)
        must (cudaMemcpy (to, at, bytes, cudaMemcpyDeviceToHost));
    must (cudaFree (at));
    for (int i = 0; i < GUARD; i++)
        whole &= guard[i] == 0xa5;
    return whole;
}

/* h, w and targets of the host, in doubles and in the dtype. */
struct head {
    size_t N, C, V;
    enum gemm_lt_dtype t;
    double *h, *w;
    void *th, *tw;
    int32_t *targets;
};

static void fill (double **x, void **tx, size_t n, enum gemm_lt_dtype t)
{
    *x = malloc (n * sizeof (**x));
    *tx = malloc (n * size_of (t));
    for (size_t i = 0; i < n; i++) {
        put (*tx, i, t, number ());
        (*x)[i] = get (*tx, i, t);
    }
}

static struct head head (size_t N, size_t C, size_t V, enum gemm_lt_dtype t)
{
    struct head a = {.N = N, .C = C, .V = V, .t = t};

    fill (&a.h, &a.th, N * C, t);
    fill (&a.w, &a.tw, V * C, t);
    a.targets = malloc (N * sizeof (*a.targets));
    for (size_t i = 0; i < N; i++)
        a.targets[i] = i % 7 == 3 ? -1 : (int32_t)(i * 977 % V);
    return a;
}

static void drop (struct head *a)
{
    free (a->h), free (a->w), free (a->th), free (a->tw), free (a->targets);
}

struct result {
    double sum, *dh, *dw;
    int64_t n;
};

/* In double, all logits at once. dw begins at 1. */
static struct result wanted (const struct head *a, double scale)
{
    struct result r = {.dh = calloc (a->N * a->C, 8),
                       .dw = malloc (a->V * a->C * 8)};
    double *z = malloc (a->N * a->V * 8);

    for (size_t i = 0; i < a->V * a->C; i++)
        r.dw[i] = 1;
    kern_matmul_fwd_f64_host (z, a->h, a->w, a->N, a->C, a->V, NULL);
    kern_cross_entropy_bwd_f64_host (z, &r.sum, &r.n, a->targets, a->N, a->V,
                                     scale, NULL);
    kern_matmul_bwd_f64_host (r.dh, r.dw, z, a->h, a->w, a->N, a->C, a->V,
                              NULL);
    free (z);
    return r;
}

static bool on_gpu (struct gemm_lt *g, const struct head *a, double scale,
                    struct result *r)
{
    size_t nh = a->N * a->C, nw = a->V * a->C, e = size_of (a->t);
    size_t room = linear_ce_scratch (a->t, a->N, a->C, a->V);
    float *dw = malloc (nw * 4), factor = 2;
    const double had = 3;
    const int64_t counted = 7;
    void *dh = malloc (nh * e);
    char *gh = given (a->th, nh * e), *gw = given (a->tw, nw * e);
    char *gt = given (a->targets, a->N * 4), *gf = given (&factor, 4);
    char *gdh = given (NULL, nh * e), *gdw, *gs = given (NULL, room);
    char *gsum = given (&had, 8), *gn = given (&counted, 8), why[GEMM_LT_WHY];
    bool good;

    for (size_t i = 0; i < nw; i++)
        dw[i] = 1;
    gdw = given (dw, nw * 4);
    good = linear_ce (g, (double *)gsum, (int64_t *)gn, gdh, (float *)gdw, gh,
                      gw, (int32_t *)gt, a->t, a->N, a->C, a->V, scale / 2,
                      (float *)gf, gs, NULL, why)
           == GEMM_LT_OK;
    if (!good)
        printf ("# %s\n", why);
    good &= taken (gh, NULL, nh * e) && taken (gw, NULL, nw * e)
            && taken (gt, NULL, a->N * 4) && taken (gf, NULL, 4)
            && taken (gs, NULL, room) && taken (gdh, dh, nh * e)
            && taken (gdw, dw, nw * 4) && taken (gsum, &r->sum, 8)
            && taken (gn, &r->n, 8);
    r->sum -= had;
    r->n -= counted;
    r->dh = malloc (nh * 8);
    r->dw = malloc (nw * 8);
    for (size_t i = 0; i < nh; i++)
        r->dh[i] = get (dh, i, a->t);
    for (size_t i = 0; i < nw; i++)
        r->dw[i] = (double)dw[i];
    free (dh);
    free (dw);
    return good;
}

static double error_of (const double *got, const double *want, size_t n)
{
    double diff = 0, norm = 0;

    for (size_t i = 0; i < n; i++) {
        diff += (got[i] - want[i]) * (got[i] - want[i]);
        norm += want[i] * want[i];
    }
    return sqrt (diff) / (norm > 0 ? sqrt (norm) : 1);
}

static bool beside (struct gemm_lt *g, size_t N, size_t C, size_t V,
                    enum gemm_lt_dtype t)
{
    /* the logits, their gradient and dh are rounded to the dtype once each */
    static const double bounds[] = {5e-6, 0x1.8p-8, 0x1.8p-11};
    struct head a = head (N, C, V, t);
    struct result want = wanted (&a, 8), got = {0};
    bool good = on_gpu (g, &a, 8, &got);
    double eh, ew, es = fabs (got.sum - want.sum) / want.sum;

    for (size_t i = 0; i < V * C; i++) {
        want.dw[i] -= 1;
        got.dw[i] -= 1;
    }
    eh = error_of (got.dh, want.dh, N * C);
    ew = error_of (got.dw, want.dw, V * C);
    good &=
        got.n == want.n && es < bounds[t] && eh < bounds[t] && ew < bounds[t];
    if (!good)
        printf ("# %s %zux%zux%zu: sum %g of %g, rows %lld of %lld, dh %g, dw "
                "%g\n",
                names[t], N, C, V, got.sum, want.sum, (long long)got.n,
                (long long)want.n, eh, ew);
    free (want.dh), free (want.dw), free (got.dh), free (got.dw);
    drop (&a);
    return good;
}

static void test_beside_host (struct gemm_lt *g, const char *how)
{
    char name[100];

    for (int t = GEMM_LT_F32; t <= GEMM_LT_F16; t++) {
        enum gemm_lt_dtype d = (enum gemm_lt_dtype)t;

        snprintf (name, sizeof (name), "linear_ce, %s, %s", how, names[t]);
        tap_ok (beside (g, 1, 8, 16, d) && beside (g, 37, 24, 131, d)
                    && beside (g, 200, 64, 1000, d),
                name);
    }
}

/* Several chunks of unlike size, twice: the same bits; and beside all at once.
 * V so large that few rows fit. */
static void test_chunks (struct gemm_lt *g)
{
    enum { N = 700, C = 8, V = 1500000 };
    struct head a = head (N, C, V, GEMM_LT_BF16);
    struct result one = {0}, two = {0};
    size_t rows = linear_ce_rows (GEMM_LT_BF16, N, C, V);
    double sum = 0;
    bool good = on_gpu (g, &a, 1, &one) && on_gpu (g, &a, 1, &two);

    good &= rows < N / 2 && one.sum == two.sum && one.n == two.n
            && memcmp (one.dh, two.dh, N * C * 8) == 0
            && memcmp (one.dw, two.dw, V * C * 8) == 0;
    tap_ok (good, "several chunks: the same bits twice");
    free (two.dh), free (two.dw);
    for (size_t i = 0; i < N; i += 50) { /* every 50th row alone, in double */
        double most = -INFINITY, all = 0, z, want[C] = {0}, diff = 0, norm = 0;

        for (int pass = 0; pass < 3; pass++) {
            for (size_t v = 0; v < V; v++) {
                z = 0;
                for (size_t c = 0; c < C; c++)
                    z += a.h[i * C + c] * a.w[v * C + c];
                if (pass == 0)
                    most = fmax (most, z);
                else if (pass == 1)
                    all += exp (z - most);
                for (size_t c = 0; c < C && pass == 2; c++)
                    want[c] +=
                        (exp (z - most) / all - ((int32_t)v == a.targets[i]))
                        * a.w[v * C + c];
            }
        }
        for (size_t c = 0; c < C && a.targets[i] >= 0; c++) {
            diff +=
                (one.dh[i * C + c] - want[c]) * (one.dh[i * C + c] - want[c]);
            norm += want[c] * want[c];
        }
        sum = fmax (sum, norm > 0 ? sqrt (diff / norm) : 0);
    }
    printf ("# chunks of %zu rows, dh misses by %g at most\n", rows, sum);
    tap_ok (sum < 0x1p-7, "several chunks: rows of each");
    free (one.dh), free (one.dw);
    drop (&a);
}

static void run_logprob (enum gemm_lt_dtype t, bool host, void *z, float *p,
                         float *e, const int32_t *targets, const float *d,
                         size_t N, size_t V)
{
    if (t == GEMM_LT_F32)
        (host ? kern_logprob_f32_host : kern_logprob_f32_cuda) (
            z, p, e, targets, d, N, V, 1 / 0.8, NULL);
    else if (t == GEMM_LT_BF16)
        (host ? kern_logprob_bf16_host : kern_logprob_bf16_cuda) (
            z, p, e, targets, d, N, V, 1 / 0.8, NULL);
    else
        (host ? kern_logprob_f16_host : kern_logprob_f16_cuda) (
            z, p, e, targets, d, N, V, 1 / 0.8, NULL);
}

static bool same (const double got, const double want, double bound)
{
    return (isnan (got) && isnan (want)) || fabs (got - want) <= bound;
}

static bool logprob (enum gemm_lt_dtype t, size_t N, size_t V, double special)
{
    static const double steps[] = {0x1p-22, 0x1p-7, 0x1p-10};
    size_t e = size_of (t), bytes = N * V * e;
    char *z = malloc (bytes), *got = malloc (bytes), *gz, *gt, *gd, *gp, *ge;
    int32_t *targets = malloc (N * 4);
    float *d = malloc (N * 4), *p = malloc (N * 16);
    bool good = true;

    for (size_t i = 0; i < N * V; i++)
        put (z, i, t, 6 * number ());
    if (special != 0)
        put (z, V / 2, t, special);
    for (size_t r = 0; r < N; r++) {
        targets[r] = r % 5 == 4 ? -1 : (int32_t)((17 + r * 977) % V);
        d[r] = (float)number ();
    }
    gz = given (z, bytes), gt = given (targets, N * 4), gd = given (d, N * 4);
    gp = given (NULL, N * 4), ge = given (NULL, N * 4);
    run_logprob (t, true, z, p, p + N, targets, d, N, V);
    run_logprob (t, false, gz, (float *)gp, (float *)ge, (int32_t *)gt,
                 (float *)gd, N, V);
    good &= taken (gz, got, bytes) && taken (gt, NULL, N * 4)
            && taken (gd, NULL, N * 4) && taken (gp, p + 2 * N, N * 4)
            && taken (ge, p + 3 * N, N * 4);
    for (size_t r = 0; r < N; r++)
        good &= same ((double)p[2 * N + r], (double)p[r], 2e-5)
                && same ((double)p[3 * N + r], (double)p[N + r], 1e-4);
    for (size_t i = 0; i < N * V && good; i++) {
        double want = get (z, i, t);

        good &= same (get (got, i, t), want, steps[t] * fabs (want) + 2e-5);
        if (!good)
            printf ("# %s of %zu: [%zu] %g, want %g\n", names[t], V, i,
                    get (got, i, t), want);
    }
    free (z), free (got), free (targets), free (d), free (p);
    return good;
}

static void test_logprob (void)
{
    static const size_t widths[] = {1, 2, 3, 7, 9, 31, 4099, 50304, 151937};
    char name[100];

    for (int t = GEMM_LT_F32; t <= GEMM_LT_F16; t++) {
        bool good = true;

        for (size_t i = 0; i < sizeof (widths) / sizeof (*widths); i++)
            good &= logprob ((enum gemm_lt_dtype)t, 6, widths[i], 0);
        good &= logprob ((enum gemm_lt_dtype)t, 3, 5000, -INFINITY)
                && logprob ((enum gemm_lt_dtype)t, 3, 5000, NAN)
                && logprob ((enum gemm_lt_dtype)t, 3, 5000, INFINITY);
        snprintf (name, sizeof (name), "logprob, %s: widths, -Inf, NaN, Inf",
                  names[t]);
        tap_ok (good, name);
    }
}

int main (int argc, char **argv)
{
    bool alone = argc > 1 && strcmp (argv[1], "own") == 0;
    struct gemm_lt_opts opts = {.size = sizeof (opts), .own = true};
    struct gemm_lt *own = NULL, *library = NULL;
    char why[GEMM_LT_WHY];
    int devices = 0;

    if (cudaGetDeviceCount (&devices) != cudaSuccess || devices == 0)
        tap_skip_all ("no GPU");
    if (gemm_lt_create (&own, &opts, why) != GEMM_LT_OK) {
        printf ("Bail out! %s\n", why);
        return 1;
    }
    opts.own = false;
    opts.deterministic = true;
    if (gemm_lt_create (&library, &opts, why) != GEMM_LT_OK) {
        printf ("Bail out! %s\n", why);
        return 1;
    }
    test_logprob ();
    test_beside_host (own, "our own products");
    if (!alone) {
        test_beside_host (library, "cuBLASLt");
        test_chunks (library);
    }
    must (cudaDeviceSynchronize ());
    gemm_lt_destroy (own);
    gemm_lt_destroy (library);
    return tap_end ();
}

#else

int main (void)
{
    tap_skip_all ("built without CUDA");
    return 1;
}

#endif
