/* SPDX-License-Identifier: Apache-2.0
 * gemm_glu.h - SwiGLU within the product before it, and its backward within the
 * product whose result it needs, on sm_90a.
 *
 * The bits of what is beside the product are those of kern_swiglu_*_cuda, and the
 * same every time. Arrays are of bf16 or f16, aligned to 16 bytes. */
#ifndef KERN_GEMM_GLU_H
#define KERN_GEMM_GLU_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#ifdef __cplusplus
extern "C" {
#endif

/* Rows from which on it is faster than cuBLASLt's product and the kernel, on an
 * H200: at 512 it is not. */
#define KERN_GEMM_GLU_ROWS 2048

/* kern_gemm_glu_served - whether the thread's device has the instructions, and
 * this build the kernels for it. Not while a stream is captured. */
bool kern_gemm_glu_served (void);

/* kern_gemm_glu_fits - whether the two below take these shapes: F a multiple of
 * 256, C of 8, and all within INT_MAX. */
bool kern_gemm_glu_fits (size_t N, size_t C, size_t F);

/* gemm_glu_fwd - gu = x w^T, y = swiglu_fwd (gu).
 *   y    (N,F) written
 *   gu   (N,2F) written
 *   x    (N,C)
 *   w    (2F,C): gate's rows, then up's
 * This and the next return false where the driver refuses the addresses; then
 * nothing was enqueued. The shapes fit, the device is served. An error of the
 * launch shows in cudaGetLastError. */
bool kern_gemm_glu_fwd_bf16_cuda (uint16_t *y, uint16_t *gu, const uint16_t *x,
                                  const uint16_t *w, size_t N, size_t C,
                                  size_t F, void *stream);
bool kern_gemm_glu_fwd_f16_cuda (uint16_t *y, uint16_t *gu, const uint16_t *x,
                                 const uint16_t *w, size_t N, size_t C,
                                 size_t F, void *stream);

/* gemm_glu_bwd - swiglu_again_bwd of dy w, rounded as if it were stored.
 *   dgu   (N,2F) written; it may be gu
 *   y     (N,F) written: the activation; NULL: not wanted
 *   dy    (N,C)
 *   w     (C,F)
 *   gu    (N,2F) */
bool kern_gemm_glu_bwd_bf16_cuda (uint16_t *dgu, uint16_t *y,
                                  const uint16_t *dy, const uint16_t *w,
                                  const uint16_t *gu, size_t N, size_t C,
                                  size_t F, void *stream);
bool kern_gemm_glu_bwd_f16_cuda (uint16_t *dgu, uint16_t *y, const uint16_t *dy,
                                 const uint16_t *w, const uint16_t *gu,
                                 size_t N, size_t C, size_t F, void *stream);

#ifdef __cplusplus
}
#endif
#endif
