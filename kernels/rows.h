/* SPDX-License-Identifier: Apache-2.0
 * rows.h - rows of an array in another order, some of them left out
 *
 * Conventions are those of kernels.h.
 *   y      (N) rows written: y[i] = x[from[i]], or zeros where from[i] < 0
 *   x      rows; may not share memory with y
 *   from   (N)
 *   bytes  of a row, a multiple of 2 on a GPU */
#ifndef KERN_ROWS_H
#define KERN_ROWS_H

#include <stddef.h>
#include <stdint.h>

#ifdef __cplusplus
extern "C" {
#endif

void kern_rows_host (void *y, const void *x, const int32_t *from, size_t N,
                     size_t bytes, void *stream);
void kern_rows_cuda (void *y, const void *x, const int32_t *from, size_t N,
                     size_t bytes, void *stream);

#ifdef __cplusplus
}
#endif
#endif
