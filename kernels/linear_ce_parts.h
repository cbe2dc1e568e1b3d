/* SPDX-License-Identifier: Apache-2.0
 * linear_ce_parts.h - the two small kernels of linear_ce */
#ifndef KERN_LINEAR_CE_PARTS_H
#define KERN_LINEAR_CE_PARTS_H

#include <stddef.h>
#include <stdint.h>

#ifdef __cplusplus
extern "C" {
#endif

/* linear_ce_seed - dlogp (N) = -scale * *factor; [factor] NULL = 1. */
void linear_ce_seed (float *dlogp, const float *factor, double scale, size_t N,
                     void *stream);

/* linear_ce_sum - sum += -logp (N), counted += rows with a target >= 0; either
 * may be NULL. The order hangs on N alone. */
void linear_ce_sum (double *sum, int64_t *counted, const float *logp,
                    const int32_t *targets, size_t N, void *stream);

#ifdef __cplusplus
}
#endif
#endif
