/* SPDX-License-Identifier: Apache-2.0
 * test_product.c - products of few rows on a GPU beside sums in double, and their
 * bits in batches of other sizes */
#include "config.h"

#include "tap.h"

#if HAVE_CUDA

#include "layer_set.h"

#include "kernels/decode_product.h"

#define EPS 1e-5

struct work {
    bool f16, norm, bias, pair, add;
    bool next, sums; /* of the norm behind; x is what another made so */
    size_t N, in, out;
    int split;
};

static enum type type_of (const struct work *w)
{
    return w->f16 ? F16 : BF16;
}

enum { ARRAYS = 11, SUMS = 12 };

struct arrays {
    size_t n[ARRAYS];
    /* x, w, norm, bias, add, y, normed, next, scaled; floats: sums, squares */
    uint16_t *host[ARRAYS], *dev[ARRAYS];
};

static size_t squares_of (const struct work *w)
{
    size_t tiles = kern_product_tiles (w->out, w->pair);

    return w->split > 0 ? tiles * (size_t)w->split
                        : kern_product_squares (w->in, w->out);
}

static void fill (struct arrays *a, const struct work *w)
{
    const float size[ARRAYS] = {1, 0.05f, 1.5f, 1, 1, 0, 0, 1.5f};
    const size_t n[ARRAYS] = {w->N * w->in,
                              w->in * w->out * (w->pair ? 2 : 1),
                              w->in,
                              w->out,
                              w->N * w->out,
                              w->N * w->out,
                              w->N * w->in,
                              w->out,
                              w->N * w->out,
                              2 * w->N * SUMS,
                              2 * w->N * squares_of (w)};

    memcpy (a->n, n, sizeof (n));
    for (int i = 0; i < ARRAYS; i++) {
        a->host[i] = malloc (2 * n[i]);
        for (size_t k = 0; k < n[i]; k++)
            set_value (type_of (w), (char *)a->host[i], k, size[i] * number ());
        for (size_t k = 0; i == 9 && k < w->N * SUMS; k++)
            ((float *)(void *)a->host[i])[k] = 8 + 7 * number ();
        must (cudaMalloc ((void **)&a->dev[i], 2 * n[i]));
        must (cudaMemcpy (a->dev[i], a->host[i], 2 * n[i],
                          cudaMemcpyHostToDevice));
    }
}

static void drop (struct arrays *a)
{
    for (int i = 0; i < ARRAYS; i++) {
        free (a->host[i]);
        must (cudaFree (a->dev[i]));
    }
}

/* N rows from row [first] on, into y. */
static bool run (const struct arrays *a, const struct work *w, size_t first,
                 size_t N, bool early)
{
    struct kern_product p = {.x = a->dev[0] + first * w->in,
                             .w = a->dev[1],
                             .y = a->dev[5] + first * w->out,
                             .N = N,
                             .in = w->in,
                             .out = w->out,
                             .norm = w->norm ? a->dev[2] : NULL,
                             .bias = w->bias ? a->dev[3] : NULL,
                             .add = w->add ? a->dev[4] + first * w->out : NULL,
                             .normed = a->dev[6],
                             .eps = EPS,
                             .pair = w->pair,
                             .early = early,
                             .split = w->split};

    if (w->next) {
        p.next = a->dev[7];
        p.scaled = a->dev[8] + first * w->out;
        p.squares = (float *)(void *)a->dev[10] + first * squares_of (w);
    }
    if (w->sums) {
        p.sums = (float *)(void *)a->dev[9] + first * SUMS;
        p.n_sums = SUMS;
    }
    if (!kern_product_fits (&p))
        return false;
    must (cudaMemset (p.y, 0xff, 2 * N * w->out));
    if (w->f16)
        kern_product_f16_cuda (&p, NULL);
    else
        kern_product_bf16_cuda (&p, NULL);
    must (cudaGetLastError ());
    must (cudaDeviceSynchronize ());
    must (cudaMemcpy (a->host[5] + first * w->out, p.y, 2 * N * w->out,
                      cudaMemcpyDeviceToHost));
    return true;
}

static double at (const struct work *w, const uint16_t *x, size_t i)
{
    return (double)value_of (type_of (w), (const char *)x, i);
}

