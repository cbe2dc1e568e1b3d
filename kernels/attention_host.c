/* SPDX-License-Identifier: Apache-2.0
 * attention_host.c - causal grouped-query attention, f32 and f64 */
#include "kernels.h"

#include "gemm.h"
#include "host.h"

/* Rows of logits at a time: 64 x 256 f32 fill an L1 and L2 share. */
#define BLOCK 64

size_t kern_attention_scratch (size_t T)
{
    return 2 * (size_t)BLOCK * T; /* logits and their gradients */
}

#define KERN_BODY "attention.inc"
#include "both.h"
