/* SPDX-License-Identifier: Apache-2.0
 * decode_draw.h - a token by a row of logits.
 *
 * Part of decode.h, whose conventions hold. A row is of text text[i], which has
 * slot slot[i], at position at[i]; below 0 it is left out. */
#ifndef KERN_DECODE_DRAW_H
#define KERN_DECODE_DRAW_H

#include <stddef.h>
#include <stdint.h>

#include "kernels/half.h"
#include "kernels/layers.h"
#include "kernels/philox_words.h"

#ifdef __cplusplus
extern "C" {
#endif

/* Who may be drawn; of equals the lower id comes first.
 *   heat         what logits are divided by; 0: the first of the likeliest
 *   repetition   above 0: before that, logits of tokens that the text has are
 *                divided by it, those below 0 multiplied
 *   top_k        above 0: the k likeliest alone
 *   top_p        within 0 and 1, both without: then the fewest likeliest whose
 *                chances are together at least p of all that are left
 *   min_p        then those with at least min_p times the chance of the
 *                likeliest */
struct kern_draw_rules {
    double heat, repetition, top_p, min_p;
    int top_k;
    uint64_t seed;
};

/* draw - the token behind each row: by draw_chance of at[i] + 1, going through
 * those that may be drawn by id.
 *   ids      (N) written: -1 where a logit is NaN or infinite; what stands in
 *            rows that are left out stays
 *   logp     (N) written likewise: log softmax (logits / heat) of the token,
 *            whatever the other rules are; at heat 0 as at 1. NULL: not wanted
 *   logits   (N,V)
 *   seen     (S,kern_seen_words (V)) as had writes it; used with repetition
 *            alone
 *   scratch  kern_draw_scratch (V) bytes, of the host alone
 * A GPU counts chances in 2^-40 of the likeliest's for top_p. */
#define KERN_DRAW(suffix, elem, real)                                          \
    void kern_draw_##suffix (                                                  \
        int32_t *ids, float *logp, const elem *logits, const int32_t *text,    \
        const int32_t *at, const int32_t *slot, const uint32_t *seen,          \
        size_t N, size_t V, const struct kern_draw_rules *rules,               \
        void *scratch, void *stream)
KERN_DECLARE (KERN_DRAW);

static inline size_t kern_draw_scratch (size_t V)
{
    return V * (2 * sizeof (double) + sizeof (int32_t));
}

/* had - note N tokens as had by the texts of their slots; a row at position 0
 * first clears its slot. had_share - slot to[i] gets what from[i] has.
 *   seen   (S,kern_seen_words (V)), a bit a token */
void kern_had_host (uint32_t *seen, const int32_t *tokens, const int32_t *slot,
                    const int32_t *at, size_t N, size_t V, void *stream);
void kern_had_cuda (uint32_t *seen, const int32_t *tokens, const int32_t *slot,
                    const int32_t *at, size_t N, size_t V, void *stream);
void kern_had_share_host (uint32_t *seen, const int32_t *from,
                          const int32_t *to, size_t P, size_t V, void *stream);
void kern_had_share_cuda (uint32_t *seen, const int32_t *from,
                          const int32_t *to, size_t P, size_t V, void *stream);

static inline size_t kern_seen_words (size_t V)
{
    return (V + 31) / 32;
}

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
