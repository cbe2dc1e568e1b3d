/* SPDX-License-Identifier: Apache-2.0
 * decode_product.h - products of few rows with a large weight on a GPU, bound by
 * the weight's way from memory
 *
 * A row's result hangs on the row and the shape of the weight alone: it has the
 * same bits every time, whatever the batch is. */
#ifndef KERN_DECODE_PRODUCT_H
#define KERN_DECODE_PRODUCT_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "kernels/decode.h"

#ifdef __cplusplus
extern "C" {
#endif

/* y = x w^T, of bf16 or f16 summed in f32 and rounded at the store; then, each
 * rounded as a kernel of its own would:
 *   norm   (in): x stands for its rmsnorm with this weight. NULL: x is as it is
 *   normed (N,in) that may be written, with norm
 *   bias   (out) added, NULL: none
 *   pair   w is (2 out,in), gates above their partners: y is silu (gate) times
 *          the other
 *   add    (N,out) added, NULL: none; may be y
 * Of bf16, the norm behind one product may be made by it and the next:
 *   next   (out): the norm's weight; then also written are
 *            scaled   (N,out): y times it
 *            squares  (N,kern_product_squares (in,out)): sums of y's squares
 *   sums   (N,n_sums): x is what one product wrote as scaled, these its
 *          squares; without norm. NULL: x is as it is
 * and of the launch:
 *   early  it may begin before the kernel before it on the stream has ended,
 *          whose results are waited for; w, norm, bias and next must be older
 *   split  parts that the sum over [in] is made in, 1 to 8; 0: by the shape of w
 *          alone */
struct kern_product {
    const uint16_t *x, *w; /* (N,in); (out,in) */
    uint16_t *y;           /* (N,out) written */
    size_t N, in, out;
    const uint16_t *norm, *bias, *add;
    uint16_t *normed;
    const uint16_t *next;
    uint16_t *scaled;
    float *squares;
    const float *sums;
    size_t n_sums;
    double eps; /* of norm, and of sums */
    bool pair, early;
    int split;
};

/* Rows of the weight of a block, and what it adds up of each at a time. */
#define KERN_PRODUCT_TALL 128
#define KERN_PRODUCT_DEEP 64

static inline size_t kern_product_tiles (size_t out, bool pair)
{
    size_t rows = pair ? KERN_PRODUCT_TALL / 2 : KERN_PRODUCT_TALL;

    return (out + rows - 1) / rows;
}

/* Blocks in clusters of [parts] that an H200's 132 multiprocessors have at once, one
 * each, by cudaOccupancyMaxActiveClusters. */
static inline size_t kern_product_at_once (size_t parts)
{
    static const size_t blocks[] = {132, 132, 117, 120, 110, 102, 105, 120};

    return blocks[parts < 1 ? 0 : parts > 8 ? 7 : parts - 1];
}

/* Parts of the sum over [in], as is fastest on 132 multiprocessors: as many as are
 * there at once, so that each has little of the weight and of x to copy, and the
 * next product's blocks find room beside them and begin with their weights. */
static inline size_t kern_product_parts (size_t in, size_t tiles)
{
    size_t steps = in / KERN_PRODUCT_DEEP;

    for (size_t s = 6; s > 1; s -= 2)
        if (steps / s >= (s > 4 ? 16 : 2)
            && tiles * s <= kern_product_at_once (s))
            return s;
    return 1;
}

static inline size_t kern_product_squares (size_t in, size_t out)
{
    size_t tiles = kern_product_tiles (out, false);

    return tiles * kern_product_parts (in, tiles);
}

/* kern_product_fits - can the kernel do it? in must be a multiple of 64, out of
 * 8, addresses of 16 bytes; N is at least 1. */
static inline bool kern_product_fits (const struct kern_product *p)
{
    uintptr_t at = (uintptr_t)p->x | (uintptr_t)p->w | (uintptr_t)p->y
                   | (uintptr_t)p->norm | (uintptr_t)p->normed
                   | (uintptr_t)p->bias | (uintptr_t)p->add | (uintptr_t)p->next
                   | (uintptr_t)p->scaled | (uintptr_t)p->sums;

    return p->N > 0 && p->N < 1 << 22 && p->in > 0 && p->in % 64 == 0
           && p->in < 1 << 30 && p->out > 0 && p->out % 8 == 0
           && p->out < 1 << 29 && !(p->norm && (p->sums || !p->normed))
           && !(p->next && (p->pair || !p->scaled || !p->squares))
           && at % 16 == 0;
}

/* kern_product_served - are the kernels compiled for the current GPU? Those of
 * compute capability 9 alone (sm_90a) have the instructions. */
bool kern_product_served (void);

/* kern_product_*_cuda - of what fits where it is served; a launch that failed is
 * cudaGetLastError's. */
void kern_product_bf16_cuda (const struct kern_product *p, void *stream);
void kern_product_f16_cuda (const struct kern_product *p, void *stream);

/* kern_product_begin_*_cuda - rows of a table of embeddings, as a product leaves what
 * it made for the next:
 *   y        (N,C) rows tokens[i] of w (.,C), where [advance] wrote tokens if it is
 *            there
 *   next     (C) as of kern_product, or NULL: then also written are
 *   scaled   (N,C); squares (N,n_squares), their first is the sum and the others 0
 * C is a multiple of 8, addresses are of 16 bytes. */
struct kern_product_begin {
    uint16_t *y;
    const uint16_t *w;
    const int32_t *tokens;
    size_t N, C;
    const uint16_t *next;
    uint16_t *scaled;
    float *squares;
    size_t n_squares;
    const struct kern_advance
        *advance; /* is done first, for its N rows; or NULL */
    bool early;   /* as of kern_product; w and next are older */
};

void kern_product_begin_bf16_cuda (const struct kern_product_begin *b,
                                   void *stream);
void kern_product_begin_f16_cuda (const struct kern_product_begin *b,
                                  void *stream);

#ifdef __cplusplus
}
#endif
#endif
