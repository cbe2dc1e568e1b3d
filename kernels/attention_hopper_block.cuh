/* SPDX-License-Identifier: Apache-2.0
 * attention_hopper_block.cuh - how a block of attention's backward on sm_90a works:
 * what its four groups of warps share, its pieces of work, and the group that
 * brings tiles. For attention_hopper_bwd.cu.
 *
 * A block takes pieces off a counter. Of a piece the keys and values are held, the
 * queries and their dy pass through a ring. Two groups have 64 keys each and make
 * dk and dv (attention_hopper_keys.cuh); what they find of the logits' gradients
 * goes through a second ring to a third, which makes dq
 * (attention_hopper_dq.cuh). */
#ifndef KERN_ATTENTION_HOPPER_BLOCK_CUH
#define KERN_ATTENTION_HOPPER_BLOCK_CUH

#include "kernels/attention_hopper.cuh"

#define GROUPS  2               /* that have keys */
#define ROWS    (GROUPS * TILE) /* keys of a piece */
#define WORKERS (GROUPS * 4)    /* warps that have keys */
#define BLOCK   ((GROUPS + 2) * GROUP)

#define STAGES 4 /* of queries, 16.5 KiB each */
#define SLOTS  2 /* of logits' gradients, 16 KiB each */
#define HOLDS  2 /* of keys and values, 32 KiB each */

/*   out       dqkv
 *   stats     (B,H,tiles of padded T) of 64 lse in base 2, 64 delta, in the order
 *             of stat_at
 *   sums      the same, of a tile's dq, 64 x 64 in the order of registers
 *   counter   of pieces taken
 *   turns     the same, of 4 counts of blocks that have added to sums
 *   chunk     key-value heads that are worked on side by side */
struct hopper_args {
    uint16_t *out;
    float *stats, *sums;
    int *counter, *turns;
    int B, T, H, G, chunk;
    float scale;
};

/* qkv (B,T,H+2G,64) and dy (B,T,H,64), tiles of both. */
struct hopper_maps {
    CUtensorMap qkv, dy;
};

#define PAD(T) (((T) + 127) / 128 * 128)

/* Where in a tile's 64 the one of query [t] is: a thread that has two neighbours of
 * every eight columns reads its own in a row. */
static __device__ __forceinline__ int stat_at (int t)
{
    return t % 8 / 2 * 16 + t % TILE / 8 * 2 + t % 2;
}

static __device__ __forceinline__ void release (uint32_t barrier)
{
    __syncwarp ();
    if (threadIdx.x % 32 == 0)
        barrier_arrive (barrier);
}

/* Which phase the [i]th use of a place of [N] is in. */
template <int N> static __device__ __forceinline__ int phase_of (int i)
{
    return (int)((unsigned)i / N & 1);
}

/* Shared memory: the held tiles, the rings, barriers, the pieces. Places are
 * named by the count of their uses, from 0. */
struct hopper_room {
    static constexpr int hold = 2 * GROUPS * TILE_BYTES;
    static constexpr int pass = 2 * TILE_BYTES, slot = GROUPS * TILE_BYTES;
    static constexpr int stat = TILE * 8;
    static constexpr int passes = HOLDS * hold;
    static constexpr int slots = passes + STAGES * pass;
    static constexpr int stats = slots + SLOTS * slot;
    static constexpr int barriers = stats + STAGES * stat;
    static constexpr int pieces = barriers + 8 * 2 * (HOLDS + STAGES + SLOTS);
    static constexpr int bytes = pieces + HOLDS * 4 + 1024;
    uint32_t base;

    __device__ __forceinline__ uint32_t barrier (int first, unsigned n,
                                                 int i) const
    {
        return base + barriers + first * 8 + (unsigned)i % n * 8;
    }
    __device__ __forceinline__ uint32_t full (int i) const
    {
        return barrier (0, STAGES, i);
    }
    __device__ __forceinline__ uint32_t free (int i) const
    {
        return barrier (STAGES, STAGES, i);
    }
    __device__ __forceinline__ uint32_t ds_full (int i) const
    {
        return barrier (2 * STAGES, SLOTS, i);
    }
    __device__ __forceinline__ uint32_t ds_free (int i) const
    {
        return barrier (2 * STAGES + SLOTS, SLOTS, i);
    }
    __device__ __forceinline__ uint32_t hold_full (int i) const
    {
        return barrier (2 * (STAGES + SLOTS), HOLDS, i);
    }
    __device__ __forceinline__ uint32_t hold_free (int i) const
    {
        return barrier (2 * (STAGES + SLOTS) + HOLDS, HOLDS, i);
    }
    __device__ __forceinline__ uint32_t held (int i, int kind, int tile) const
    {
        return base + (unsigned)i % HOLDS * hold
               + (kind * GROUPS + tile) * TILE_BYTES;
    }
    __device__ __forceinline__ uint32_t passed (int i, int kind) const
    {
        return base + passes + (unsigned)i % STAGES * pass + kind * TILE_BYTES;
    }
    __device__ __forceinline__ uint32_t ds_at (int i) const
    {
        return base + slots + (unsigned)i % SLOTS * slot;
    }
    __device__ __forceinline__ uint32_t stats_at (int i) const
    {
        return base + stats + (unsigned)i % STAGES * stat;
    }
    __device__ __forceinline__ uint32_t piece_at (int i) const
    {
        return base + pieces + (unsigned)i % HOLDS * 4;
    }

