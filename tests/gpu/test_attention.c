/* SPDX-License-Identifier: Apache-2.0
 * test_attention.c - attention on a GPU, our kernels and cuDNN, beside the host's
 * f64 kernel on the same rounded numbers
 *
 *   test_attention [own | cudnn | hopper] */
#include "config.h"

#include "tap.h"

#include "kernels/attention.h"
#include "kernels/attention_hopper.h"

#if HAVE_CUDA
#include "attention_set.h"

static bool case_ok (struct attention *a, const struct attention_shape *s)
{
    struct attention_choice c;
    struct work w;
    bool good;

    if (!attention_choose (a, s, &c)) {
        printf ("# %s\n", attention_error (a));
        return false;
    }
    make (&w, s);
    want (&w);
    good = run (a, &w, &c) && near (&w);
    if (good && c.deterministic) {
        void *first = doubles (w.n_qkv);
        size_t bytes = w.n_qkv * width (s->dtype);

        memcpy (first, w.dqkv, bytes);
        for (int i = 2; good && i <= 3; i++) {
            good = run (a, &w, &c) && memcmp (first, w.dqkv, bytes) == 0;
            if (!good)
                printf ("# other bits in run %d\n", i);
        }
        free (first);
    }
    if (!good)
        printf ("# failed: %s\n", c.why);
    drop (&w);
    return good;
}

/* D in three kinds: what cuDNN takes too, odd multiples of 2, wide ones. */
static const struct attention_shape shapes[] = {
    {.B = 2, .T = 1, .H = 8, .G = 8, .D = 64},
    {.B = 2, .T = 7, .H = 8, .G = 2, .D = 64},
    {.B = 1, .T = 129, .H = 8, .G = 1, .D = 128},
    {.B = 2, .T = 129, .H = 4, .G = 4, .D = 80},
    {.B = 1, .T = 256, .H = 8, .G = 2, .D = 128},
    {.B = 2, .T = 200, .H = 8, .G = 1, .D = 64},
    {.B = 1, .T = 384, .H = 6, .G = 6, .D = 64},
    {.B = 1, .T = 640, .H = 4, .G = 1, .D = 128},
    {.B = 3, .T = 63, .H = 4, .G = 2, .D = 96},
    {.B = 1, .T = 65, .H = 2, .G = 2, .D = 8},
    {.B = 1, .T = 130, .H = 4, .G = 2, .D = 20},
    {.B = 1, .T = 65, .H = 2, .G = 1, .D = 256},
    {.B = 1, .T = 150, .H = 2, .G = 2, .D = 178},
    {.B = 2, .T = 33, .H = 2, .G = 2, .D = 2},
    {.B = 2, .T = 577, .H = 6, .G = 2, .D = 64},
};

static void all_shapes (struct attention *a, enum attention_engine e,
                        enum attention_dtype t, bool deterministic,
                        bool documents)
{
    char name[80];
    bool good = true;

    for (size_t i = 0; i < sizeof (shapes) / sizeof (*shapes); i++) {
        struct attention_shape s = shapes[i];

        if ((e == ATTENTION_CUDNN && (s.D % 8 != 0 || s.D > 128))
            || (e == ATTENTION_HOPPER && s.D != 64))
            continue;
        s.dtype = t;
        s.deterministic = deterministic;
        s.grad = true;
        s.documents = documents;
        good &= case_ok (a, &s);
    }
    snprintf (name, sizeof (name), "%s, %s%s%s: near f64", engine_names[e],
              type_names[t], deterministic ? ", deterministic" : "",
              documents ? ", documents" : "");
    tap_ok (good, name);
}

/* Whether exactly the rows from [t] of the heads that read head [g] are NaN. */
static bool nan_from (const struct work *w, size_t t, size_t g)
{
    const struct attention_shape *s = &w->s;

    for (size_t i = 0; i < w->n_y; i++) {
        size_t head = i / s->D % s->H, row = i / s->D / s->H;
        bool hit = row >= t && head / (s->H / s->G) == g;

        if (isnan (load (w->y, i, s->dtype)) != hit) {
            printf ("# y of row %zu, head %zu\n", row, head);
            return false;
        }
    }
    return true;
}

/* A NaN in a key reaches the rows that see it and no other. */
static void test_nan (struct attention *a, enum attention_engine e,
                      enum attention_dtype t)
{
    struct attention_shape s = {
        .dtype = t, .B = 1, .T = 200, .H = 4, .G = 2, .D = 64, .grad = true};
    struct attention_choice c;
    struct work w;
    bool good = attention_choose (a, &s, &c), some = false;
    char name[80];

