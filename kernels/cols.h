/* SPDX-License-Identifier: Apache-2.0
 * cols.h - a range of columns of wide rows, for products that serve a part of a
 * fused one.
 *
 * Conventions are those of kernels.h. Rows of the wide array are [pitch]
 * elements long; columns [col] to col + W - 1 of them are meant, col + W <=
 * pitch. */
#ifndef KERN_COLS_H
#define KERN_COLS_H

#include <stddef.h>
#include <stdint.h>

#ifdef __cplusplus
extern "C" {
#endif

/* cols_add - add a narrow array to columns of a wide one.
 *   y       (N,pitch) its columns are added to: y[n][col + j] += scale x[n][j],
 *           rounded once
 *   x       (N,W), apart from [y]
 * cols_take - columns of a wide array as a narrow one.
 *   y       (N,W) written: y[n][j] = scale x[n][col + j]
 *   x       (N,pitch), apart from [y]
 * The arithmetic is of [real]; the cuda ones may fuse it into one rounding. */
#define KERN_COLS(suffix, elem)                                                \
    void kern_cols_add_##suffix (elem *y, const elem *x, size_t N, size_t W,   \
                                 size_t pitch, size_t col, double scale,       \
                                 void *stream);                                \
    void kern_cols_take_##suffix (elem *y, const elem *x, size_t N, size_t W,  \
                                  size_t pitch, size_t col, double scale,      \
                                  void *stream)
KERN_COLS (f32_host, float);
KERN_COLS (f64_host, double);
KERN_COLS (bf16_host, uint16_t);
KERN_COLS (f16_host, uint16_t);
KERN_COLS (f32_cuda, float);
KERN_COLS (bf16_cuda, uint16_t);
KERN_COLS (f16_cuda, uint16_t);

#ifdef __cplusplus
}
#endif
#endif
