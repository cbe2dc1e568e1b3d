/* SPDX-License-Identifier: Apache-2.0
 * decode_tensor.h - attention of single queries on the tensor cores, for
 * decode_attention.cu */
#ifndef KERN_DECODE_TENSOR_H
#define KERN_DECODE_TENSOR_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

/* Arguments are those of attend_fwd; cosine NULL: of decode_fwd. */
struct decode_tensor {
    uint16_t *y, *k, *v;
    const uint16_t *qkv;
    const float *cosine, *sine;
    const int32_t *slot, *at, *lead, *shared;
    size_t N, T, H, G, D;
    double scale;
    bool early;
};

/* Heads of 64 or 128, at most 8 to a key; addresses of 16 bytes. */
static inline bool decode_tensor_fits (size_t H, size_t G, size_t D)
{
    return (D == 64 || D == 128) && H / G <= 8;
}

void decode_tensor_bf16 (const struct decode_tensor *a, void *stream);
void decode_tensor_f16 (const struct decode_tensor *a, void *stream);

#endif
