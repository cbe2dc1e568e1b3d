/* SPDX-License-Identifier: Apache-2.0
 * dropout_elem.h - the draws of dropout, one text for the host and for kernels */
#ifndef KERN_DROPOUT_ELEM_H
#define KERN_DROPOUT_ELEM_H

#include "kernels/dropout.h"
#include "kernels/philox_words.h"

/* Draws of elements 8 k to 8 k + 7 of the whole step: two in each word. */
HALF_FN void dropout_words (const struct kern_dropout *d, uint64_t k,
                            uint32_t words[4])
{
    const uint32_t key[2] = {(uint32_t)d->seed, (uint32_t)(d->seed >> 32)};
    const uint32_t ctr[4] = {(uint32_t)k, (uint32_t)(k >> 32) | d->site << 16,
                             (uint32_t)d->step, 0x64726f70u /* "drop" */};

    philox_words (ctr, key, words);
}

/* What element [j] of the eight is multiplied by. */
HALF_FN float dropout_factor (const struct kern_dropout *d,
                              const uint32_t words[4], unsigned j)
{
    uint32_t draw = words[j / 2] >> (j % 2 * 16) & 0xffffu;

    return draw < d->cut ? 0.0f : 65536.0f / (float)(65536 - d->cut);
}

#endif
