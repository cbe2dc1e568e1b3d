/* SPDX-License-Identifier: Apache-2.0
 * decode_product.cuh - what the products of few rows share: copies of the
 * weight's rows to shared memory, sums of a cluster's blocks, what is done with
 * them */
#ifndef KERN_DECODE_PRODUCT_CUH
#define KERN_DECODE_PRODUCT_CUH

#include <cooperative_groups.h>

#include "kernels/decode_early.cuh"
#include "kernels/decode_product.h"
#include "kernels/layers_cuda.h"

namespace cg = cooperative_groups;

/* A kernel is empty where its GPU has no clusters: see kern_product_served. */
#if !defined(__CUDA_ARCH__) || __CUDA_ARCH__ >= 900
#define CLUSTERS 1
#else
#define CLUSTERS 0
#endif

#define TALL    KERN_PRODUCT_TALL
#define DEEP    KERN_PRODUCT_DEEP
#define LINE    132 /* floats of a row of partial sums, against conflicts */
#define W_BYTES (TALL * DEEP * 2)

struct args {
    const uint16_t *x, *w, *norm, *bias, *add, *next;
    const float *sums;
    uint16_t *y, *scaled;
    float *squares;
    int N, in, out, n_sums, chunks; /* DEEP wide, of a block */
    bool pair;
    float eps;
};

#if CLUSTERS
static __device__ void bring (unsigned to, const void *from, bool there)
{
    int bytes = there ? 16 : 0;

    asm volatile(
        "cp.async.cg.shared.global.L2::128B [%0], [%1], 16, %2;" ::"r"(to),
        "l"(from), "r"(bytes)
        : "memory");
}

static __device__ void bring_commit (void)
{
    asm volatile("cp.async.commit_group;" ::: "memory");
}

template <int STAGES> static __device__ void bring_wait (void)
{
    asm volatile("cp.async.wait_group %0;" ::"n"(STAGES - 2) : "memory");
}

/* Where this thread's copies go and come from: 4 vectors of w, some of x. */
template <int NT> struct way {
    const uint16_t *w[4], *x[(NT + 3) / 4];
    unsigned to;
    bool w_there[4], x_there[(NT + 3) / 4];
};

/* Vector [chunk] of row [row] stands at chunk ^ [turned], which hangs on the row. */
template <int NT>
static __device__ void find_way (way<NT> *m, const args &a, unsigned to,
                                 int first_row, int turned)
{
    int row = (int)threadIdx.x / 8, chunk = (int)threadIdx.x % 8;
    int from = (int)blockIdx.y * a.chunks * DEEP + chunk * 8;

    m->to = to + (unsigned)(row * DEEP * 2 + (chunk ^ turned) * 16);
#pragma unroll
    for (int i = 0; i < 4; i++) {
        int r = i * 32 + row, o = (int)blockIdx.x * TALL + r;

        if (a.pair)
            o = (int)blockIdx.x * (TALL / 2) + r % (TALL / 2);
        m->w_there[i] = o < a.out;
        if (a.pair && r >= TALL / 2)
            o += a.out;
        m->w[i] = a.w + (m->w_there[i] ? (size_t)o * a.in : 0) + from;
    }
#pragma unroll
    for (int i = 0; i < (NT + 3) / 4; i++) {
        int n = first_row + i * 32 + row;

        m->x_there[i] = i * 32 + row < NT * 8 && n < a.N;
        m->x[i] = a.x + (m->x_there[i] ? (size_t)n * a.in : 0) + from;
    }
}

template <int STAGES, int NT>
static __device__ void bring_w (const way<NT> &m, int c, unsigned stage_bytes)
{
    unsigned to = m.to + (unsigned)(c % STAGES) * stage_bytes;

#pragma unroll
    for (int i = 0; i < 4; i++)
        bring (to + i * 32 * DEEP * 2, m.w[i] + (size_t)c * DEEP, m.w_there[i]);
}

template <int STAGES, int NT>
static __device__ void bring_x (const way<NT> &m, int c, unsigned stage_bytes)
{
    unsigned to = m.to + (unsigned)(c % STAGES) * stage_bytes + W_BYTES;

#pragma unroll
    for (int i = 0; i < (NT + 3) / 4; i++)
        if (i * 32 + (int)threadIdx.x / 8 < NT * 8)
            bring (to + i * 32 * DEEP * 2, m.x[i] + (size_t)c * DEEP,
                   m.x_there[i]);
}

