/* SPDX-License-Identifier: Apache-2.0
 * attention_half.cuh - tiles of bf16 or f16 in shared memory, and 16 x 8 x 16
 * products of them on the tensor cores. For attention_half_fwd.cu and
 * attention_half_bwd.cu.
 *
 * Fragments are those of the PTX manual's mma.m16n8k16: of a 16 x 8 result a
 * thread has two neighbours of row lane / 4 and two of row lane / 4 + 8. */
#ifndef KERN_ATTENTION_HALF_CUH
#define KERN_ATTENTION_HALF_CUH

#include <cuda_bf16.h>
#include <cuda_fp16.h>
#include <stdint.h>

#define WARPS   4
#define THREADS (WARPS * 32)

struct bf16 {
    static __device__ __forceinline__ uint32_t pack (float low, float high)
    {
        __nv_bfloat162 h = __floats2bfloat162_rn (low, high);

        return *(uint32_t *)&h;
    }
    static __device__ __forceinline__ float2 floats (uint32_t two)
    {
        return __bfloat1622float2 (*(__nv_bfloat162 *)&two);
    }
    static __device__ __forceinline__ void mma (float *c, const uint32_t *a,
                                                uint32_t b0, uint32_t b1)
    {
        asm volatile("mma.sync.aligned.m16n8k16.row.col.f32.bf16.bf16.f32 "
                     "{%0,%1,%2,%3}, {%4,%5,%6,%7}, {%8,%9}, {%0,%1,%2,%3};"
                     : "+f"(c[0]), "+f"(c[1]), "+f"(c[2]), "+f"(c[3])
                     : "r"(a[0]), "r"(a[1]), "r"(a[2]), "r"(a[3]), "r"(b0),
                       "r"(b1));
    }
};

struct f16 {
    static __device__ __forceinline__ uint32_t pack (float low, float high)
    {
        __half2 h = __floats2half2_rn (low, high);

        return *(uint32_t *)&h;
    }
    static __device__ __forceinline__ float2 floats (uint32_t two)
    {
        return __half22float2 (*(__half2 *)&two);
    }
    static __device__ __forceinline__ void mma (float *c, const uint32_t *a,
                                                uint32_t b0, uint32_t b1)
    {
        asm volatile("mma.sync.aligned.m16n8k16.row.col.f32.f16.f16.f32 "
                     "{%0,%1,%2,%3}, {%4,%5,%6,%7}, {%8,%9}, {%0,%1,%2,%3};"
                     : "+f"(c[0]), "+f"(c[1]), "+f"(c[2]), "+f"(c[3])
                     : "r"(a[0]), "r"(a[1]), "r"(a[2]), "r"(a[3]), "r"(b0),
                       "r"(b1));
    }
};

/* A tile's row in shared memory: 16 bytes more than its width, so that the eight
 * rows of an 8 x 8 matrix lie in different banks. */
#define PITCH(width) ((width) + 8)

static __device__ __forceinline__ uint32_t shared_at (const uint16_t *p)
{
    return (uint32_t)__cvta_generic_to_shared (p);
}

static __device__ __forceinline__ void copies_end (void)
{
    asm volatile("cp.async.commit_group;" ::: "memory");
}

/* Until at most [N] groups of this thread's copies are under way. */
template <int N> static __device__ __forceinline__ void copies_wait (void)
{
    asm volatile("cp.async.wait_group %0;" ::"n"(N) : "memory");
}

/* Rows of the global memory: [at] is row 0, rows lie [pitch] elements apart. */
struct rows {
    const uint16_t *at;
    size_t pitch;
};

/* Copy ROWS rows from [first] to a tile of WIDTH; what lies past [T] rows or [D]
 * columns is 0. [aligned]: rows begin at 16 bytes and D is a multiple of 8. */
template <int ROWS, int WIDTH>
static __device__ __forceinline__ void tile_load (uint16_t *tile, struct rows x,
                                                  int first, int T, int D,
                                                  bool aligned)
{
    constexpr int CHUNKS = WIDTH / 8;

    for (int i = (int)threadIdx.x; i < ROWS * CHUNKS; i += THREADS) {
        int row = i / CHUNKS, column = i % CHUNKS * 8;
        uint16_t *to = tile + row * PITCH (WIDTH) + column;
        bool in = first + row < T && column < D;
        const uint16_t *from =
            in ? x.at + (size_t)(first + row) * x.pitch + column : x.at;

        if (aligned) {
            asm volatile("cp.async.cg.shared.global [%0], [%1], 16, %2;" ::"r"(
                             shared_at (to)),
                         "l"(from), "r"(in ? 16 : 0)
                         : "memory");
            continue;
        }
        for (int k = 0; k < 8; k += 2)
            *(uint32_t *)(to + k) =
                in && column + k < D ? *(const uint32_t *)(from + k) : 0;
    }
}

