/* SPDX-License-Identifier: Apache-2.0
 * attention_set.h - a case of attention for test_attention: its numbers, what f64
 * on the host makes of them, the arrays on the GPU, and how far both are apart.
 *
 * Errors are norms: |got - want| / |want| of a whole tensor. */
#ifndef GPU_ATTENTION_SET_H
#define GPU_ATTENTION_SET_H

#include <math.h>
#include <stdbool.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include <cuda_runtime_api.h>

#include "kernels/attention.h"
#include "kernels/docs.h"
#include "kernels/half.h"
#include "kernels/kernels.h"

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

#endif
