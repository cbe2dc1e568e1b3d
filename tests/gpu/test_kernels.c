/* SPDX-License-Identifier: Apache-2.0
 * test_kernels.c - kernels of the optimizer and the loss beside their host twins */
#include "config.h"

#include "tap.h"

#include <math.h>
#include <stdint.h>

#include "backend.h"
#include "kernels/half.h"
#include "kernels/kernels.h"

#if HAVE_CUDA

#define GUARD 64 /* bytes after an array, which must stay */

static uint32_t seed = 1;

static float number (void)
{
    seed = seed * 1664525u + 1013904223u;
    return (float)(seed >> 8) * 0x1p-23f - 1;
}

static void need (train_status_t status, const train_error_t *err)
{
    if (status == TRAIN_OK)
        return;
    printf ("Bail out! %s\n", err->text);
    exit (1);
}

/* A copy of [bytes] on the GPU, [shift] bytes past an aligned address, between
 * guards of 0xa5. */
struct held {
    char *base, *at;
    size_t bytes, shift;
};

static struct held hold (const void *data, size_t bytes, size_t shift)
{
    struct held h = {.bytes = bytes, .shift = shift};
    size_t all = shift + bytes + GUARD;
    train_error_t err;

    need (backend_cuda.alloc (0, all, (void **)&h.base, &err), &err);
    need (backend_cuda.fill (0, h.base, 0xa5, all, NULL, &err), &err);
    h.at = h.base + shift;
    if (bytes > 0)
        need (backend_cuda.copy (h.at, data, bytes, NULL, &err), &err);
    need (backend_cuda.sync (NULL, &err), &err);
    return h;
}

/* Back to [data], and freed. Returns whether the guards are whole. */
static bool take (struct held *h, void *data)
{
    unsigned char *all = malloc (h->shift + h->bytes + GUARD);
    bool whole = true;
    train_error_t err;

    need (backend_cuda.copy (all, h->base, h->shift + h->bytes + GUARD, NULL,
                             &err),
          &err);
    need (backend_cuda.sync (NULL, &err), &err);
    for (size_t i = 0; i < h->shift; i++)
        whole &= all[i] == 0xa5;
    for (size_t i = 0; i < GUARD; i++)
        whole &= all[h->shift + h->bytes + i] == 0xa5;
    if (data)
        memcpy (data, all + h->shift, h->bytes);
    backend_cuda.free (h->base);
    free (all);
    return whole;
}

static float *floats (size_t n, bool positive)
{
    float *x = malloc ((n + 1) * sizeof (*x));

    for (size_t i = 0; i < n; i++) {
        float y = number ();

        x[i] = positive ? y * y : y;
    }
    return x;
}

static bool near (const float *a, const float *b, size_t n, float bound)
{
    for (size_t i = 0; i < n; i++) {
        if (isnan (a[i]) && isnan (b[i]))
            continue;
        if (!(fabsf (a[i] - b[i]) <= bound * (fabsf (b[i]) + 1))) {
            printf ("# [%zu] %.9g, want %.9g\n", i, (double)a[i], (double)b[i]);
            return false;
        }
    }
    return true;
}

