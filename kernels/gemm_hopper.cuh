/* SPDX-License-Identifier: Apache-2.0
 * gemm_hopper.cuh - products of large matrices on sm_90a: how a block works. For
 * gemm_glu.cu.
 *
 * A block makes one tile of the result, 128 x 256, after the other. A warp brings
 * slices of both factors, 64 deep, to a ring in shared memory. Two groups of warps
 * sum 64 rows each, and lay the sums, rounded, into shared memory; three warps go
 * on with these while the next tile is summed. Two blocks are a cluster, with
 * tiles one below the other: each brings half of what they share for both.
 *
 * Sources: the order of tiles, Tillet et al. 2019, 10.1145/3315508.3329973; warps
 * that bring and that compute, Shah et al. 2024, arXiv:2407.08608. PTX ISA,
 * "Asynchronous Warpgroup Level Matrix Multiply-Accumulate Instructions" and
 * "cp.async.bulk.tensor". */
#ifndef KERN_GEMM_HOPPER_CUH
#define KERN_GEMM_HOPPER_CUH

#include "kernels/hopper.cuh"
#include "kernels/layers_cuda.h"

#define CLUSTER 2
#define ROWS    128 /* of a tile */
#define COLS    256
#define HALF    (COLS / 2)
#define DEEP    64 /* elements, 128 bytes, of a slice */
#define STAGES  3
#define HELPERS 3 /* warps that go on with sums */
#define BLOCK   (3 * GROUP)

#define A_BYTES    (ROWS * DEEP * 2)
#define HALF_BYTES (HALF * DEEP * 2)
#define STAGE      (A_BYTES + 2 * HALF_BYTES)
#define LAID_BYTES (ROWS * COLS * 2)
#define CHUNK      (ROWS * 128) /* bytes of 64 columns of what is laid down */

/* a (rows, in) by map [a]; [b] is (columns, in), or TURNED (in, columns).
 *   down, across   tiles of a cluster one below the other, and side by side
 *   deep           slices
 *   step, half     columns of b from a tile to the next, and to its other half */
struct product {
    int down, across, deep;
    int step, half;
};

struct product_maps {
    CUtensorMap a, b, c;
};

/* Shared memory; slices are named by their place in the ring. */
struct product_room {
    static constexpr int laid = STAGES * STAGE;
    static constexpr int barriers = laid + LAID_BYTES;
    static constexpr int bytes = barriers + 8 * (2 * STAGES + 2) + 1024;
    uint32_t base;

    __device__ __forceinline__ uint32_t slice (int s) const
    {
        return base + (uint32_t)s * STAGE;
    }
    __device__ __forceinline__ uint32_t full (int s) const
    {
        return base + barriers + (uint32_t)s * 8;
    }
    __device__ __forceinline__ uint32_t empty (int s) const
    {
        return full (STAGES + s);
    }
    __device__ __forceinline__ uint32_t laid_full (void) const
    {
        return full (2 * STAGES);
    }
    __device__ __forceinline__ uint32_t laid_empty (void) const
    {
        return full (2 * STAGES + 1);
    }
    /* Sixteen bytes, the [u]th of row [r]'s 64 columns [chunk]. */
    __device__ __forceinline__ uint32_t laid_at (int chunk, int r, int u) const
    {
        return base + laid + (uint32_t)(chunk * CHUNK + r * 128)
               + (uint32_t)((u ^ r % 8) * 16);
    }

    /* Of every thread of the block. */
    __device__ __forceinline__ void make (const char *raw)
    {
        base = (shared_at (raw) + 1023) & ~1023u;
        if (threadIdx.x == 0) {
            for (int s = 0; s < STAGES; s++) {
                barrier_make (full (s), 1);
                barrier_make (empty (s), 2 * GROUP / 32 * CLUSTER);
            }
            barrier_make (laid_full (), 2 * GROUP / 32);
            barrier_make (laid_empty (), 1);
            asm volatile("fence.mbarrier_init.release.cluster;" ::: "memory");
        }
    }
};

/* Of all blocks of the cluster. */
static __device__ __forceinline__ void cluster_sync (void)
{
    asm volatile("barrier.cluster.arrive.aligned;\n"
                 "barrier.cluster.wait.aligned;" ::
                     : "memory");
}

/* Arrive at another block's barrier, which lies as this one's. */
static __device__ __forceinline__ void barrier_arrive_at (uint32_t at,
                                                          int block)
{
    asm volatile("{.reg .b32 there;\n"
                 "mapa.shared::cluster.u32 there, %0, %1;\n"
                 "mbarrier.arrive.shared::cluster.b64 _, [there];}" ::"r"(at),
                 "r"(block)
                 : "memory");
}

/* A place in the ring, and how often it came round. */
struct product_turn {
    int s = 0;
    uint32_t parity = 0;

