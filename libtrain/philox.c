/* SPDX-License-Identifier: Apache-2.0
 * philox.c - Philox4x32-10 of Salmon et al. 2011 */
#include "philox.h"

#define ROUNDS 10

/* Multipliers and key increments of the paper's table for 4x32. */
#define MUL_0  0xd2511f53u
#define MUL_1  0xcd9e8d57u
#define WEYL_0 0x9e3779b9u
#define WEYL_1 0xbb67ae85u

void philox4x32 (const uint32_t ctr[4], const uint32_t key[2], uint32_t out[4])
{
    uint32_t a = ctr[0], b = ctr[1], c = ctr[2], d = ctr[3];
    uint32_t k0 = key[0], k1 = key[1];

    for (int i = 0; i < ROUNDS; i++) {
        uint64_t left = (uint64_t)MUL_0 * a;
        uint64_t right = (uint64_t)MUL_1 * c;

        a = (uint32_t)(right >> 32) ^ b ^ k0;
        c = (uint32_t)(left >> 32) ^ d ^ k1;
        b = (uint32_t)right;
        d = (uint32_t)left;
        k0 += WEYL_0;
        k1 += WEYL_1;
    }
    out[0] = a;
    out[1] = b;
    out[2] = c;
    out[3] = d;
}

double philox_uniform (uint32_t hi, uint32_t lo)
{
    uint64_t bits = ((uint64_t)hi << 32 | lo) >> 12;

    return ((double)bits + 0.5) * 0x1p-52;
}