/* [n] elements from number [first]; [shift] elements past alignment. */
static bool adamw (size_t n, size_t shift, uint64_t first, float factor,
                   const uint32_t *key)
{
    float *host[4], *got = malloc ((n + 1) * sizeof (float));
    uint16_t *copy = malloc ((n + 1) * 2), *bits = malloc ((n + 1) * 2);
    struct held dev[4], dcopy, df;
    bool good = true;

    memset (copy, 0x5a, n * 2);
    for (int i = 0; i < 4; i++) {
        host[i] = floats (n, i == 2);
        dev[i] = hold (host[i], n * 4, shift * 4);
    }
    if (n > 2)
        host[3][n / 2] = NAN;
    (void)take (&dev[3], NULL);
    dev[3] = hold (host[3], n * 4, shift * 4);
    dcopy = hold (copy, n * 2, shift * 2);
    df = hold (&factor, sizeof (factor), 0);
    kern_adamw_bf16_host (host[0], copy, host[1], host[2], host[3], &factor, n,
                          1e-2, 0.9, 0.95, 1e-8, 0.1, 3, first, key, NULL);
    kern_adamw_bf16_cuda ((float *)dev[0].at, (uint16_t *)dcopy.at,
                          (float *)dev[1].at, (float *)dev[2].at,
                          (float *)dev[3].at, (float *)df.at, n, 1e-2, 0.9,
                          0.95, 1e-8, 0.1, 3, first, key, NULL);
    for (int i = 1; i < 4; i++) {
        good &= take (&dev[i], got);
        good &= near (got, host[i], n, 1e-6f);
    }
    good &= take (&dev[0], got) && near (got, host[0], n, 2e-6f);
    good &= take (&dcopy, bits);
    /* The copy is the rounding of the GPU's own masters. */
    for (size_t i = 0; i < n && !key && isfinite (factor); i++)
        good &= bits[i] == half_to_bf16 (got[i]);
    for (size_t i = 0; i < n && key && isfinite (factor); i++)
        good &= fabsf (half_from_bf16 (bits[i]) - got[i])
                    <= 0x1.01p-7f * fabsf (got[i])
                || isnan (got[i]);
    if (!isfinite (factor))
        good &= memcmp (bits, copy, n * 2) == 0;
    (void)take (&df, NULL);
    for (int i = 0; i < 4; i++)
        free (host[i]);
    free (got);
    free (copy);
    free (bits);
    return good;
}

static void test_adamw (void)
{
    static const size_t sizes[] = {0, 1, 3, 4, 5, 255, 1024, 1027, 1000003};
    const uint32_t key[2] = {5, 6};
    bool good = true;

    for (size_t i = 0; i < sizeof (sizes) / sizeof (*sizes); i++) {
        for (size_t shift = 0; shift < 3; shift++) {
            good &= adamw (sizes[i], shift, 0, 0.5f, NULL);
            good &= adamw (sizes[i], shift, 8 + shift, 1, key);
        }
    }
    tap_ok (good, "adamw: sizes, alignments, roundings");
    tap_ok (adamw (1000, 0, 0, NAN, NULL) && adamw (1000, 0, 0, INFINITY, key),
            "adamw: a factor that is not finite leaves the step out");
}

/* A shard that begins at an odd element draws what the whole does. */
static void test_random (void)
{
    enum { N = 5003, FROM = 1031 };
    float *x = floats (N, false), *zero = calloc (N, 4);
    uint16_t *whole = malloc (N * 2), *shard = malloc (N * 2);
    const uint32_t key[2] = {9, 1};
    uint16_t **to[2] = {&whole, &shard};
    bool good = true;

    for (int i = 0; i < 2; i++) {
        size_t from = i ? FROM : 0, n = N - from;
        struct held p = hold (x + from, n * 4, 0), m = hold (zero, n * 4, 0);
        struct held v = hold (zero, n * 4, 0), g = hold (x + from, n * 4, 0);
        struct held h = hold (zero, n * 2, 0);

        kern_adamw_bf16_cuda ((float *)p.at, (uint16_t *)h.at, (float *)m.at,
                              (float *)v.at, (float *)g.at, NULL, n, 1e-3, 0.9,
                              0.95, 1e-8, 0, 1, from, key, NULL);
        good &= take (&h, *to[i]) && take (&p, NULL) && take (&m, NULL)
                && take (&v, NULL) && take (&g, NULL);
    }
    good &= memcmp (whole + FROM, shard, (N - FROM) * 2) == 0;
    tap_ok (good, "adamw: a shard draws what the whole does");
    free (x);
    free (zero);
    free (whole);
    free (shard);
}

static double sumsq_of (const float *x, size_t n, size_t shift, bool *whole)
{
    static double parts[KERN_SUMSQ_PARTS];
    struct held dx = hold (x, n * 4, shift * 4), dr, dp;
    double ret = -1;

    dr = hold (&ret, sizeof (ret), 0);
    dp = hold (parts, sizeof (parts), 0);
    kern_sumsq_f32_cuda ((double *)dr.at, (double *)dp.at, (float *)dx.at, n,
                         NULL);
    *whole = take (&dr, &ret) && take (&dp, NULL) && take (&dx, NULL);
    return ret;
}

