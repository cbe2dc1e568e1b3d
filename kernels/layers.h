/* SPDX-License-Identifier: Apache-2.0
 * layers.h - the kernels of a decoder's layers, but products and attention.
 *
 * Part of kernels.h, whose conventions and legend hold. Every kernel here has
 * one prototype, written once and declared for
 *
 *     kern_<op>_f32_host   elem float      real float
 *     kern_<op>_f64_host   elem double     real double
 *     kern_<op>_bf16_host  elem uint16_t   real float
 *     kern_<op>_f16_host   elem uint16_t   real float
 *     kern_<op>_f32_cuda, kern_<op>_bf16_cuda, kern_<op>_f16_cuda
 *
 * [elem] is what activations, their gradients and weights are stored in, as
 * bits for bf16 and f16 (half.h); [real] is what is computed in, and what
 * statistics, cosines and gradients of weights are stored in. What is stored as
 * [elem] is rounded once, to nearest, ties to even, where it is stored; a sum
 * that overflows f16 is Inf.
 *
 * The cuda ones enqueue on [stream] (a cudaStream_t) of the current device and
 * return; every pointer is of that device; a launch that failed is reported by
 * the backend's next sync. Pointers need the alignment of their element only;
 * 16 bytes make them fast. They give the same bits every time, on any GPU and
 * whatever ran before; they differ from the host's in the order of sums.
 *
 * [scratch] is of the GPU, aligned to 256 bytes, garbage before and after; the
 * host ones do not look at it (NULL). kern_<op>_scratch gives its bytes.
 * N, B T or n may be 0: then nothing is written. */
#ifndef KERN_LAYERS_H
#define KERN_LAYERS_H

#include <stddef.h>
#include <stdint.h>

#ifdef __cplusplus
extern "C" {
#endif

#define KERN_DECLARE(PROTOTYPE)                                                \
    PROTOTYPE (f32_host, float, float);                                        \
    PROTOTYPE (f64_host, double, double);                                      \
    PROTOTYPE (bf16_host, uint16_t, float);                                    \
    PROTOTYPE (f16_host, uint16_t, float);                                     \
    PROTOTYPE (f32_cuda, float, float);                                        \
    PROTOTYPE (bf16_cuda, uint16_t, float);                                    \
    PROTOTYPE (f16_cuda, uint16_t, float)

/* rmsnorm_fwd - y = x * rstd * w, rstd = 1/sqrt(mean(x^2) + eps) of each row.
 *   y      (N,C) written
 *   rstd   (N)   written, read again by rmsnorm_bwd
 *   x      (N,C)
 *   w      (C)
 *   eps    > 0, e.g. 1e-5
 * Source: Zhang and Sennrich 2019, arXiv:1910.07467. */
#define KERN_RMSNORM_FWD(suffix, elem, real)                                   \
    void kern_rmsnorm_fwd_##suffix (elem *y, real *rstd, const elem *x,        \
                                    const elem *w, size_t N, size_t C,         \
                                    double eps, void *stream)
KERN_DECLARE (KERN_RMSNORM_FWD);

/* rmsnorm_bwd
 *   dx        (N,C) ADDED to: it is the gradient of the residual stream
 *   dw        (C)   added to
 *   dy        (N,C)
 *   x, w, rstd   as in rmsnorm_fwd
 *   scratch   kern_rmsnorm_scratch (N, C) bytes */
#define KERN_RMSNORM_BWD(suffix, elem, real)                                   \
    void kern_rmsnorm_bwd_##suffix (                                           \
        elem *dx, real *dw, const elem *dy, const elem *x, const elem *w,      \
        const real *rstd, size_t N, size_t C, void *scratch, void *stream)
KERN_DECLARE (KERN_RMSNORM_BWD);

size_t kern_rmsnorm_scratch (size_t N, size_t C);

/* addnorm_fwd - mid = x + t, y = rmsnorm (mid): residual_fwd and rmsnorm_fwd in
 * one pass. The norm is of [mid] as it is stored.
 *   y      (N,C) written
 *   mid    (N,C) written; may be [x] or [t]
 *   rstd   (N)   written
 *   x, t   (N,C) the stream and what is added to it
 *   w, eps   as in rmsnorm_fwd */
#define KERN_ADDNORM_FWD(suffix, elem, real)                                   \
    void kern_addnorm_fwd_##suffix (                                           \
        elem *y, elem *mid, real *rstd, const elem *x, const elem *t,          \
        const elem *w, size_t N, size_t C, double eps, void *stream)
