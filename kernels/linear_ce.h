/* SPDX-License-Identifier: Apache-2.0
 * linear_ce.h - the head of a language model and its loss on a GPU, without the
 * logits of all rows.
 *
 * Rows are taken in chunks: their logits into a buffer, log-probabilities and
 * the gradient in place (kern_logprob_*), then dh of the chunk and what it adds
 * to dw. So the logits cost one buffer of at most 0.59 GiB instead of N x V.
 * Dtypes are f32, bf16 and f16; logits are rounded to the dtype once, as a
 * product of a model in that dtype has them. The host twins are
 * kern_linear_ce_*_host. */
#ifndef KERN_LINEAR_CE_H
#define KERN_LINEAR_CE_H

#include "gemm_lt.h"

#ifdef __cplusplus
extern "C" {
#endif

/* linear_ce_rows - rows of a chunk: what the buffer takes, cut so that the tiles
 * of dh leave few multiprocessors idle. */
size_t linear_ce_rows (enum gemm_lt_dtype dtype, size_t N, size_t C, size_t V);

/* linear_ce_scratch - bytes of scratch on the GPU for the two below. */
size_t linear_ce_scratch (enum gemm_lt_dtype dtype, size_t N, size_t C,
                          size_t V);

/* linear_logprob - logp = log softmax (h w^T / temperature) [target], and its
 * gradient.
 *   logp      (N) f32 written, entropy (N) f32 written or NULL, targets (N),
 *   dlogp     (N) f32 or NULL: as in kern_logprob_*_cuda; NULL = no gradient
 *   dh        (N,C) of [dtype] written; NULL = not wanted; not read without
 * dlogp dw        (V,C) f32 added to; NULL = not wanted h         (N,C) of
 * [dtype] w         (V,C) of [dtype] scratch   linear_ce_scratch bytes,
 * 256-aligned, garbage before and after All of the GPU of [g]. f16 loses
 * gradients under 6e-8: scale the loss. Returns what gemm_lt_run does. */
enum gemm_lt_status linear_logprob (struct gemm_lt *g, float *logp,
                                    float *entropy, void *dh, float *dw,
                                    const void *h, const void *w,
                                    const int32_t *targets, const float *dlogp,
                                    enum gemm_lt_dtype dtype, size_t N,
                                    size_t C, size_t V, double inv_temperature,
                                    void *scratch, void *stream, char *why);

/* linear_ce - the sum of -log softmax (h w^T) [target] over counted rows, and
 * the gradient of scale times that. sum       (1) f64 ADDED to, nats; summed in
 * one order. May be NULL counted   (1) ADDED to: rows with a target >= 0. May
 * be NULL scale     times *[factor] is dL/d(sum), e.g. 1 / tokens of the global
 * batch; 0 = no gradient factor    (1) f32, e.g. the loss scale; NULL = 1
 * Others as in linear_logprob. sum, counted and factor are of the GPU. */
enum gemm_lt_status linear_ce (struct gemm_lt *g, double *sum, int64_t *counted,
                               void *dh, float *dw, const void *h,
                               const void *w, const int32_t *targets,
                               enum gemm_lt_dtype dtype, size_t N, size_t C,
                               size_t V, double scale, const float *factor,
                               void *scratch, void *stream, char *why);

#ifdef __cplusplus
}
#endif
#endif
