/* SPDX-License-Identifier: Apache-2.0
 * fsdp_fit.c - places for units that are whole for a while: no more memory than
 * neighbours need
 *
 * An embedding is half as large again as a block, and its neighbour is one. */
#include "fsdp_fit.h"

#define LINE ((size_t)256)

static size_t padded (size_t n)
{
    return (n + LINE - 1) / LINE * LINE;
}

static size_t fit_pairs (const size_t *size, size_t n, size_t *ret_at)
{
    size_t total = n == 1 ? padded (size[0]) : 0;

    for (size_t i = 0; i + 1 < n; i++) {
        size_t both = padded (size[i]) + padded (size[i + 1]);

        total = both > total ? both : total;
    }
    for (size_t i = 0; ret_at && i < n; i++)
        ret_at[i] = i % 2 ? total - padded (size[i]) : 0;
    return total;
}

/* Those at the same place are [step] apart. */
static size_t fit_in_turn (const size_t *size, size_t n, size_t step,
                           size_t *ret_at)
{
    size_t total = 0;

    for (size_t k = 0; k < step && k < n; k++) {
        size_t most = 0;

        for (size_t i = k; i < n; i += step) {
            most = padded (size[i]) > most ? padded (size[i]) : most;
            if (ret_at)
                ret_at[i] = total;
        }
        total += most;
    }
    return total;
}

size_t fsdp_fit (const size_t *size, size_t n, size_t ahead, size_t *ret_at)
{
    return ahead == 1 ? fit_pairs (size, n, ret_at)
                      : fit_in_turn (size, n, ahead + 1, ret_at);
}
