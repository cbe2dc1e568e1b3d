/* SPDX-License-Identifier: Apache-2.0
 * attention_hopper.h - causal attention's backward on sm_90a, heads of 64. For
 * attention.c and the tests.
 *
 * As kern_attention_bwd_{bf16,f16}_cuda of kernels.h, and the bits are the same
 * every time; but D is 64, the scale above 0, every array aligned to 16 bytes,
 * and the device one that kern_attention_hopper_served names. */
#ifndef KERN_ATTENTION_HOPPER_H
#define KERN_ATTENTION_HOPPER_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#ifdef __cplusplus
extern "C" {
#endif

/* kern_attention_hopper_served - whether the thread's device has the
 * instructions, and this build the kernels for it. */
bool kern_attention_hopper_served (void);

/* kern_attention_hopper_scratch - bytes of scratch, 264 a row and little more. */
size_t kern_attention_hopper_scratch (size_t B, size_t T, size_t H);

/* attention_hopper_bwd
 *   dqkv      (B,T,H+2G,64) written
 *   dy, y     (B,T,H,64)
 *   lse       (B,H,T)
 *   qkv       (B,T,H+2G,64)
 *   scratch   kern_attention_hopper_scratch bytes, garbage before and after
 * False: the driver refuses the shape or the addresses, and nothing was
 * enqueued. An error of the launch shows in cudaGetLastError. */
bool kern_attention_hopper_bwd_bf16_cuda (uint16_t *dqkv, const uint16_t *dy,
                                          const uint16_t *y, const float *lse,
                                          const uint16_t *qkv, void *scratch,
                                          size_t B, size_t T, size_t H,
                                          size_t G, double scale, void *stream);
bool kern_attention_hopper_bwd_f16_cuda (uint16_t *dqkv, const uint16_t *dy,
                                         const uint16_t *y, const float *lse,
                                         const uint16_t *qkv, void *scratch,
                                         size_t B, size_t T, size_t H, size_t G,
                                         double scale, void *stream);

#ifdef __cplusplus
}
#endif
#endif
