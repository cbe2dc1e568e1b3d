/* SPDX-License-Identifier: Apache-2.0
 * test_attention.c - attention on a GPU, our kernels and cuDNN, beside the host's
 * f64 kernel on the same rounded numbers
 *
 *   test_attention [own | cudnn | hopper]
 *
 * Errors are norms: |got - want| / |want| of a whole tensor. */
#include "config.h"

#include "tap.h"

#include <math.h>
#include <stdint.h>

#include "kernels/attention.h"
#include "kernels/attention_hopper.h"
#include "kernels/docs.h"
#include "kernels/half.h"
#include "kernels/kernels.h"

#if HAVE_CUDA
#include <cuda_runtime_api.h>

#define GUARD 256 /* bytes after an array, which must stay */

static const char *const type_names[] = {"f32", "bf16", "f16"};
static const char *const engine_names[] = {"own", "cudnn", "hopper"};

/* Bounds of the error of y and of the gradients. One rounding to bf16 alone is
 * 1.7e-3 of the norm, and two more stand inside (probabilities, their
 * gradients); f16 has an eighth of that. */
static const double bound_y[] = {2e-6, 5e-3, 7e-4};
static const double bound_grad[] = {5e-6, 8e-3, 1e-3};
static const double bound_lse[] = {1e-6, 2e-5, 2e-5};

static uint32_t seed = 1;

static double number (void)
{
    double sum = 0;

    for (int i = 0; i < 4; i++) {
        seed = seed * 1664525u + 1013904223u;
        sum += (double)(seed >> 8) * 0x1p-24;
    }
    return (sum - 2) * sqrt (3.0); /* nearly normal, variance 1 */
}

static void must (cudaError_t e)
{
    if (e == cudaSuccess)
        return;
    printf ("Bail out! %s\n", cudaGetErrorString (e));
    exit (1);
}

static size_t width (enum attention_dtype t)
{
    return t == ATTENTION_F32 ? 4 : 2;
}

/* Round to the type and back. */
static void store (void *at, size_t i, double x, enum attention_dtype t)
{
    if (t == ATTENTION_F32)
        ((float *)at)[i] = (float)x;
    else if (t == ATTENTION_BF16)
        ((uint16_t *)at)[i] = half_to_bf16 ((float)x);
    else
        ((uint16_t *)at)[i] = half_to_f16 ((float)x);
}

static double load (const void *at, size_t i, enum attention_dtype t)
{
    if (t == ATTENTION_F32)
        return (double)((const float *)at)[i];
    if (t == ATTENTION_BF16)
        return (double)half_from_bf16 (((const uint16_t *)at)[i]);
    return (double)half_from_f16 (((const uint16_t *)at)[i]);
}

/* [bytes] on the GPU, a guard after them. NULL data: poison, NaN in each type. */
static void *hold (const void *data, size_t bytes)
{
    char *at;

    must (cudaMalloc ((void **)&at, bytes + GUARD));
    must (cudaMemset (at, 0xff, bytes));
    must (cudaMemset (at + bytes, 0xa5, GUARD));
    if (data)
        must (cudaMemcpy (at, data, bytes, cudaMemcpyHostToDevice));
    return at;
}

/* Back to [data] unless it is NULL, and freed; whether the guard is whole. */
static bool take (void *at, void *data, size_t bytes)
{
    unsigned char guard[GUARD];
    bool whole = true;

    must (cudaDeviceSynchronize ());
    must (
        cudaMemcpy (guard, (char *)at + bytes, GUARD, cudaMemcpyDeviceToHost));
    for (int i = 0; i < GUARD; i++)
        whole &= guard[i] == 0xa5;
    if (data)
        must (cudaMemcpy (data, at, bytes, cudaMemcpyDeviceToHost));
    must (cudaFree (at));
    return whole;
}

/*   qkv, dy   rounded to the type; [exact_] the same numbers in f64
 *   y..       what the GPU gave; [want_] f64's */
struct work {
    struct attention_shape s;
    size_t row, n_qkv, n_y, n_lse;
    double scale, *exact_qkv, *exact_dy, *want_y, *want_lse, *want_dqkv;
    void *qkv, *dy, *y, *dqkv;
    float *lse;
    int32_t *starts; /* (B,T), where the shape has documents */
};

static double *doubles (size_t n)
{
    double *x = calloc (n, sizeof (*x));

    if (!x)
        exit (1);
    return x;
}

static void numbers (void *at, double *exact, size_t n, enum attention_dtype t)
{
    for (size_t i = 0; i < n; i++) {
        store (at, i, number (), t);
        exact[i] = load (at, i, t);
    }
}

