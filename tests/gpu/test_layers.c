/* SPDX-License-Identifier: Apache-2.0
 * test_layers.c - the layers' kernels on a GPU beside their host twins: f32, bf16,
 * f16, odd sizes and alignments, NaN and Inf, poisoned outputs, the same bits
 * twice
 *
 *   test_layers [short]     short: the smaller sizes, for a memory checker */
#include "config.h"

#include "tap.h"

#if HAVE_CUDA

#include "layer_set.h"

#define LENGTH(a) (sizeof (a) / sizeof (a[0]))
#define AT(i)     set_at (s, i)

static bool is_short;

/* What is added to row 0 or so of array [i]; 0 = nothing. */
static void special (struct set *s, int i, float x)
{
    if (x != 0 && s->a[i].n > 0)
        set_value (s->a[i].type, s->a[i].start, s->a[i].n / 2, x);
}

/* In short rows the gradient is a difference of large and nearly equal terms. */
static float room_of (size_t C)
{
    return C < 8 ? 1e-3f : 2e-5f;
}

static void call_rmsnorm (struct set *s)
{
    size_t N = s->shape[0], C = s->shape[1];

    SET_CALL (s, rmsnorm_fwd, AT (0), AT (1), AT (2), AT (3), N, C, 1e-5, NULL);
    SET_CALL (s, rmsnorm_bwd, AT (4), AT (5), AT (6), AT (2), AT (3), AT (1), N,
              C, set_scratch (kern_rmsnorm_scratch (N, C)), NULL);
}

static bool rmsnorm (enum type type, size_t shift, size_t N, size_t C, float x)
{
    struct set s = {.type = type, .shift = shift, .shape = {N, C}};

    set_elem (&s, N * C, 0, 4e-6f);
    set_add (&s, F32, N, 0, 1e-5f);
    special (&s, set_elem (&s, N * C, 1, 0), x);
    set_elem (&s, C, 1, 0);
    set_elem (&s, N * C, 1, room_of (C));
    set_add (&s, F32, C, 1, 1e-6f * (10 + (float)N));
    set_elem (&s, N * C, 1, 0);
    return set_check (&s, call_rmsnorm);
}

/* dmid in place, elsewhere, and none, with y again in dy's place. */
static void call_addnorm (struct set *s)
{
    size_t N = s->shape[0], C = s->shape[1];
    void *scratch = set_scratch (kern_rmsnorm_scratch (N, C));

    SET_CALL (s, addnorm_fwd, AT (0), AT (1), AT (2), AT (3), AT (4), AT (5), N,
              C, 1e-5, NULL);
    SET_CALL (s, addnorm_bwd, AT (6), AT (7), AT (8), AT (4), AT (1), AT (5),
              AT (2), N, C, scratch, NULL);
    SET_CALL (s, addnorm_again_bwd, AT (9), AT (8), AT (7), AT (8), NULL,
              AT (1), AT (5), AT (2), N, C, scratch, NULL);
    SET_CALL (s, addnorm_fwd, AT (0), AT (3), AT (2), AT (3), AT (4), AT (5), N,
              C, 1e-5, NULL);
}

static bool addnorm (enum type type, size_t shift, size_t N, size_t C, float x)
{
    struct set s = {.type = type, .shift = shift, .shape = {N, C}};

    set_elem (&s, N * C, 0, 4e-6f);
    set_elem (&s, N * C, 0, 0);
    set_add (&s, F32, N, 0, 1e-5f);
    special (&s, set_elem (&s, N * C, 1, 0), x);
    set_elem (&s, N * C, 1, 0);
    set_elem (&s, C, 1, 0);
    set_elem (&s, N * C, 0, room_of (C));
    set_add (&s, F32, C, 1, 1e-6f * (10 + (float)N));
    set_elem (&s, N * C, 1, 4e-6f);
    set_elem (&s, N * C, 0, room_of (C));
    return set_check (&s, call_addnorm);
}

