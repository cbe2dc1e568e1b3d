/* SPDX-License-Identifier: Apache-2.0
 * gemm_own.h - the product of gemm_lt without a library */
#ifndef KERN_GEMM_OWN_H
#define KERN_GEMM_OWN_H

#include "gemm_lt.h"

#ifdef __cplusplus
extern "C" {
#endif

/* gemm_own_run - as gemm_lt_run, of shapes that it has checked, k > 0. A launch
 * that failed is cudaGetLastError's. Sums run over k in one order: the same
 * bits every time. */
void gemm_own_run (const struct gemm_lt_op *op, void *stream);

#ifdef __cplusplus
}
#endif
#endif
