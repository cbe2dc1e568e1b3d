/* SPDX-License-Identifier: Apache-2.0
 * decode_reduce.cuh - how a product of few rows ends: a cluster's blocks add up their
 * parts of the sums by each other's shared memory, and write what is made of them
 *
 * The steps are each made of all that a thread has at a time before the next, so
 * that it waits for one when it has begun the others. */
#ifndef KERN_DECODE_REDUCE_CUH
#define KERN_DECODE_REDUCE_CUH

#include "kernels/cluster.cuh"
#include "kernels/decode_product.cuh"

#if CLUSTERS
/* Four neighbours of a row that a thread adds up and writes. */
struct spot {
    size_t at;
    int n, row, o; /* of x, of the block's and all rows of w */
    bool there;
};

/* Of each row of x the block's share of what its cluster adds up: fours from [first]
 * on, and log2 of the lanes that have them. */
struct share {
    int first, count, lanes;
};

static __device__ __forceinline__ share share_of (const args &a)
{
    int fours = (a.pair ? TALL / 2 : TALL) / 4, parts = (int)gridDim.y;
    int first = (int)blockIdx.y * fours / parts;
    int end = ((int)blockIdx.y + 1) * fours / parts;

    return share{first, end - first, 32 - __clz ((fours - 1) / parts)};
}

template <int NT>
static __device__ __forceinline__ spot spot_of (const args &a, int i,
                                                const share &of, int first_row)
{
    int rows = a.pair ? TALL / 2 : TALL, lane = i & ((1 << of.lanes) - 1);
    spot p;

    p.n = i >> of.lanes;
    p.row = (of.first + lane) * 4;
    p.o = (int)blockIdx.x * rows + p.row;
    p.there =
        lane < of.count && p.n < NT * 8 && first_row + p.n < a.N && p.o < a.out;
    p.at = (size_t)(first_row + p.n) * a.out + p.o;
    return p;
}

/* What is added there, and the next norm's weight. */
struct rest {
    uint2 add, next;
};

static __device__ __forceinline__ rest rest_of (const args &a, const spot &p)
{
    rest r = {};

    if (p.there && a.add)
        r.add = *(const uint2 *)(a.add + p.at);
    if (p.there && a.next)
        r.next = *(const uint2 *)(a.next + p.o);
    return r;
}

/* On their way while the products are made, for two spots. */
template <int NT>
static __device__ __forceinline__ void call_rest (rest (&r)[2], const args &a,
                                                  const share &of,
                                                  int first_row)
{
#pragma unroll
    for (int u = 0; u < 2; u++)
        r[u] = rest_of (
            a, spot_of<NT> (a, (int)threadIdx.x + u * THREADS, of, first_row));
}

template <typename T>
static __device__ __forceinline__ void split_four (float *x, uint2 r)
{
    T::two (r.x, x);
    T::two (r.y, x + 2);
}

template <typename T>
static __device__ __forceinline__ uint2 join_four (const float *x)
{
    return make_uint2 (T::pair (x), T::pair (x + 2));
}

template <typename T>
static __device__ __forceinline__ void round_four (float *x)
{
    split_four<T> (x, join_four<T> (x));
}

/* Sums of four neighbours times [by], rounded. */
template <typename T>
static __device__ __forceinline__ void scale_four (float *x, float4 sum,
                                                   float by)
{
    x[0] = sum.x * by, x[1] = sum.y * by;
    x[2] = sum.z * by, x[3] = sum.w * by;
    round_four<T> (x);
}

/* Sums of U spots, from [more] behind their rows on, over all parts; what lies in
 * other blocks is under way together. */
template <int U>
static __device__ __forceinline__ void gather (float4 (&sum)[U], float *part,
                                               int parts, const spot (&p)[U],
                                               int more)
{
    enum { SIX = 6 };

#pragma unroll
    for (int u = 0; u < U; u++)
        sum[u] = parts == 1 && p[u].there
                     ? *(float4 *)(part + p[u].n * LINE + p[u].row + more)
                     : make_float4 (0, 0, 0, 0);
    for (int first = 0; parts > 1 && first < parts; first += SIX) {
        float4 x[U][SIX];

#pragma unroll
        for (int u = 0; u < U; u++)
#pragma unroll
            for (int i = 0; i < SIX; i++) {
                float *at = part + p[u].n * LINE + p[u].row + more;

                x[u][i] = p[u].there && first + i < parts
                              ? cluster_four (at, first + i)
                              : make_float4 (0, 0, 0, 0);
            }
#pragma unroll
        for (int u = 0; u < U; u++)
#pragma unroll
            for (int i = 0; i < SIX; i++) {
                sum[u].x += x[u][i].x, sum[u].y += x[u][i].y;
                sum[u].z += x[u][i].z, sum[u].w += x[u][i].w;
            }
    }
}

