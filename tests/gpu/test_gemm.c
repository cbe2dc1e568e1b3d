/* SPDX-License-Identifier: Apache-2.0
 * test_gemm.c - products on a GPU, by cuBLASLt and by our own kernels, beside the
 * host's in double */
#include "config.h"

#include "tap.h"

#include <math.h>
#include <stdint.h>

#if HAVE_CUDA
#include <cuda_runtime_api.h>

#include "kernels/gemm.h"
#include "kernels/gemm_lt.h"
#include "kernels/kernels.h"

#include "gemm_set.h"

/* [n] numbers as the host's doubles and as the GPU's [t], which lie [shift]
 * elements past an aligned address between guards. */
struct array {
    double *host;
    char *base, *at;
    size_t n, lead;
    enum gemm_lt_dtype t;
};

static struct array array (size_t n, enum gemm_lt_dtype t, size_t shift,
                           double (*next) (void))
{
    struct array a = {.host = malloc ((n + 1) * sizeof (double)),
                      .n = n,
                      .lead = shift * size_of (t),
                      .t = t};
    size_t bytes = n * size_of (t);
    void *room = malloc (bytes + 8);

    for (size_t i = 0; i < n; i++) {
        put (room, i, t, next ? next () : NAN);
        a.host[i] = get (room, i, t);
    }
    must (cudaMalloc ((void **)&a.base, a.lead + bytes + GUARD));
    must (cudaMemset (a.base, 0xa5, a.lead + bytes + GUARD));
    a.at = a.base + a.lead;
    must (cudaMemcpy (a.at, room, bytes, cudaMemcpyHostToDevice));
    free (room);
    return a;
}

/* The GPU's numbers; whether the guards are whole. */
static bool fetch (const struct array *a, void *to)
{
    size_t bytes = a->n * size_of (a->t);
    unsigned char *all = malloc (a->lead + bytes + GUARD);
    bool whole = true;

    must (cudaMemcpy (all, a->base, a->lead + bytes + GUARD,
                      cudaMemcpyDeviceToHost));
    for (size_t i = 0; i < a->lead; i++)
        whole &= all[i] == 0xa5;
    for (size_t i = 0; i < GUARD; i++)
        whole &= all[a->lead + bytes + i] == 0xa5;
    memcpy (to, all + a->lead, bytes);
    free (all);
    return whole;
}

static void drop (struct array *a)
{
    must (cudaFree (a->base));
    free (a->host);
}

/* |got - want| / |want| over all; a NaN where none belongs is one. */
static double error_of (const struct array *a, const double *want, bool *whole)
{
    void *got = malloc (a->n * size_of (a->t) + 8);
    double diff = 0, norm = 0;

    *whole = fetch (a, got);
    for (size_t i = 0; i < a->n; i++) {
        double x = get (got, i, a->t);

        if (isnan (x) && isnan (want[i]))
            continue;
        diff += (x - want[i]) * (x - want[i]);
        norm += want[i] * want[i];
    }
    free (got);
    return sqrt (diff) / (norm > 0 ? sqrt (norm) : 1);
}

static bool near (const char *what, const struct array *a, const double *want,
                  size_t N, size_t in, size_t out)
{
    /* f32: sums in f32 alone, tf32 would miss by 1e-4; else the rounding, which
     * is 0.58 of its worst in the mean of many */
    static const double bounds[] = {2e-6, 0x1.1p-8, 0x1.1p-11};
    double bound = bounds[a->t] * (a->n >= 1000 && a->t ? 0.65 : 1);
    bool whole;
    double error = error_of (a, want, &whole);

    if (whole && error <= bound)
        return true;
    printf ("# %s to %s, N %zu in %zu out %zu: error %g, guards %s\n", what,
            names[a->t], N, in, out, error, whole ? "whole" : "broken");
    return false;
}

static bool done (enum gemm_lt_status status, const char *why)
{
    if (status == GEMM_LT_OK)
        return true;
    printf ("# %s\n", why);
    return false;
}

struct layer {
    size_t N, in, out;
    enum gemm_lt_dtype t;
    struct array x, w, b, dy;
};