/* Documents of 1 to 150 positions, their borders near blocks' and far. */
static int32_t *starts_of (const struct attention_shape *s)
{
    int32_t *starts = calloc (s->B * s->T, sizeof (*starts)), end = 0;

    if (!starts)
        exit (1);
    for (size_t i = 0; i < s->B * s->T; i++) {
        int32_t t = (int32_t)(i % s->T);
        bool first = t == 0 || t == end;

        starts[i] = first ? t : starts[i - 1];
        if (first)
            end = t + 1 + (int32_t)((number () + 4) * 20);
    }
    return starts;
}

static void make (struct work *w, const struct attention_shape *s)
{
    *w = (struct work){.s = *s, .row = (s->H + 2 * s->G) * s->D};
    w->starts = s->documents ? starts_of (s) : NULL;
    w->n_qkv = s->B * s->T * w->row;
    w->n_y = s->B * s->T * s->H * s->D;
    w->n_lse = s->B * s->T * s->H;
    w->scale = 1 / sqrt ((double)s->D);
    w->exact_qkv = doubles (w->n_qkv);
    w->want_dqkv = doubles (w->n_qkv);
    w->exact_dy = doubles (w->n_y);
    w->want_y = doubles (w->n_y);
    w->want_lse = doubles (w->n_lse);
    w->qkv = doubles (w->n_qkv);
    w->dqkv = doubles (w->n_qkv);
    w->dy = doubles (w->n_y);
    w->y = doubles (w->n_y);
    w->lse = (float *)doubles (w->n_lse);
    numbers (w->qkv, w->exact_qkv, w->n_qkv, s->dtype);
    numbers (w->dy, w->exact_dy, w->n_y, s->dtype);
}

static void want (struct work *w)
{
    double *scratch = doubles (kern_attention_scratch (w->s.T));

    kern_attention_docs_fwd_f64_host (w->want_y, w->want_lse, w->exact_qkv,
                                      w->starts, scratch, w->s.B, w->s.T,
                                      w->s.H, w->s.G, w->s.D, w->scale, NULL);
    kern_attention_docs_bwd_f64_host (w->want_dqkv, w->exact_dy, w->want_y,
                                      w->want_lse, w->exact_qkv, w->starts,
                                      scratch, w->s.B, w->s.T, w->s.H, w->s.G,
                                      w->s.D, w->scale, NULL);
    free (scratch);
}

static void drop (struct work *w)
{
    void *const all[] = {w->exact_qkv, w->want_dqkv, w->exact_dy, w->want_y,
                         w->want_lse,  w->qkv,       w->dqkv,     w->dy,
                         w->y,         w->lse,       w->starts};

    for (size_t i = 0; i < sizeof (all) / sizeof (*all); i++)
        free (all[i]);
}

/* The arrays of a call on the GPU, outputs and scratch poisoned. */
struct device {
    void *qkv, *dy, *y, *dqkv, *lse, *fwd, *bwd, *starts;
};

static struct device hold_all (struct work *w, const struct attention_choice *c)
{
    size_t e = width (w->s.dtype);
    void *starts = w->starts
                       ? hold (w->starts, w->s.B * w->s.T * sizeof (*w->starts))
                       : NULL;

    w->s.starts = starts;
    return (struct device){.starts = starts,
                           .qkv = hold (w->qkv, w->n_qkv * e),
                           .dy = hold (w->dy, w->n_y * e),
                           .y = hold (NULL, w->n_y * e),
                           .dqkv = hold (NULL, w->n_qkv * e),
                           .lse = hold (NULL, w->n_lse * 4),
                           .fwd = hold (NULL, c->scratch_fwd),
                           .bwd = hold (NULL, c->scratch_bwd)};
}

static bool take_all (struct work *w, const struct attention_choice *c,
                      const struct device *d)
{
    size_t e = width (w->s.dtype);
    bool whole = take (d->fwd, NULL, c->scratch_fwd);

    whole &= take (d->bwd, NULL, c->scratch_bwd);
    if (d->starts)
        whole &= take (d->starts, NULL, w->s.B * w->s.T * sizeof (*w->starts));
    whole &= take (d->y, w->y, w->n_y * e);
    whole &= take (d->lse, w->lse, w->n_lse * 4);
    whole &= take (d->dqkv, w->dqkv, w->n_qkv * e);
    whole &= take (d->qkv, NULL, w->n_qkv * e);
    return take (d->dy, NULL, w->n_y * e) && whole;
}

static bool both (struct attention *a, const struct work *w,
                  const struct device *d, void *stream)
{
    bool good =
        attention_fwd (a, &w->s, d->y, d->lse, d->qkv, w->scale, d->fwd, stream)
        && attention_bwd (a, &w->s, d->dqkv, d->dy, d->y, d->lse, d->qkv,
                          w->scale, d->bwd, stream);

    if (!good)
        printf ("# %s\n", attention_error (a));
    return good;
}

