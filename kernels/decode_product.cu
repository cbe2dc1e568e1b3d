/* SPDX-License-Identifier: Apache-2.0
 * decode_product.cu - products of few rows with a large weight
 *
 * A block has TALL rows of the weight and a part of the sum; blocks of one
 * cluster have the other parts, and add them up by each other's shared memory.
 * The weight is the 16 x 16 side of the tensor cores' product, so that few rows
 * of x waste none of it. Which k a thread's 16 bytes hold differs from what the
 * instruction calls them, alike for both factors, so that they need no
 * rearranging.
 *
 * PTX ISA, "Matrix multiply-accumulate operation using mma instruction" says
 * which thread holds which element. */
#include "kernels/decode_mma.cuh"
#include "kernels/decode_product.cuh"

#define STAGES 4

#if CLUSTERS
/* Products of pairs of bf16, rounded once. */
static __device__ uint32_t times (uint32_t x, uint32_t y)
{
    __nv_bfloat162 a, b;
    uint32_t r;

    memcpy (&a, &x, sizeof (a));
    memcpy (&b, &y, sizeof (b));
    a = __hmul2 (a, b);
    memcpy (&r, &a, sizeof (r));
    return r;
}

static __device__ float squares (uint4 r)
{
    float x[8], sum = 0;

    as_bf16::split (r, x);
#pragma unroll
    for (int i = 0; i < 8; i++)
        sum += x[i] * x[i];
    return sum;
}

/* The second of two halves of 16 bytes' places, or the first. */
template <typename T>
static __device__ void mma_half (float *c, uint4 lo, uint4 hi, uint4 b,
                                 int half)
{
    if (half == 0)
        mma<T> (c, lo.x, hi.x, lo.y, hi.y, b.x, b.y);
    else
        mma<T> (c, lo.z, hi.z, lo.w, hi.w, b.z, b.w);
}

/* One chunk: a warp has 32 rows of the weight and half of the depth. [g] is
 * norm's vector, [ss] the squares of every fourth tile of x. Products that add
 * to one sum lie apart, for each takes a while. */
template <typename T, int NT>
static __device__ void multiply (float acc[2][NT][4], float *ss,
                                 const char *stage, int spot, int tall,
                                 const uint4 *g)
{
    const char *w = stage + tall * 32 * DEEP * 2 + spot;
    const char *x = stage + W_BYTES + spot;
    uint4 a[4];

#pragma unroll
    for (int r = 0; r < 4; r++)
        a[r] = *(const uint4 *)(w + r * 8 * DEEP * 2);
#pragma unroll
    for (int j = 0; j < NT; j += 4) {
        uint4 b[4];

#pragma unroll
        for (int i = 0; i < 4 && i + j < NT; i++)
            b[i] = *(const uint4 *)(x + (i + j) * 8 * DEEP * 2);
#pragma unroll
        for (int i = 0; g && i < 4 && i + j < NT; i++) {
            if (i == tall)
                ss[j / 4] += squares (b[i]);
            b[i].x = times (b[i].x, g->x), b[i].y = times (b[i].y, g->y);
            b[i].z = times (b[i].z, g->z), b[i].w = times (b[i].w, g->w);
        }
#pragma unroll
        for (int half = 0; half < 2; half++)
#pragma unroll
            for (int t = 0; t < 2; t++)
#pragma unroll
                for (int i = 0; i < 4 && i + j < NT; i++)
                    mma_half<T> (acc[t][i + j], a[2 * t], a[2 * t + 1], b[i],
                                 half);
    }
}

/* Partial sums into shared memory: [half of the depth][row of x][row of w]. */
template <int NT>
static __device__ void lay (float *part, const float acc[2][NT][4], int tall,
                            int half)
{
    int g = (int)threadIdx.x % 32 / 4, t = (int)threadIdx.x % 4;

#pragma unroll
    for (int m = 0; m < 2; m++)
#pragma unroll
        for (int j = 0; j < NT; j++)
#pragma unroll
            for (int e = 0; e < 4; e++) {
                int n = half * NT * 8 + j * 8 + 2 * t + e % 2;

                part[n * LINE + tall * 32 + m * 16 + e / 2 * 8 + g] =
                    acc[m][j][e];
            }
}

/* The squares of each row of x: [half][row]. */
template <int NT>
static __device__ void lay_squares (float *to, const float *ss, int tall,
                                    int half)
{
    int g = (int)threadIdx.x % 32 / 4, t = (int)threadIdx.x % 4;

#pragma unroll
    for (int i = 0; i < (NT + 3) / 4; i++) {
        float sum = ss[i];

        sum += __shfl_xor_sync (0xffffffffu, sum, 1);
        sum += __shfl_xor_sync (0xffffffffu, sum, 2);
        if (t == 0 && i * 4 + tall < NT)
            to[half * NT * 8 + (i * 4 + tall) * 8 + g] = sum;
    }
}

#endif

