/* SPDX-License-Identifier: Apache-2.0
 * kernels.h - every numeric kernel of libtrain, and what it promises.
 *
 * Names: kern_<op>_<fwd|bwd>_<dtype>_<host|cuda>; arguments: outputs, inputs,
 * shapes, scalars, stream (NULL on the host). Kernels know no other header of
 * the project, allocate nothing, keep no state and check nothing: shapes are
 * positive, pointers are valid, arrays are compact and row-major and do not
 * overlap unless a comment says so. Host kernels return when the work is done,
 * and one call gives the same bits every time on the same machine and build
 * with the same number of BLAS threads.
 *
 * Gradients of weights are ADDED ("+="), those of activations are written
 * ("=") unless marked; [dw] and the like are sums over all rows.
 *
 * Legend: N rows (= B T), B batch, T positions, C model width, F feed-forward
 * width, V vocabulary, H query heads, G key-value heads (G divides H), D width
 * of a head (even). Host kernels of several dtypes are one text compiled for
 * each. */
#ifndef KERNELS_H
#define KERNELS_H

#include <stddef.h>
#include <stdint.h>

#include "layers.h" /* norms, rotation, activation, embedding, residual */

#ifdef __cplusplus
extern "C" {
#endif

/* attention_fwd - causal softmax attention; query head h reads key-value head
 * h / (H/G).
 *   y         (B,T,H,D) written
 *   lse       (B,H,T) written: log of the row's sum of exp, for attention_bwd
 *   qkv       (B,T,H+2G,D) queries, keys, values side by side in each row
 *   scratch   kern_attention_scratch (T) elements, garbage before and after
 *   scale     of the logits, 1/sqrt(D)
 * No T x T matrix outlives the call.
 * Source: Vaswani et al. 2017, arXiv:1706.03762; groups: Ainslie et al. 2023,
 * arXiv:2305.13245; log-sum kept instead of probabilities: Dao et al. 2022,
 * arXiv:2205.14135. */
void kern_attention_fwd_f32_host (float *y, float *lse, const float *qkv,
                                  float *scratch, size_t B, size_t T, size_t H,
                                  size_t G, size_t D, double scale,
                                  void *stream);
void kern_attention_fwd_f64_host (double *y, double *lse, const double *qkv,
                                  double *scratch, size_t B, size_t T, size_t H,
                                  size_t G, size_t D, double scale,
                                  void *stream);

/* attention_bwd
 *   dqkv   (B,T,H+2G,D) written
 *   dy     (B,T,H,D)
 *   y, lse, qkv, scratch   as in attention_fwd */
void kern_attention_bwd_f32_host (float *dqkv, const float *dy, const float *y,
                                  const float *lse, const float *qkv,
                                  float *scratch, size_t B, size_t T, size_t H,
                                  size_t G, size_t D, double scale,
                                  void *stream);
void kern_attention_bwd_f64_host (double *dqkv, const double *dy,
                                  const double *y, const double *lse,
                                  const double *qkv, double *scratch, size_t B,
                                  size_t T, size_t H, size_t G, size_t D,
                                  double scale, void *stream);

/* kern_attention_scratch - elements of scratch for sequences of T. */
size_t kern_attention_scratch (size_t T);

/* attention_fwd, attention_bwd in bf16 and f16: inside they are the f32 kernels,
 * a sequence at a time.
 *   y, qkv, dqkv, dy   in the dtype, as bits
 *   lse                f32
 *   scratch            kern_attention_half_scratch floats, garbage before and
 *                      after */
void kern_attention_fwd_bf16_host (uint16_t *y, float *lse, const uint16_t *qkv,
                                   float *scratch, size_t B, size_t T, size_t H,
                                   size_t G, size_t D, double scale,
                                   void *stream);
void kern_attention_fwd_f16_host (uint16_t *y, float *lse, const uint16_t *qkv,
                                  float *scratch, size_t B, size_t T, size_t H,
                                  size_t G, size_t D, double scale,
                                  void *stream);
void kern_attention_bwd_bf16_host (uint16_t *dqkv, const uint16_t *dy,
                                   const uint16_t *y, const float *lse,
                                   const uint16_t *qkv, float *scratch,
                                   size_t B, size_t T, size_t H, size_t G,
                                   size_t D, double scale, void *stream);
void kern_attention_bwd_f16_host (uint16_t *dqkv, const uint16_t *dy,
                                  const uint16_t *y, const float *lse,
                                  const uint16_t *qkv, float *scratch, size_t B,
                                  size_t T, size_t H, size_t G, size_t D,
                                  double scale, void *stream);

/* kern_attention_half_scratch - floats of scratch for sequences of T. */
size_t kern_attention_half_scratch (size_t T, size_t H, size_t G, size_t D);

/* attention on a GPU - the same, for D even and at most 256.
 *   lse       (B,H,T) f32 whatever the type
 *   scratch   attention_bwd: kern_attention_cuda_scratch bytes, aligned to 16,
 *             garbage before and after; attention_fwd wants none, NULL will do
 * The sum over keys runs online in f32; bf16 and f16 go through the tensor cores,
 * probabilities and their gradients are rounded to the type before the second
 * product. Each block of keys sums its dk and dv over the queries and heads that
 * read it, each block of queries its dq: the order hangs on the shape alone, so
 * the bits are the same every time.
 * Sources: Dao 2023, arXiv:2307.08691; online sum: Milakov and Gimelshein 2018,
 * arXiv:1805.02867. attention.h has the entry that takes cuDNN where it serves. */
void kern_attention_fwd_f32_cuda (float *y, float *lse, const float *qkv,
                                  void *scratch, size_t B, size_t T, size_t H,
                                  size_t G, size_t D, double scale,
                                  void *stream);
void kern_attention_bwd_f32_cuda (float *dqkv, const float *dy, const float *y,
                                  const float *lse, const float *qkv,
                                  void *scratch, size_t B, size_t T, size_t H,
                                  size_t G, size_t D, double scale,
                                  void *stream);
void kern_attention_fwd_bf16_cuda (uint16_t *y, float *lse, const uint16_t *qkv,
                                   void *scratch, size_t B, size_t T, size_t H,
                                   size_t G, size_t D, double scale,
                                   void *stream);
void kern_attention_bwd_bf16_cuda (uint16_t *dqkv, const uint16_t *dy,
                                   const uint16_t *y, const float *lse,
                                   const uint16_t *qkv, void *scratch, size_t B,
                                   size_t T, size_t H, size_t G, size_t D,
                                   double scale, void *stream);
void kern_attention_fwd_f16_cuda (uint16_t *y, float *lse, const uint16_t *qkv,
                                  void *scratch, size_t B, size_t T, size_t H,
                                  size_t G, size_t D, double scale,
                                  void *stream);
void kern_attention_bwd_f16_cuda (uint16_t *dqkv, const uint16_t *dy,
                                  const uint16_t *y, const float *lse,
                                  const uint16_t *qkv, void *scratch, size_t B,
                                  size_t T, size_t H, size_t G, size_t D,
                                  double scale, void *stream);

/* kern_attention_cuda_scratch - bytes of scratch of attention_bwd on a GPU. */
size_t kern_attention_cuda_scratch (size_t B, size_t T, size_t H, size_t G,
                                    size_t D);

/* matmul_fwd - y = x w^T.
 *   y   (N,out) written
 *   x   (N,in)
 *   w   (out,in)
 * Every dimension <= INT_MAX. Through CBLAS where configure found one. */
void kern_matmul_fwd_f32_host (float *y, const float *x, const float *w,
                               size_t N, size_t in, size_t out, void *stream);
void kern_matmul_fwd_f64_host (double *y, const double *x, const double *w,
                               size_t N, size_t in, size_t out, void *stream);

/* matmul_bwd - dx = dy w, dw += dy^T x.
 *   dx   (N,in)   written; NULL = not wanted
 *   dw   (out,in) added to; NULL = not wanted
 *   dy   (N,out) */
void kern_matmul_bwd_f32_host (float *dx, float *dw, const float *dy,
                               const float *x, const float *w, size_t N,
                               size_t in, size_t out, void *stream);
void kern_matmul_bwd_f64_host (double *dx, double *dw, const double *dy,
                               const double *x, const double *w, size_t N,
                               size_t in, size_t out, void *stream);

/* matmul_fwd, matmul_bwd in bf16 and f16: y, x, w, dx, dy in the dtype, as bits,
 * summed in f32 and rounded once; dw in f32, added to. About 400 KiB of stack
 * more than in f32. */
void kern_matmul_fwd_bf16_host (uint16_t *y, const uint16_t *x,
                                const uint16_t *w, size_t N, size_t in,
                                size_t out, void *stream);
void kern_matmul_fwd_f16_host (uint16_t *y, const uint16_t *x,
                               const uint16_t *w, size_t N, size_t in,
                               size_t out, void *stream);
/* The same on a GPU without a library; gemm_lt.h has the faster way. */
void kern_matmul_fwd_f32_cuda (float *y, const float *x, const float *w,
                               size_t N, size_t in, size_t out, void *stream);
void kern_matmul_fwd_bf16_cuda (uint16_t *y, const uint16_t *x,
                                const uint16_t *w, size_t N, size_t in,
                                size_t out, void *stream);
void kern_matmul_fwd_f16_cuda (uint16_t *y, const uint16_t *x,
                               const uint16_t *w, size_t N, size_t in,
                               size_t out, void *stream);
void kern_matmul_bwd_bf16_host (uint16_t *dx, float *dw, const uint16_t *dy,
                                const uint16_t *x, const uint16_t *w, size_t N,
                                size_t in, size_t out, void *stream);
void kern_matmul_bwd_f16_host (uint16_t *dx, float *dw, const uint16_t *dy,
                               const uint16_t *x, const uint16_t *w, size_t N,
                               size_t in, size_t out, void *stream);
void kern_matmul_bwd_f32_cuda (float *dx, float *dw, const float *dy,
                               const float *x, const float *w, size_t N,
                               size_t in, size_t out, void *stream);
void kern_matmul_bwd_bf16_cuda (uint16_t *dx, float *dw, const uint16_t *dy,
                                const uint16_t *x, const uint16_t *w, size_t N,
                                size_t in, size_t out, void *stream);
void kern_matmul_bwd_f16_cuda (uint16_t *dx, float *dw, const uint16_t *dy,
                               const uint16_t *x, const uint16_t *w, size_t N,
                               size_t in, size_t out, void *stream);

/* cross_entropy_fwd - sum of -log softmax(logits)[target] over counted rows.
 *   ret_sum   written, nats, summed in double in rising order of rows
 *   ret_n     written: rows with a target >= 0
 *   logits    (N,V) any finite size: the row's maximum is taken off first
 *   targets   (N) in 0..V-1, or -1: the row does not count */
void kern_cross_entropy_fwd_f32_host (double *ret_sum, int64_t *ret_n,
                                      const float *logits,
                                      const int32_t *targets, size_t N,
                                      size_t V, void *stream);
void kern_cross_entropy_fwd_f64_host (double *ret_sum, int64_t *ret_n,
                                      const double *logits,
                                      const int32_t *targets, size_t N,
                                      size_t V, void *stream);

/* cross_entropy_bwd - the same sum, and the gradient over the logits.
 *   logits   (N,V) in: logits; out: scale * (softmax - one at the target),
 *            0 in rows that do not count
 *   scale    dL/d(sum), e.g. 1 / tokens of the global batch */
void kern_cross_entropy_bwd_f32_host (float *logits, double *ret_sum,
                                      int64_t *ret_n, const int32_t *targets,
                                      size_t N, size_t V, double scale,
                                      void *stream);
void kern_cross_entropy_bwd_f64_host (double *logits, double *ret_sum,
                                      int64_t *ret_n, const int32_t *targets,
                                      size_t N, size_t V, double scale,
                                      void *stream);

/* linear_ce - sum of -log softmax (h w^T)[target] over counted rows, and the
 * gradient of scale times it, without the logits of all rows.
 *   sum       (1) ADDED to, nats; NULL = not wanted
 *   counted   (1) ADDED to: rows with a target >= 0; NULL = not wanted
 *   targets   (N) in 0..V-1, or negative: the row is ignored
 *   dh        (N,C) written; NULL = not wanted
 *   dw        (V,C) added to; NULL = not wanted
 *   h         (N,C)
 *   w         (V,C)
 *   scale     dL/d(sum); 0 = no gradient: dh and dw stay
 *   scratch   kern_linear_ce_scratch (V) elements, garbage before and after
 * Logits and their gradient are of the dtype, losses and sums in double.
 * On a GPU: linear_ce.h, through gemm_lt. */
void kern_linear_ce_f32_host (double *sum, int64_t *counted, float *dh,
                              float *dw, const float *h, const float *w,
                              const int32_t *targets, size_t N, size_t C,
                              size_t V, double scale, void *scratch,
                              void *stream);
void kern_linear_ce_f64_host (double *sum, int64_t *counted, double *dh,
                              double *dw, const double *h, const double *w,
                              const int32_t *targets, size_t N, size_t C,
                              size_t V, double scale, void *scratch,
                              void *stream);
void kern_linear_ce_bf16_host (double *sum, int64_t *counted, uint16_t *dh,
                               float *dw, const uint16_t *h, const uint16_t *w,
                               const int32_t *targets, size_t N, size_t C,
                               size_t V, double scale, void *scratch,
                               void *stream);
void kern_linear_ce_f16_host (double *sum, int64_t *counted, uint16_t *dh,
                              float *dw, const uint16_t *h, const uint16_t *w,
                              const int32_t *targets, size_t N, size_t C,
                              size_t V, double scale, void *scratch,
                              void *stream);

/* kern_linear_ce_scratch - elements of scratch for V words. */
size_t kern_linear_ce_scratch (size_t V);

/* adamw - one step of AdamW with decoupled decay, in PyTorch's form.
 *   p, m, v        (n) weights and both moments, in place (zero before step 1)
 *   g              (n) gradient
 *   lr             this step's rate
 *   beta1, beta2   0.9 and 0.95 or 0.999
 *   eps            added to the root of the corrected second moment
 *   weight_decay   p is first multiplied by 1 - lr * weight_decay
 *   grad_scale     multiplies g: the clipping factor, else 1
 *   step           of this update, from 1; bias correction in double
 * Source: Loshchilov and Hutter 2019, arXiv:1711.05101. */
void kern_adamw_f32_host (float *p, float *m, float *v, const float *g,
                          size_t n, double lr, double beta1, double beta2,
                          double eps, double weight_decay, double grad_scale,
                          int64_t step, void *stream);
void kern_adamw_f64_host (double *p, double *m, double *v, const double *g,
                          size_t n, double lr, double beta1, double beta2,
                          double eps, double weight_decay, double grad_scale,
                          int64_t step, void *stream);

/* sumsq - sum of squares in double, in a fixed order.
 *   ret   written; Inf or NaN where x has such
 *   x     (n) */
void kern_sumsq_f32_host (double *ret, const float *x, size_t n, void *stream);
void kern_sumsq_f64_host (double *ret, const double *x, size_t n, void *stream);

/* sumsq, on a GPU: two launches; the order hangs on [n] alone.
 *   ret     (1) of the GPU, written; Inf or NaN exactly where x has such
 *   parts   (KERN_SUMSQ_PARTS) of the GPU, written */
#define KERN_SUMSQ_PARTS 1056
void kern_sumsq_f32_cuda (double *ret, double *parts, const float *x, size_t n,
                          void *stream);

/* clip_factor - what the gradient is multiplied by, for adamw_bf16: what undoes
 * the loss scale, times max_norm / (norm + 1e-6) where that is less than 1, as
 * PyTorch's clip_grad_norm_ has it.
 *   factor      (1) written; NaN where the norm is not finite
 *   norm        (1) written: of the unscaled gradient
 *   sumsq       (1) of the scaled gradient, of all shards
 *   inv_scale   1 / loss scale
 *   max_norm    0 = do not clip
 * All of the GPU in the cuda one. */
void kern_clip_factor_host (float *factor, double *norm, const double *sumsq,
                            double inv_scale, double max_norm, void *stream);
void kern_clip_factor_cuda (float *factor, double *norm, const double *sumsq,
                            double inv_scale, double max_norm, void *stream);

/* round_bf16 - the copy of adamw_bf16, below, made again from masters.
 *   copy               (n) written
 *   p                  (n)
 *   step, first, key   of the update that wrote it; key is of the host */
void kern_round_bf16_host (uint16_t *copy, const float *p, size_t n,
                           int64_t step, uint64_t first, const uint32_t *key,
                           void *stream);
void kern_round_bf16_cuda (uint16_t *copy, const float *p, size_t n,
                           int64_t step, uint64_t first, const uint32_t *key,
                           void *stream);

/* adamw_bf16 - adamw on f32 master weights that also writes the bf16 copy.
 *   p, m, v    (n) as in adamw
 *   copy       (n) written: bf16 of p; NULL = none: f32 weights
 *   g          (n) gradient, f32
 *   factor     (1) multiplies g, of the GPU in the cuda one; NULL = 1. Where it
 *              is not finite nothing is written: a step that is left out
 *   n          elements
 *   first      number of p[0] in its tensor, so that a shard draws as the whole
 *   key        (2) of the host; NULL = to nearest, ties to even. Else up or down
 *              by chance in proportion, without bias: a pure function of key,
 *              step and the element's number (Philox)
 * Others as in adamw. The cuda one rounds otherwise in places (FMA): within 4
 * ulp of the host's. */
void kern_adamw_bf16_host (float *p, uint16_t *copy, float *m, float *v,
                           const float *g, const float *factor, size_t n,
                           double lr, double beta1, double beta2, double eps,
                           double weight_decay, int64_t step, uint64_t first,
                           const uint32_t *key, void *stream);
void kern_adamw_bf16_cuda (float *p, uint16_t *copy, float *m, float *v,
                           const float *g, const float *factor, size_t n,
                           double lr, double beta1, double beta2, double eps,
                           double weight_decay, int64_t step, uint64_t first,
                           const uint32_t *key, void *stream);

/* accumulate - sum += x, for gradients of several micro-batches.
 *   sum   (n) f32
 *   x     (n) */
void kern_accumulate_f32_host (float *sum, const float *x, size_t n,
                               void *stream);
void kern_accumulate_bf16_host (float *sum, const uint16_t *x, size_t n,
                                void *stream);
void kern_accumulate_f32_cuda (float *sum, const float *x, size_t n,
                               void *stream);
void kern_accumulate_bf16_cuda (float *sum, const uint16_t *x, size_t n,
                                void *stream);

/* logprob - log softmax (z / temperature) of one target a row, in nats, and
 * the gradient over the logits in their place.
 *   logits    (N,V) in: z; out, unless dlogp is NULL: dlogp[row] /
 *             temperature * (one at the target - softmax), 0 in ignored rows
 *   logp      (N) written; 0 in ignored rows; NaN where a logit is NaN or +Inf
 *   entropy   (N) written, of softmax (z / temperature); NULL = not wanted
 *   targets   (N) in 0..V-1, or negative: the row is ignored
 *   dlogp     (N) dL / d logp, e.g. -1 / tokens for the cross-entropy
 * Logits may be -Inf, as masked ones are. f32 inside, but f64's: logp within 2e-6 of 1 plus
 * the largest |z / temperature|; the gradient, as far from right before it is
 * rounded once, relative to dlogp. The target is one that the row has. */
void kern_logprob_f32_host (float *logits, float *logp, float *entropy,
                            const int32_t *targets, const float *dlogp,
                            size_t N, size_t V, double inv_temperature,
                            void *stream);
void kern_logprob_f64_host (double *logits, double *logp, double *entropy,
                            const int32_t *targets, const double *dlogp,
                            size_t N, size_t V, double inv_temperature,
                            void *stream);
void kern_logprob_f16_host (uint16_t *logits, float *logp, float *entropy,
                            const int32_t *targets, const float *dlogp,
                            size_t N, size_t V, double inv_temperature,
                            void *stream);
void kern_logprob_f32_cuda (float *logits, float *logp, float *entropy,
                            const int32_t *targets, const float *dlogp,
                            size_t N, size_t V, double inv_temperature,
                            void *stream);
void kern_logprob_f16_cuda (uint16_t *logits, float *logp, float *entropy,
                            const int32_t *targets, const float *dlogp,
                            size_t N, size_t V, double inv_temperature,
                            void *stream);
void kern_logprob_bf16_host (uint16_t *logits, float *logp, float *entropy,
                             const int32_t *targets, const float *dlogp,
                             size_t N, size_t V, double inv_temperature,
                             void *stream);
void kern_logprob_bf16_cuda (uint16_t *logits, float *logp, float *entropy,
                             const int32_t *targets, const float *dlogp,
                             size_t N, size_t V, double inv_temperature,
                             void *stream);

/* cast - the other type of each element.
 *   y   (n) written; bf16 and f16 as bits: rounded to nearest, ties to even,
 *           a NaN becomes quiet (half.h); from them it is exact
 *   x   (n)
 * The cuda ones enqueue on [stream] (a cudaStream_t) of the current device and
 * return; a launch that failed is reported by the backend's next sync. They
 * give the host's bits. */
void kern_cast_f32_bf16_host (uint16_t *y, const float *x, size_t n,
                              void *stream);
void kern_cast_bf16_f32_host (float *y, const uint16_t *x, size_t n,
                              void *stream);
void kern_cast_f32_f16_host (uint16_t *y, const float *x, size_t n,
                             void *stream);
void kern_cast_f16_f32_host (float *y, const uint16_t *x, size_t n,
                             void *stream);
void kern_cast_f32_bf16_cuda (uint16_t *y, const float *x, size_t n,
                              void *stream);
void kern_cast_bf16_f32_cuda (float *y, const uint16_t *x, size_t n,
                              void *stream);
void kern_cast_f32_f16_cuda (uint16_t *y, const float *x, size_t n,
                             void *stream);
void kern_cast_f16_f32_cuda (float *y, const uint16_t *x, size_t n,
                             void *stream);

#ifdef __cplusplus
}
#endif
#endif
