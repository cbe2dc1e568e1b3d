/* SPDX-License-Identifier: Apache-2.0
 * permute.c - Feistel network over Philox, walked until it falls within n
 *
 * Two halves of w bits each, 2w the least even number of bits that holds n, so
 * the domain is below 4n and a walk takes below 4 turns on average. Each turn
 * is a bijection of the domain; following it from an index below n until it
 * comes back below n is a bijection of 0..n-1. */
#include "permute.h"

#include <assert.h>

#include "philox.h"

#define ROUNDS 8
#define STREAM 0x64617461u /* "data": apart from the weights' draws */

static uint64_t turn (uint64_t x, unsigned w, uint64_t seed, uint64_t epoch)
{
    const uint32_t key[2] = {(uint32_t)seed, (uint32_t)(seed >> 32)};
    const uint64_t mask = ((uint64_t)1 << w) - 1;
    uint64_t left = x >> w, right = x & mask;

    for (uint32_t round = 0; round < ROUNDS; round++) {
        /* A half has at most 32 bits; the round stands in the stream word. */
        uint32_t c[4] = {(uint32_t)right, (uint32_t)epoch,
                         (uint32_t)(epoch >> 32), STREAM + round};
        uint64_t next;

        philox4x32 (c, key, c);
        next = left ^ (c[0] & mask);
        left = right;
        right = next;
    }
    return left << w | right;
}

uint64_t permute (uint64_t index, uint64_t n, uint64_t seed, uint64_t epoch)
{
    unsigned w = 1;

    assert (index < n);
    while (w < 32 && (n - 1) >> (2 * w))
        w++;
    do
        index = turn (index, w, seed, epoch);
    while (index >= n);
    return index;
}
