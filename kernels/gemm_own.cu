/* SPDX-License-Identifier: Apache-2.0
 * gemm_own.cu - products of matrices without a library: tiles in shared memory,
 * the tensor cores' 16x8x16 products for bf16 and f16, plain FMA for f32
 *
 * PTX ISA, "Matrix multiply-accumulate operation using mma instruction" and
 * "ldmatrix" say which thread holds which element. */
#include "kernels/gemm_own.h"

#include "kernels/half.h"

#define THREADS 256
#define TALL    128 /* tile of the result: rows */
#define WIDE    128 /* and columns */
#define DEEP    32  /* of the sum, at a time */
#define PAD     8 /* elements after a row of shared memory, against conflicts */
#define LOADS   2 /* vectors of 8 that a thread brings of each matrix */

struct args {
    struct gemm_lt_op op;
    bool wide_a, wide_b; /* rows and address are multiples of 16 bytes */
};

/* One matrix as it is stored: its tile is [rows] x [columns] at (row, column). */
struct stored {
    const uint16_t *at;
    size_t rows, columns, ld;
    bool wide;
};

static __device__ uint4 eight (const struct stored *s, size_t row,
                               size_t column)
{
    const uint16_t *from = s->at + row * s->ld + column;
    uint16_t x[8] = {0};
    uint4 v;

    if (row < s->rows && s->wide && column + 8 <= s->columns)
        return *(const uint4 *)from;
    for (int i = 0; i < 8; i++) {
        if (row < s->rows && column + i < s->columns)
            x[i] = from[i];
    }
    memcpy (&v, x, sizeof (v));
    return v;
}

/* A tile of ROWS x COLUMNS elements, 8 a vector, LOADS vectors a thread. */
template <int COLUMNS>
static __device__ void bring (uint4 v[LOADS], const struct stored *s,
                              size_t row, size_t column)
{
#pragma unroll
    for (int i = 0; i < LOADS; i++) {
        int e = (i * THREADS + (int)threadIdx.x) * 8;

        v[i] = eight (s, row + e / COLUMNS, column + e % COLUMNS);
    }
}

template <int COLUMNS>
static __device__ void keep (uint16_t *tile, const uint4 v[LOADS])
{
#pragma unroll
    for (int i = 0; i < LOADS; i++) {
        int e = (i * THREADS + (int)threadIdx.x) * 8;

        *(uint4 *)(tile + e / COLUMNS * (COLUMNS + PAD) + e % COLUMNS) = v[i];
    }
}

template <bool TRANSPOSED>
static __device__ void fragments (uint32_t f[4], const uint16_t *at)
{
    unsigned address = (unsigned)__cvta_generic_to_shared (at);

    if (TRANSPOSED)
        asm volatile("ldmatrix.sync.aligned.m8n8.x4.trans.shared.b16 "
                     "{%0,%1,%2,%3}, [%4];"
                     : "=r"(f[0]), "=r"(f[1]), "=r"(f[2]), "=r"(f[3])
                     : "r"(address));
    else
        asm volatile("ldmatrix.sync.aligned.m8n8.x4.shared.b16 "
                     "{%0,%1,%2,%3}, [%4];"
                     : "=r"(f[0]), "=r"(f[1]), "=r"(f[2]), "=r"(f[3])
                     : "r"(address));
}

template <bool F16>
static __device__ void product (float d[4], const uint32_t a[4],
                                const uint32_t *b)
{
    if (F16)
        asm volatile("mma.sync.aligned.m16n8k16.row.col.f32.f16.f16.f32 "
                     "{%0,%1,%2,%3}, {%4,%5,%6,%7}, {%8,%9}, {%0,%1,%2,%3};"
                     : "+f"(d[0]), "+f"(d[1]), "+f"(d[2]), "+f"(d[3])
                     : "r"(a[0]), "r"(a[1]), "r"(a[2]), "r"(a[3]), "r"(b[0]),
                       "r"(b[1]));
    else
        asm volatile("mma.sync.aligned.m16n8k16.row.col.f32.bf16.bf16.f32 "
                     "{%0,%1,%2,%3}, {%4,%5,%6,%7}, {%8,%9}, {%0,%1,%2,%3};"
                     : "+f"(d[0]), "+f"(d[1]), "+f"(d[2]), "+f"(d[3])
                     : "r"(a[0]), "r"(a[1]), "r"(a[2]), "r"(a[3]), "r"(b[0]),
                       "r"(b[1]));
}

/* Where a thread's row of an 8x8 matrix begins: a's four lie (0,0), (8,0),
 * (0,8), (8,8) in (m,k); b's pairs (0,0), (0,8) in (n,k), and so at n = 8. */