static void test_norms (void)
{
    static const size_t widths[] = {1,    2,    7,    8,    33,   64,
                                    100,  128,  512,  520,  1024, 2048,
                                    2056, 4096, 4104, 8192, 8200, 16384};
    static const size_t rows[] = {1, 3, 17, 600};
    static const char *const names[] = {"f32", "bf16", "f16"};

    for (enum type t = F32; t <= F16; t++) {
        bool good = true;

        for (size_t i = 0; i < LENGTH (widths); i++) {
            for (size_t k = 0; k < LENGTH (rows); k++) {
                size_t C = widths[i], N = rows[k];

                if (N * C > (is_short ? 60000u : 2500000u))
                    continue;
                good &= rmsnorm (t, 0, N, C, 0) && addnorm (t, 0, N, C, 0);
                if (N < 17)
                    good &= rmsnorm (t, 1, N, C, 0) && addnorm (t, 3, N, C, 0);
            }
        }
        good &= rmsnorm (t, 0, 0, 64, 0) && addnorm (t, 0, 0, 64, 0);
        if (!is_short)
            good &= rmsnorm (t, 0, 300, 8192, 0);
        printf ("# %s\n", names[t]);
        tap_ok (good, "rmsnorm, addnorm: widths, rows, alignments");
        good = rmsnorm (t, 0, 9, 64, NAN) && rmsnorm (t, 0, 9, 4096, INFINITY)
               && addnorm (t, 0, 9, 2048, -INFINITY)
               && addnorm (t, 1, 9, 33, NAN);
        tap_ok (good, "rmsnorm, addnorm: NaN and Inf as on the host");
    }
}

static void call_headnorm (struct set *s)
{
    size_t N = s->shape[0], H = s->shape[1], G = s->shape[2], D = s->shape[3];

    SET_CALL (s, headnorm_fwd, AT (0), AT (1), AT (2), AT (3), AT (4), N, H, G,
              D, 1e-5, NULL);
    SET_CALL (s, headnorm_bwd, AT (5), AT (6), AT (7), AT (1), AT (2), AT (3),
              AT (4), N, H, G, D,
              set_scratch (kern_headnorm_scratch (N, H, G, D)), NULL);
}

static bool headnorm (enum type type, size_t shift, size_t N, size_t H,
                      size_t G, size_t D, float x)
{
    struct set s = {.type = type, .shift = shift, .shape = {N, H, G, D}};

    special (&s, set_elem (&s, N * (H + 2 * G) * D, 1, 4e-6f), x);
    set_elem (&s, N * (H + G) * D, 0, 0);
    set_add (&s, F32, N * (H + G), 0, 1e-5f);
    set_elem (&s, D, 1, 0);
    set_elem (&s, D, 1, 0);
    set_elem (&s, N * (H + 2 * G) * D, 1, room_of (D));
    set_add (&s, F32, D, 1, 1e-6f * (10 + (float)(N * H)));
    set_add (&s, F32, D, 1, 1e-6f * (10 + (float)(N * G)));
    set_elem (&s, N * (H + 2 * G) * D, 1, 0);
    return set_check (&s, call_headnorm);
}

static void test_headnorm (void)
{
    static const size_t widths[] = {2, 6, 8, 32, 34, 64, 72, 128, 256, 1024};
    bool good = true;

    for (enum type t = F32; t <= F16; t++) {
        for (size_t i = 0; i < LENGTH (widths); i++) {
            good &= headnorm (t, 0, 1, 1, 1, widths[i], 0);
            good &= headnorm (t, 0, 5, 4, 2, widths[i], 0);
            good &= headnorm (t, 1, 7, 3, 1, widths[i], 0);
            if (!is_short)
                good &= headnorm (t, 0, 1061, 5, 1, widths[i], 0);
        }
        good &= headnorm (t, 0, 3, 2, 1, 64, NAN);
    }
    tap_ok (good, "headnorm: widths, heads, alignments, NaN");
}

