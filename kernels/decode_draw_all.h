/* SPDX-License-Identifier: Apache-2.0
 * decode_draw_all.h - draws that no rule limits, for decode_draw.cu */
#ifndef KERN_DECODE_DRAW_ALL_H
#define KERN_DECODE_DRAW_ALL_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

/* As draw's arguments; logits of the dtype. At heat 0 the likeliest. */
struct decode_draw_all {
    int32_t *ids;
    float *logp;
    const void *logits;
    const int32_t *text, *at;
    size_t N, V;
    double heat;
    uint64_t seed;
};

/* decode_draw_all_served - has the current GPU clusters? They are of compute
 * capability 9. */
bool decode_draw_all_served (void);

void decode_draw_all_f32 (const struct decode_draw_all *d, void *stream);
void decode_draw_all_bf16 (const struct decode_draw_all *d, void *stream);
void decode_draw_all_f16 (const struct decode_draw_all *d, void *stream);

#endif