template <bool TA>
static __device__ const uint16_t *place_a (const uint16_t *tile, int m, int k)
{
    int lane = (int)threadIdx.x % 32, r = lane % 8;

    m += lane / 8 % 2 * 8;
    k += lane / 16 * 8;
    return TA ? tile + (k + r) * (TALL + PAD) + m
              : tile + (m + r) * (DEEP + PAD) + k;
}

template <bool TB>
static __device__ const uint16_t *place_b (const uint16_t *tile, int n, int k)
{
    int lane = (int)threadIdx.x % 32, r = lane % 8;

    n += lane / 16 * 8;
    k += lane / 8 % 2 * 8;
    return TB ? tile + (n + r) * (DEEP + PAD) + k
              : tile + (k + r) * (WIDE + PAD) + n;
}

/* A warp has 64 x 32 of the result: 4 x 4 products of 16 x 8. */
template <bool F16, bool TA, bool TB>
static __device__ void deeper (float sum[4][4][4], const uint16_t *a,
                               const uint16_t *b, int m, int n)
{
#pragma unroll
    for (int k = 0; k < DEEP; k += 16) {
        uint32_t fa[4][4], fb[2][4];

#pragma unroll
        for (int i = 0; i < 4; i++)
            fragments<TA> (fa[i], place_a<TA> (a, m + 16 * i, k));
#pragma unroll
        for (int j = 0; j < 2; j++)
            fragments<!TB> (fb[j], place_b<TB> (b, n + 16 * j, k));
#pragma unroll
        for (int i = 0; i < 4; i++) {
#pragma unroll
            for (int j = 0; j < 4; j++)
                product<F16> (sum[i][j], fa[i], &fb[j / 2][j % 2 * 2]);
        }
    }
}

/* Not in line: a kernel has 64 elements a thread, and as many copies of the
 * conversions take a compiler minutes. */
static __device__ __noinline__ float read (const void *at, size_t i,
                                           enum gemm_lt_dtype t)
{
    if (t == GEMM_LT_F32)
        return ((const float *)at)[i];
    return t == GEMM_LT_BF16 ? half_from_bf16 (((const uint16_t *)at)[i])
                             : half_from_f16 (((const uint16_t *)at)[i]);
}

static __device__ __noinline__ void write (void *at, size_t i,
                                           enum gemm_lt_dtype t, float x)
{
    if (t == GEMM_LT_F32)
        ((float *)at)[i] = x;
    else
        ((uint16_t *)at)[i] =
            t == GEMM_LT_BF16 ? half_to_bf16 (x) : half_to_f16 (x);
}

static __device__ void store (const struct gemm_lt_op *op, size_t m, size_t n,
                              float sum)
{
    size_t i = m * op->ldc + n;

    if (m >= op->m || n >= op->n)
        return;
    sum *= op->alpha;
    if (op->bias)
        sum += read (op->bias, n, op->out);
    if (op->beta != 0)
        sum += op->beta * read (op->c, i, op->out);
    write (op->c, i, op->out, sum);
}

static __device__ void store_all (const struct gemm_lt_op *op,
                                  const float sum[4][4][4], size_t m, size_t n)
{
    size_t lane = threadIdx.x % 32;

    m += lane / 4;
    n += lane % 4 * 2;
#pragma unroll
    for (int i = 0; i < 4; i++) {
#pragma unroll
        for (int j = 0; j < 4; j++) {
#pragma unroll
            for (int e = 0; e < 4; e++)
                store (op, m + 16 * i + e / 2 * 8, n + 8 * j + e % 2,
                       sum[i][j][e]);
        }
    }
}

template <bool TA>
static __device__ void bring_a (uint4 v[LOADS], const struct args *x, size_t m,
                                size_t k)
{
    struct stored s = {(const uint16_t *)x->op.a, TA ? x->op.k : x->op.m,
                       TA ? x->op.m : x->op.k, x->op.lda, x->wide_a};

    if (TA)
        bring<TALL> (v, &s, k, m);
    else
        bring<DEEP> (v, &s, m, k);
}

template <bool TB>
static __device__ void bring_b (uint4 v[LOADS], const struct args *x, size_t n,
                                size_t k)
{
    struct stored s = {(const uint16_t *)x->op.b, TB ? x->op.n : x->op.k,
                       TB ? x->op.k : x->op.n, x->op.ldb, x->wide_b};

    if (TB)
        bring<DEEP> (v, &s, n, k);
    else
        bring<WIDE> (v, &s, k, n);
}

