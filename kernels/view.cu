/* SPDX-License-Identifier: Apache-2.0
 * view.cu - strided elements, lists of pieces and their sums on a GPU */
#include "kernels/view_elem.h"

#define THREADS    256
#define MAX_BLOCKS 1056u /* 8 a multiprocessor of the largest card */

static unsigned blocks_of (uint64_t n)
{
    uint64_t blocks = (n + THREADS - 1) / THREADS;

    return blocks < MAX_BLOCKS ? (unsigned)blocks : MAX_BLOCKS;
}

#define EACH(i, n)                                                             \
    for (uint64_t i = (uint64_t)blockIdx.x * THREADS + threadIdx.x; i < (n);   \
         i += (uint64_t)gridDim.x * THREADS)

static __global__ void pack (void *out, struct kern_view v, uint64_t first,
                             uint64_t n)
{
    EACH (i, n)
    elem_write ((char *)out + i * v.wire_size, view_load (&v, first + i),
                v.wire_size);
}

static __global__ void unpack (struct kern_view v, const void *in,
                               uint64_t first, uint64_t n)
{
    EACH (i, n)
    view_store (&v, first + i,
                elem_read ((const char *)in + i * v.wire_size, v.wire_size));
}

static __global__ void move (struct kern_view dst, struct kern_view src)
{
    EACH (i, src.n)
    view_store (&dst, i, view_load (&src, i));
}

/* Sums of a block's threads go to *sum in one addition: the order does not
 * matter, since it is modulo 2^64. */
static __device__ void add_to (uint64_t *sum, uint64_t x)
{
    __shared__ uint64_t part[THREADS / 32];

    for (int step = 16; step > 0; step /= 2)
        x += __shfl_down_sync (0xffffffffu, x, step);
    if (threadIdx.x % 32 == 0)
        part[threadIdx.x / 32] = x;
    __syncthreads ();
    if (threadIdx.x == 0) {
        for (int i = 1; i < THREADS / 32; i++)
            x += part[i];
        atomicAdd ((unsigned long long *)sum, (unsigned long long)x);
    }
    __syncthreads ();
}

/* 16 bytes a load, four loads before the first use. [pairs] of words. */
static __global__ void sum_compact (uint64_t *sum, const ulonglong2 *p,
                                    uint64_t first, uint64_t pairs)
{
    uint64_t step = (uint64_t)gridDim.x * THREADS, s = 0;
    uint64_t i = (uint64_t)blockIdx.x * THREADS + threadIdx.x;

    for (; i + 3 * step < pairs; i += 4 * step) {
        ulonglong2 a[4];

#pragma unroll
        for (int k = 0; k < 4; k++)
            a[k] = __ldcs (p + i + k * step);
#pragma unroll
        for (int k = 0; k < 4; k++) {
            uint64_t w = first + 2 * (i + k * step);

            s += sum_mix (a[k].x, w) + sum_mix (a[k].y, w + 1);
        }
    }
    for (; i < pairs; i += step) {
        ulonglong2 a = __ldcs (p + i);

        s += sum_mix (a.x, first + 2 * i) + sum_mix (a.y, first + 2 * i + 1);
    }
    add_to (sum, s);
}

static __global__ void sum_any (uint64_t *sum, struct kern_view v,
                                uint64_t first, uint64_t n, uint64_t every)
{
    const uint64_t per = KERN_SUM_BLOCK / 8;
    uint64_t words = (v.n * v.wire_size + 7) / 8, last = (words - 1) / per;
    uint64_t s = 0;

    EACH (i, n)
    {
        uint64_t w = first + i;

        if (sum_takes (w / per, last, every))
            s += sum_mix (view_word (&v, w), w);
    }
    add_to (sum, s);
}

static __global__ void nonfinite (uint64_t *count, struct kern_view v, int elem)
{
    uint64_t nan = 0, inf = 0;

    EACH (i, v.n)
    {
        int c = elem_class (view_load (&v, i), elem);

        nan += c == 0;
        inf += c == 1;
    }
    add_to (count, nan);
    add_to (count + 1, inf);
}

/* A block of threads takes whole pieces, 16 bytes at a time where both lie so.
 */
static __device__ void copy_bytes (char *dst, const char *src, uint64_t n)
{
    uint64_t done = 0;

    if (((uintptr_t)dst | (uintptr_t)src) % 16 == 0) {
        for (uint64_t i = threadIdx.x; i < n / 16; i += THREADS)
            ((uint4 *)dst)[i] = ((const uint4 *)src)[i];
        done = n / 16 * 16;
    }
    for (uint64_t i = done + threadIdx.x; i < n; i += THREADS)
        dst[i] = src[i];
}

