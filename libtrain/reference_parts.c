/* SPDX-License-Identifier: Apache-2.0
 * reference_parts.c - a request for log-probabilities, in as many parts as are
 * small enough */
#include "reference_parts.h"

#include <stdlib.h>
#include <string.h>

#include "err.h"

/* Rows from [first] on that have *most tokens together, or one.
 *   ret_T   of their longest text */
static int count (const struct reference_rows *r, int first, size_t most,
                  int *ret_T)
{
    int n = 0;

    *ret_T = 1;
    for (; first + n < r->B; n++) {
        int total = r->total_len[first + n];
        int T = total > *ret_T ? total : *ret_T;

        if (n > 0 && (size_t)(n + 1) * (size_t)T > most)
            break;
        *ret_T = T;
    }
    return n;
}

/* Rows of another width; what the wider has behind is left, or 0. */
static void copy_rows (void *to, int to_T, const void *from, int from_T, int n)
{
    size_t size = sizeof (int32_t), both = to_T < from_T ? to_T : from_T;

    for (int i = 0; i < n; i++)
        memcpy ((char *)to + (size_t)i * (size_t)to_T * size,
                (const char *)from + (size_t)i * (size_t)from_T * size,
                both * size);
}

static train_status_t ask_part (const struct reference_rows *all, int first,
                                int n, int T, reference_ask_t ask, void *arg,
                                bool *ret_large, train_error_t *err)
{
    size_t at = (size_t)first * (size_t)all->T, room = (size_t)n * (size_t)T;
    int32_t *ids = calloc (room, sizeof (*ids));
    float *ret = calloc (room, sizeof (*ret));
    const struct reference_rows part = {.ids = ids,
                                        .prompt_len = all->prompt_len + first,
                                        .total_len = all->total_len + first,
                                        .B = n,
                                        .T = T,
                                        .ret = ret};
    train_status_t status;

    if (ids && ret) {
        copy_rows (ids, T, all->ids + at, all->T, n);
        status = ask (arg, &part, ret_large, err);
    } else
        status = err_set (err, TRAIN_ENOMEM, "no memory for %d rows", n);
    if (status == TRAIN_OK) {
        memset (all->ret + at, 0,
                (size_t)n * (size_t)all->T * sizeof (*all->ret));
        copy_rows (all->ret + at, all->T, ret, T, n);
    }
    free (ids);
    free (ret);
    return status;
}

train_status_t reference_in_parts (const struct reference_rows *rows,
                                   size_t *most, reference_ask_t ask, void *arg,
                                   train_error_t *err)
{
    size_t all = (size_t)rows->B * (size_t)rows->T;
    train_status_t status;
    bool large = false;

    if (*most == 0 || all <= *most) {
        status = ask (arg, rows, &large, err);
        if (status == TRAIN_OK || !large || rows->B == 1)
            return status;
        *most = all / 2;
    }
    for (int first = 0, T; first < rows->B;) {
        int n = count (rows, first, *most, &T);

        large = false;
        status = ask_part (rows, first, n, T, ask, arg, &large, err);
        if (status == TRAIN_OK)
            first += n;
        else if (large && n > 1)
            *most = (size_t)n * (size_t)T / 2;
        else
            return status;
    }
    return TRAIN_OK;
}