KERN_DECLARE (KERN_ADDNORM_FWD);

/* addnorm_bwd - the gradient of x, which is also that of t.
 *   dx        (N,C) written: dmid and what comes through the norm
 *   dw        (C)   added to
 *   dy        (N,C)
 *   dmid      (N,C) what else hangs on mid; may be [dx]; NULL = nothing, as
 *             behind the last norm
 *   mid, w, rstd   as addnorm_fwd had and gave them
 *   scratch   kern_rmsnorm_scratch (N, C) bytes */
#define KERN_ADDNORM_BWD(suffix, elem, real)                                   \
    void kern_addnorm_bwd_##suffix (elem *dx, real *dw, const elem *dy,        \
                                    const elem *dmid, const elem *mid,         \
                                    const elem *w, const real *rstd, size_t N, \
                                    size_t C, void *scratch, void *stream)
KERN_DECLARE (KERN_ADDNORM_BWD);

/* addnorm_again_bwd - addnorm_bwd, and addnorm_fwd's y again, to its bits.
 *   y      (N,C) written; may be [dy]
 * else as in addnorm_bwd; with dmid = dx it is rmsnorm_bwd. */
#define KERN_ADDNORM_AGAIN_BWD(suffix, elem, real)                             \
    void kern_addnorm_again_bwd_##suffix (                                     \
        elem *dx, elem *y, real *dw, const elem *dy, const elem *dmid,         \
        const elem *mid, const elem *w, const real *rstd, size_t N, size_t C,  \
        void *scratch, void *stream)
KERN_DECLARE (KERN_ADDNORM_AGAIN_BWD);

/* headnorm_fwd - RMSNorm of each head's query and key, in place in their rows,
 * as Qwen3 has it before the rotation.
 *   qkv      (N,H+2G,D) in place: the first H heads by wq, the next G by wk
 *   raw      (N,H+G,D) written: what they were, for headnorm_bwd
 *   rstd     (N,H+G)   written
 *   wq, wk   (D)
 *   eps      as in rmsnorm_fwd */
#define KERN_HEADNORM_FWD(suffix, elem, real)                                  \
    void kern_headnorm_fwd_##suffix (                                          \
        elem *qkv, elem *raw, real *rstd, const elem *wq, const elem *wk,      \
        size_t N, size_t H, size_t G, size_t D, double eps, void *stream)
KERN_DECLARE (KERN_HEADNORM_FWD);

/* headnorm_bwd
 *   dqkv       (N,H+2G,D) in place: gradients of the normed heads in, of raw
 *              out; values' columns stay
 *   dwq, dwk   (D) added to
 *   raw, rstd, wq, wk   as headnorm_fwd had and gave them
 *   scratch    kern_headnorm_scratch (N, H, G, D) bytes */
#define KERN_HEADNORM_BWD(suffix, elem, real)                                  \
    void kern_headnorm_bwd_##suffix (                                          \
        elem *dqkv, real *dwq, real *dwk, const elem *raw, const real *rstd,   \
        const elem *wq, const elem *wk, size_t N, size_t H, size_t G,          \
        size_t D, void *scratch, void *stream)
KERN_DECLARE (KERN_HEADNORM_BWD);

size_t kern_headnorm_scratch (size_t N, size_t H, size_t G, size_t D);

/* bias_fwd - x += b in each row.
 *   x   (N,C) in place
 *   b   (C) */
#define KERN_BIAS_FWD(suffix, elem, real)                                      \
    void kern_bias_fwd_##suffix (elem *x, const elem *b, size_t N, size_t C,   \
                                 void *stream)
KERN_DECLARE (KERN_BIAS_FWD);

/* bias_bwd - db += sums of the columns of dy.
 *   db        (C)   added to
 *   dy        (N,C)
 *   scratch   kern_bias_scratch (N, C) bytes */
#define KERN_BIAS_BWD(suffix, elem, real)                                      \
    void kern_bias_bwd_##suffix (real *db, const elem *dy, size_t N, size_t C, \
                                 void *scratch, void *stream)
KERN_DECLARE (KERN_BIAS_BWD);

size_t kern_bias_scratch (size_t N, size_t C);

