/* SPDX-License-Identifier: Apache-2.0
 * decode_host.c - the kernels of generation, in every dtype */
#include "kernels.h"

#include "decode.h"
#include "decode_advance.h"
#include "host.h"

#define KERN_BODY "decode.inc"
#include "each.h"

void kern_advance_host (const struct kern_advance *a, void *stream)
{
    (void)stream;
    for (size_t i = 0; i < a->N; i++)
        advance_row (a, i);
}