static struct layer layer (size_t N, size_t in, size_t out,
                           enum gemm_lt_dtype t, size_t shift)
{
    struct layer l = {.N = N, .in = in, .out = out, .t = t};

    l.x = array (N * in, t, shift, number);
    l.w = array (out * in, t, shift, number);
    l.b = array (out, t, shift, number);
    l.dy = array (N * out, t, shift, number);
    return l;
}

static void drop_layer (struct layer *l)
{
    drop (&l->x);
    drop (&l->w);
    drop (&l->b);
    drop (&l->dy);
}

static bool forward (struct gemm_lt *g, const struct layer *l, bool bias,
                     size_t shift)
{
    struct array y = array (l->N * l->out, l->t, shift, NULL);
    char why[GEMM_LT_WHY];
    bool good =
        done (gemm_lt_fwd (g, y.at, l->x.at, l->w.at, bias ? l->b.at : NULL,
                           l->t, l->N, l->in, l->out, NULL, why),
              why);

    gemm_plain_f64 (false, true, l->N, l->out, l->in, 1, l->x.host, l->in,
                    l->w.host, l->in, 0, y.host, l->out);
    for (size_t i = 0; i < l->N * l->out && bias; i++)
        y.host[i] += l->b.host[i % l->out];
    good =
        good
        && near (bias ? "fwd + bias" : "fwd", &y, y.host, l->N, l->in, l->out);
    drop (&y);
    return good;
}

static bool to_x (struct gemm_lt *g, const struct layer *l, size_t shift)
{
    struct array dx = array (l->N * l->in, l->t, shift, NULL);
    char why[GEMM_LT_WHY];
    bool good = done (gemm_lt_dx (g, dx.at, l->dy.at, l->w.at, l->t, l->N,
                                  l->in, l->out, NULL, why),
                      why);

    gemm_plain_f64 (false, false, l->N, l->in, l->out, 1, l->dy.host, l->out,
                    l->w.host, l->in, 0, dx.host, l->in);
    good = good && near ("dx", &dx, dx.host, l->N, l->in, l->out);
    drop (&dx);
    return good;
}

static bool to_w (struct gemm_lt *g, const struct layer *l,
                  enum gemm_lt_dtype t, bool add, size_t shift)
{
    struct array dw = array (l->out * l->in, t, shift, add ? number : NULL);
    char why[GEMM_LT_WHY];
    bool good = done (gemm_lt_dw (g, dw.at, t, add, l->dy.at, l->x.at, l->t,
                                  l->N, l->in, l->out, NULL, why),
                      why);

    gemm_plain_f64 (true, false, l->out, l->in, l->N, 1, l->dy.host, l->out,
                    l->x.host, l->in, add ? 1 : 0, dw.host, l->in);
    good = good
           && near (add ? "dw added" : "dw", &dw, dw.host, l->N, l->in, l->out);
    drop (&dw);
    return good;
}

static bool all_of (struct gemm_lt *g, size_t N, size_t in, size_t out,
                    enum gemm_lt_dtype t, size_t shift)
{
    struct layer l = layer (N, in, out, t, shift);
    bool good = forward (g, &l, false, shift) && forward (g, &l, true, shift)
                && to_x (g, &l, shift) && to_w (g, &l, GEMM_LT_F32, true, shift)
                && to_w (g, &l, GEMM_LT_F32, false, shift)
                && to_w (g, &l, t, false, shift);

    drop_layer (&l);
    return good;
}

static const struct {
    size_t N, in, out;
} shapes[] = {
    {1, 1, 1},       {1, 64, 48},    {3, 5, 7},       {17, 33, 65},
    {128, 128, 128}, {256, 64, 512}, {129, 257, 131}, {300, 768, 200},
    {1, 2048, 1000}, {77, 1000, 3},  {640, 40, 24},
};

static struct gemm_lt *object (bool own, bool deterministic, bool tf32)
{
    struct gemm_lt_opts opts = {.size = sizeof (opts),
                                .own = own,
                                .deterministic = deterministic,
                                .tf32 = tf32};
    struct gemm_lt *g = NULL;
    char why[GEMM_LT_WHY];

