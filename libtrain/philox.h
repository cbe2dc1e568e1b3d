/* SPDX-License-Identifier: Apache-2.0
 * philox.h - counter-based random numbers: a pure function of counter and key.
 *
 * No state: who draws number i of stream s gets the same bits on any rank, in
 * any order. Philox4x32 with ten rounds (Salmon et al. 2011, "Parallel random
 * numbers: as easy as 1, 2, 3", SC '11). Any thread. */
#ifndef TRAIN_PHILOX_H
#define TRAIN_PHILOX_H

#include <stdint.h>

/* philox4x32 - four random words of one counter.
 *   ctr   (4) what is drawn: the caller gives each word its meaning
 *   key   (2) the seed, low word first
 *   out   (4) written; may be [ctr] */
void philox4x32 (const uint32_t ctr[4], const uint32_t key[2], uint32_t out[4]);

/* philox_uniform - a double in (0,1) of two words: 52 bits, never 0 or 1, the
 * same on every machine. */
double philox_uniform (uint32_t hi, uint32_t lo);

#endif