    make (&w, &s);
    store (w.qkv, 150 * w.row + (s.H + 1) * s.D + 5, NAN, t);
    good = good && run (a, &w, &c) && nan_from (&w, 150, 1);
    /* dq of a row that saw it, dk of a key before it */
    good &= isnan (load (w.dqkv, 170 * w.row + 3 * s.D, t));
    good &= isnan (load (w.dqkv, 10 * w.row + (s.H + 1) * s.D, t));
    for (size_t i = 0; i < s.D; i++)
        some |= isnan (load (w.dqkv, 170 * w.row + i, t));
    snprintf (name, sizeof (name), "%s, %s: NaN passes through",
              engine_names[e], type_names[t]);
    tap_ok (good && !some, name);
    drop (&w);
}

/* Captured, the work gives the bits of a plain call. */
static void test_graph (struct attention *a, enum attention_engine e)
{
    struct attention_shape s = {.dtype = ATTENTION_BF16,
                                .B = 2,
                                .T = 300,
                                .H = 4,
                                .G = 2,
                                .D = 64,
                                .deterministic = true,
                                .grad = true};
    struct attention_choice c;
    struct work w;
    bool good = attention_choose (a, &s, &c);
    void *y, *dqkv;
    char name[80];

    make (&w, &s);
    y = doubles (w.n_y);
    dqkv = doubles (w.n_qkv);
    good = good && run (a, &w, &c);
    memcpy (y, w.y, w.n_y * 2);
    memcpy (dqkv, w.dqkv, w.n_qkv * 2);
    good = good && run_graph (a, &w, &c) && memcmp (y, w.y, w.n_y * 2) == 0
           && memcmp (dqkv, w.dqkv, w.n_qkv * 2) == 0;
    snprintf (name, sizeof (name), "%s: in a CUDA graph", engine_names[e]);
    tap_ok (good, name);
    free (y);
    free (dqkv);
    drop (&w);
}

/* A batch gives the bits of its sequences alone: [s], that cuDNN's deterministic
 * backward takes in parts, and whose heads ours for sm_90a does not have at work
 * all at once. */
static void test_parts (struct attention *a, enum attention_engine e,
                        struct attention_shape s)
{
    size_t B = s.B;
    struct attention_choice c, one;
    struct work w, x;
    bool good = attention_choose (a, &s, &c);
    char name[80];

    make (&w, &s);
    s.B = 1;
    good = good && attention_choose (a, &s, &one) && run (a, &w, &c);
    printf ("# scratch of %zu %zu, of 1 %zu\n", B, c.scratch_bwd,
            one.scratch_bwd);
    for (size_t b = 0; b < B; b++) {
        make (&x, &s);
        memcpy (x.qkv, (char *)w.qkv + b * x.n_qkv * 2, x.n_qkv * 2);
        memcpy (x.dy, (char *)w.dy + b * x.n_y * 2, x.n_y * 2);
        good = good && run (a, &x, &one)
               && memcmp (x.y, (char *)w.y + b * x.n_y * 2, x.n_y * 2) == 0
               && memcmp (x.dqkv, (char *)w.dqkv + b * x.n_qkv * 2, x.n_qkv * 2)
                      == 0;
        drop (&x);
    }
    snprintf (name, sizeof (name), "%s: a batch is its sequences",
              engine_names[e]);
    tap_ok (
        good && (e != ATTENTION_CUDNN || c.scratch_bwd < B * one.scratch_bwd),
        name);
    drop (&w);
}

static void engine (enum attention_engine e)
{
    static const struct attention_shape batches[] = {
        [ATTENTION_CUDNN] = {.B = 8, .T = 1024, .H = 128, .G = 8, .D = 8},
        [ATTENTION_HOPPER] = {.B = 12, .T = 1030, .H = 8, .G = 4, .D = 64},
    };
    struct attention *a = attention_create ();

    attention_engine_only (a, e);
    for (int t = e == ATTENTION_OWN ? ATTENTION_F32 : ATTENTION_BF16;
         t <= ATTENTION_F16; t++) {
        all_shapes (a, e, (enum attention_dtype)t, false, false);
        all_shapes (a, e, (enum attention_dtype)t, true, e == ATTENTION_OWN);
        test_nan (a, e, (enum attention_dtype)t);
    }
    test_graph (a, e);
    if (e != ATTENTION_OWN) {
        struct attention_shape s = batches[e];

        s.dtype = ATTENTION_BF16;
        s.deterministic = s.grad = true;
        test_parts (a, e, s);
    }
    attention_destroy (a);
}

