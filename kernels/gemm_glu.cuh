/* SPDX-License-Identifier: Apache-2.0
 * gemm_glu.cuh - what three warps make of a tile's sums: SwiGLU of gate and up,
 * or SwiGLU's backward of its gradient. For gemm_glu.cu. */
#ifndef KERN_GEMM_GLU_CUH
#define KERN_GEMM_GLU_CUH

#include "kernels/gemm_hopper.cuh"

#define LINES  4 /* rows of a warp at a time, 64 columns, 16 bytes a thread */
#define CHUNKS (COLS / 64)

struct glu_args {
    struct product p;
    int N;
    size_t F;
    uint16_t *y, *dgu;
    const uint16_t *gu;
};

/* Which helper a warp is, and where in its lines a thread. */
struct glu_place {
    int helper, r, u;

    __device__ __forceinline__ glu_place (void)
        : helper ((int)threadIdx.x / 32 - 1), r ((int)threadIdx.x % 32 / 8),
          u ((int)threadIdx.x % 8)
    {
    }
};

static __device__ __forceinline__ uint4 laid_get (uint32_t at)
{
    uint4 v;

    asm volatile("ld.shared.v4.b32 {%0,%1,%2,%3}, [%4];"
                 : "=r"(v.x), "=r"(v.y), "=r"(v.z), "=r"(v.w)
                 : "r"(at)
                 : "memory");
    return v;
}

/* What others of this launch may write elsewhere. */
static __device__ __forceinline__ uint4 far_get (const uint16_t *at)
{
    uint4 v;

    asm volatile("ld.global.L1::no_allocate.v4.b32 {%0,%1,%2,%3}, [%4];"
                 : "=r"(v.x), "=r"(v.y), "=r"(v.z), "=r"(v.w)
                 : "l"(at)
                 : "memory");
    return v;
}

static __device__ __forceinline__ void far_put (uint16_t *at, uint4 v)
{
    asm volatile(
        "st.global.L1::no_allocate.v4.b32 [%0], {%1,%2,%3,%4};" ::"l"(at),
        "r"(v.x), "r"(v.y), "r"(v.z), "r"(v.w)
        : "memory");
}

/* A chunk as it was laid down; rows past the array's are left out. */
static __device__ __forceinline__ void chunk_put (const CUtensorMap *to,
                                                  int column, int row,
                                                  uint32_t from)
{
    asm volatile("cp.async.bulk.tensor.2d.global.shared::cta.tile.bulk_group "
                 "[%0, {%1, %2}], [%3];" ::"l"(to),
                 "r"(column), "r"(row), "r"(from)
                 : "memory");
}

/* Gate and up as they are, halves of the tile. */
static __device__ __forceinline__ void gate_up_put (const product_room &m,
                                                    const CUtensorMap *gu,
                                                    const struct glu_args &a,
                                                    int row, int column)
{
#pragma unroll
    for (int k = 0; k < CHUNKS; k++)
        chunk_put (gu, column + k / 2 * (int)a.F + k % 2 * 64, row,
                   m.laid_at (k, 0, 0));
    asm volatile("cp.async.bulk.commit_group;" ::: "memory");
}

template <class T>
static __device__ __forceinline__ void act_put (const product_room &m,
                                                const struct glu_args &a,
                                                int row, int column)
{
    glu_place at;

#pragma unroll 1
    for (int i = at.helper; i < ROWS / LINES; i += HELPERS) {
        int r = i * LINES + at.r;
        uint16_t *y = a.y + (size_t)(row + r) * a.F + column + at.u * 8;

        if (row + r >= a.N)
            break;
#pragma unroll
        for (int k = 0; k < CHUNKS / 2; k++) {
            float g[8], u[8];

            T::split (laid_get (m.laid_at (k, r, at.u)), g);
            T::split (laid_get (m.laid_at (k + CHUNKS / 2, r, at.u)), u);
#pragma unroll
            for (int j = 0; j < 8; j++)
                g[j] = g[j] * T::sigmoid (g[j]) * u[j];
            far_put (y + k * 64, T::join (g));
        }
    }
}

