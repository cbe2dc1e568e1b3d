/* SPDX-License-Identifier: Apache-2.0
 * gemm.c - the host matrix product: CBLAS or plain C, as configure decided */
#include "config.h"

#include "gemm.h"

#if HAVE_CBLAS
#include <cblas.h>

static CBLAS_TRANSPOSE trans (bool transposed)
{
    return transposed ? CblasTrans : CblasNoTrans;
}

void gemm_f32 (bool ta, bool tb, size_t m, size_t n, size_t k, double alpha,
               const float *a, size_t lda, const float *b, size_t ldb,
               double beta, float *c, size_t ldc)
{
    cblas_sgemm (CblasRowMajor, trans (ta), trans (tb), (int)m, (int)n, (int)k,
                 (float)alpha, a, (int)lda, b, (int)ldb, (float)beta, c,
                 (int)ldc);
}

void gemm_f64 (bool ta, bool tb, size_t m, size_t n, size_t k, double alpha,
               const double *a, size_t lda, const double *b, size_t ldb,
               double beta, double *c, size_t ldc)
{
    cblas_dgemm (CblasRowMajor, trans (ta), trans (tb), (int)m, (int)n, (int)k,
                 alpha, a, (int)lda, b, (int)ldb, beta, c, (int)ldc);
}

#else

void gemm_f32 (bool ta, bool tb, size_t m, size_t n, size_t k, double alpha,
               const float *a, size_t lda, const float *b, size_t ldb,
               double beta, float *c, size_t ldc)
{
    gemm_plain_f32 (ta, tb, m, n, k, alpha, a, lda, b, ldb, beta, c, ldc);
}

void gemm_f64 (bool ta, bool tb, size_t m, size_t n, size_t k, double alpha,
               const double *a, size_t lda, const double *b, size_t ldb,
               double beta, double *c, size_t ldc)
{
    gemm_plain_f64 (ta, tb, m, n, k, alpha, a, lda, b, ldb, beta, c, ldc);
}

#endif
