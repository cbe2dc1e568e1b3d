/* SPDX-License-Identifier: Apache-2.0
 * docs_host.c - rows of a table by the position in the document */
#include "docs.h"

#include <string.h>

#define POSITIONS(suffix, real)                                                \
    void kern_positions_##suffix (real *y, const real *table,                  \
                                  const int32_t *starts, size_t N, size_t T,   \
                                  size_t W, void *stream)                      \
    {                                                                          \
        (void)stream;                                                          \
        for (size_t n = 0; n < N; n++)                                         \
            memcpy (y + n * W, table + (n % T - (size_t)starts[n]) * W,        \
                    W * sizeof (real));                                        \
    }

POSITIONS (f32_host, float)
POSITIONS (f64_host, double)
