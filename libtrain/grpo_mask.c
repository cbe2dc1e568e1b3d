/* SPDX-License-Identifier: Apache-2.0
 * grpo_mask.c - which tokens of a completion are trained on */
#include <train/grpo.h>

#include <string.h>

#include "err.h"

static bool is_end (int32_t id, const int32_t *ends, int64_t n)
{
    for (int64_t i = 0; i < n; i++)
        if (ends[i] == id)
            return true;
    return false;
}

/* The tokens up to and with the first end. */
static int64_t counted (const int32_t *ids, int64_t length, const int32_t *ends,
                        int64_t n, bool drop_cut)
{
    for (int64_t t = 0; t < length; t++)
        if (is_end (ids[t], ends, n))
            return t + 1;
    return drop_cut ? 0 : length;
}

train_status_t train_grpo_mask (const int32_t *ids, const int64_t *lengths,
                                int64_t B, int64_t T, const int32_t *ends,
                                int64_t n, bool drop_cut, uint8_t *ret_mask,
                                int64_t *ret_lengths, train_error_t *err)
{
    if (B < 0 || T < 0 || n < 0)
        return err_set (err, TRAIN_EINVAL,
                        "grpo mask: %lld x %lld tokens, %lld ends",
                        (long long)B, (long long)T, (long long)n);
    for (int64_t b = 0; b < B; b++)
        if (lengths[b] < 0 || lengths[b] > T)
            return err_set (err, TRAIN_EINVAL,
                            "grpo mask: row %lld has %lld tokens of %lld",
                            (long long)b, (long long)lengths[b], (long long)T);
    for (int64_t b = 0; b < B; b++) {
        int64_t ones = counted (ids + b * T, lengths[b], ends, n, drop_cut);

        memset (ret_mask + b * T, 1, (size_t)ones);
        memset (ret_mask + b * T + ones, 0, (size_t)(T - ones));
        if (ret_lengths)
            ret_lengths[b] = ones;
    }
    return TRAIN_OK;
}