    if (gemm_lt_create (&g, &opts, why) == GEMM_LT_OK)
        return g;
    printf ("Bail out! %s\n", why);
    exit (1);
}

static void test_shapes (bool own)
{
    struct gemm_lt *g = object (own, !own, false);
    char name[100];

    for (int t = GEMM_LT_F32; t <= GEMM_LT_F16; t++) {
        bool good = true;

        for (size_t i = 0; i < sizeof (shapes) / sizeof (*shapes); i++)
            good &= all_of (g, shapes[i].N, shapes[i].in, shapes[i].out,
                            (enum gemm_lt_dtype)t, i % 3 == 2 ? 1 : 0);
        snprintf (name, sizeof (name), "%s, %s: forward, bias, dx, dw",
                  own ? "our own" : "cuBLASLt", names[t]);
        tap_ok (good, name);
    }
    gemm_lt_destroy (g);
}

/* A row with a NaN spoils that row of the result; nothing else. */
static void test_nan (bool own)
{
    enum { N = 70, IN = 96, OUT = 80, BAD = 37 };
    struct gemm_lt *g = object (own, false, false);
    struct layer l = layer (N, IN, OUT, GEMM_LT_BF16, 0);
    struct array y = array (N * OUT, GEMM_LT_BF16, 0, NULL);
    uint16_t nan = 0x7fc0, *got = malloc (N * OUT * 2);
    char why[GEMM_LT_WHY];
    bool good;

    must (cudaMemcpy (l.x.at + (BAD * IN + 5) * 2, &nan, 2,
                      cudaMemcpyHostToDevice));
    good = done (gemm_lt_fwd (g, y.at, l.x.at, l.w.at, NULL, GEMM_LT_BF16, N,
                              IN, OUT, NULL, why),
                 why)
           && fetch (&y, got);
    for (size_t i = 0; i < N * OUT; i++)
        good &= isnan (half_from_bf16 (got[i])) == (i / OUT == BAD);
    tap_ok (good, own ? "our own: a NaN spoils its row alone"
                      : "cuBLASLt: a NaN spoils its row alone");
    free (got);
    drop (&y);
    drop_layer (&l);
    gemm_lt_destroy (g);
}

/* The bits of a product whose sum is long and whose result is small: where
 * split-K pays. */
static void bits_of (struct gemm_lt *g, const struct layer *l, float *to)
{
    struct array dw = array (l->out * l->in, GEMM_LT_F32, 0, NULL);
    char why[GEMM_LT_WHY];

    must (cudaMemset (dw.at, 0, l->out * l->in * 4));
    for (int i = 0; i < 2; i++) {
        if (!done (gemm_lt_dw (g, dw.at, GEMM_LT_F32, true, l->dy.at, l->x.at,
                               l->t, l->N, l->in, l->out, NULL, why),
                   why))
            exit (1);
    }
    (void)fetch (&dw, to);
    drop (&dw);
}

static void test_same_bits (void)
{
    enum { N = 8192, IN = 128, OUT = 256 };
    struct layer l = layer (N, IN, OUT, GEMM_LT_BF16, 0);
    struct gemm_lt *g = object (false, true, false);
    struct gemm_lt *h = object (false, true, false);
    float *first = malloc (IN * OUT * 4), *again = malloc (IN * OUT * 4);
    char *saved, why[GEMM_LT_WHY];
    size_t bytes;
    bool good = true;

    bits_of (g, &l, first);
    for (int i = 0; i < 20; i++) {
        bits_of (g, &l, again);
        good &= memcmp (first, again, IN * OUT * 4) == 0;
    }
    tap_ok (good, "deterministic: the same bits 20 times");
    bytes = gemm_lt_choices_save (g, NULL, 0);
    saved = malloc (bytes);
    good = gemm_lt_choices_save (g, saved, bytes - 1) == bytes
           && gemm_lt_choices_save (g, saved, bytes) == bytes;
    good = good && done (gemm_lt_choices_load (h, saved, bytes, why), why);
    bits_of (h, &l, again);
    good &= memcmp (first, again, IN * OUT * 4) == 0;
    good &= gemm_lt_choices_save (h, NULL, 0) == bytes;
    tap_ok (good, "saved choices give the same bits in another object");
    saved[bytes / 2] ^= 1;
    good = gemm_lt_choices_load (h, saved, bytes, why) == GEMM_LT_EFORMAT
           && gemm_lt_choices_load (h, saved, bytes - 1, why) == GEMM_LT_EFORMAT
           && gemm_lt_choices_load (h, saved, 3, why) == GEMM_LT_EFORMAT;
    printf ("# %s\n", why);
    tap_ok (good, "damaged choices are refused");
    free (saved);
    free (first);
    free (again);
    gemm_lt_destroy (g);
    gemm_lt_destroy (h);
    drop_layer (&l);
}

