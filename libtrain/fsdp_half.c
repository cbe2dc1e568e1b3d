/* SPDX-License-Identifier: Apache-2.0
 * fsdp_half.c - weights that are shorter than their masters */
#include <string.h>

#include "fsdp_impl.h"
#include "kernels/half.h"
#include "kernels/kernels.h"

static void narrow (const struct fsdp *f, uint16_t *y, const float *x, size_t n)
{
    if (f->wdtype == TRAIN_BF16) {
        kern_cast_f32_bf16_host (y, x, n, NULL);
        return;
    }
    for (size_t i = 0; i < n; i++)
        y[i] = half_to_f16 (x[i]);
}

void fsdp_updated (struct fsdp *f)
{
    if (f->low)
        narrow (f, f->low, f->weights.t.data, train_shard_size (f->plan));
}

void fsdp_widen (struct fsdp *f)
{
    float *to = f->weights.t.data;
    const uint16_t *from = f->low;

    for (size_t i = 0; f->low && i < train_shard_size (f->plan); i++)
        to[i] = f->wdtype == TRAIN_BF16 ? half_from_bf16 (from[i])
                                        : half_from_f16 (from[i]);
}
