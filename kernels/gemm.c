/* SPDX-License-Identifier: Apache-2.0
 * gemm.c - the host matrix product: CBLAS or plain C, as configure decided */
#include "config.h"

#include "gemm.h"

#if HAVE_CBLAS
#include <cblas.h>
#include <sys/mman.h>

/* OpenBLAS's own; other libraries have it not, and no such room. */
extern int openblas_get_num_threads (void) __attribute__ ((weak));

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

bool gemm_ready (void)
{
    enum { N = 128 }; /* smaller products take none of the room */
    static float a[N * N], c[N * N];
    size_t rooms = 1;
    void *room;

    if (!openblas_get_num_threads)
        return true;
    if (openblas_get_num_threads () > 1) /* another, of all others */
        rooms = 2;
    room = mmap (NULL, rooms * GEMM_ROOM, PROT_READ | PROT_WRITE,
                 MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
    if (room == MAP_FAILED)
        return false;
    munmap (room, rooms * GEMM_ROOM);
    gemm_f32 (false, false, N, N, N, 1, a, N, a, N, 0, c, N);
    return true;
}

#else

bool gemm_ready (void)
{
    return true;
}

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
