/* SPDX-License-Identifier: Apache-2.0
 * gemm_lt_linear.c - the three products of a linear layer on a GPU */
#include "gemm_lt.h"

enum gemm_lt_status gemm_lt_fwd (struct gemm_lt *g, void *y, const void *x,
                                 const void *w, const void *bias,
                                 enum gemm_lt_dtype dtype, size_t N, size_t in,
                                 size_t out, void *stream, char *why)
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
                            .bias = bias,
                            .alpha = 1};

    return gemm_lt_run (g, &op, stream, why);
}

enum gemm_lt_status gemm_lt_dx (struct gemm_lt *g, void *dx, const void *dy,
                                const void *w, enum gemm_lt_dtype dtype,
                                size_t N, size_t in, size_t out, void *stream,
                                char *why)
{
    struct gemm_lt_op op = {.in = dtype,
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

    return gemm_lt_run (g, &op, stream, why);
}

enum gemm_lt_status gemm_lt_dw (struct gemm_lt *g, void *dw,
                                enum gemm_lt_dtype dw_dtype, bool add,
                                const void *dy, const void *x,
                                enum gemm_lt_dtype dtype, size_t N, size_t in,
                                size_t out, void *stream, char *why)
{
    struct gemm_lt_op op = {.in = dtype,
                            .out = dw_dtype,
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
                            .beta = add ? 1.0f : 0.0f};

    return gemm_lt_run (g, &op, stream, why);
}
