/* SPDX-License-Identifier: Apache-2.0
 * view.h - strided elements, lists of pieces, and sums keyed by position.
 *
 * Host and GPU give the same value for every function here. A wire is the
 * compact, row-major string of bytes that a view or a list of pieces stands
 * for; its words are 8 bytes, little-endian, the last one filled with zeros.
 * Like all kernels: nothing is checked or allocated, the stream comes last. */
#ifndef KERN_VIEW_H
#define KERN_VIEW_H

#include <stddef.h>
#include <stdint.h>

#ifdef __cplusplus
extern "C" {
#endif

#define KERN_VIEW_DIMS 8

enum kern_elem {
    KERN_RAW = 0, /* bits, of any type */
    KERN_F32 = 1,
    KERN_BF16 = 2,
    KERN_F16 = 3,
};

/* Elements in memory, and how the wire holds them. */
struct kern_view {
    void *data;
    int ndim;      /* 0..KERN_VIEW_DIMS */
    int compact;   /* row-major without gaps: shape and strides are not read */
    int from, to;  /* kern_elem; both KERN_RAW: no conversion */
    int in_size;   /* bytes of an element in memory: 1, 2, 4, 8 */
    int wire_size; /* bytes of it on the wire: 1, 2, 4, 8 */
    uint64_t n;    /* elements */
    int64_t shape[KERN_VIEW_DIMS];
    int64_t strides[KERN_VIEW_DIMS]; /* in elements; may be 0 or negative */
};

/* A part of the wire that lies compact in memory. [off] is a multiple of 8. */
struct kern_piece {
    void *data;
    uint64_t off, bytes;
};

/* Which blocks of the wire a sum takes: of KERN_SUM_BLOCK bytes each, those
 * whose number is a multiple of [every], and the last one. 1 takes all. */
#define KERN_SUM_BLOCK 4096

/* view_pack - elements [first, first + n) to the wire [out]. */
void kern_view_pack_host (void *out, const struct kern_view *v, uint64_t first,
                          uint64_t n, void *stream);
/* view_unpack - the wire [in] to elements [first, first + n) of [v], which
 * does not convert. Elements that share memory (stride 0) get one of theirs. */
void kern_view_unpack_host (const struct kern_view *v, const void *in,
                            uint64_t first, uint64_t n, void *stream);
/* view_move - all elements of [src] to [dst] in one pass: the same number. */
void kern_view_move_host (const struct kern_view *dst,
                          const struct kern_view *src, void *stream);
/* view_sum - add the sum of words [first, first + n) of the wire to *sum.
 * A changed word always changes the sum; words that trade places, or pages or
 * chunks that do, change it but for one chance in 2^64. */
void kern_view_sum_host (uint64_t *sum, const struct kern_view *v,
                         uint64_t first, uint64_t n, uint64_t every,
                         void *stream);
/* view_nonfinite - add the number of NaN to count[0], of Inf to count[1].
 *   v   [to], else [elem] of a view without conversion, is KERN_F32, BF16, F16
 */
void kern_view_nonfinite_host (uint64_t *count, const struct kern_view *v,
                               int elem, void *stream);
/* pieces - the same for lists; [base] is the wire's offset at [out], [in]. */
void kern_pieces_pack_host (void *out, const struct kern_piece *p, size_t n,
                            uint64_t base, void *stream);
void kern_pieces_unpack_host (const struct kern_piece *p, size_t n,
                              const void *in, uint64_t base, void *stream);
void kern_pieces_sum_host (uint64_t *sum, const struct kern_piece *p, size_t n,
                           void *stream);

/* The same on a GPU; [sum], [count] and the list are memory it can reach. */
void kern_view_pack_cuda (void *out, const struct kern_view *v, uint64_t first,
                          uint64_t n, void *stream);
void kern_view_unpack_cuda (const struct kern_view *v, const void *in,
                            uint64_t first, uint64_t n, void *stream);
void kern_view_move_cuda (const struct kern_view *dst,
                          const struct kern_view *src, void *stream);
void kern_view_sum_cuda (uint64_t *sum, const struct kern_view *v,
                         uint64_t first, uint64_t n, uint64_t every,
                         void *stream);
void kern_view_nonfinite_cuda (uint64_t *count, const struct kern_view *v,
                               int elem, void *stream);
void kern_pieces_pack_cuda (void *out, const struct kern_piece *p, size_t n,
                            uint64_t base, void *stream);
void kern_pieces_unpack_cuda (const struct kern_piece *p, size_t n,
                              const void *in, uint64_t base, void *stream);
void kern_pieces_sum_cuda (uint64_t *sum, const struct kern_piece *p, size_t n,
                           void *stream);

/* mark - *flag = value, in the stream's turn; memory of the host that the GPU
 * can reach. */
void kern_mark_cuda (volatile uint32_t *flag, uint32_t value, void *stream);

#ifdef __cplusplus
}
#endif
#endif