template <class T>
static __device__ __forceinline__ void glu_fwd_help (
    const product_room &m, const struct product_maps &maps,
    const struct glu_args &a)
{
    int rank = (int)blockIdx.x % CLUSTER;
    bool one = threadIdx.x == 32;
    uint32_t parity = 0;

    EACH_TILE (a.p, i)
    {
        product_tile tile (a.p, i);
        int row = tile.first_row (rank), column = tile.column * HALF;

        barrier_wait (m.laid_full (), parity);
        parity ^= 1;
        if (one)
            gate_up_put (m, &maps.c, a, row, column);
        __syncwarp ();
        act_put<T> (m, a, row, column);
        if (one)
            asm volatile("cp.async.bulk.wait_group.read 0;" ::: "memory");
        laid_release (m);
    }
    if (one)
        asm volatile("cp.async.bulk.wait_group 0;" ::: "memory");
}

/* Gate and up of a warp's lines. */
struct glu_held {
    uint4 g[CHUNKS], u[CHUNKS];

    __device__ __forceinline__ void get (const uint16_t *gu, size_t F)
    {
#pragma unroll
        for (int k = 0; k < CHUNKS; k++) {
            g[k] = far_get (gu + k * 64);
            u[k] = far_get (gu + k * 64 + F);
        }
    }
};

/* Their gradients and the activation again; [dgu], [y] of these lines. */
template <class T>
static __device__ __forceinline__ void lines_bwd (const product_room &m,
                                                  const glu_held &h, int r,
                                                  int place, uint16_t *dgu,
                                                  uint16_t *y, size_t F)
{
#pragma unroll
    for (int k = 0; k < CHUNKS; k++) {
        float a[8], u[8], d[8], again[8];

        T::split (laid_get (m.laid_at (k, r, place)), d);
        T::split (h.g[k], a);
        T::split (h.u[k], u);
#pragma unroll
        for (int j = 0; j < 8; j++) {
            float s = T::sigmoid (a[j]), up = d[j] * u[j];

            again[j] = a[j] * s * u[j];
            d[j] = d[j] * a[j] * s;
            a[j] = up * s * (1 + a[j] * (1 - s));
        }
        far_put (dgu + k * 64, T::join (a));
        far_put (dgu + k * 64 + F, T::join (d));
        if (y)
            far_put (y + k * 64, T::join (again));
    }
}

/* A tile's lines, two lots of them held: what comes from far is on its way while
 * the sums are waited for, and while the lot before is made. */
template <class T>
static __device__ __forceinline__ void tile_bwd (const product_room &m,
                                                 const struct glu_args &a,
                                                 int row, int column,
                                                 uint32_t parity)
{
    glu_place at;
    int n = min (ROWS, a.N - row);
    size_t from = (size_t)(row + at.r) * a.F, in = (size_t)column + at.u * 8;
    const uint16_t *gu = a.gu + 2 * from + in;
    uint16_t *dgu = a.dgu + 2 * from + in, *y = a.y ? a.y + from + in : NULL;
    glu_held h[2];

#pragma unroll
    for (int k = 0; k < 2; k++) {
        int i = at.helper + k * HELPERS;

        if (i * LINES + at.r < n)
            h[k].get (gu + (size_t)i * LINES * 2 * a.F, a.F);
    }
    barrier_wait (m.laid_full (), parity);
#pragma unroll 1
    for (int i = at.helper; i * LINES + at.r < n; i += 2 * HELPERS) {
#pragma unroll
        for (int k = 0; k < 2; k++) {
            int line = i + k * HELPERS, next = line + 2 * HELPERS;
            size_t down = (size_t)line * LINES * a.F;

            if (line * LINES + at.r < n)
                lines_bwd<T> (m, h[k], line * LINES + at.r, at.u,
                              dgu + 2 * down, y ? y + down : NULL, a.F);
            if (next * LINES + at.r < n)
                h[k].get (gu + (size_t)next * LINES * 2 * a.F, a.F);
        }
    }
    __syncwarp ();
}

template <class T>
static __device__ __forceinline__ void glu_bwd_help (const product_room &m,
                                                     const struct glu_args &a)
{
    int rank = (int)blockIdx.x % CLUSTER;
    uint32_t parity = 0;

    EACH_TILE (a.p, i)
    {
        product_tile tile (a.p, i);

        tile_bwd<T> (m, a, tile.first_row (rank), tile.column * COLS, parity);
        parity ^= 1;
        laid_release (m);
    }
}

#endif