    /* Of every thread of the block. */
    __device__ __forceinline__ void make (const char *raw)
    {
        base = (shared_at (raw) + 1023) & ~1023u;
        if (threadIdx.x == 0) {
            for (int i = 0; i < HOLDS; i++) {
                barrier_make (hold_full (i), 1);
                barrier_make (hold_free (i), WORKERS + 4);
            }
            for (int i = 0; i < STAGES; i++) {
                barrier_make (full (i), 1);
                barrier_make (free (i), WORKERS);
            }
            for (int i = 0; i < SLOTS; i++) {
                barrier_make (ds_full (i), WORKERS);
                barrier_make (ds_free (i), 4);
            }
            asm volatile("fence.mbarrier_init.release.cluster;" ::: "memory");
        }
        __syncthreads ();
    }
    /* Of the thread that brings: [i] is the piece of hold [c]. */
    __device__ __forceinline__ void piece_give (int c, int i) const
    {
        barrier_wait (hold_free (c), phase_of<HOLDS> (c) ^ 1);
        asm volatile("st.shared.b32 [%0], %1;" ::"r"(piece_at (c)), "r"(i)
                     : "memory");
        if (i < 0)
            barrier_arrive (hold_full (c));
        else
            barrier_expect (hold_full (c), hold);
    }
    /* Its tiles have come; -1: none is left. */
    __device__ __forceinline__ int piece_take (int c) const
    {
        int i;

        barrier_wait (hold_full (c), phase_of<HOLDS> (c));
        asm volatile("ld.shared.b32 %0, [%1];"
                     : "=r"(i)
                     : "r"(piece_at (c))
                     : "memory");
        return i;
    }
};

/* Block [n] of ROWS keys, of key-value head [g] of sequence [b]. Heads are taken
 * [a.chunk] at a time, so that what their blocks add to stays in the L2 cache;
 * of a chunk the longest pieces come first.
 *   last   tile of queries, the first is 2 n
 *   group  heads that read these keys */
struct hopper_piece {
    int n, g, b, last, group;

    __device__ __forceinline__ hopper_piece (const struct hopper_args &a, int i)
    {
        int blocks = (a.T - 1) / ROWS + 1, each = a.chunk * blocks;
        int from = i / each * a.chunk, in = min (a.chunk, a.B * a.G - from);
        int head = from + i % each % in;

        n = i % each / in;
        g = head % a.G;
        b = head / a.G;
        last = (a.T - 1) / TILE;
        group = a.H / a.G;
    }
    __device__ __forceinline__ int steps () const
    {
        return (last - 2 * n + 1) * group;
    }
};

/* Of the thread that brings: the next piece's number; -1: none is left. */
static __device__ __forceinline__ int piece_next (const struct hopper_args &a,
                                                  int pieces)
{
    int i = atomicAdd (a.counter, 1);

    return i < pieces ? i : -1;
}

static __device__ __forceinline__ void hopper_bring (
    const hopper_room &m, const struct hopper_maps &maps,
    const struct hopper_args &a, int pieces)
{
    int step = 0, c = 0;

    for (int i; (i = piece_next (a, pieces)) >= 0; c++) {
        struct hopper_piece w (a, i);

        m.piece_give (c, i);
        for (int k = 0; k < 2 * GROUPS; k++)
            tile_bring (m.held (c, k / GROUPS, k % GROUPS), &maps.qkv,
                        a.H + k / GROUPS * a.G + w.g,
                        w.n * ROWS + k % GROUPS * TILE, w.b, m.hold_full (c));
#pragma unroll 1
        for (int q = w.last; q >= 2 * w.n; q--)
#pragma unroll 1
            for (int h = w.g * w.group; h < (w.g + 1) * w.group; h++, step++) {
                uint32_t full = m.full (step);
                int row = (w.b * a.H + h) * PAD (a.T) + q * TILE;

                barrier_wait (m.free (step), phase_of<STAGES> (step) ^ 1);
                barrier_expect (full, hopper_room::pass + hopper_room::stat);
                tile_bring (m.passed (step, 0), &maps.qkv, h, q * TILE, w.b,
                            full);
                tile_bring (m.passed (step, 1), &maps.dy, h, q * TILE, w.b,
                            full);
                bytes_bring (m.stats_at (step), a.stats + (size_t)row * 2,
                             hopper_room::stat, full);
            }
    }
    m.piece_give (c, -1);
}

/* [heads] pieces for every ROWS of T, on as many blocks as there are
 * multiprocessors. */
template <class F>
static void launch (F *kernel, int room, const struct hopper_maps &maps,
                    const struct hopper_args &a, int heads, cudaStream_t stream)
{
    int pieces = ((a.T - 1) / ROWS + 1) * heads, device = 0, grid = 1;

    (void)cudaGetDevice (&device);
    (void)cudaDeviceGetAttribute (&grid, cudaDevAttrMultiProcessorCount,
                                  device);
    (void)cudaFuncSetAttribute ((const void *)kernel,
                                cudaFuncAttributeMaxDynamicSharedMemorySize,
                                room);
    grid = min (grid, pieces);
    kernel<<<grid, BLOCK, room, stream>>> (maps, a, pieces);
}

#endif