static void test_sumsq (void)
{
    static const size_t sizes[] = {0, 1, 3, 4, 257, 4099, 3000001};
    bool good = true, whole;

    for (size_t i = 0; i < sizeof (sizes) / sizeof (*sizes); i++) {
        size_t n = sizes[i];
        float *x = floats (n, false);
        double want, first;

        kern_sumsq_f32_host (&want, x, n, NULL);
        first = sumsq_of (x, n, 0, &whole);
        good &= whole && fabs (first - want) <= 1e-12 * want;
        good &= sumsq_of (x, n, 0, &whole) == first;
        good &= sumsq_of (x, n, 1, &whole) == first;
        if (n > 0) {
            x[n - 1] = 3e38f; /* finite, and so is its square in double */
            good &= isfinite (sumsq_of (x, n, 0, &whole));
            x[n - 1] = -INFINITY;
            good &= isinf (sumsq_of (x, n, 0, &whole));
            x[0] = NAN;
            good &= isnan (sumsq_of (x, n, 0, &whole));
        }
        free (x);
    }
    tap_ok (good,
            "sumsq: sizes, the same bits wherever it lies, Inf and NaN told");
}

static void test_factor (void)
{
    static const double sums[] = {16, 0, 1e300, INFINITY, NAN};
    bool good = true;

    for (size_t i = 0; i < sizeof (sums) / sizeof (*sums); i++) {
        for (int clip = 0; clip < 3; clip++) {
            double norm, want_norm;
            float factor, want;
            struct held s = hold (&sums[i], 8, 0), f = hold (&sums[i], 4, 0);
            struct held l = hold (&sums[i], 8, 0);

            kern_clip_factor_host (&want, &want_norm, &sums[i], 0.25, clip,
                                   NULL);
            kern_clip_factor_cuda ((float *)f.at, (double *)l.at,
                                   (double *)s.at, 0.25, clip, NULL);
            good &= take (&s, NULL) && take (&f, &factor) && take (&l, &norm);
            good &= isnan (want) ? isnan (factor)
                                 : fabsf (factor - want) <= 1e-7f * want;
        }
    }
    tap_ok (good, "clip_factor");
}

static void test_accumulate (void)
{
    static const size_t sizes[] = {0, 1, 4, 7, 100003};
    bool good = true;

    for (size_t i = 0; i < sizeof (sizes) / sizeof (*sizes); i++) {
        for (size_t shift = 0; shift < 2; shift++) {
            size_t n = sizes[i];
            float *sum = floats (n, false), *x = floats (n, false);
            float *got = malloc ((n + 1) * 4);
            uint16_t *h = malloc ((n + 1) * 2);
            struct held ds = hold (sum, n * 4, shift * 4);
            struct held dx = hold (x, n * 4, 0), dh;

            kern_cast_f32_bf16_host (h, x, n, NULL);
            dh = hold (h, n * 2, shift * 2);
            kern_accumulate_f32_host (sum, x, n, NULL);
            kern_accumulate_bf16_host (sum, h, n, NULL);
            kern_accumulate_f32_cuda ((float *)ds.at, (float *)dx.at, n, NULL);
            kern_accumulate_bf16_cuda ((float *)ds.at, (uint16_t *)dh.at, n,
                                       NULL);
            good &= take (&ds, got) && take (&dx, NULL) && take (&dh, NULL);
            good &= memcmp (got, sum, n * 4) == 0;
            free (sum);
            free (x);
            free (got);
            free (h);
        }
    }
    tap_ok (good, "accumulate gives the host's bits");
}

/* bf16 of nearly equal numbers: one step of bf16 apart at most, or less than
 * [bound] apart, as where 1 - p is almost nothing. */