static double sum_of (const struct arrays *a, const struct work *w, size_t n,
                      size_t o)
{
    double sum = 0, squares = 0;

    for (size_t k = 0; k < w->in; k++) {
        double x = at (w, a->host[0], n * w->in + k);

        squares += w->sums ? 0 : x * x;
        x *= w->norm ? at (w, a->host[2], k) : 1;
        sum += x * at (w, a->host[1], o * w->in + k);
    }
    for (size_t k = 0; w->sums && k < SUMS; k++)
        squares += (double)((float *)(void *)a->host[9])[n * SUMS + k];
    return w->norm || w->sums ? sum / sqrt (squares / (double)w->in + EPS)
                              : sum;
}

static double want (const struct arrays *a, const struct work *w, size_t n,
                    size_t o)
{
    double x = sum_of (a, w, n, o);

    x += w->bias ? at (w, a->host[3], o) : 0;
    if (w->pair)
        x = x / (1 + exp (-x)) * sum_of (a, w, n, o + w->out);
    return x + (w->add ? at (w, a->host[4], n * w->out + o) : 0);
}

/* Rows alone and by sevens, early or not: the bits that they have together, where
 * so many are summed in the same way. */
static bool check_bits (const struct arrays *a, const struct work *w)
{
    size_t bytes = 2 * w->N * w->out;
    uint16_t *all = malloc (bytes);
    bool good = true;

    memcpy (all, a->host[5], bytes);
    for (size_t n = 0; good && n < w->N; n += n % 8 ? 7 : 1)
        good = run (a, w, n, 1, true);
    for (size_t n = 0; good && n + 7 <= w->N; n += 7)
        good = run (a, w, n, 7, false);
    good = good && memcmp (all, a->host[5], bytes) == 0;
    free (all);
    return good;
}

/* What the norm behind needs, of the y that was written. */
static bool check_next (const struct arrays *a, const struct work *w)
{
    size_t parts = squares_of (w);
    bool good = true;

    for (int i = 8; i <= 10; i += 2)
        must (cudaMemcpy (a->host[i], a->dev[i], 2 * a->n[i],
                          cudaMemcpyDeviceToHost));
    for (size_t n = 0; n < w->N; n++) {
        float *sums = (float *)(void *)a->host[10] + n * parts;
        double have = 0, squares = 0;

        for (size_t o = n * w->out; o < (n + 1) * w->out; o++) {
            double y = at (w, a->host[5], o);
            uint16_t x = 0;

            squares += y * y;
            set_value (type_of (w), (char *)&x, 0,
                       (float)(y * at (w, a->host[7], o % w->out)));
            good &= x == a->host[8][o];
        }
        for (size_t k = 0; k < parts; k++)
            have += (double)sums[k];
        good &= fabs (have - squares) <= 1e-5 * squares;
    }
    return good;
}

/* Every result, by three roundings of the type. */
static bool check (const struct work *w)
{
    double step = (double)type_step[type_of (w)];
    struct arrays a;
    bool good;

    fill (&a, w);
    good = run (&a, w, 0, w->N, false);
    for (size_t i = 0; good && i < w->N * w->out; i++) {
        double x = want (&a, w, i / w->out, i % w->out);
        double off = fabs (at (w, a.host[5], i) - x);

        if (!(off <= 2 * step * fabs (x) + 2.5 * step)) {
            printf ("# [%zu] is %g, want %g\n", i, at (w, a.host[5], i), x);
            good = false;
        }
    }
    if (good && w->next)
        good = check_next (&a, w);
    if (good)
        good = check_bits (&a, w);
    if (!good)
        printf ("# f16 %d norm %d bias %d pair %d add %d, %zu x %zu x %zu, "
                "%d parts\n",
                w->f16, w->norm, w->bias, w->pair, w->add, w->N, w->in, w->out,
                w->split);
    drop (&a);
    return good;
}