/* Both passes on the GPU. */
static bool run (struct attention *a, struct work *w,
                 const struct attention_choice *c)
{
    struct device d = hold_all (w, c);
    bool good = both (a, w, &d, NULL);

    must (cudaGetLastError ());
    return take_all (w, c, &d) && good;
}

/* The same through a CUDA graph, launched twice. */
static bool run_graph (struct attention *a, struct work *w,
                       const struct attention_choice *c)
{
    struct device d = hold_all (w, c);
    cudaStream_t stream;
    cudaGraph_t graph;
    cudaGraphExec_t exec;
    bool good;

    must (cudaStreamCreateWithFlags (&stream, cudaStreamNonBlocking));
    must (cudaStreamBeginCapture (stream, cudaStreamCaptureModeThreadLocal));
    good = both (a, w, &d, stream);
    must (cudaStreamEndCapture (stream, &graph));
    must (cudaGraphInstantiateWithFlags (&exec, graph, 0));
    for (int i = 0; i < 2; i++)
        must (cudaGraphLaunch (exec, stream));
    must (cudaStreamSynchronize (stream));
    must (cudaGraphExecDestroy (exec));
    must (cudaGraphDestroy (graph));
    must (cudaStreamDestroy (stream));
    return take_all (w, c, &d) && good;
}

/* Columns from..to of rows of [row] elements. */
static double error (const void *got, const double *exact, size_t n, size_t row,
                     size_t from, size_t to, enum attention_dtype t)
{
    double off = 0, all = 0;

    for (size_t i = 0; i < n; i++) {
        double d = load (got, i, t) - exact[i];

        if (i % row < from || i % row >= to)
            continue;
        off += d * d;
        all += exact[i] * exact[i];
    }
    /* dq and dk of one position are nothing at all */
    return all < 1e-20 ? sqrt (off / (double)n) : sqrt (off / all);
}

static bool near (struct work *w)
{
    const struct attention_shape *s = &w->s;
    enum attention_dtype t = s->dtype;
    size_t k = s->H * s->D, v = k + s->G * s->D;
    double y = error (w->y, w->want_y, w->n_y, w->n_y, 0, w->n_y, t), lse;
    double dq = error (w->dqkv, w->want_dqkv, w->n_qkv, w->row, 0, k, t);
    double dk = error (w->dqkv, w->want_dqkv, w->n_qkv, w->row, k, v, t);
    double dv = error (w->dqkv, w->want_dqkv, w->n_qkv, w->row, v, w->row, t);

    lse = error (w->lse, w->want_lse, w->n_lse, 1, 0, 1, ATTENTION_F32);
    printf ("# %zu x %zu, %zu heads on %zu of %zu%s: y %.2e lse %.2e dq %.2e "
            "dk %.2e dv %.2e\n",
            s->B, s->T, s->H, s->G, s->D, s->documents ? ", documents" : "", y,
            lse, dq, dk, dv);
    return y <= bound_y[t] && lse <= bound_lse[t] && dq <= bound_grad[t]
           && dk <= bound_grad[t] && dv <= bound_grad[t];
}

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
        good = run (a, &w, &c) && memcmp (first, w.dqkv, bytes) == 0;
        if (!good)
            printf ("# other bits the second time\n");
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

/* A batch that the deterministic backward takes in parts gives the bits of its
 * sequences alone. */
static void test_parts (struct attention *a, enum attention_engine e)
{
    struct attention_shape s = {.dtype = ATTENTION_BF16,
                                .B = 8,
                                .T = 1024,
                                .H = 128,
                                .G = 8,
                                .D = 8,
                                .deterministic = true,
                                .grad = true};
    struct attention_choice c, one;
    struct work w, x;
    bool good = attention_choose (a, &s, &c);
    char name[80];

    make (&w, &s);
    s.B = 1;
    good = good && attention_choose (a, &s, &one) && run (a, &w, &c);
    printf ("# scratch of 8 %zu, of 1 %zu\n", c.scratch_bwd, one.scratch_bwd);
    for (size_t b = 0; b < 8; b++) {
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
    tap_ok (good && c.scratch_bwd < 8 * one.scratch_bwd, name);
    drop (&w);
}

static void engine (enum attention_engine e)
{
    struct attention *a = attention_create ();

    attention_engine_only (a, e);
    for (int t = e == ATTENTION_OWN ? ATTENTION_F32 : ATTENTION_BF16;
         t <= ATTENTION_F16; t++) {
        all_shapes (a, e, (enum attention_dtype)t, false, false);
        all_shapes (a, e, (enum attention_dtype)t, true, e == ATTENTION_OWN);
        test_nan (a, e, (enum attention_dtype)t);
    }
    test_graph (a, e);
    if (e == ATTENTION_CUDNN)
        test_parts (a, e);
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
    return tap_end ();
}

#else

int main (void)
{
    tap_skip_all ("built without CUDA");
    return 1;
}

#endif
