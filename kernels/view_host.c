/* SPDX-License-Identifier: Apache-2.0
 * view_host.c - strided elements, lists of pieces and their sums on the host */
#include "view_elem.h"

#include <string.h>

static int raw (const struct kern_view *v)
{
    return v->compact && v->from == v->to;
}

void kern_view_pack_host (void *out, const struct kern_view *v, uint64_t first,
                          uint64_t n, void *stream)
{
    size_t size = (size_t)v->wire_size;

    (void)stream;
    if (raw (v)) {
        if (n > 0)
            memcpy (out, (const char *)v->data + first * size, n * size);
        return;
    }
    for (uint64_t i = 0; i < n; i++)
        elem_write ((char *)out + i * size, view_load (v, first + i),
                    v->wire_size);
}

void kern_view_unpack_host (const struct kern_view *v, const void *in,
                            uint64_t first, uint64_t n, void *stream)
{
    size_t size = (size_t)v->wire_size;

    (void)stream;
    if (raw (v)) {
        if (n > 0)
            memcpy ((char *)v->data + first * size, in, n * size);
        return;
    }
    for (uint64_t i = 0; i < n; i++)
        view_store (v, first + i,
                    elem_read ((const char *)in + i * size, v->wire_size));
}

void kern_view_move_host (const struct kern_view *dst,
                          const struct kern_view *src, void *stream)
{
    if (raw (dst)) {
        kern_view_pack_host (dst->data, src, 0, src->n, stream);
        return;
    }
    for (uint64_t i = 0; i < src->n; i++)
        view_store (dst, i, view_load (src, i));
}

/* The same as sum_mix for [LANES] words at a time, in two chains; returns how
 * many words of [n] were summed. Vectors of this kind are of GCC and clang. */
#if defined(__x86_64__) && defined(__GNUC__)
#define SUM_VECTOR(name, isa, LANES)                                           \
    __attribute__ ((target (isa))) static uint64_t name (                      \
        uint64_t *sum, const unsigned char *p, uint64_t index, uint64_t n)     \
    {                                                                          \
        typedef uint64_t vec __attribute__ ((vector_size (LANES * 8)));        \
        vec key = {0}, x, y, sx = {0}, sy = {0};                               \
        uint64_t i = 0;                                                        \
                                                                               \
        for (uint64_t k = 0; k < LANES; k++)                                   \
            key[k] = (index + 1 + k) * SUM_KEY;                                \
        for (; i + 2 * LANES <= n; i += 2 * LANES) {                           \
            memcpy (&x, p + i * 8, sizeof (x));                                \
            memcpy (&y, p + i * 8 + sizeof (x), sizeof (y));                   \
            x = (x ^ key) * SUM_FIRST;                                         \
            y = (y ^ (key + LANES * SUM_KEY)) * SUM_FIRST;                     \
            key += 2 * LANES * SUM_KEY;                                        \
            x = (x ^ (x >> 32)) * SUM_SECOND;                                  \
            y = (y ^ (y >> 32)) * SUM_SECOND;                                  \
            sx += x ^ (x >> 29);                                               \
            sy += y ^ (y >> 29);                                               \
        }                                                                      \
        for (int k = 0; k < LANES; k++)                                        \
            *sum += sx[k] + sy[k];                                             \
        return i;                                                              \
    }

SUM_VECTOR (sum_avx512, "avx512f,avx512dq", 8)
SUM_VECTOR (sum_avx2, "avx2", 4)

static uint64_t sum_vectors (uint64_t *sum, const unsigned char *p,
                             uint64_t index, uint64_t n)
{
    if (__builtin_cpu_supports ("avx512dq"))
        return sum_avx512 (sum, p, index, n);
    if (__builtin_cpu_supports ("avx2"))
        return sum_avx2 (sum, p, index, n);
    return 0;
}
#else
static uint64_t sum_vectors (uint64_t *sum, const unsigned char *p,
                             uint64_t index, uint64_t n)
{
    (void)sum, (void)p, (void)index, (void)n;
    return 0;
}
#endif

