/* SPDX-License-Identifier: Apache-2.0
 * ckpt_ranges.c - intersect ranges of elements */
#include "ckpt_ranges.h"

int64_t ckpt_ranges_fault (const struct ckpt_range *have, size_t n,
                           int64_t numel)
{
    int64_t at = 0;

    for (size_t i = 0; i < n; i++) {
        if (have[i].count == 0)
            continue;
        if (have[i].first != at)
            return have[i].first < at ? have[i].first : at;
        if (have[i].count > numel - at)
            return numel;
        at += have[i].count;
    }
    return at == numel ? -1 : at;
}

/* The first piece that ends behind [element]; n if there is none. */
static size_t find (const struct ckpt_range *have, size_t n, int64_t element)
{
    size_t low = 0, high = n;

    while (low < high) {
        size_t mid = low + (high - low) / 2;

        if (have[mid].first + have[mid].count <= element)
            low = mid + 1;
        else
            high = mid;
    }
    return low;
}

size_t ckpt_ranges_plan (const struct ckpt_range *have, size_t n,
                         struct ckpt_range want, struct ckpt_part *parts)
{
    int64_t done = 0;
    size_t used = 0;

    for (size_t i = find (have, n, want.first); i < n && done < want.count;
         i++) {
        int64_t from = want.first + done - have[i].first;
        int64_t left = have[i].count - from;
        int64_t count = want.count - done < left ? want.count - done : left;

        parts[used++] = (struct ckpt_part){i, from, done, count};
        done += count;
    }
    return used;
}
