/* SPDX-License-Identifier: Apache-2.0
 * docs.h - kernels of rows that hold several documents, one behind the other.
 *
 * Conventions are those of kernels.h.
 *   starts   (B,T) position in its row where the document of each position
 *            begins: starts[b][t] <= t, it never falls along a row, and
 *            starts[b][starts[b][t]] is itself. So every row begins one. */
#ifndef KERN_DOCS_H
#define KERN_DOCS_H

#include <stddef.h>
#include <stdint.h>

#include "kernels.h"

#ifdef __cplusplus
extern "C" {
#endif

/* attention_docs - attention of kernels.h in which a query sees the keys of its
 * own document alone, up to itself; starts NULL: one document a row, and then
 * it is that attention to the bit. Scratch is that of kernels.h for the place
 * and dtype. Blocks of keys that no query sees are not computed.
 * On the host each document has the bits that it has alone in a row. */
#define KERN_ATTENTION_DOCS(suffix, elem, real, room)                          \
    void kern_attention_docs_fwd_##suffix (                                    \
        elem *y, real *lse, const elem *qkv, const int32_t *starts,            \
        room *scratch, size_t B, size_t T, size_t H, size_t G, size_t D,       \
        double scale, void *stream);                                           \
    void kern_attention_docs_bwd_##suffix (                                    \
        elem *dqkv, const elem *dy, const elem *y, const real *lse,            \
        const elem *qkv, const int32_t *starts, room *scratch, size_t B,       \
        size_t T, size_t H, size_t G, size_t D, double scale, void *stream)
KERN_ATTENTION_DOCS (f32_host, float, float, float);
KERN_ATTENTION_DOCS (f64_host, double, double, double);
KERN_ATTENTION_DOCS (bf16_host, uint16_t, float, float);
KERN_ATTENTION_DOCS (f16_host, uint16_t, float, float);
KERN_ATTENTION_DOCS (f32_cuda, float, float, void);
KERN_ATTENTION_DOCS (bf16_cuda, uint16_t, float, void);
KERN_ATTENTION_DOCS (f16_cuda, uint16_t, float, void);

/* positions - rows of a table by the position in the document, so that rope of
 * layers.h with B 1 and T N turns each document from its own beginning.
 *   y       (N,W) written: y[n] = table[n % T - starts[n]]
 *   table   (T,W)
 *   starts  (N), N a multiple of T */
#define KERN_POSITIONS(suffix, real)                                           \
    void kern_positions_##suffix (real *y, const real *table,                  \
                                  const int32_t *starts, size_t N, size_t T,   \
                                  size_t W, void *stream)
KERN_POSITIONS (f32_host, float);
KERN_POSITIONS (f64_host, double);
KERN_POSITIONS (f32_cuda, float);

#ifdef __cplusplus
}
#endif
#endif
