/* SPDX-License-Identifier: Apache-2.0
 * finite_host.c - the first Inf or NaN: an exponent of ones alone */
#include "finite.h"

#include <string.h>

#include "host.h"

/* Looked at in blocks, whose loop has no way out and becomes vector code. */
#define BLOCK ((size_t)4096)

#define FIRST(bits, ones)                                                      \
    uint64_t at = 0;                                                           \
                                                                               \
    (void)stream;                                                              \
    for (size_t first = 0; first < n; first += BLOCK) {                        \
        size_t end = n - first < BLOCK ? n : first + BLOCK;                    \
        int bad = 0;                                                           \
                                                                               \
        for (size_t i = first; i < end; i++) {                                 \
            bits u;                                                            \
                                                                               \
            memcpy (&u, x + i, sizeof (u));                                    \
            bad |= (u & (ones)) == (ones);                                     \
        }                                                                      \
        if (!bad)                                                              \
            continue;                                                          \
        for (at = first;; at++) {                                              \
            bits u;                                                            \
                                                                               \
            memcpy (&u, x + at, sizeof (u));                                   \
            if ((u & (ones)) == (ones))                                        \
                break;                                                         \
        }                                                                      \
        *ret = at;                                                             \
        return;                                                                \
    }                                                                          \
    *ret = n

KERN_CLONES void kern_first_nonfinite_f32_host (uint64_t *ret, const float *x,
                                                size_t n, void *stream)
{
    FIRST (uint32_t, 0x7f800000u);
}

KERN_CLONES void kern_first_nonfinite_f64_host (uint64_t *ret, const double *x,
                                                size_t n, void *stream)
{
    FIRST (uint64_t, 0x7ff0000000000000u);
}

KERN_CLONES void kern_first_nonfinite_bf16_host (uint64_t *ret,
                                                 const uint16_t *x, size_t n,
                                                 void *stream)
{
    FIRST (uint16_t, 0x7f80u);
}

KERN_CLONES void kern_first_nonfinite_f16_host (uint64_t *ret,
                                                const uint16_t *x, size_t n,
                                                void *stream)
{
    FIRST (uint16_t, 0x7c00u);
}
