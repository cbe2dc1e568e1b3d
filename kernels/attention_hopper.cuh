/* SPDX-License-Identifier: Apache-2.0
 * attention_hopper.cuh - what attention on sm_90a is made of: tiles that the
 * copy engine brings, barriers, and products that the tensor cores read
 * themselves. For attention_hopper_bwd.cu.
 *
 * A tile is 64 rows of 64 elements, 128 bytes a row, swizzled over 128 bytes;
 * larger ones are several on end. Both ways round one descriptor names it:
 * eights of rows lie 1024 bytes apart, be they what is summed over or what is
 * not.
 *
 * PTX ISA: "Asynchronous Warpgroup Level Matrix Multiply-Accumulate
 * Instructions", "cp.async.bulk.tensor", "mbarrier". Of a 64 x N sum a thread
 * has two neighbours of row 16 warp + lane / 4 and two of the row 8 below, in
 * every eight columns; rounded in pairs these are the left factor's fragments
 * of the next product. */
#ifndef KERN_ATTENTION_HOPPER_CUH
#define KERN_ATTENTION_HOPPER_CUH

#include <cuda_bf16.h>
#include <cuda_fp16.h>

#include "kernels/hopper.cuh"

#define TILE       64 /* rows of a tile, elements of a head */
#define TILE_BYTES (TILE * TILE * 2)
#define LOG2E      1.4426950408889634f

/* A tile of head [h] from position [t] of sequence [b]; what lies past the
 * sequence is 0. */
static __device__ __forceinline__ void tile_bring (uint32_t to,
                                                   const CUtensorMap *from,
                                                   int h, int t, int b,
                                                   uint32_t barrier)
{
    asm volatile("cp.async.bulk.tensor.4d.shared::cluster.global.tile."
                 "mbarrier::complete_tx::bytes [%0], [%1, {%2, %3, %4, %5}], "
                 "[%6];" ::"r"(to),
                 "l"(from), "r"(0), "r"(h), "r"(t), "r"(b), "r"(barrier)
                 : "memory");
}

static __device__ __forceinline__ void bytes_bring (uint32_t to,
                                                    const void *from, int bytes,
                                                    uint32_t barrier)
{
    asm volatile("cp.async.bulk.shared::cluster.global.mbarrier::complete_tx::"
                 "bytes [%0], [%1], %2, [%3];" ::"r"(to),
                 "l"(from), "r"(bytes), "r"(barrier)
                 : "memory");
}

/* Of a tile, for either side of a product. Sixteen columns on it is 2 more, and
 * sixteen rows on 128. */
static __device__ __forceinline__ uint64_t describe (uint32_t at)
{
    return (uint64_t)(at >> 4 & 0x3fff) | (uint64_t)1 << 16
           | (uint64_t)(1024 >> 4) << 32 | (uint64_t)1 << 62;
}

#define LIST32                                                                 \
    "%0,%1,%2,%3,%4,%5,%6,%7,%8,%9,%10,%11,%12,%13,%14,%15,%16,%17,%18,%19,"   \
    "%20,%21,%22,%23,%24,%25,%26,%27,%28,%29,%30,%31"
#define WGMMA(type)                                                            \
    "wgmma.mma_async.sync.aligned.m64n64k16.f32." type "." type " "

/* c (64 x 64) = or += a b, of tiles' sixteen columns each. */
#define TILES(name, type)                                                      \
    template <int ADD>                                                         \
    static __device__ __forceinline__ void rows_##name (                       \
        float (&c)[32], uint64_t a, uint64_t b)                                \
    {                                                                          \
        asm volatile("{.reg .pred p; setp.ne.b32 p, %34, 0;" WGMMA (           \
                         type) "{" LIST32 "}, %32, %33, p, 1, 1, 0, 0;}"       \
                     : SUMS32 (c, 0)                                           \
                     : "l"(a), "l"(b), "n"(ADD));                              \
    }

/* The same where b's sixteen lie along its rows and a's fragment of sixteen columns is in
 * registers; [add] at run time. */
#define COLUMNS(name, type)                                                    \
    static __device__ __forceinline__ void columns_##name (                    \
        float (&c)[32], const uint32_t *a, uint64_t b, int add)                \
    {                                                                          \
        asm volatile(                                                          \
            "{.reg .pred p; setp.ne.b32 p, %37, 0;" WGMMA (                    \
                type) "{" LIST32 "}, {%32,%33,%34,%35}, %36, p, 1, 1, 1;}"     \
            : SUMS32 (c, 0)                                                    \
            : "r"(a[0]), "r"(a[1]), "r"(a[2]), "r"(a[3]), "l"(b), "r"(add));   \
    }

TILES (bf16, "bf16")
TILES (f16, "f16")
COLUMNS (bf16, "bf16")
COLUMNS (f16, "f16")

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
    template <int ADD>
    static __device__ __forceinline__ void rows (float (&c)[32], uint64_t a,
                                                 uint64_t b)
    {
        rows_bf16<ADD> (c, a, b);
    }
    static __device__ __forceinline__ void columns (float (&c)[32],
                                                    const uint32_t *a,
                                                    uint64_t b, int add)
    {
        columns_bf16 (c, a, b, add);
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
    template <int ADD>
    static __device__ __forceinline__ void rows (float (&c)[32], uint64_t a,
                                                 uint64_t b)
    {
        rows_f16<ADD> (c, a, b);
    }
    static __device__ __forceinline__ void columns (float (&c)[32],
                                                    const uint32_t *a,
                                                    uint64_t b, int add)
    {
        columns_f16 (c, a, b, add);
    }
};

/* c (64 x 64) = the tile of [a] times the turned rows of [b], over 64 elements. */
template <class E>
static __device__ __forceinline__ void product_rows (float (&c)[32], uint64_t a,
                                                     uint64_t b)
{
    E::template rows<0> (c, a, b);
#pragma unroll
    for (int k = 1; k < TILE / 16; k++)
        E::template rows<1> (c, a + k * 2, b + k * 2);
}

/* c (64 x 64) = the fragments of a (64 x 4N) times 4N rows of [b], or that much
 * more with [add]. */
template <class E, int N>
static __device__ __forceinline__ void product_columns (float (&c)[32],
                                                        const uint32_t (&a)[N],
                                                        uint64_t b, bool add)
{
    E::columns (c, a, b, add);
#pragma unroll
    for (int k = 1; k < N / 4; k++)
        E::columns (c, a + k * 4, b + k * 128, 1);
}

/* 2^x to two units in the last place; 0 for -Inf, NaN for NaN. */
static __device__ __forceinline__ float power_of_2 (float x)
{
    float y;

    asm("ex2.approx.ftz.f32 %0, %1;" : "=f"(y) : "f"(x));
    return y;
}

/* Rows row.. of a warp's 16 x 64 times [times]; the rows before T. */
template <class E>
static __device__ __forceinline__ void result_store (uint16_t *at, size_t pitch,
                                                     const float (&c)[32],
                                                     int row, int T,
                                                     float times)
{
    int lane = (int)threadIdx.x % 32, r = row + lane / 4;

#pragma unroll
    for (int n = 0; n < 8; n++) {
        int column = n * 8 + lane % 4 * 2;
        const float *x = c + n * 4;

        if (r < T)
            *(uint32_t *)(at + (size_t)r * pitch + column) =
                E::pack (x[0] * times, x[1] * times);
        if (r + 8 < T)
            *(uint32_t *)(at + (size_t)(r + 8) * pitch + column) =
                E::pack (x[2] * times, x[3] * times);
    }
}

#endif
