/* SPDX-License-Identifier: Apache-2.0
 * ckpt_ranges.h - which stored pieces make up a wanted range of a tensor.
 * Inside libtrain only; pure, any thread.
 *
 * A range counts elements of a tensor in row-major order. */
#ifndef TRAIN_CKPT_RANGES_H
#define TRAIN_CKPT_RANGES_H

#include <stddef.h>
#include <stdint.h>

struct ckpt_range {
    int64_t first, count; /* both >= 0 */
};

/* A run of elements that lies in one stored piece. */
struct ckpt_part {
    size_t piece;  /* index into the stored ones */
    int64_t from;  /* elements from that piece's beginning */
    int64_t to;    /* elements from the wanted range's beginning */
    int64_t count; /* >= 1 */
};

/* ckpt_ranges_fault - the first element of 0..numel-1 that no range has or that
 * two have, or [numel] where a range passes it; -1: each is in exactly one.
 *   have   (n) sorted by first; empty ones are fine anywhere */
int64_t ckpt_ranges_fault (const struct ckpt_range *have, size_t n,
                           int64_t numel);

/* ckpt_ranges_plan - the parts of [want], in order; their counts sum to its.
 *   have    (n) without fault, none empty
 *   want    within the tensor
 *   parts   (n) written
 * Returns how many there are. */
size_t ckpt_ranges_plan (const struct ckpt_range *have, size_t n,
                         struct ckpt_range want, struct ckpt_part *parts);

#endif
