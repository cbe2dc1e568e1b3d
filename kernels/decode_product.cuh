/* SPDX-License-Identifier: Apache-2.0
 * decode_product.cuh - a product of few rows: copies of the weight's rows to shared
 * memory, and the sums of a norm that was begun before */
#ifndef KERN_DECODE_PRODUCT_CUH
#define KERN_DECODE_PRODUCT_CUH

#include "kernels/decode_early.cuh"
#include "kernels/decode_product.h"
#include "kernels/layers_cuda.h"

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