    __device__ __forceinline__ void next (void)
    {
        if (++s == STAGES) {
            s = 0;
            parity ^= 1;
        }
    }
};

/* The [i]th tile: GROUPED of a column, then the next column, there and back, so
 * that what is read at once is nearly square and stays in the L2 cache. */
#define GROUPED 8
struct product_tile {
    int row, column; /* of tiles of clusters */

    __device__ __forceinline__ product_tile (const struct product &p, int i)
    {
        int each = GROUPED * p.across, g = i / each, from = g * GROUPED;
        int in = min (GROUPED, p.down - from);

        row = from + i % each % in;
        column = i % each / in;
        if (g % 2)
            column = p.across - 1 - column;
    }
    __device__ __forceinline__ int first_row (int rank) const
    {
        return (row * CLUSTER + rank) * ROWS;
    }
};

#define EACH_TILE(p, i)                                                        \
    for (int i = (int)blockIdx.x / CLUSTER; i < (p).down * (p).across;         \
         i += (int)gridDim.x / CLUSTER)

/* 64 columns of [a] from [k] on, of ROWS rows. */
static __device__ __forceinline__ void a_bring (uint32_t to,
                                                const CUtensorMap *a, int k,
                                                int row, uint32_t barrier)
{
    asm volatile(
        "cp.async.bulk.tensor.2d.shared::cluster.global.tile."
        "mbarrier::complete_tx::bytes [%0], [%1, {%2, %3}], [%4];" ::"r"(to),
        "l"(a), "r"(k), "r"(row), "r"(barrier)
        : "memory");
}

/* To all blocks of the cluster: HALF rows of [b], or TURNED as many columns in two
 * lots of 64. */
template <int TURNED>
static __device__ __forceinline__ void b_bring (uint32_t to,
                                                const CUtensorMap *b, int k,
                                                int column, uint32_t barrier)
{
    const uint16_t all = (1 << CLUSTER) - 1;

    if (TURNED)
        asm volatile(
            "cp.async.bulk.tensor.3d.shared::cluster.global.tile.mbarrier::"
            "complete_tx::bytes.multicast::cluster [%0], [%1, {%2, %3, %4}], "
            "[%5], %6;" ::"r"(to),
            "l"(b), "r"(0), "r"(k), "r"(column / 64), "r"(barrier), "h"(all)
            : "memory");
    else
        asm volatile(
            "cp.async.bulk.tensor.2d.shared::cluster.global.tile.mbarrier::"
            "complete_tx::bytes.multicast::cluster [%0], [%1, {%2, %3}], [%4], "
            "%5;" ::"r"(to),
            "l"(b), "r"(k), "r"(column), "r"(barrier), "h"(all)
            : "memory");
}

/* Of one thread. */
template <int TURNED>
static __device__ __forceinline__ void product_bring (
    const product_room &m, const struct product_maps &maps,
    const struct product &p)
{
    int rank = (int)blockIdx.x % CLUSTER;
    product_turn turn;

    EACH_TILE (p, i)
    {
        product_tile tile (p, i);
        int column = tile.column * p.step + rank * p.half;

#pragma unroll 1
        for (int k = 0; k < p.deep; k++, turn.next ()) {
            uint32_t to = m.slice (turn.s), full = m.full (turn.s);

            barrier_wait (m.empty (turn.s), turn.parity ^ 1);
            barrier_expect (full, STAGE);
            a_bring (to, &maps.a, k * DEEP, tile.first_row (rank), full);
            b_bring<TURNED> (to + A_BYTES + rank * HALF_BYTES, &maps.b,
                             k * DEEP, column, full);
        }
    }
}

/* Rows of 128 bytes, eights of them 1024 bytes apart, swizzled over 128 bytes;
 * TURNED: lots of 64 columns of such are 8192 bytes apart. */
template <int TURNED>
static __device__ __forceinline__ uint64_t slice_describe (uint32_t at)
{
    return (uint64_t)(at >> 4 & 0x3fff)
           | (uint64_t)(TURNED ? 8192 >> 4 : 1) << 16
           | (uint64_t)(1024 >> 4) << 32 | (uint64_t)1 << 62;
}

#define LIST128                                                                \
    "%0,%1,%2,%3,%4,%5,%6,%7,%8,%9,%10,%11,%12,%13,%14,%15,%16,%17,%18,%19,"   \
    "%20,%21,%22,%23,%24,%25,%26,%27,%28,%29,%30,%31,%32,%33,%34,%35,%36,%37," \
    "%38,%39,%40,%41,%42,%43,%44,%45,%46,%47,%48,%49,%50,%51,%52,%53,%54,%55," \
    "%56,%57,%58,%59,%60,%61,%62,%63,%64,%65,%66,%67,%68,%69,%70,%71,%72,%73," \
    "%74,%75,%76,%77,%78,%79,%80,%81,%82,%83,%84,%85,%86,%87,%88,%89,%90,%91," \
    "%92,%93,%94,%95,%96,%97,%98,%99,%100,%101,%102,%103,%104,%105,%106,%107," \
    "%108,%109,%110,%111,%112,%113,%114,%115,%116,%117,%118,%119,%120,%121,"   \
    "%122,%123,%124,%125,%126,%127"