/* 16 x 16 from (row, column): A of a product. */
template <int WIDTH>
static __device__ __forceinline__ void frag_a (uint32_t *r,
                                               const uint16_t *tile, int row,
                                               int column)
{
    int lane = (int)threadIdx.x % 32;
    uint32_t at = shared_at (tile + (row + lane % 16) * PITCH (WIDTH) + column
                             + lane / 16 * 8);

    asm volatile("ldmatrix.sync.aligned.m8n8.x4.shared.b16 {%0,%1,%2,%3}, "
                 "[%4];"
                 : "=r"(r[0]), "=r"(r[1]), "=r"(r[2]), "=r"(r[3])
                 : "r"(at)
                 : "memory");
}

/* B of two products, each 16 deep and 8 wide: r[0], r[1] for rows row..row+7 of
 * the tile, r[2], r[3] for the next eight; the depth runs along its columns. */
template <int WIDTH>
static __device__ __forceinline__ void frag_b_rows (uint32_t *r,
                                                    const uint16_t *tile,
                                                    int row, int column)
{
    int lane = (int)threadIdx.x % 32;
    uint32_t at =
        shared_at (tile + (row + lane % 8 + lane / 16 * 8) * PITCH (WIDTH)
                   + column + lane / 8 % 2 * 8);

    asm volatile("ldmatrix.sync.aligned.m8n8.x4.shared.b16 {%0,%1,%2,%3}, "
                 "[%4];"
                 : "=r"(r[0]), "=r"(r[1]), "=r"(r[2]), "=r"(r[3])
                 : "r"(at)
                 : "memory");
}

/* The same where the depth runs along the tile's rows: columns
 * column..column+7, and the next eight. */
template <int WIDTH>
static __device__ __forceinline__ void frag_b_columns (uint32_t *r,
                                                       const uint16_t *tile,
                                                       int row, int column)
{
    int lane = (int)threadIdx.x % 32;
    uint32_t at = shared_at (tile + (row + lane % 16) * PITCH (WIDTH) + column
                             + lane / 16 * 8);

    asm volatile("ldmatrix.sync.aligned.m8n8.x4.trans.shared.b16 "
                 "{%0,%1,%2,%3}, [%4];"
                 : "=r"(r[0]), "=r"(r[1]), "=r"(r[2]), "=r"(r[3])
                 : "r"(at)
                 : "memory");
}

/* c (MT times 16 x COLUMNS) = rows row.. of [a] times the turned rows of [b]. */
template <class E, int MT, int COLUMNS, int WIDTH>
static __device__ __forceinline__ void product_rows (float (*c)[COLUMNS / 8][4],
                                                     const uint16_t *a, int row,
                                                     const uint16_t *b)
{
#pragma unroll
    for (int m = 0; m < MT; m++)
#pragma unroll
        for (int n = 0; n < COLUMNS / 2; n++)
            c[m][n / 4][n % 4] = 0;
#pragma unroll
    for (int k = 0; k < WIDTH; k += 16) {
        uint32_t fa[MT][4], fb[4];

#pragma unroll
        for (int m = 0; m < MT; m++)
            frag_a<WIDTH> (fa[m], a, row + m * 16, k);
#pragma unroll
        for (int n = 0; n < COLUMNS; n += 16) {
            frag_b_rows<WIDTH> (fb, b, n, k);
#pragma unroll
            for (int m = 0; m < MT; m++) {
                E::mma (c[m][n / 8], fa[m], fb[0], fb[1]);
                E::mma (c[m][n / 8 + 1], fa[m], fb[2], fb[3]);
            }
        }
    }
}

/* c (MT times 16 x OUT) += p (16 x DEPTH each, results of the above, rounded)
 * times columns from.. of [b]. */
template <class E, int MT, int DEPTH, int OUT, int WIDTH>
static __device__ __forceinline__ void product_columns (
    float (*c)[OUT / 8][4], const float (*p)[DEPTH / 8][4], const uint16_t *b,
    int from)
{
#pragma unroll
    for (int k = 0; k < DEPTH; k += 16) {
        uint32_t fa[MT][4], fb[4];

#pragma unroll
        for (int m = 0; m < MT; m++) {
            const float *low = p[m][k / 8], *high = p[m][k / 8 + 1];

            fa[m][0] = E::pack (low[0], low[1]);
            fa[m][1] = E::pack (low[2], low[3]);
            fa[m][2] = E::pack (high[0], high[1]);
            fa[m][3] = E::pack (high[2], high[3]);
        }
#pragma unroll
        for (int n = 0; n < OUT; n += 16) {
            frag_b_columns<WIDTH> (fb, b, k, from + n);
#pragma unroll
            for (int m = 0; m < MT; m++) {
                E::mma (c[m][n / 8], fa[m], fb[0], fb[1]);
                E::mma (c[m][n / 8 + 1], fa[m], fb[2], fb[3]);
            }
        }
    }
}

/* 2^x to two units in the last place; 0 for -Inf, NaN for NaN. */
static __device__ __forceinline__ float power_of_2 (float x)
{
    float y;

    asm("ex2.approx.ftz.f32 %0, %1;" : "=f"(y) : "f"(x));
    return y;
}

/* Rows row.. of a warp's 16 x OUT times [times] to global memory, from column
 * [from]; the rows before T, the columns before D. */
