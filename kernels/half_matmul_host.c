/* SPDX-License-Identifier: Apache-2.0
 * half_matmul_host.c - the three products of a linear layer in bf16 and f16 */
#include "kernels.h"

#include "gemm.h"
#include "host.h"

#define TILE  128 /* of the result, held in f32 */
#define DEPTH 256 /* of the sum, at a time */

#define HALVES
#define KERN_BODY "half_matmul.inc"
#include "each.h"