static bool near_bf16 (const uint16_t *a, const uint16_t *b, size_t n,
                       float bound)
{
    for (size_t i = 0; i < n; i++) {
        float x = half_from_bf16 (a[i]), y = half_from_bf16 (b[i]);

        if (isnan (x) && isnan (y))
            continue;
        if (!(fabsf (x - y) <= 0x1p-7f * fabsf (y) + bound)) {
            printf ("# gradient [%zu] %.9g, want %.9g\n", i, (double)x,
                    (double)y);
            return false;
        }
    }
    return true;
}

static bool logprob (size_t N, size_t V, size_t shift, float size,
                     float special)
{
    uint16_t *z = malloc ((N * V + 1) * 2), *got = malloc ((N * V + 1) * 2);
    int32_t *targets = malloc (N * 4);
    float *dlogp = floats (N, false), *out[4];
    struct held dz, dt, dd, dl, de;
    bool good = true;

    for (size_t i = 0; i < N * V; i++)
        z[i] = half_to_bf16 (size * number ());
    for (size_t r = 0; r < N; r++)
        targets[r] = r % 5 == 4 ? -1 : (int32_t)((seed + r * 977) % V);
    if (special != 0)
        z[V / 2] = half_to_bf16 (special);
    for (int i = 0; i < 4; i++)
        out[i] = calloc (N, 4);
    dz = hold (z, N * V * 2, shift * 2);
    dt = hold (targets, N * 4, 0);
    dd = hold (dlogp, N * 4, 0);
    dl = hold (out[0], N * 4, 0);
    de = hold (out[0], N * 4, 0);
    kern_logprob_bf16_host (z, out[0], out[1], targets, dlogp, N, V, 1 / 0.8,
                            NULL);
    /* once without the gradient: the logits stay for the next call */
    kern_logprob_bf16_cuda ((uint16_t *)dz.at, (float *)dl.at, (float *)de.at,
                            (int32_t *)dt.at, NULL, N, V, 1 / 0.8, NULL);
    kern_logprob_bf16_cuda ((uint16_t *)dz.at, (float *)dl.at, (float *)de.at,
                            (int32_t *)dt.at, (float *)dd.at, N, V, 1 / 0.8,
                            NULL);
    good &= take (&dz, got) && take (&dl, out[2]) && take (&de, out[3]);
    good &= take (&dt, NULL) && take (&dd, NULL);
    good &= near (out[2], out[0], N, 2e-6f * (1 + size));
    good &= near (out[3], out[1], N, 1e-5f * (1 + size));
    good &= near_bf16 (got, z, N * V, 2e-6f * (1 + size));
    for (int i = 0; i < 4; i++)
        free (out[i]);
    free (z);
    free (got);
    free (targets);
    free (dlogp);
    return good;
}

static void test_logprob (void)
{
    static const size_t widths[] = {1, 2, 7, 8, 9, 31, 4096, 4099, 50304};
    bool good = true;

    for (size_t i = 0; i < sizeof (widths) / sizeof (*widths); i++) {
        good &= logprob (7, widths[i], 0, 4, 0);
        good &= logprob (5, widths[i], 3, 20, 0);
    }
    tap_ok (good, "logprob: widths and alignments");
    tap_ok (logprob (11, 151936, 0, 8, 0) && logprob (3, 262147, 1, 8, 0),
            "logprob: large vocabularies");
    tap_ok (logprob (3, 5000, 0, 4, -INFINITY), "logprob: a masked logit");
    tap_ok (logprob (3, 5000, 0, 4, NAN) && logprob (3, 5000, 0, 4, INFINITY),
            "logprob: NaN and Inf spoil their row alone");
}

int main (void)
{
    const struct backend_ops *ops = NULL;
    train_error_t err;

    if (backend_find ("cuda", &ops, &err) != TRAIN_OK)
        tap_skip_all (err.text);
    test_adamw ();
    test_random ();
    test_sumsq ();
    test_factor ();
    test_accumulate ();
    test_logprob ();
    need (backend_cuda.sync (NULL, &err), &err);
    return tap_end ();
}

#else

int main (void)
{
    tap_skip_all ("built without CUDA");
    return 1;
}

#endif