struct seen {
    int lines, slow;
};

static void look (void *arg, const char *text)
{
    struct seen *s = arg;

    printf ("# %s\n", text);
    s->lines++;
    s->slow +=
        strstr (text, "; slow: rows or addresses are multiples of 2 ") != NULL;
}

static void test_report (void)
{
    struct gemm_lt *g = object (false, false, true);
    struct seen s = {0};
    struct layer odd = layer (64, 63, 64, GEMM_LT_BF16, 0);
    struct layer even = layer (64, 64, 64, GEMM_LT_BF16, 0);
    bool good = forward (g, &odd, false, 0) && forward (g, &even, false, 0)
                && forward (g, &even, false, 0);

    gemm_lt_report (g, look, &s);
    tap_ok (good && s.lines == 2 && s.slow == 1,
            "the report names each product once, and rows that are slow");
    drop_layer (&odd);
    drop_layer (&even);
    gemm_lt_destroy (g);
}

/* What a product (N, in) with (out, in) misses where tf32 is asked for; < 0: it
 * failed. */
static double miss_of_tf32 (size_t N, size_t in, size_t out)
{
    struct layer l = layer (N, in, out, GEMM_LT_F32, 0);
    struct array y = array (N * out, GEMM_LT_F32, 0, NULL);
    struct gemm_lt *g = object (false, false, true);
    char why[GEMM_LT_WHY];
    bool whole, good = done (gemm_lt_fwd (g, y.at, l.x.at, l.w.at, NULL,
                                          GEMM_LT_F32, N, in, out, NULL, why),
                             why);
    double error;

    gemm_plain_f64 (false, true, N, out, in, 1, l.x.host, in, l.w.host, in, 0,
                    y.host, out);
    error = error_of (&y, y.host, &whole);
    gemm_lt_destroy (g);
    drop (&y);
    drop_layer (&l);
    return good && whole ? error : -1;
}

/* tf32 is what may be taken where it is asked for: cuBLASLt's candidates have
 * kernels of true f32 among them, and of a product of microseconds the trial may
 * prefer one. Of a larger one tensor cores are several times as fast, and it
 * misses by more. */
static void test_tf32 (void)
{
    double little = miss_of_tf32 (256, 512, 256),
           much = miss_of_tf32 (1024, 1024, 1024);

    printf ("# tf32 misses by %g and %g\n", little, much);
    tap_ok (little >= 0 && little < 1e-3 && much > 1e-5 && much < 1e-3,
            "tf32 where it is asked for");
}

