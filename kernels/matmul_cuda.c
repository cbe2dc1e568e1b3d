/* SPDX-License-Identifier: Apache-2.0
 * matmul_cuda.c - the three products of a linear layer by our own GPU kernels */
#include "kernels.h"

#include "gemm_own.h"

static void fwd (void *y, const void *x, const void *w,
                 enum gemm_lt_dtype dtype, size_t N, size_t in, size_t out,
                 void *stream)
{
    struct gemm_lt_op op = {.in = dtype,
                            .out = dtype,
                            .tb = true,
                            .m = N,
                            .n = out,
                            .k = in,
                            .lda = in,
                            .ldb = in,
                            .ldc = out,
                            .a = x,
                            .b = w,
                            .c = y,
                            .alpha = 1};

    gemm_own_run (&op, stream);
}

static void bwd (void *dx, float *dw, const void *dy, const void *x,
                 const void *w, enum gemm_lt_dtype dtype, size_t N, size_t in,
                 size_t out, void *stream)
{
    struct gemm_lt_op to_x = {.in = dtype,
                              .out = dtype,
                              .m = N,
                              .n = in,
                              .k = out,
                              .lda = out,
                              .ldb = in,
                              .ldc = in,
                              .a = dy,
                              .b = w,
                              .c = dx,
                              .alpha = 1};
    struct gemm_lt_op to_w = {.in = dtype,
                              .out = GEMM_LT_F32,
                              .ta = true,
                              .m = out,
                              .n = in,
                              .k = N,
                              .lda = out,
                              .ldb = in,
                              .ldc = in,
                              .a = dy,
                              .b = x,
                              .c = dw,
                              .alpha = 1,
                              .beta = 1};

    if (dx)
        gemm_own_run (&to_x, stream);
    if (dw)
        gemm_own_run (&to_w, stream);
}

#define BOTH(type, name, dtype)                                                \
    void kern_matmul_fwd_##name##_cuda (type *y, const type *x, const type *w, \
                                        size_t N, size_t in, size_t out,       \
                                        void *stream)                          \
    {                                                                          \
        fwd (y, x, w, dtype, N, in, out, stream);                              \
    }                                                                          \
                                                                               \
    void kern_matmul_bwd_##name##_cuda (                                       \
        type *dx, float *dw, const type *dy, const type *x, const type *w,     \
        size_t N, size_t in, size_t out, void *stream)                         \
    {                                                                          \
        bwd (dx, dw, dy, x, w, dtype, N, in, out, stream);                     \
    }

BOTH (float, f32, GEMM_LT_F32)
BOTH (uint16_t, bf16, GEMM_LT_BF16)
BOTH (uint16_t, f16, GEMM_LT_F16)