/* Four neighbours of the sums of row n from [row] on, over all parts. */
template <int NT, int HALVES>
static __device__ float4 gather (const cg::cluster_group &all, float *part,
                                 int parts, int n, int row)
{
    float4 sum = {0, 0, 0, 0};

#pragma unroll 4
    for (int s = 0; s < parts; s++) {
        const float *from = parts > 1 ? all.map_shared_rank (part, s) : part;

#pragma unroll
        for (int half = 0; half < HALVES; half++) {
            float4 x =
                *(const float4 *)(from + (half * NT * 8 + n) * LINE + row);

            sum.x += x.x, sum.y += x.y, sum.z += x.z, sum.w += x.w;
        }
    }
    return sum;
}

#define HELD 8 /* vectors of sums that a thread can have on their way */

/* 1 / root mean square of row n, of which four neighbours have each a part. */
static __device__ void put_rstd (float *rstd, const args &a, int n, float sum)
{
    sum += __shfl_xor_sync (0xffffffffu, sum, 1);
    sum += __shfl_xor_sync (0xffffffffu, sum, 2);
    if (threadIdx.x % 4 == 0)
        rstd[n] = rsqrtf (sum / a.in + a.eps);
}

/* The sums that the product before wrote with x, on their way while the products
 * are made; false: they are too many. In the order of take_sums. */
template <int NT>
static __device__ bool hold_sums (float4 (&held)[HELD], const args &a,
                                  int first_row)
{
    int n = (int)threadIdx.x / 4, of = (int)threadIdx.x % 4;
    const float *from = a.sums + (size_t)(first_row + n) * a.n_sums;
    bool there = n < NT * 8 && first_row + n < a.N;

    if (a.n_sums % 4 != 0 || a.n_sums > HELD * 16)
        return false;
#pragma unroll
    for (int i = 0; i < HELD; i++) {
        int at = (of + i * 4) * 4;

        held[i] = there && at < a.n_sums ? *(const float4 *)(from + at)
                                         : make_float4 (0, 0, 0, 0);
    }
    return true;
}

template <int NT>
static __device__ void take_held (float *rstd, const args &a,
                                  const float4 (&held)[HELD])
{
    int n = (int)threadIdx.x / 4;
    float sum = 0;

    if (n >= NT * 8)
        return;
#pragma unroll
    for (int i = 0; i < HELD; i++)
        sum += held[i].x + held[i].y + held[i].z + held[i].w;
    put_rstd (rstd, a, n, sum);
}

/* From the sums that the product before wrote with x, for every row of x. */
template <int NT>
static __device__ void take_sums (float *rstd, const args &a, int first_row)
{
    int n = (int)threadIdx.x / 4, of = (int)threadIdx.x % 4;
    const float *from = a.sums + (size_t)(first_row + n) * a.n_sums;
    float sum = 0;

    if (n >= NT * 8)
        return;
    if (first_row + n < a.N && a.n_sums % 4 == 0) {
#pragma unroll 8
        for (int i = of; i < a.n_sums / 4; i += 4) {
            float4 x = *(const float4 *)(from + i * 4);

            sum += x.x + x.y + x.z + x.w;
        }
    } else if (first_row + n < a.N) {
        for (int i = of; i < a.n_sums; i += 4)
            sum += from[i];
    }
    put_rstd (rstd, a, n, sum);
}

template <typename T>
static __device__ void four (const uint16_t *from, float *x)
{
    uint2 r = *(const uint2 *)from;

    T::two (r.x, x);
    T::two (r.y, x + 2);
}

template <typename T>
static __device__ void put_four (uint16_t *to, const float *x)
{
    *(uint2 *)to = make_uint2 (T::pair (x), T::pair (x + 2));
}

/* Write four neighbours of row n; returns their squares, for what is next. */
template <typename T>
static __device__ float finish (const args &a, float4 sum, float4 other,
                                float rstd, size_t n, int o)
{
    float x[4] = {sum.x, sum.y, sum.z, sum.w};
    float u[4] = {other.x, other.y, other.z, other.w}, more[4], squares = 0;
    size_t at = n * a.out + o;

#pragma unroll
    for (int i = 0; i < 4; i++) {
        x[i] = T::get (T::put (x[i] * rstd));
        if (a.bias)
            x[i] = T::get (T::put (x[i] + T::get (a.bias[o + i])));
        if (a.pair)
            x[i] = x[i] * T::sigmoid (x[i]) * T::get (T::put (u[i] * rstd));
    }
    if (a.add) {
        four<T> (a.add + at, more);
#pragma unroll
        for (int i = 0; i < 4; i++)
            x[i] += more[i];
    }
    put_four<T> (a.y + at, x);
    if (!a.next)
        return 0;
    four<T> (a.next + o, more);
#pragma unroll
    for (int i = 0; i < 4; i++) {
        x[i] = T::get (T::put (x[i]));
        squares += x[i] * x[i];
        x[i] *= more[i];
    }
    put_four<T> (a.scaled + at, x);
    return squares;
}

