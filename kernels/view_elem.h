/* SPDX-License-Identifier: Apache-2.0
 * view_elem.h - one element and one word of a view: the same text for the host
 * and for kernels */
#ifndef KERN_VIEW_ELEM_H
#define KERN_VIEW_ELEM_H

#include "kernels/half.h"
#include "kernels/view.h"

#define SUM_KEY    UINT64_C (0x9e3779b97f4a7c15)
#define SUM_FIRST  UINT64_C (0xd6e8feb86659fd93)
#define SUM_SECOND UINT64_C (0xa0761d6478bd642f)

/* Two odd multipliers with a fold between: for a given index a bijection of the
 * word, so that one changed word cannot hide (Steele and others 2014, "Fast
 * splittable pseudorandom number generators", for the kind of mixer). */
HALF_FN uint64_t sum_mix (uint64_t word, uint64_t index)
{
    uint64_t x = word ^ ((index + 1) * SUM_KEY);

    x *= SUM_FIRST;
    x ^= x >> 32;
    x *= SUM_SECOND;
    return x ^ (x >> 29);
}

HALF_FN int64_t view_offset (const struct kern_view *v, uint64_t i)
{
    int64_t offset = 0;

    if (v->compact)
        return (int64_t)i;
    for (int d = v->ndim - 1; d >= 0; d--) {
        uint64_t size = (uint64_t)v->shape[d], next = i / size;

        offset += (int64_t)(i - next * size) * v->strides[d];
        i = next;
    }
    return offset;
}

HALF_FN uint64_t elem_read (const void *p, int size)
{
    switch (size) {
    case 1:
        return *(const uint8_t *)p;
    case 2:
        return *(const uint16_t *)p;
    case 4:
        return *(const uint32_t *)p;
    default:
        return *(const uint64_t *)p;
    }
}

HALF_FN void elem_write (void *p, uint64_t bits, int size)
{
    switch (size) {
    case 1:
        *(uint8_t *)p = (uint8_t)bits;
        break;
    case 2:
        *(uint16_t *)p = (uint16_t)bits;
        break;
    case 4:
        *(uint32_t *)p = (uint32_t)bits;
        break;
    default:
        *(uint64_t *)p = bits;
    }
}

HALF_FN uint64_t elem_convert (uint64_t bits, int from, int to)
{
    float x;

    if (from == to)
        return bits;
    x = from == KERN_F32    ? half_float ((uint32_t)bits)
        : from == KERN_BF16 ? half_from_bf16 ((uint16_t)bits)
                            : half_from_f16 ((uint16_t)bits);
    return to == KERN_F32    ? half_bits (x)
           : to == KERN_BF16 ? half_to_bf16 (x)
                             : half_to_f16 (x);
}

/* Element [i] as the wire holds it. */
HALF_FN uint64_t view_load (const struct kern_view *v, uint64_t i)
{
    const char *p = (const char *)v->data + view_offset (v, i) * v->in_size;

    return elem_convert (elem_read (p, v->in_size), v->from, v->to);
}

HALF_FN void view_store (const struct kern_view *v, uint64_t i, uint64_t bits)
{
    char *p = (char *)v->data + view_offset (v, i) * v->in_size;

    elem_write (p, bits, v->in_size);
}

/* Word [w] of the wire. */
HALF_FN uint64_t view_word (const struct kern_view *v, uint64_t w)
{
    unsigned per = 8u / (unsigned)v->wire_size, k;
    uint64_t first = w * per, word = 0;

    for (k = 0; k < per && first + k < v->n; k++)
        word |= view_load (v, first + k) << (k * 8u * (unsigned)v->wire_size);
    return word;
}

/* The bytes of word [w] of [bytes] at [p]; zeros past the end. */
HALF_FN uint64_t bytes_word (const unsigned char *p, uint64_t bytes, uint64_t w)
{
    uint64_t word = 0, left = bytes - w * 8;
    unsigned k;

    for (k = 0; k < 8 && k < left; k++)
        word |= (uint64_t)p[w * 8 + k] << (8 * k);
    return word;
}

/* Is block [b] of a wire whose last is [last] in the sum? */
HALF_FN int sum_takes (uint64_t b, uint64_t last, uint64_t every)
{
    return every <= 1 || b % every == 0 || b == last;
}

HALF_FN int elem_class (uint64_t bits, int elem) /* 0 NaN, 1 Inf, -1 finite */
{
    uint32_t u = elem == KERN_F32 ? (uint32_t)bits
                 : elem == KERN_BF16
                     ? (uint32_t)bits << 16
                     : half_bits (half_from_f16 ((uint16_t)bits));

    u &= 0x7fffffffu;
    return u < 0x7f800000u ? -1 : u == 0x7f800000u;
}

#endif
