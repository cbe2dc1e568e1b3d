/* SPDX-License-Identifier: Apache-2.0
 * linear_ce_host.c - linear layer and cross-entropy, a chunk of rows at a time, on
 * the host: f32, f64, bf16 and f16 */
#include "kernels.h"

#include "host.h"

#define ROWS 64 /* of a chunk */

#define KERN_BODY "linear_ce.inc"
#include "each.h"

size_t kern_linear_ce_scratch (size_t V)
{
    return ROWS * V;
}
