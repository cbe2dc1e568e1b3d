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

#include <stdbool.h>

#include "kernels/decode_draw.h"
#include "kernels/half.h"
#include "kernels/layers.h"

#ifdef __cplusplus
extern "C" {
#endif

/* keep_fwd - turn the queries and keys by their positions, in place; keys and
 * values go to the cache.
 *   k, v    (S,G,T,D) of S slots; row at[i] of slot slot[i] written
 *   qkv     (N,(H + 2 G) D) as rope_fwd's x; of it queries and keys written
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

/* attend_fwd - keep_fwd and decode_fwd in one, of rows each of a slot of its own:
 * the same y, k and v, bit for bit. What is then in qkv is undefined.
 *   early   on a GPU: it may begin before the kernel before it on the stream
 *           has ended, for whose results it waits; slot, at, lead, shared, and
 *           the keys and values of earlier positions must be older
 *   lead, shared   (N) or NULL: rows 0..shared[i]-1 of slot lead[i] are those of
 *           slot[i] bit for bit, shared[i] is at most at[i], and they may be read
 *           there: texts that begin alike then read one copy */
#define KERN_ATTEND_FWD(suffix, elem, real)                                    \
    void kern_attend_fwd_##suffix (                                            \
        elem *y, elem *k, elem *v, elem *qkv, const real *cosine,              \
        const real *sine, const int32_t *slot, const int32_t *at,              \
        const int32_t *lead, const int32_t *shared, size_t N, size_t T,        \
        size_t H, size_t G, size_t D, double scale, bool early, void *scratch, \
        void *stream)
KERN_DECLARE (KERN_ATTEND_FWD);

/* share_fwd - texts that begin alike: rows 0..n[i]-1 of slot from[i] are copied to
 * slot to[i], for P pairs, in every layer. No slot is both.
 *   k, v   (L,S,G,T,D) */
#define KERN_SHARE_FWD(suffix, elem, real)                                     \
    void kern_share_fwd_##suffix (elem *k, elem *v, const int32_t *from,       \
                                  const int32_t *to, const int32_t *n,         \
                                  size_t P, size_t L, size_t S, size_t G,      \
                                  size_t T, size_t D, void *stream)
KERN_DECLARE (KERN_SHARE_FWD);

/* advance - what drawn tokens change, so that step may follow step without the
 * host. Row i, where at[i] is not below 0:
 *   told     (N,most) number count[i] modulo most written: ids[i]; told_logp
 *            likewise, and count[i] is one more
 *   tokens   (N) ids[i]
 *   at       (N) one more; -1 where the text ends: ids[i] is below 0 or one of
 *            [stop], or at[i] + 1 is end[i], where its last token stands */
struct kern_advance {
    int32_t *tokens, *at, *count, *told;
    float *told_logp;
    const int32_t *ids, *end, *stop;
    const float *logp;
    size_t N, most, n_stop;
};

void kern_advance_host (const struct kern_advance *a, void *stream);
void kern_advance_cuda (const struct kern_advance *a, void *stream);

#ifdef __cplusplus
}
#endif
#endif