static void call_sums (struct set *s)
{
    size_t N = s->shape[0], C = s->shape[1];

    SET_CALL (s, residual_fwd, AT (0), AT (1), AT (2), N * C, NULL);
    SET_CALL (s, residual_fwd, AT (2), AT (1), AT (2), N * C, NULL);
    SET_CALL (s, bias_fwd, AT (1), AT (3), N, C, NULL);
    SET_CALL (s, bias_bwd, AT (4), AT (2), N, C,
              set_scratch (kern_bias_scratch (N, C)), NULL);
}

static bool sums (enum type type, size_t shift, size_t N, size_t C, float x)
{
    struct set s = {.type = type, .shift = shift, .shape = {N, C}};

    set_elem (&s, N * C, 0, 0);
    special (&s, set_elem (&s, N * C, 1, 0), x);
    set_elem (&s, N * C, 1, 0);
    set_elem (&s, C, 1, 0);
    set_add (&s, F32, C, 1, 1e-6f * (10 + (float)N));
    return set_check (&s, call_sums);
}

static void call_swiglu (struct set *s)
{
    size_t N = s->shape[0], F = s->shape[1];

    SET_CALL (s, swiglu_fwd, AT (0), AT (1), N, F, NULL);
    SET_CALL (s, swiglu_bwd, AT (2), AT (3), AT (1), N, F, NULL);
    SET_CALL (s, swiglu_again_bwd, AT (1), AT (3), AT (3), AT (1), N, F, NULL);
}

static bool swiglu (enum type type, size_t shift, size_t N, size_t F, float x)
{
    struct set s = {.type = type, .shift = shift, .shape = {N, F}};

    set_elem (&s, N * F, 0, 1e-5f);
    special (&s, set_elem (&s, N * 2 * F, 8, 1e-5f), x);
    set_elem (&s, N * 2 * F, 0, 1e-5f);
    set_elem (&s, N * F, 1, 1e-5f);
    return set_check (&s, call_swiglu);
}

static void test_rows (void)
{
    static const size_t widths[] = {1, 7, 8, 33, 256, 1000, 2048, 2056};
    static const size_t rows[] = {1, 5, 1061};
    bool good = true, good_glu = true;

    for (enum type t = F32; t <= F16; t++) {
        for (size_t i = 0; i < LENGTH (widths); i++) {
            for (size_t k = 0; k < LENGTH (rows); k++) {
                size_t C = widths[i], N = rows[k];

                if (is_short && N * C > 60000)
                    continue;
                good &= sums (t, 0, N, C, 0) && sums (t, 1, N, C, 0);
                good_glu &= swiglu (t, 0, N, C, 0) && swiglu (t, 1, N, C, 0);
            }
        }
        good &= sums (t, 0, 0, 8, 0) && sums (t, 0, 9, 64, NAN)
                && sums (t, 1, 9, 64, INFINITY);
        good_glu &= swiglu (t, 0, 0, 8, 0) && swiglu (t, 0, 9, 64, NAN)
                    && swiglu (t, 0, 9, 64, INFINITY)
                    && swiglu (t, 1, 9, 63, -INFINITY)
                    && swiglu (t, 0, 9, 64, -300);
    }
    tap_ok (good, "residual, bias: widths, rows, alignments, NaN, Inf");
    tap_ok (good_glu, "swiglu: the same, and both ends of the sigmoid");
}

static void call_rope (struct set *s)
{
    const size_t *d = s->shape;

    SET_CALL (s, rope_fwd, AT (0), AT (2), AT (3), d[0], d[1], d[2], d[3], d[4],
              NULL);
    SET_CALL (s, rope_bwd, AT (1), AT (2), AT (3), d[0], d[1], d[2], d[3], d[4],
              NULL);
}

