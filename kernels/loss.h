/* SPDX-License-Identifier: Apache-2.0
 * loss.h - the loss of rows of logits that are taken piece by piece.
 *
 * Conventions are those of kernels.h; statistics and losses are f32 whatever the
 * dtype of the logits. */
#ifndef KERN_LOSS_H
#define KERN_LOSS_H

#include <stddef.h>
#include <stdint.h>

#ifdef __cplusplus
extern "C" {
#endif

/* pick - log softmax (z) of one target a row, in nats, and the gradient over the
 * logits in their place: logprob_bf16 of kernels.h at temperature 1, without the
 * entropy, in three dtypes.
 *   logits    (N,V) in; out, unless dlogp is NULL: dlogp[row] * (one at the
 *             target - softmax), 0 in ignored rows
 *   logp      (N) f32 written; 0 in ignored rows
 *   targets   (N) in 0..V-1, or negative: the row is ignored
 *   dlogp     (N) f32: dL / d logp, e.g. -1 / tokens for the cross-entropy */
#define KERN_PICK(suffix, elem)                                                \
    void kern_pick_##suffix (elem *logits, float *logp,                        \
                             const int32_t *targets, const float *dlogp,       \
                             size_t N, size_t V, void *stream)
KERN_PICK (f32_host, float);
KERN_PICK (bf16_host, uint16_t);
KERN_PICK (f16_host, uint16_t);
KERN_PICK (f32_cuda, float);
KERN_PICK (bf16_cuda, uint16_t);
KERN_PICK (f16_cuda, uint16_t);

/* fill - y = value.
 *   y   (n) f32 */
void kern_fill_f32_host (float *y, float value, size_t n, void *stream);
void kern_fill_f32_cuda (float *y, float value, size_t n, void *stream);

/* loss_sum - sum += -logp of all rows, in double in one order.
 *   sum    (1) ADDED to
 *   logp   (N) as pick wrote it: 0 in rows that do not count */
void kern_loss_sum_host (double *sum, const float *logp, size_t N,
                         void *stream);
void kern_loss_sum_cuda (double *sum, const float *logp, size_t N,
                         void *stream);

#ifdef __cplusplus
}
#endif
#endif