/* c (64 x 256) = or += a b, of slices' sixteen; [add] at run time. */
#define MULTIPLY(name)                                                         \
    template <int TURNED>                                                      \
    static __device__ __forceinline__ void multiply (                          \
        as_##name, float (&c)[128], uint64_t a, uint64_t b, int add)           \
    {                                                                          \
        asm volatile(                                                          \
            "{.reg .pred p; setp.ne.b32 p, %130, 0;\n"                         \
            "wgmma.mma_async.sync.aligned.m64n256k16.f32." #name "." #name     \
            " {" LIST128 "}, %128, %129, p, 1, 1, 0, %131;}"                   \
            : SUMS32 (c, 0), SUMS32 (c, 32), SUMS32 (c, 64), SUMS32 (c, 96)    \
            : "l"(a), "l"(b), "r"(add), "n"(TURNED));                          \
    }

MULTIPLY (bf16)
MULTIPLY (f16)

/* The group's slice at [s] is read, in every block that it was brought to. */
static __device__ __forceinline__ void slice_release (const product_room &m,
                                                      int s)
{
    int lane = (int)threadIdx.x % 32;

    if (lane < CLUSTER)
        barrier_arrive_at (m.empty (s), lane);
}

/* c = a tile's 64 rows of group [group]; [turn] goes on. */
template <class T, int TURNED>
static __device__ __forceinline__ void product_sum (float (&c)[128],
                                                    const product_room &m,
                                                    int deep, int group,
                                                    product_turn &turn)
{
    int last = 0;

#pragma unroll 1
    for (int k = 0; k < deep; k++) {
        uint32_t at = m.slice (turn.s);
        uint64_t a = slice_describe<0> (at + (uint32_t)group * (A_BYTES / 2));
        uint64_t b = slice_describe<TURNED> (at + A_BYTES);

        barrier_wait (m.full (turn.s), turn.parity);
        products_fence ();
#pragma unroll
        for (int j = 0; j < DEEP / 16; j++)
            multiply<TURNED> (T (), c, a + j * 2, b + j * (TURNED ? 128 : 2),
                              j > 0 ? 1 : k);
        products_commit ();
        products_wait<1> ();
        if (k > 0)
            slice_release (m, last);
        last = turn.s;
        turn.next ();
    }
    products_wait<0> ();
    slice_release (m, last);
    keep (c);
}

/* The group's rows, rounded, for whoever goes on with them. */
template <class T>
static __device__ __forceinline__ void sums_lay (const product_room &m,
                                                 const float (&c)[128],
                                                 int group)
{
    int lane = (int)threadIdx.x % 32;
    int r = group * 64 + (int)threadIdx.x / 32 % 4 * 16 + lane % 16;

#pragma unroll
    for (int j = 0; j < COLS / 16; j++)
        asm volatile(
            "stmatrix.sync.aligned.m8n8.x4.shared.b16 [%0], {%1,%2,%3,%4};" ::
                "r"(m.laid_at (j / 4, r, j % 4 * 2 + lane / 16)),
            "r"(T::pair (c + j * 8)), "r"(T::pair (c + j * 8 + 2)),
            "r"(T::pair (c + j * 8 + 4)), "r"(T::pair (c + j * 8 + 6))
            : "memory");
    /* the copy engine may read it */
    asm volatile("fence.proxy.async.shared::cta;" ::: "memory");
    __syncwarp ();
    if (lane == 0)
        barrier_arrive (m.laid_full ());
}

/* Of group 0 or 1 of those that sum. */
template <class T, int TURNED>
static __device__ __forceinline__ void product_work (const product_room &m,
                                                     const struct product &p,
                                                     int group)
{
    float c[128];
    uint32_t parity = 1;
    product_turn turn;

    EACH_TILE (p, i)
    {
        product_sum<T, TURNED> (c, m, p.deep, group, turn);
        barrier_wait (m.laid_empty (), parity);
        sums_lay<T> (m, c, group);
        parity ^= 1;
    }
}

/* The helpers are done with what was laid down. */
static __device__ __forceinline__ void laid_release (const product_room &m)
{
    asm volatile("bar.sync 1, %0;" ::"n"(HELPERS * 32) : "memory");
    if (threadIdx.x == 32)
        barrier_arrive (m.laid_empty ());
}

#endif