static __global__ void pieces_pack (char *out, const struct kern_piece *p,
                                    size_t n, uint64_t base)
{
    for (size_t i = blockIdx.x; i < n; i += gridDim.x)
        copy_bytes (out + (p[i].off - base), (const char *)p[i].data,
                    p[i].bytes);
}

static __global__ void pieces_unpack (const struct kern_piece *p, size_t n,
                                      const char *in, uint64_t base)
{
    for (size_t i = blockIdx.x; i < n; i += gridDim.x)
        copy_bytes ((char *)p[i].data, in + (p[i].off - base), p[i].bytes);
}

static __global__ void pieces_sum (uint64_t *sum, const struct kern_piece *p,
                                   size_t n)
{
    uint64_t s = 0;

    for (size_t i = blockIdx.x; i < n; i += gridDim.x) {
        const unsigned char *data = (const unsigned char *)p[i].data;
        uint64_t index = p[i].off / 8, whole = p[i].bytes / 8;
        bool aligned = (uintptr_t)data % 8 == 0;

        for (uint64_t w = threadIdx.x; w * 8 < p[i].bytes; w += THREADS)
            s += sum_mix (aligned && w < whole
                              ? ((const uint64_t *)data)[w]
                              : bytes_word (data, p[i].bytes, w),
                          index + w);
    }
    add_to (sum, s);
}

static bool raw (const struct kern_view *v)
{
    return v->compact && v->from == v->to;
}

/* An empty grid would be a launch error, so nothing to do means no launch. */
#define LAUNCH(kernel, n, stream)                                              \
    kernel<<<blocks_of (n), THREADS, 0, (cudaStream_t)(stream)>>>

void kern_view_pack_cuda (void *out, const struct kern_view *v, uint64_t first,
                          uint64_t n, void *stream)
{
    if (n > 0)
        LAUNCH (pack, n, stream) (out, *v, first, n);
}

void kern_view_unpack_cuda (const struct kern_view *v, const void *in,
                            uint64_t first, uint64_t n, void *stream)
{
    if (n > 0)
        LAUNCH (unpack, n, stream) (*v, in, first, n);
}

void kern_view_move_cuda (const struct kern_view *dst,
                          const struct kern_view *src, void *stream)
{
    if (src->n > 0)
        LAUNCH (move, src->n, stream) (*dst, *src);
}

void kern_view_sum_cuda (uint64_t *sum, const struct kern_view *v,
                         uint64_t first, uint64_t n, uint64_t every,
                         void *stream)
{
    const char *p = (const char *)v->data + first * 8;
    uint64_t left = v->n * (uint64_t)v->wire_size - first * 8, pairs = 0;

    if (n == 0)
        return;
    if (every <= 1 && raw (v) && (uintptr_t)p % 16 == 0)
        pairs = (left / 8 < n ? left / 8 : n) / 2;
    if (pairs > 0)
        LAUNCH (sum_compact, (pairs + 3) / 4, stream)
    (sum, (const ulonglong2 *)p, first, pairs);
    if (n > 2 * pairs)
        LAUNCH (sum_any, n - 2 * pairs, stream)
    (sum, *v, first + 2 * pairs, n - 2 * pairs, every);
}

void kern_view_nonfinite_cuda (uint64_t *count, const struct kern_view *v,
                               int elem, void *stream)
{
    if (v->n > 0)
        LAUNCH (nonfinite, v->n, stream) (count, *v, elem);
}

void kern_pieces_pack_cuda (void *out, const struct kern_piece *p, size_t n,
                            uint64_t base, void *stream)
{
    if (n > 0)
        LAUNCH (pieces_pack, n * THREADS, stream) ((char *)out, p, n, base);
}

void kern_pieces_unpack_cuda (const struct kern_piece *p, size_t n,
                              const void *in, uint64_t base, void *stream)
{
    if (n > 0)
        LAUNCH (pieces_unpack, n * THREADS, stream)
    (p, n, (const char *)in, base);
}

void kern_pieces_sum_cuda (uint64_t *sum, const struct kern_piece *p, size_t n,
                           void *stream)
{
    if (n > 0)
        LAUNCH (pieces_sum, n * THREADS, stream) (sum, p, n);
}

static __global__ void mark (volatile uint32_t *flag, uint32_t value)
{
    *flag = value;
    __threadfence_system ();
}

extern "C" void kern_mark_cuda (volatile uint32_t *flag, uint32_t value,
                                void *stream)
{
    mark<<<1, 1, 0, (cudaStream_t)stream>>> (flag, value);
}
