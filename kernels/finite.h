/* SPDX-License-Identifier: Apache-2.0
 * finite.h - where the first value is that is not finite */
#ifndef KERN_FINITE_H
#define KERN_FINITE_H

#include <stddef.h>
#include <stdint.h>

#ifdef __cplusplus
extern "C" {
#endif

/* first_nonfinite - the least index of an Inf or a NaN.
 *   ret   (1) written: n where there is none; of the GPU in the cuda ones
 *   x     (n) */
void kern_first_nonfinite_f32_host (uint64_t *ret, const float *x, size_t n,
                                    void *stream);
void kern_first_nonfinite_f64_host (uint64_t *ret, const double *x, size_t n,
                                    void *stream);
void kern_first_nonfinite_bf16_host (uint64_t *ret, const uint16_t *x, size_t n,
                                     void *stream);
void kern_first_nonfinite_f16_host (uint64_t *ret, const uint16_t *x, size_t n,
                                    void *stream);
void kern_first_nonfinite_f32_cuda (uint64_t *ret, const float *x, size_t n,
                                    void *stream);
void kern_first_nonfinite_bf16_cuda (uint64_t *ret, const uint16_t *x, size_t n,
                                     void *stream);
void kern_first_nonfinite_f16_cuda (uint64_t *ret, const uint16_t *x, size_t n,
                                    void *stream);

#ifdef __cplusplus
}
#endif
#endif