static void test_edges (void)
{
    struct gemm_lt *g = object (false, false, false);
    struct layer l = layer (8, 16, 24, GEMM_LT_BF16, 0);
    struct array dw = array (16 * 24, GEMM_LT_F32, 0, number);
    float *got = malloc (16 * 24 * 4);
    char why[GEMM_LT_WHY];
    bool good = gemm_lt_dw (g, dw.at, GEMM_LT_F32, true, l.dy.at, l.x.at,
                            GEMM_LT_BF16, 0, 16, 24, NULL, why)
                == GEMM_LT_OK;

    good &= fetch (&dw, got);
    for (size_t i = 0; i < dw.n; i++)
        good &= (double)got[i] == dw.host[i];
    good &= gemm_lt_dw (g, dw.at, GEMM_LT_F32, false, l.dy.at, l.x.at,
                        GEMM_LT_BF16, 0, 16, 24, NULL, why)
            == GEMM_LT_OK;
    good &= fetch (&dw, got);
    for (size_t i = 0; i < dw.n; i++)
        good &= got[i] == 0;
    good &= gemm_lt_dw (g, dw.at, GEMM_LT_F16, false, l.dy.at, l.x.at,
                        GEMM_LT_BF16, 8, 16, 24, NULL, why)
            == GEMM_LT_EINVAL;
    printf ("# %s\n", why);
    tap_ok (good, "no rows add nothing; dtypes that do not fit are refused");
    free (got);
    drop (&dw);
    drop_layer (&l);
    gemm_lt_destroy (g);
}

/* What memory refuses is this call's alone: no launch behind it is blamed. */
static void test_no_room (void)
{
    struct gemm_lt_opts opts = {.size = sizeof (opts),
                                .workspace_bytes = (size_t)1 << 50};
    struct gemm_lt *g = NULL;
    char why[GEMM_LT_WHY] = "";
    enum gemm_lt_status rc = gemm_lt_create (&g, &opts, why);

    printf ("# %s\n", why);
    tap_ok ((rc == GEMM_LT_ENOMEM || rc == GEMM_LT_ENOTSUP) && !g
                && cudaGetLastError () == cudaSuccess,
            "a petabyte of workspace is refused and leaves nothing behind");
}

/* The kernels by name, with both results and with either left out. */
static void test_named (void)
{
    enum { N = 37, IN = 70, OUT = 45 };
    struct layer l = layer (N, IN, OUT, GEMM_LT_F16, 0);
    struct array y = array (N * OUT, GEMM_LT_F16, 0, NULL);
    struct array dx = array (N * IN, GEMM_LT_F16, 0, NULL);
    struct array dw = array (OUT * IN, GEMM_LT_F32, 0, number);
    const uint16_t *x = (uint16_t *)l.x.at, *w = (uint16_t *)l.w.at;
    const uint16_t *dy = (uint16_t *)l.dy.at;
    bool good;

    kern_matmul_fwd_f16_cuda ((uint16_t *)y.at, x, w, N, IN, OUT, NULL);
    kern_matmul_bwd_f16_cuda ((uint16_t *)dx.at, NULL, dy, x, w, N, IN, OUT,
                              NULL);
    kern_matmul_bwd_f16_cuda (NULL, (float *)dw.at, dy, x, w, N, IN, OUT, NULL);
    gemm_plain_f64 (false, true, N, OUT, IN, 1, l.x.host, IN, l.w.host, IN, 0,
                    y.host, OUT);
    gemm_plain_f64 (false, false, N, IN, OUT, 1, l.dy.host, OUT, l.w.host, IN,
                    0, dx.host, IN);
    gemm_plain_f64 (true, false, OUT, IN, N, 1, l.dy.host, OUT, l.x.host, IN, 1,
                    dw.host, IN);
    good = near ("y", &y, y.host, N, IN, OUT)
           && near ("dx", &dx, dx.host, N, IN, OUT)
           && near ("dw", &dw, dw.host, N, IN, OUT);
    tap_ok (good, "kern_matmul_*_f16_cuda");
    drop (&y);
    drop (&dx);
    drop (&dw);
    drop_layer (&l);
}

int main (void)
{
    int devices = 0;

    if (cudaGetDeviceCount (&devices) != cudaSuccess || devices == 0)
        tap_skip_all ("no GPU");
    test_shapes (true);
    test_nan (true);
    test_named ();
    test_no_room ();
    test_shapes (false);
    test_nan (false);
    test_same_bits ();
    test_report ();
    test_tf32 ();
    test_edges ();
    must (cudaDeviceSynchronize ());
    return tap_end ();
}

#else

int main (void)
{
    tap_skip_all ("built without CUDA");
    return 1;
}

#endif
