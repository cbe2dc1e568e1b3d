/* SPDX-License-Identifier: Apache-2.0
 * attention_host.c - causal grouped-query attention, f32 and f64 */
#include "docs.h"

#include "gemm.h"
#include "host.h"

/* Rows of logits at a time: 64 x 256 f32 fill an L1 and L2 share. */
#define BLOCK 64

/* Columns of a row that loops run over: whole vectors where the block has
 * them, for scalar remainders cost more than the rest of a short row. */
#define PADDED(n, most)                                                        \
    (((n) + 15) / 16 * 16 < (most) ? ((n) + 15) / 16 * 16 : (most))

size_t kern_attention_scratch (size_t T)
{
    return 2 * (size_t)BLOCK * T; /* logits and their gradients */
}

#define KERN_BODY "attention.inc"
#include "both.h"
