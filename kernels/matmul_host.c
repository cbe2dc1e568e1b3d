/* SPDX-License-Identifier: Apache-2.0
 * matmul_host.c - the three products of a linear layer, f32 and f64 */
#include "kernels.h"

#include "gemm.h"

#define KERN_BODY "matmul.inc"
#include "both.h"