/* grid (tiles, parts, batches of NT * 8 rows); parts are a cluster */
template <typename T, int NT>
static __global__ void __launch_bounds__ (THREADS, 2) product (args a)
{
#if CLUSTERS
    enum { STAGE = W_BYTES + NT * 8 * DEEP * 2 };
    extern __shared__ __align__ (128) char room[];
    __shared__ float rstd[NT * 8];
    int warp = (int)threadIdx.x / 32, tall = warp % 4, half = warp / 4;
    int lane = (int)threadIdx.x % 32, odd = lane / 4 % 2;
    int spot = lane / 4 * DEEP * 2 + ((half * 4 + lane % 4) ^ (odd * 4)) * 16;
    int first_row = (int)blockIdx.z * NT * 8;
    uint4 *g = (uint4 *)(room + STAGES * STAGE);
    float acc[2][NT][4] = {}, ss[(NT + 3) / 4] = {}, *part = (float *)room;
    float *sums = part + 2 * NT * 8 * LINE;
    way<NT> m;

    early_go ();
    /* threads of two rows then read other banks */
    find_way (&m, a, (unsigned)__cvta_generic_to_shared (room), first_row,
              (int)threadIdx.x / 8 % 2 * 4);
    for (int c = 0; c < STAGES - 1 && c < a.chunks; c++)
        bring_w<STAGES> (m, c, STAGE);
    for (int i = (int)threadIdx.x; a.norm && i < a.chunks * 8; i += THREADS)
        g[i] = *(const uint4 *)(a.norm
                                + ((size_t)blockIdx.y * a.chunks * 8 + i) * 8);
    early_wait ();
    for (int c = 0; c < STAGES - 1; c++) {
        if (c < a.chunks)
            bring_x<STAGES> (m, c, STAGE);
        bring_commit ();
    }
    call_rest<NT> (a, first_row);
    for (int c = 0; c < a.chunks; c++) {
        int next = c + STAGES - 1;

        bring_wait<STAGES> ();
        __syncthreads ();
        if (next < a.chunks) {
            bring_w<STAGES> (m, next, STAGE);
            bring_x<STAGES> (m, next, STAGE);
        }
        bring_commit ();
        if (a.norm)
            multiply<T, NT> (acc, ss, room + c % STAGES * STAGE, spot, tall,
                             &g[c * 8 + half * 4 + lane % 4]);
        else
            multiply<T, NT> (acc, ss, room + c % STAGES * STAGE, spot, tall,
                             NULL);
    }
    __syncthreads ();
    lay<NT> (part, acc, tall, half);
    if (a.norm)
        lay_squares<NT> (sums, ss, tall, half);
    if (gridDim.y > 1)
        cg::this_cluster ().sync ();
    else
        __syncthreads ();
    reduce<T, NT, 2> (a, part, sums, rstd, first_row);
    if (gridDim.y > 1) /* others may still read here */
        leave_cluster ();
#else
    (void)a;
#endif
}

template <typename T, int NT>
static void go (const struct kern_product *p, void *stream)
{
    unsigned parts = parts_of (p);
    args a = args_of (p);
    size_t bytes = STAGES * (W_BYTES + NT * 8 * DEEP * 2);
    dim3 grid ((unsigned)tiles_of (p), parts,
               (unsigned)((p->N + NT * 8 - 1) / (NT * 8)));

    bytes += p->norm ? (size_t)a.chunks * DEEP * 2 : 0;
    (void)cudaFuncSetAttribute (product<T, NT>,
                                cudaFuncAttributeMaxDynamicSharedMemorySize,
                                (int)bytes);
    early_launch (product<T, NT>, grid, THREADS, bytes, parts, p->early, stream,
                  a);
}

/* Rows of x that are normed first, where the product does not do it. */
template <typename T>
static __global__ void __launch_bounds__ (THREADS)
    norm_rows (uint16_t *y, const uint16_t *x, const uint16_t *w, int in,
               float eps)
{
    __shared__ float sums[THREADS / 32];
    size_t from = (size_t)blockIdx.x * in;
    float v[8], g[8], sum = 0;

    early_go ();
    early_wait ();
    for (int i = (int)threadIdx.x * 8; i < in; i += THREADS * 8) {
        wide<T>::split (wide<T>::load (x + from + i), v);
        for (int j = 0; j < 8; j++)
            sum += v[j] * v[j];
    }
    for (int far = 16; far > 0; far /= 2)
        sum += __shfl_xor_sync (0xffffffffu, sum, far);
    if (threadIdx.x % 32 == 0)
        sums[threadIdx.x / 32] = sum;
    __syncthreads ();
    sum = 0;
    for (int i = 0; i < THREADS / 32; i++)
        sum += sums[i];
    sum = rsqrtf (sum / in + eps);
    for (int i = (int)threadIdx.x * 8; i < in; i += THREADS * 8) {
        wide<T>::split (wide<T>::load (x + from + i), v);
        wide<T>::split (wide<T>::load (w + i), g);
        for (int j = 0; j < 8; j++)
            v[j] *= sum * g[j];
        wide<T>::store (y + from + i, wide<T>::join (v));
    }
}

template <typename T>
static void pick (const struct kern_product *p, void *stream)
{
    if (p->N <= 8)
        go<T, 1> (p, stream);
    else
        go<T, 2> (p, stream);
}

/* Few rows have the norm made in passing, in bf16; f16's rows times its weight
 * may be too great. Where the norm's sums are there, decode_wide.cu is faster. */
template <typename T>
static void run (const struct kern_product *p, bool f16, void *stream)
{
    bool few = p->N <= KERN_PRODUCT_FEW && !p->same && !p->sums;
    struct kern_product q = *p;

    if (p->norm && (f16 || !few)) {
        early_launch (norm_rows<T>, dim3 ((unsigned)p->N), THREADS, 0, 1,
                      p->early, stream, p->normed, p->x, p->norm, (int)p->in,
                      (float)p->eps);
        q.x = p->normed;
        q.norm = NULL;
    }
    if (few)
        pick<T> (&q, stream);
    else if (f16)
        decode_wide_f16 (&q, stream);
    else
        decode_wide_bf16 (&q, stream);
}

void kern_product_bf16_cuda (const struct kern_product *p, void *stream)
{
    run<as_bf16> (p, false, stream);
}

void kern_product_f16_cuda (const struct kern_product *p, void *stream)
{
    run<as_f16> (p, true, stream);
}