static bool rope (enum type type, size_t shift, size_t B, size_t T,
                  size_t heads, size_t D, size_t row)
{
    struct set s = {
        .type = type, .shift = shift, .shape = {B, T, heads, D, row}};

    set_elem (&s, B * T * row, 1, 1e-6f);
    set_elem (&s, B * T * row, 1, 1e-6f);
    set_add (&s, F32, T * D / 2, 1, 0);
    set_add (&s, F32, T * D / 2, 1, 0);
    return set_check (&s, call_rope);
}

static void test_rope (void)
{
    bool good = true;

    for (enum type t = F32; t <= F16; t++) {
        for (size_t shift = 0; shift < 2; shift++) {
            good &= rope (t, shift, 1, 1, 1, 2, 2);
            good &= rope (t, shift, 2, 5, 3, 6, 25);
            good &= rope (t, shift, 1, 4, 2, 18, 36);
            good &= rope (t, shift, 2, 33, 6, 64, 512);
            good &= rope (t, shift, 3, 17, 5, 128, 896);
            good &= rope (t, shift, 3, 17, 5, 128, 897);
        }
        good &= rope (t, 0, 0, 4, 2, 64, 128);
    }
    tap_ok (good, "rope: heads, widths, alignments");
}

static void call_embedding (struct set *s)
{
    size_t N = s->shape[0], C = s->shape[1], V = s->shape[2];

    SET_CALL (s, embedding_fwd, AT (0), AT (1), AT (2), N, C, NULL);
    SET_CALL (s, embedding_bwd, AT (3), AT (4), AT (2), N, C, V,
              set_scratch (kern_embedding_scratch (N, V)), NULL);
}

/* A share of [pads] in 8 of the rows are token 0; token 1 has exactly [exact]
 * rows where there is room. */
static bool embedding (enum type type, size_t shift, size_t N, size_t C,
                       size_t V, unsigned pads, size_t exact)
{
    struct set s = {.type = type, .shift = shift, .shape = {N, C, V, pads}};
    int32_t *tokens;

    set_elem (&s, N * C, 0, 0);
    set_elem (&s, V * C, 1, 0);
    set_add (&s, INT, N, 0, 0);
    set_add (&s, F32, V * C, 1, 1e-6f * (10 + (float)N / 8));
    set_elem (&s, N * C, 1, 0);
    tokens = (int32_t *)s.a[2].start;
    for (size_t n = 0; n < N; n++) {
        uint32_t r = (uint32_t)((number () + 1) * 0x1p22f);

        tokens[n] = r % 8 < pads || V < 3 ? 0 : (int32_t)(2 + r / 8 % (V - 2));
        if (V > 2 && n % 3 == 1 && n / 3 < exact)
            tokens[n] = 1;
    }
    return set_check (&s, call_embedding);
}

static void test_embedding (void)
{
    bool good = true;

    for (enum type t = F32; t <= F16; t++) {
        for (size_t shift = 0; shift < 2; shift++) {
            good &= embedding (t, shift, 1, 1, 1, 0, 0);
            good &= embedding (t, shift, 7, 5, 3, 4, 2);
            good &= embedding (t, shift, 100, 33, 1, 0, 0);
            good &= embedding (t, shift, 200, 64, 50, 0, 32);
            good &= embedding (t, shift, 200, 264, 50, 1, 33);
            good &= embedding (t, shift, 300, 72, 7, 8, 34);
            if (!is_short)
                good &= embedding (t, shift, 5003, 520, 3000, 4, 31);
        }
        good &= embedding (t, 0, 0, 64, 50, 0, 0);
    }
    tap_ok (good, "embedding: few and many rows of a token, all of one");
}

int main (int argc, char **argv)
{
    int n = 0;

    if (cudaGetDeviceCount (&n) != cudaSuccess || n == 0)
        tap_skip_all ("no GPU");
    is_short = argc > 1 && strcmp (argv[1], "short") == 0;
    test_norms ();
    test_headnorm ();
    test_rows ();
    test_rope ();
    test_embedding ();
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