/* 1 / root mean square of each row of x, from what this product has of it. */
template <int NT>
static __device__ void join_squares (const args &a, float *ss, float *rstd)
{
    cg::cluster_group all = cg::this_cluster ();
    int n = (int)threadIdx.x, parts = (int)gridDim.y;
    float sum = 0;

    if (n >= NT * 8)
        return;
    for (int s = 0; a.norm && s < parts; s++) {
        const float *from = parts > 1 ? all.map_shared_rank (ss, s) : ss;

        sum += from[n] + from[NT * 8 + n];
    }
    rstd[n] = a.norm ? rsqrtf (sum / a.in + a.eps) : 1;
}

/* What this thread is to add, and the next norm's weight, into the
 * multiprocessor's cache while the products are made. */
template <int NT>
static __device__ void call_rest (const args &a, int first_row)
{
    int rows = a.pair ? TALL / 2 : TALL, each = rows / (int)gridDim.y;

    for (int i = (int)threadIdx.x; i < NT * 8 * each / 4; i += THREADS) {
        int n = first_row + i / (each / 4);
        int o = (int)blockIdx.x * rows + (int)blockIdx.y * each
                + i % (each / 4) * 4;
        uint2 r;

        if (n >= a.N || o >= a.out)
            continue;
        if (a.add)
            asm volatile("ld.global.v2.u32 {%0, %1}, [%2];"
                         : "=r"(r.x), "=r"(r.y)
                         : "l"(a.add + (size_t)n * a.out + o));
        if (a.next)
            asm volatile("ld.global.v2.u32 {%0, %1}, [%2];"
                         : "=r"(r.x), "=r"(r.y)
                         : "l"(a.next + o));
    }
}

/* Until the cluster's other blocks have read here: of what was read, all has been
 * used, and nothing that was written must be seen by then. */
static __device__ void leave_cluster (void)
{
    asm volatile("barrier.cluster.arrive.relaxed.aligned;\n"
                 "barrier.cluster.wait.aligned;" ::
                     : "memory");
}

/* Add up a share of the block's rows of w, and write it. */
template <typename T, int NT, int HALVES>
static __device__ void reduce (const args &a, float *part, float *ss,
                               float *rstd, int first_row)
{
    cg::cluster_group all = cg::this_cluster ();
    int parts = (int)gridDim.y, rows = a.pair ? TALL / 2 : TALL;
    int each = rows / parts, first = (int)blockIdx.y * each;
    size_t blocks = (size_t)gridDim.x * parts;

    if (!a.sums)
        join_squares<NT> (a, ss, rstd);
    __syncthreads ();
    /* whole warps, of which each / 4 lanes have a row of x */
    for (int i = (int)threadIdx.x; i < NT * 8 * each / 4; i += THREADS) {
        int n = i / (each / 4), row = first + i % (each / 4) * 4;
        int o = (int)blockIdx.x * rows + row;
        float squares = 0;

        n += first_row;
        if (n < a.N && o < a.out) {
            int k = n - first_row;
            float4 sum = gather<NT, HALVES> (all, part, parts, k, row);
            float4 other = sum;

            if (a.pair)
                other =
                    gather<NT, HALVES> (all, part, parts, k, row + TALL / 2);
            squares = finish<T> (a, sum, other, rstd[k], (size_t)n, o);
        }
        if (!a.next)
            continue;
        for (int far = each / 8; far > 0; far /= 2)
            squares += __shfl_xor_sync (0xffffffffu, squares, far);
        if (n < a.N && i % (each / 4) == 0)
            a.squares[(size_t)n * blocks + blockIdx.x * parts + blockIdx.y] =
                squares;
    }
}

#endif

static inline size_t tiles_of (const struct kern_product *p)
{
    return kern_product_tiles (p->out, p->pair);
}

static inline unsigned parts_of (const struct kern_product *p)
{
    return p->split > 0 ? (unsigned)p->split
                        : (unsigned)kern_product_parts (p->in, tiles_of (p));
}

static inline args args_of (const struct kern_product *p)
{
    return args{p->x,        p->w,           p->norm,
                p->bias,     p->add,         p->next,
                p->sums,     p->y,           p->scaled,
                p->squares,  (int)p->N,      (int)p->in,
                (int)p->out, (int)p->n_sums, (int)(p->in / DEEP / parts_of (p)),
                p->pair,     (float)p->eps};
}

/* decode_wide.cu's: of up to 64 rows a block, x as it is. */
void decode_wide_bf16 (const struct kern_product *p, void *stream);
void decode_wide_f16 (const struct kern_product *p, void *stream);

#endif
