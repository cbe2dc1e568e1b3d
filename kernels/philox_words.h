/* SPDX-License-Identifier: Apache-2.0
 * philox_words.h - Philox4x32-10 of Salmon et al. 2011 ("Parallel random numbers:
 * as easy as 1, 2, 3", SC '11), one text for the host and for kernels */
#ifndef KERN_PHILOX_WORDS_H
#define KERN_PHILOX_WORDS_H

#include <stdint.h>

#include "kernels/half.h"

/* philox_words - four random words of one counter.
 *   ctr   (4) what is drawn
 *   key   (2) the seed, low word first
 *   out   (4) written; may be [ctr] */
HALF_FN void philox_words (const uint32_t ctr[4], const uint32_t key[2],
                           uint32_t out[4])
{
    uint32_t a = ctr[0], b = ctr[1], c = ctr[2], d = ctr[3];
    uint32_t k0 = key[0], k1 = key[1];

    for (int i = 0; i < 10; i++) {
        /* multipliers and key increments of the paper's table for 4x32 */
        uint64_t left = (uint64_t)0xd2511f53u * a;
        uint64_t right = (uint64_t)0xcd9e8d57u * c;

        a = (uint32_t)(right >> 32) ^ b ^ k0;
        c = (uint32_t)(left >> 32) ^ d ^ k1;
        b = (uint32_t)right;
        d = (uint32_t)left;
        k0 += 0x9e3779b9u;
        k1 += 0xbb67ae85u;
    }
    out[0] = a;
    out[1] = b;
    out[2] = c;
    out[3] = d;
}

#endif
