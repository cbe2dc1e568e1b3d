/* SPDX-License-Identifier: Apache-2.0
 * half_attention_host.c - causal grouped-query attention in bf16 and f16 */
#include "docs.h"

#include "host.h"

size_t kern_attention_half_scratch (size_t T, size_t H, size_t G, size_t D)
{
    /* queries, keys, values and y, and the gradients of both */
    return kern_attention_scratch (T) + 2 * T * (2 * H + 2 * G) * D;
}

#define HALVES
#define KERN_BODY "half_attention.inc"
#include "each.h"