template <class E, int OUT>
static __device__ __forceinline__ void result_store (uint16_t *at, size_t pitch,
                                                     const float (*c)[4],
                                                     int row, int from, int T,
                                                     int D, float times0,
                                                     float times1)
{
    int lane = (int)threadIdx.x % 32, r = row + lane / 4;

#pragma unroll
    for (int n = 0; n < OUT / 8; n++) {
        int column = from + n * 8 + lane % 4 * 2;

        if (column >= D)
            continue;
        if (r < T)
            *(uint32_t *)(at + (size_t)r * pitch + column) =
                E::pack (c[n][0] * times0, c[n][1] * times0);
        if (r + 8 < T)
            *(uint32_t *)(at + (size_t)(r + 8) * pitch + column) =
                E::pack (c[n][2] * times1, c[n][3] * times1);
    }
}

#define LOG2E 1.4426950408889634f
#define LN2   0.6931471805599453f
#define BLOCK (WARPS * 16) /* rows of a block, a tile a warp */

struct half_args {
    uint16_t *out; /* y, or dqkv */
    const uint16_t *qkv, *dy, *y;
    const int32_t *starts; /* of docs.h; NULL: one document a row */
    float *lse, *delta;
    int T, H, G, D;
    float scale;
    bool aligned;
};

/* One head of one sequence. */
struct head {
    struct rows q, k, v, y;
    size_t at;      /* of its row of lse and delta */
    size_t q_first; /* of its first element in qkv */
};

static __device__ __forceinline__ struct head head_of (
    const struct half_args &a, int b, int h)
{
    size_t row = (size_t)(a.H + 2 * a.G) * a.D, first = (size_t)b * a.T * row;
    const uint16_t *k = a.qkv + first + (size_t)(a.H + h / (a.H / a.G)) * a.D;
    struct head x;

    x.q_first = first + (size_t)h * a.D;
    x.q = {a.qkv + x.q_first, row};
    x.k = {k, row};
    x.v = {k + (size_t)a.G * a.D, row};
    x.y = {a.dy + ((size_t)b * a.T * a.H + h) * a.D, (size_t)a.H * a.D};
    x.at = ((size_t)b * a.H + h) * a.T;
    return x;
}

/* Of position [t] of row [b], or of the last one: where its document begins, and
 * where the next does. Without DOCS a row is one. */
template <bool DOCS>
static __device__ __forceinline__ int start_of (const struct half_args &a,
                                                int b, int t)
{
    return DOCS ? a.starts[(size_t)b * a.T + min (t, a.T - 1)] : 0;
}

template <bool DOCS>
static __device__ __forceinline__ int end_of (const struct half_args &a, int b,
                                              int t)
{
    int low = min (t, a.T - 1) + 1, high = a.T;
    const int32_t *starts = DOCS ? a.starts + (size_t)b * a.T : NULL;

    while (DOCS && low < high) {
        int mid = (low + high) / 2;

        if (starts[mid] <= min (t, a.T - 1))
            low = mid + 1;
        else
            high = mid;
    }
    return high;
}

/* What the registers hold: 16-row tiles a warp in each kernel, columns of a step,
 * queries of a step and columns of dk and dv a block of keys. */
template <int WIDTH> struct plan {
    static constexpr int fwd_tiles = WIDTH > 128 ? 1 : 2;
    static constexpr int queries_tiles = WIDTH > 128 ? 1 : 2;
    static constexpr int keys_tiles = WIDTH > 64 ? 1 : 2;
    static constexpr int columns = WIDTH > 128 ? 32 : 64;
    static constexpr int bwd_columns = WIDTH > 64 ? 32 : 64;
    static constexpr int queries = 32;
    static constexpr int out = WIDTH > 128 ? 128 : WIDTH;
    static constexpr int tile = PITCH (WIDTH) * 2;
    static constexpr int fwd_room = (fwd_tiles * BLOCK + 4 * columns) * tile;
    static constexpr int keys_room =
        (2 * keys_tiles * BLOCK + 4 * queries) * tile + 4 * queries * 4;
    static constexpr int queries_room =
        (2 * queries_tiles * BLOCK + 4 * bwd_columns) * tile;
};

/* Of [rows] rows each. */
static unsigned blocks (int T, int rows)
{
    return (unsigned)((T + rows - 1) / rows);
}

/* [room] bytes of shared memory; an error shows at the launch. */
template <class F>
static void launch (F *kernel, dim3 grid, int room, const struct half_args &a,
                    void *stream)
{
    (void)cudaFuncSetAttribute ((const void *)kernel,
                                cudaFuncAttributeMaxDynamicSharedMemorySize,
                                room);
    kernel<<<grid, THREADS, room, (cudaStream_t)stream>>> (a);
}

static struct half_args args_of (size_t T, size_t H, size_t G, size_t D,
                                 double scale)
{
    struct half_args a = {};

    a.T = (int)T;
    a.H = (int)H;
    a.G = (int)G;
    a.D = (int)D;
    a.scale = (float)scale;
    a.aligned = D % 8 == 0;
    return a;
}

#endif