static const struct work works[] = {
    {.N = 1, .in = 64, .out = 8},
    {.N = 16, .in = 512, .out = 384},
    {.N = 13, .in = 512, .out = 384, .split = 1},
    {.N = 11, .in = 1024, .out = 200, .split = 8},
    {.N = 9, .in = 256, .out = 136, .split = 2, .bias = true},
    {.N = 10, .in = 448, .out = 264, .split = 6, .add = true},
    {.N = 50, .in = 1024, .out = 256, .split = 6, .next = true},
    {.N = 64, .in = 8192, .out = 2048, .add = true, .next = true},
    {.N = 41, .in = 576, .out = 200, .split = 7, .bias = true},
    {.N = 48, .in = 512, .out = 128, .split = 5, .pair = true},
    {.N = 48, .in = 320, .out = 384, .split = 3, .add = true, .next = true},
    {.N = 14, .in = 2048, .out = 256, .norm = true, .bias = true},
    {.N = 16, .in = 512, .out = 192, .norm = true, .pair = true},
    {.N = 9, .in = 512, .out = 72, .norm = true, .pair = true, .split = 8},
    {.N = 13, .in = 512, .out = 384, .add = true, .next = true},
    {.N = 7, .in = 1024, .out = 200, .next = true, .split = 1},
    {.N = 16, .in = 512, .out = 192, .sums = true, .pair = true},
    {.N = 5, .in = 192, .out = 640, .pair = true},
    {.f16 = true, .N = 12, .in = 512, .out = 200, .pair = true},
    {.f16 = true, .N = 8, .in = 512, .out = 200, .norm = true},
    {.N = 64, .in = 512, .out = 384},
    {.N = 64, .in = 512, .out = 384, .split = 1},
    {.N = 33, .in = 1024, .out = 200, .split = 8},
    {.N = 65, .in = 256, .out = 128, .split = 4, .add = true},
    {.N = 64, .in = 1024, .out = 384, .add = true, .next = true},
    {.N = 70, .in = 512, .out = 200, .next = true},
    {.N = 33, .in = 512, .out = 384, .sums = true, .next = true},
    {.N = 64, .in = 512, .out = 192, .sums = true, .pair = true},
    {.N = 64, .in = 512, .out = 384, .split = 8},
    {.N = 70, .in = 192, .out = 136, .bias = true},
    {.N = 65, .in = 256, .out = 128, .add = true},
    {.N = 130, .in = 768, .out = 264, .norm = true},
    {.N = 64, .in = 512, .out = 192, .norm = true, .pair = true},
    {.N = 40, .in = 512, .out = 72, .pair = true, .split = 8},
    {.f16 = true, .N = 64, .in = 512, .out = 200, .pair = true},
    {.f16 = true, .N = 40, .in = 640, .out = 128, .add = true},
    {.f16 = true, .N = 40, .in = 640, .out = 128, .norm = true},
    {.N = 8, .in = 1024, .out = 384, .sums = true, .bias = true},
    {.N = 16, .in = 2048, .out = 192, .sums = true, .pair = true},
    {.N = 30, .in = 1024, .out = 384, .add = true, .next = true},
    {.N = 64, .in = 1024, .out = 2048, .sums = true, .split = 8},
    {.N = 16, .in = 128, .out = 17408, .sums = true, .split = 1},
    {.N = 64, .in = 128, .out = 17408, .sums = true, .split = 1},
    {.N = 64, .in = 64, .out = 33920, .sums = true},
    {.N = 32, .in = 64, .out = 33920, .sums = true},
    {.N = 8, .in = 64, .out = 33920, .sums = true, .bias = true},
};

int main (void)
{
    int n = 0;

    if (cudaGetDeviceCount (&n) != cudaSuccess || n == 0)
        tap_skip_all ("no GPU");
    if (!kern_product_served ())
        tap_skip_all ("no GPU of compute capability 9");
    for (size_t i = 0; i < sizeof (works) / sizeof (*works); i++) {
        char text[96];

        snprintf (text, sizeof (text), "%zu rows, %zu to %zu%s%s%s%s%s%s",
                  works[i].N, works[i].in, works[i].out,
                  works[i].norm ? ", norm" : "", works[i].bias ? ", bias" : "",
                  works[i].pair ? ", pairs" : "", works[i].add ? ", added" : "",
                  works[i].sums ? ", normed here" : "",
                  works[i].next ? ", normed next" : "");
        tap_ok (check (&works[i]), text);
    }
    return tap_end ();
}

#else

int main (void)
{
    tap_skip_all ("built without CUDA");
    return 1;
}

#endif
