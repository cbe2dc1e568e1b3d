/* SPDX-License-Identifier: Apache-2.0
 * philox.c - random numbers of a counter */
#include "philox.h"

#include "kernels/philox_words.h"

void philox4x32 (const uint32_t ctr[4], const uint32_t key[2], uint32_t out[4])
{
    philox_words (ctr, key, out);
}

double philox_uniform (uint32_t hi, uint32_t lo)
{
    uint64_t bits = ((uint64_t)hi << 32 | lo) >> 12;

    return ((double)bits + 0.5) * 0x1p-52;
}