/* rope_fwd - rotate each pair (j, j + D/2) of a head by its position's angle.
 *   x          (B,T,row) in place: the first [heads] x D of each row turn
 *   cosine, sine (T,D/2) of position * theta^(-2j/D)
 *   row        elements between rows, >= heads * D
 * Half-split pairs, as Hugging Face's Llama weights want them.
 * Source: Su et al. 2021, arXiv:2104.09864. */
#define KERN_ROPE_FWD(suffix, elem, real)                                      \
    void kern_rope_fwd_##suffix (                                              \
        elem *x, const real *cosine, const real *sine, size_t B, size_t T,     \
        size_t heads, size_t D, size_t row, void *stream)
KERN_DECLARE (KERN_ROPE_FWD);

/* rope_bwd - the turn back: a rotation's gradient. Arguments as rope_fwd. */
#define KERN_ROPE_BWD(suffix, elem, real)                                      \
    void kern_rope_bwd_##suffix (                                              \
        elem *dx, const real *cosine, const real *sine, size_t B, size_t T,    \
        size_t heads, size_t D, size_t row, void *stream)
KERN_DECLARE (KERN_ROPE_BWD);

/* swiglu_fwd - y = silu (gate) * up, silu (a) = a / (1 + exp (-a)).
 *   y    (N,F)  written
 *   gu   (N,2F) gate in columns 0..F-1, up in F..2F-1
 * Source: Shazeer 2020, arXiv:2002.05202. */
#define KERN_SWIGLU_FWD(suffix, elem, real)                                    \
    void kern_swiglu_fwd_##suffix (elem *y, const elem *gu, size_t N,          \
                                   size_t F, void *stream)
KERN_DECLARE (KERN_SWIGLU_FWD);

/* swiglu_bwd
 *   dgu   (N,2F) written; may be [gu]
 *   dy    (N,F)
 *   gu    (N,2F) as in swiglu_fwd */
#define KERN_SWIGLU_BWD(suffix, elem, real)                                    \
    void kern_swiglu_bwd_##suffix (elem *dgu, const elem *dy, const elem *gu,  \
                                   size_t N, size_t F, void *stream)
KERN_DECLARE (KERN_SWIGLU_BWD);

/* swiglu_again_bwd - swiglu_bwd, and swiglu_fwd's y again, to its bits.
 *   y   (N,F) written; may be [dy] */
#define KERN_SWIGLU_AGAIN_BWD(suffix, elem, real)                              \
    void kern_swiglu_again_bwd_##suffix (elem *dgu, elem *y, const elem *dy,   \
                                         const elem *gu, size_t N, size_t F,   \
                                         void *stream)
KERN_DECLARE (KERN_SWIGLU_AGAIN_BWD);

/* embedding_fwd - y[n] = w[tokens[n]].
 *   y        (N,C) written
 *   w        (V,C)
 *   tokens   (N) each in 0..V-1: the caller has checked */
#define KERN_EMBEDDING_FWD(suffix, elem, real)                                 \
    void kern_embedding_fwd_##suffix (elem *y, const elem *w,                  \
                                      const int32_t *tokens, size_t N,         \
                                      size_t C, void *stream)
KERN_DECLARE (KERN_EMBEDDING_FWD);

/* embedding_bwd - dw[tokens[n]] += dy[n]; on the host n in rising order, on a
 * GPU the rows of one token are summed first.
 *   dw        (V,C) added to
 *   dy        (N,C)
 *   tokens    as in embedding_fwd
 *   scratch   kern_embedding_scratch (N, V) bytes */
#define KERN_EMBEDDING_BWD(suffix, elem, real)                                 \
    void kern_embedding_bwd_##suffix (                                         \
        real *dw, const elem *dy, const int32_t *tokens, size_t N, size_t C,   \
        size_t V, void *scratch, void *stream)
KERN_DECLARE (KERN_EMBEDDING_BWD);

size_t kern_embedding_scratch (size_t N, size_t V);

/* residual_fwd - y = x + r.
 *   y      (n) written; may be [x] or [r]
 * (Its gradient is the identity: rmsnorm_bwd adds to the stream.) */
#define KERN_RESIDUAL_FWD(suffix, elem, real)                                  \
    void kern_residual_fwd_##suffix (elem *y, const elem *x, const elem *r,    \
                                     size_t n, void *stream)
KERN_DECLARE (KERN_RESIDUAL_FWD);

#ifdef __cplusplus
}
#endif
#endif