/* What is left to choose: bf16 to cuDNN where it is, f32 and odd heads to us. */
static void test_choice (bool cudnn)
{
    struct attention *a = attention_create ();
    struct attention_shape s = {
        .B = 2, .T = 256, .H = 4, .G = 2, .D = 64, .grad = true};
    struct attention_choice c;
    bool good;

    s.dtype = ATTENTION_BF16;
    good = attention_choose (a, &s, &c)
           && c.engine == (cudnn ? ATTENTION_CUDNN : ATTENTION_OWN)
           && c.deterministic == !cudnn;
    printf ("# bf16: %s; scratch %zu\n", c.why, c.scratch_bwd);
    s.deterministic = true;
    good &= attention_choose (a, &s, &c) && c.deterministic;
    printf ("# deterministic: %s; scratch %zu, B H T T 2 is %zu\n", c.why,
            c.scratch_bwd, s.B * s.H * s.T * s.T * 2);
    s.T = 8192;
    good &= attention_choose (a, &s, &c) && c.deterministic
            && (c.bwd == ATTENTION_HOPPER) == kern_attention_hopper_served ();
    printf ("# %s; scratch %zu\n", c.why, c.scratch_bwd);
    s.deterministic = false;
    good &= attention_choose (a, &s, &c)
            && (c.bwd == ATTENTION_HOPPER) == kern_attention_hopper_served ();
    s.deterministic = true;
    s.D = 20;
    good &= attention_choose (a, &s, &c) && c.engine == ATTENTION_OWN;
    s.D = 64;
    s.documents = true;
    good &= attention_choose (a, &s, &c) && c.engine == ATTENTION_OWN;
    s.documents = false;
    s.dtype = ATTENTION_F32;
    good &= attention_choose (a, &s, &c) && c.engine == ATTENTION_OWN;
    printf ("# %s\n", c.why);
    tap_ok (good, "the engine chosen");
    attention_destroy (a);
}

/* A grid of 65536 blocks along y, where 65535 is the most: a call that enqueues
 * nothing says so, and leaves no error to the next. */
static void test_launch (void)
{
    struct attention *a = attention_create ();
    struct attention_shape s = {.dtype = ATTENTION_F32,
                                .B = 1,
                                .T = (size_t)65536 * 32,
                                .H = 1,
                                .G = 1,
                                .D = 2,
                                .grad = true};
    void *x = NULL; /* nothing reads it but the sum of dy y, which runs */
    bool good;

    attention_engine_only (a, ATTENTION_OWN);
    good = cudaMalloc (&x, s.T * 3 * 2 * sizeof (float)) == cudaSuccess
           && !attention_fwd (a, &s, x, x, x, 1, NULL, NULL)
           && strstr (attention_error (a), "own forward, 1 x 2097152");
    printf ("# %s\n", attention_error (a));
    good = good && cudaGetLastError () == cudaSuccess
           && !attention_bwd (a, &s, x, x, x, x, x, 1, x, NULL)
           && strstr (attention_error (a), "own backward")
           && cudaDeviceSynchronize () == cudaSuccess;
    tap_ok (good, "what cannot be launched is named");
    cudaFree (x);
    attention_destroy (a);
}

int main (int argc, char **argv)
{
    struct attention_shape s = {
        .dtype = ATTENTION_BF16, .B = 1, .T = 128, .H = 1, .G = 1, .D = 64};
    struct attention *a = attention_create ();
    struct attention_choice c;
    int devices = 0;
    bool cudnn;

    if (cudaGetDeviceCount (&devices) != cudaSuccess || devices == 0)
        tap_skip_all ("no GPU here");
    attention_engine_only (a, ATTENTION_CUDNN);
    cudnn = attention_choose (a, &s, &c);
    if (!cudnn)
        printf ("# %s\n", attention_error (a));
    attention_destroy (a);
    if (argc < 2 || strcmp (argv[1], "own") == 0)
        engine (ATTENTION_OWN);
    if (cudnn && (argc < 2 || strcmp (argv[1], "cudnn") == 0))
        engine (ATTENTION_CUDNN);
    if (kern_attention_hopper_served ()
        && (argc < 2 || strcmp (argv[1], "hopper") == 0))
        engine (ATTENTION_HOPPER);
    test_choice (cudnn);
    test_launch ();
    return tap_end ();
}

#else

int main (void)
{
    tap_skip_all ("built without CUDA");
    return 1;
}

#endif