/* Whole words from memory; unaligned is fine. Four chains, so that the
 * multipliers do not wait for each other. */
static uint64_t sum_words (const unsigned char *p, uint64_t index, uint64_t n)
{
    uint64_t s0 = 0, s1 = 0, s2 = 0, s3 = 0, w[4], i;

    for (i = sum_vectors (&s0, p, index, n); i + 4 <= n; i += 4) {
        memcpy (w, p + i * 8, sizeof (w));
        s0 += sum_mix (w[0], index + i);
        s1 += sum_mix (w[1], index + i + 1);
        s2 += sum_mix (w[2], index + i + 2);
        s3 += sum_mix (w[3], index + i + 3);
    }
    for (; i < n; i++) {
        memcpy (w, p + i * 8, sizeof (*w));
        s0 += sum_mix (w[0], index + i);
    }
    return s0 + s1 + s2 + s3;
}

/* Words [first, end), all in blocks that count. */
static uint64_t sum_range (const struct kern_view *v, uint64_t first,
                           uint64_t end)
{
    uint64_t sum = 0, bytes = v->n * (uint64_t)v->wire_size, whole = bytes / 8;

    if (!raw (v)) {
        for (uint64_t w = first; w < end; w++)
            sum += sum_mix (view_word (v, w), w);
        return sum;
    }
    if (first < whole)
        sum += sum_words ((const unsigned char *)v->data + first * 8, first,
                          (end < whole ? end : whole) - first);
    if (end > whole && first <= whole)
        sum += sum_mix (bytes_word (v->data, bytes, whole), whole);
    return sum;
}

void kern_view_sum_host (uint64_t *sum, const struct kern_view *v,
                         uint64_t first, uint64_t n, uint64_t every,
                         void *stream)
{
    const uint64_t per = KERN_SUM_BLOCK / 8;
    uint64_t words = (v->n * (uint64_t)v->wire_size + 7) / 8, end = first + n;
    uint64_t last = words > 0 ? (words - 1) / per : 0;

    (void)stream;
    if (every <= 1) {
        *sum += sum_range (v, first, end);
        return;
    }
    for (uint64_t b = first / per; n > 0 && b * per < end; b++) {
        uint64_t from = b * per > first ? b * per : first;
        uint64_t to = (b + 1) * per < end ? (b + 1) * per : end;

        if (sum_takes (b, last, every))
            *sum += sum_range (v, from, to);
    }
}

void kern_view_nonfinite_host (uint64_t *count, const struct kern_view *v,
                               int elem, void *stream)
{
    (void)stream;
    for (uint64_t i = 0; i < v->n; i++) {
        int class = elem_class (view_load (v, i), elem);

        if (class >= 0)
            count[class]++;
    }
}

void kern_pieces_pack_host (void *out, const struct kern_piece *p, size_t n,
                            uint64_t base, void *stream)
{
    (void)stream;
    for (size_t i = 0; i < n; i++)
        memcpy ((char *)out + (p[i].off - base), p[i].data, p[i].bytes);
}

void kern_pieces_unpack_host (const struct kern_piece *p, size_t n,
                              const void *in, uint64_t base, void *stream)
{
    (void)stream;
    for (size_t i = 0; i < n; i++)
        memcpy (p[i].data, (const char *)in + (p[i].off - base), p[i].bytes);
}

void kern_pieces_sum_host (uint64_t *sum, const struct kern_piece *p, size_t n,
                           void *stream)
{
    (void)stream;
    for (size_t i = 0; i < n; i++) {
        uint64_t whole = p[i].bytes / 8, index = p[i].off / 8;

        *sum += sum_words (p[i].data, index, whole);
        if (p[i].bytes % 8)
            *sum += sum_mix (bytes_word (p[i].data, p[i].bytes, whole),
                             index + whole);
    }
}
