/* SPDX-License-Identifier: Apache-2.0
 * gemm.h - general matrix product on the host, row-major.
 *
 * gemm_f32 and gemm_f64 are CBLAS where configure found one, else the plain C
 * of gemm_plain.c, which is always built so that tests can compare the two. */
#ifndef KERN_GEMM_H
#define KERN_GEMM_H

#include <stdbool.h>
#include <stddef.h>

/* gemm_* - c = alpha op (a) op (b) + beta c, op (x) = x or its transpose.
 *   m, n, k   of the product: op (a) is (m,k), op (b) is (k,n), c is (m,n);
 *             each <= INT_MAX
 *   lda, ldb, ldc   elements between the rows of what is stored
 *   beta      0 writes c without reading it
 * c must not overlap a or b. */
void gemm_f32 (bool ta, bool tb, size_t m, size_t n, size_t k, double alpha,
               const float *a, size_t lda, const float *b, size_t ldb,
               double beta, float *c, size_t ldc);
void gemm_f64 (bool ta, bool tb, size_t m, size_t n, size_t k, double alpha,
               const double *a, size_t lda, const double *b, size_t ldb,
               double beta, double *c, size_t ldc);

/* gemm_ready - is there the memory that products work in? OpenBLAS takes GEMM_ROOM
 * bytes for itself at the first, and where there are none tries again for ever. True:
 * it has them now. */
#define GEMM_ROOM ((size_t)130 << 20)
bool gemm_ready (void);

/* The same in plain C, one thread, about 300 KiB of stack. */
void gemm_plain_f32 (bool ta, bool tb, size_t m, size_t n, size_t k,
                     double alpha, const float *a, size_t lda, const float *b,
                     size_t ldb, double beta, float *c, size_t ldc);
void gemm_plain_f64 (bool ta, bool tb, size_t m, size_t n, size_t k,
                     double alpha, const double *a, size_t lda, const double *b,
                     size_t ldb, double beta, double *c, size_t ldc);

#endif