/* While one pair of tiles is multiplied the next is on its way. */
template <bool F16, bool TA, bool TB>
static __global__ void __launch_bounds__ (THREADS) halves (struct args x)
{
    enum { SIZE = TALL * (DEEP + PAD) };
    __shared__ __align__ (16) uint16_t a[2][SIZE], b[2][SIZE];
    size_t m = (size_t)blockIdx.x * TALL, n = (size_t)blockIdx.y * WIDE;
    int warp = (int)threadIdx.x / 32, at = 0;
    float sum[4][4][4] = {};
    uint4 va[LOADS], vb[LOADS];

    bring_a<TA> (va, &x, m, 0);
    bring_b<TB> (vb, &x, n, 0);
    for (size_t k = 0; k < x.op.k; k += DEEP, at ^= 1) {
        keep<TA ? TALL : DEEP> (a[at], va);
        keep<TB ? DEEP : WIDE> (b[at], vb);
        __syncthreads ();
        if (k + DEEP < x.op.k) {
            bring_a<TA> (va, &x, m, k + DEEP);
            bring_b<TB> (vb, &x, n, k + DEEP);
        }
        deeper<F16, TA, TB> (sum, a[at], b[at], warp / 4 * 64, warp % 4 * 32);
    }
    store_all (&x.op, sum, m + warp / 4 * 64, n + warp % 4 * 32);
}

#define SIDE 64 /* tile of the f32 product; 4 x 4 elements a thread */
#define STEP 16

static __device__ float one (const float *x, size_t row, size_t column,
                             size_t rows, size_t columns, size_t ld,
                             bool transposed)
{
    if (row >= rows || column >= columns)
        return 0;
    return transposed ? x[column * ld + row] : x[row * ld + column];
}

/* Neighbouring threads bring neighbouring elements, whichever way it lies. */
static __device__ void bring_f32 (float tile[STEP][SIDE + 1], const float *x,
                                  size_t row, size_t k, size_t rows,
                                  size_t depth, size_t ld, bool by_row)
{
    for (int i = (int)threadIdx.x; i < STEP * SIDE; i += THREADS) {
        int r = by_row ? i / STEP : i % SIDE, d = by_row ? i % STEP : i / SIDE;

        tile[d][r] = one (x, row + r, k + d, rows, depth, ld, !by_row);
    }
}

static __global__ void __launch_bounds__ (THREADS) floats (struct gemm_lt_op op)
{
    __shared__ float a[STEP][SIDE + 1], b[STEP][SIDE + 1];
    size_t m = (size_t)blockIdx.x * SIDE, n = (size_t)blockIdx.y * SIDE;
    int i = (int)threadIdx.x / 16, j = (int)threadIdx.x % 16;
    float sum[4][4] = {};

    for (size_t k = 0; k < op.k; k += STEP) {
        bring_f32 (a, (const float *)op.a, m, k, op.m, op.k, op.lda, !op.ta);
        bring_f32 (b, (const float *)op.b, n, k, op.n, op.k, op.ldb, op.tb);
        __syncthreads ();
#pragma unroll
        for (int d = 0; d < STEP; d++) {
#pragma unroll
            for (int e = 0; e < 16; e++)
                sum[e / 4][e % 4] =
                    fmaf (a[d][i + e / 4 * 16], b[d][j + e % 4 * 16],
                          sum[e / 4][e % 4]);
        }
        __syncthreads ();
    }
#pragma unroll
    for (int e = 0; e < 16; e++)
        store (&op, m + i + e / 4 * 16, n + j + e % 4 * 16, sum[e / 4][e % 4]);
}

static bool wide (const void *at, size_t ld)
{
    return (uintptr_t)at % 16 == 0 && ld % 8 == 0;
}

static dim3 tiles (const struct gemm_lt_op *op, size_t side)
{
    return dim3 ((unsigned)((op->m + side - 1) / side),
                 (unsigned)((op->n + side - 1) / side));
}

template <bool F16>
static void halves_run (const struct args &x, cudaStream_t s)
{
    dim3 grid = tiles (&x.op, TALL);

    if (x.op.ta && x.op.tb)
        halves<F16, true, true><<<grid, THREADS, 0, s>>> (x);
    else if (x.op.ta)
        halves<F16, true, false><<<grid, THREADS, 0, s>>> (x);
    else if (x.op.tb)
        halves<F16, false, true><<<grid, THREADS, 0, s>>> (x);
    else
        halves<F16, false, false><<<grid, THREADS, 0, s>>> (x);
}

void gemm_own_run (const struct gemm_lt_op *op, void *stream)
{
    struct args x = {*op, wide (op->a, op->lda), wide (op->b, op->ldb)};
    cudaStream_t s = (cudaStream_t)stream;

    if (op->in == GEMM_LT_F32)
        floats<<<tiles (op, SIDE), THREADS, 0, s>>> (*op);
    else if (op->in == GEMM_LT_F16)
        halves_run<true> (x, s);
    else
        halves_run<false> (x, s);
}
