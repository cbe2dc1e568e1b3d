/* SPDX-License-Identifier: Apache-2.0
 * permute.h - a shuffled order without a table. Inside libtrain only. */
#ifndef TRAIN_PERMUTE_H
#define TRAIN_PERMUTE_H

#include <stdint.h>

/* permute - where [index] of 0..n-1 goes in the permutation of (seed, epoch).
 *   n       >= 1
 *   index   0 <= index < n
 * A bijection of 0..n-1 for every seed and epoch. Pure; any thread. */
uint64_t permute (uint64_t index, uint64_t n, uint64_t seed, uint64_t epoch);

#endif