template <typename T, int U>
static __device__ __forceinline__ void add_bias (float (&x)[U][4],
                                                 const args &a,
                                                 const spot (&p)[U])
{
    uint2 r[U];

#pragma unroll
    for (int u = 0; u < U; u++)
        r[u] =
            p[u].there ? *(const uint2 *)(a.bias + p[u].o) : make_uint2 (0, 0);
#pragma unroll
    for (int u = 0; u < U; u++) {
        float more[4];

        split_four<T> (more, r[u]);
#pragma unroll
        for (int i = 0; i < 4; i++)
            x[u][i] += more[i];
        round_four<T> (x[u]);
    }
}

template <typename T, int U>
static __device__ __forceinline__ void gate (float (&x)[U][4], float *part,
                                             int parts, const spot (&p)[U],
                                             const float (&by)[U])
{
    float4 other[U];

    gather<U> (other, part, parts, p, TALL / 2);
#pragma unroll
    for (int u = 0; u < U; u++) {
        float more[4];

        scale_four<T> (more, other[u], by[u]);
#pragma unroll
        for (int i = 0; i < 4; i++)
            x[u][i] = x[u][i] * T::sigmoid (x[u][i]) * more[i];
    }
}

/* The rows times the next norm's weight, and the sums of their squares. */
template <typename T, int U>
static __device__ __forceinline__ void put_next (float (&x)[U][4],
                                                 const args &a,
                                                 const spot (&p)[U],
                                                 const rest (&now)[U],
                                                 int lanes, int first_row)
{
    size_t blocks = (size_t)gridDim.x * gridDim.y;
    size_t at =
        (size_t)first_row * blocks + blockIdx.x * gridDim.y + blockIdx.y;
    float squares[U] = {};

#pragma unroll
    for (int u = 0; u < U; u++) {
        float more[4];

        round_four<T> (x[u]);
        split_four<T> (more, now[u].next);
#pragma unroll
        for (int i = 0; i < 4; i++) {
            squares[u] += p[u].there ? x[u][i] * x[u][i] : 0;
            x[u][i] *= more[i];
        }
        if (p[u].there)
            *(uint2 *)(a.scaled + p[u].at) = join_four<T> (x[u]);
    }
    for (int far = lanes / 2; far > 0; far /= 2)
#pragma unroll
        for (int u = 0; u < U; u++)
            squares[u] += __shfl_xor_sync (0xffffffffu, squares[u], far);
#pragma unroll
    for (int u = 0; u < U; u++)
        if (p[u].there && threadIdx.x % lanes == 0)
            a.squares[at + p[u].n * blocks] = squares[u];
}

/* Add up a share of the block's rows of w, and write it, U spots of a thread at a
 * time, whole warps for the sums of a row's lanes. [r] is of the first two. */
template <typename T, int NT, int U>
static __device__ __forceinline__ void reduce (const args &a, float *part,
                                               const float *rstd,
                                               const share &of, int first_row,
                                               rest (&r)[2])
{
    int parts = (int)gridDim.y;
    int items = min (NT * 8, a.N - first_row) << of.lanes;

#pragma unroll 1
    for (int i = (int)threadIdx.x; i / 32 * 32 < items; i += U * THREADS) {
        float x[U][4], by[U];
        float4 sum[U];
        rest now[U];
        spot p[U];

#pragma unroll
        for (int u = 0; u < U; u++) {
            p[u] = spot_of<NT> (a, i + u * THREADS, of, first_row);
            by[u] = rstd[p[u].there ? p[u].n : 0];
            now[u] = r[u];
        }
        gather<U> (sum, part, parts, p, 0);
        if (U == 1)
            r[0] = r[1];
#pragma unroll
        for (int u = 2 - U; i + U * THREADS < items && u < 2; u++)
            r[u] = rest_of (
                a, spot_of<NT> (a, i + (U + u) * THREADS, of, first_row));
#pragma unroll
        for (int u = 0; u < U; u++)
            scale_four<T> (x[u], sum[u], by[u]);
        if (a.bias)
            add_bias<T, U> (x, a, p);
        if (a.pair)
            gate<T, U> (x, part, parts, p, by);
#pragma unroll
        for (int u = 0; u < U; u++) {
            float more[4];

            split_four<T> (more, now[u].add);
#pragma unroll
            for (int k = 0; k < 4; k++)
                x[u][k] += a.add ? more[k] : 0;
            if (p[u].there)
                *(uint2 *)(a.y + p[u].at) = join_four<T> (x[u]);
        }
        if (a.next)
            put_next<T, U> (x, a, p, now, 1 << of.lanes, first_row);
    }
}

#endif
#endif
