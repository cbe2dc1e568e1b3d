/* SPDX-License-Identifier: Apache-2.0
 * decode_product.cuh - what the products of few rows share: copies of the
 * weight's rows to shared memory, sums of a cluster's blocks, what is done with
 * them */
#ifndef KERN_DECODE_PRODUCT_CUH
#define KERN_DECODE_PRODUCT_CUH

#include "kernels/cluster.cuh"
#include "kernels/decode_early.cuh"
#include "kernels/decode_product.h"
#include "kernels/layers_cuda.h"

/* A kernel is empty where its GPU has no clusters: see kern_product_served. */
#if !defined(__CUDA_ARCH__) || __CUDA_ARCH__ >= 900
#define CLUSTERS 1
#else
#define CLUSTERS 0
#endif

#define TALL       KERN_PRODUCT_TALL
#define DEEP       KERN_PRODUCT_DEEP
#define PARTS_MOST 8
#define LINE       132 /* floats of a row of partial sums, against conflicts */
#define W_BYTES    (TALL * DEEP * 2)

struct args {
    const uint16_t *x, *w, *bias, *add, *next;
    const float *sums;
    uint16_t *y, *scaled;
    float *squares;
    int N, in, out, n_sums;
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

/* The same of a weight, which is read once: what is read again is to stay. */
static __device__ void bring_once (unsigned to, const void *from, bool there,
                                   uint64_t once)
{
    int bytes = there ? 16 : 0;

    asm volatile(
        "cp.async.cg.shared.global.L2::cache_hint.L2::128B [%0], [%1], "
        "16, %2, %3;" ::"r"(to),
        "l"(from), "r"(bytes), "l"(once)
        : "memory");
}

static __device__ void bring_commit (void)
{
    asm volatile("cp.async.commit_group;" ::: "memory");
}

/* Until all but the last [N] lots are there. */
template <int N> static __device__ void bring_wait (void)
{
    asm volatile("cp.async.wait_group %0;" ::"n"(N) : "memory");
}

/* Where this thread's copies go and come from: 4 vectors of w, some of x, of each
 * of the block's chunks of the sum, which are DEEP wide. */
template <int NT> struct way {
    uint64_t once;
    int chunks;
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
    int all = a.in / DEEP, parts = (int)gridDim.y, part = (int)blockIdx.y;
    int first = part * (all / parts) + min (part, all % parts);
    int from = first * DEEP + chunk * 8;

    asm volatile("createpolicy.fractional.L2::evict_first.b64 %0, 1.0;"
                 : "=l"(m->once));
    m->chunks = all / parts + (part < all % parts);
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
        bring_once (to + i * 32 * DEEP * 2, m.w[i] + (size_t)c * DEEP,
                    m.w_there[i], m.once);
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

/* The steps of what is done with U spots: each is made of all of them before the
 * next, so that a thread waits for one when it has begun the others. */
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
    return args{p->x,           p->w,      p->bias,      p->add,
                p->next,        p->sums,   p->y,         p->scaled,
                p->squares,     (int)p->N, (int)p->in,   (int)p->out,
                (int)p->n_sums, p->pair,   (float)p->eps};
}

/* decode_wide.cu's: of up to 64 rows a block, x as it is; without norm. */
void decode_wide_bf16 (const struct kern_product *p, void *stream);
void decode_wide_f16 (const struct kern_product *p, void *stream);

#endif
