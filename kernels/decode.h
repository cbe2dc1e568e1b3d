/* SPDX-License-Identifier: Apache-2.0
 * decode.h - the kernels of generation: keys and values that stay, a query over
 * them, a token drawn.
 *
 * Part of kernels.h; types and conventions are those of layers.h. Row i of N is
 * a token at position at[i] of the text that has slot slot[i] of the cache;
 * rows are of any texts in any order, and at[i] < 0 leaves the row out. The
 * ids, slots and positions are of the kernels' device and not checked. */
#ifndef KERN_DECODE_H
#define KERN_DECODE_H

#include "kernels/half.h"
#include "kernels/layers.h"
#include "kernels/philox_words.h"

#ifdef __cplusplus
extern "C" {
#endif

/* keep_fwd - turn the queries by their positions, in place, and the keys on
 * their way to the cache; values go there as they are.
 *   k, v    (S,G,T,D) of S slots; row at[i] of slot slot[i] written
 *   qkv     (N,(H + 2 G) D) as rope_fwd's x; of it the queries written
 *   cosine, sine (T,D/2) */
#define KERN_KEEP_FWD(suffix, elem, real)                                      \
    void kern_keep_fwd_##suffix (                                              \
        elem *k, elem *v, elem *qkv, const real *cosine, const real *sine,     \
        const int32_t *slot, const int32_t *at, size_t N, size_t T, size_t H,  \
        size_t G, size_t D, void *stream)
KERN_DECLARE (KERN_KEEP_FWD);

/* decode_fwd - attention of each row's queries over rows 0..at[i] of its slot.
 *   y         (N,H D) written
 *   qkv       (N,(H + 2 G) D) turned
 *   k, v      (S,G,T,D)
 *   scratch   (T + D) of [real], of the host alone
 * D is even and at most KERN_DECODE_WIDE on a GPU. A row's result hangs on its
 * own text alone, and has the same bits in any batch. The softmax is made as
 * the keys come (Milakov and Gimelshein 2018, arXiv:1805.02867). */
#define KERN_DECODE_WIDE 256
#define KERN_DECODE_FWD(suffix, elem, real)                                    \
    void kern_decode_fwd_##suffix (                                            \
        elem *y, const elem *qkv, const elem *k, const elem *v,                \
        const int32_t *slot, const int32_t *at, size_t N, size_t T, size_t H,  \
        size_t G, size_t D, double scale, void *scratch, void *stream)
KERN_DECLARE (KERN_DECODE_FWD);

/* share_fwd - texts that begin alike: rows 0..n[i]-1 of slot from[i] are copied to
 * slot to[i], for P pairs, in every layer. No slot is both.
 *   k, v   (L,S,G,T,D) */
#define KERN_SHARE_FWD(suffix, elem, real)                                     \
    void kern_share_fwd_##suffix (elem *k, elem *v, const int32_t *from,       \
                                  const int32_t *to, const int32_t *n,         \
                                  size_t P, size_t L, size_t S, size_t G,      \
                                  size_t T, size_t D, void *stream)
KERN_DECLARE (KERN_SHARE_FWD);

/* draw - the token behind each row, by its logits.
 *   ids      (N) written: -1 where a logit is NaN or infinite; what stands in
 *            rows that are left out stays
 *   logp     (N) written likewise: the logarithm of the token's chance; at heat
 *            0 of its chance at heat 1; NULL: not wanted
 *   logits   (N,V)
 *   text     (N) number of the text, for draw_chance
 *   at       (N)
 *   heat     0: the likeliest, of equals the lowest id; above: id with the
 *            chance exp (z / heat) over the sum, by draw_chance of at[i] + 1 */
#define KERN_DRAW(suffix, elem, real)                                          \
    void kern_draw_##suffix (int32_t *ids, float *logp, const elem *logits,    \
                             const int32_t *text, const int32_t *at, size_t N, \
                             size_t V, double heat, uint64_t seed,             \
                             void *stream)
KERN_DECLARE (KERN_DRAW);

/* draw_chance - a number in (0,1) that is a function of these alone: 52 bits of
 * Philox. */
HALF_FN double draw_chance (uint64_t seed, uint32_t text, uint32_t at)
{
    uint32_t ctr[4] = {at, text, 0x67656e65u, 0}, out[4]; /* "gene" */
    uint32_t key[2] = {(uint32_t)seed, (uint32_t)(seed >> 32)};
    uint64_t bits;

    philox_words (ctr, key, out);
    bits = ((uint64_t)out[0] << 32 | out[1]) >> 12;
    return ((double)bits + 0.5) * 0x1p-52;
}

#ifdef __cplusplus
}
#endif
#endif
