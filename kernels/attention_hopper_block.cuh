/* SPDX-License-Identifier: Apache-2.0
 * attention_hopper_block.cuh - how a block of attention on sm_90a works: one
 * group of warps that brings tiles, two that compute, and what they share. For
 * attention_hopper_bwd.cu.
 *
 * A block takes pieces of work off a counter, longest first. Of a piece some
 * tiles are held, others pass through a ring. Groups that compute issue their
 * products in turns where that pays, so that while one makes numbers of what
 * came out, the other's products run. */
#ifndef KERN_ATTENTION_HOPPER_BLOCK_CUH
#define KERN_ATTENTION_HOPPER_BLOCK_CUH

#include "kernels/attention_hopper.cuh"

#define GROUPS  2               /* that compute */
#define ROWS    (GROUPS * TILE) /* of a piece's held side */
#define WORKERS (GROUPS * 4)    /* warps that compute */
#define BLOCK   ((GROUPS + 1) * GROUP)

/*   out       dqkv
 *   stats     (B,H,pairs of padded T) of {lse, lse, delta, delta}, lse in base
 * 2 counter   of pieces taken */
struct hopper_args {
    uint16_t *out;
    float *stats;
    int *counter;
    int B, T, H, G;
    float scale;
};

/* qkv (B,T,H+2G,64) and dy (B,T,H,64), tiles of both. */
struct hopper_maps {
    CUtensorMap qkv, dy;
};

#define PAD(T) (((T) + 127) / 128 * 128)

/* Places in a ring of [N], in the order of use; parity of the phase waited for.
 */
template <int N> struct ring {
    int place, parity;

    __device__ __forceinline__ void next ()
    {
        if (++place == N) {
            place = 0;
            parity ^= 1;
        }
    }
};

template <bool TURNS>
static __device__ __forceinline__ void turn_wait (int group)
{
    if (TURNS)
        asm volatile("bar.sync %0, 256;" ::"r"(group + 1) : "memory");
}

/* To the other group. */
template <bool TURNS>
static __device__ __forceinline__ void turn_pass (int group)
{
    if (TURNS)
        asm volatile("bar.arrive %0, 256;" ::"r"(2 - group) : "memory");
}

static __device__ __forceinline__ void release (uint32_t barrier)
{
    __syncwarp ();
    if (threadIdx.x % 32 == 0)
        barrier_arrive (barrier);
}

/* Shared memory: two buffers of what is held, ROWS of two kinds; STAGES of what
 * passes, PASS tiles of two kinds, and STATS bytes each; barriers; the pieces.
 */
template <int PASS, int STAGES, int STATS> struct room {
    static constexpr int hold = 2 * GROUPS * TILE_BYTES;
    static constexpr int pass = 2 * PASS * TILE_BYTES;
    static constexpr int stats = 2 * hold + STAGES * pass;
    static constexpr int barriers = stats + STAGES * STATS;
    static constexpr int pieces = barriers + 8 * (4 + 2 * STAGES);
    static constexpr int bytes = pieces + 8 + 1024;
    uint32_t base;

    /* Of every thread of the block. */
    __device__ __forceinline__ void make (const char *raw)
    {
        base = (shared_at (raw) + 1023) & ~1023u;
        if (threadIdx.x == 0) {
            for (int i = 0; i < 2; i++) {
                barrier_make (hold_full (i), 1);
                barrier_make (hold_free (i), WORKERS);
            }
            for (int i = 0; i < STAGES; i++) {
                barrier_make (full (i), 1);
                barrier_make (free (i), WORKERS);
            }
            asm volatile("fence.mbarrier_init.release.cluster;" ::: "memory");
        }
        __syncthreads ();
    }
    __device__ __forceinline__ uint32_t hold_full (int i) const
    {
        return base + barriers + i * 8;
    }
    __device__ __forceinline__ uint32_t hold_free (int i) const
    {
        return base + barriers + 16 + i * 8;
    }
    __device__ __forceinline__ uint32_t full (int i) const
    {
        return base + barriers + 32 + i * 8;
    }
    __device__ __forceinline__ uint32_t free (int i) const
    {
        return base + barriers + 32 + (STAGES + i) * 8;
    }
    __device__ __forceinline__ uint32_t held (int i, int kind, int tile) const
    {
        return base + i * hold + (kind * GROUPS + tile) * TILE_BYTES;
    }
    __device__ __forceinline__ uint32_t passed (int i, int kind) const
    {
        return base + 2 * hold + i * pass + kind * PASS * TILE_BYTES;
    }
    __device__ __forceinline__ uint32_t stats_at (int i) const
    {
        return base + stats + i * STATS;
    }

    /* The piece whose held tiles [h] names next, for those who bring; -1: none
   * is left. */
    __device__ __forceinline__ void piece_give (const ring<2> &h,
                                                int piece) const
    {
        barrier_wait (hold_free (h.place), h.parity);
        asm volatile(
            "st.shared.b32 [%0], %1;" ::"r"(base + pieces + h.place * 4),
            "r"(piece)
            : "memory");
        if (piece < 0)
            barrier_arrive (hold_full (h.place));
        else
            barrier_expect (hold_full (h.place), hold);
    }

    /* The same, for those who compute: its tiles have come. */
    __device__ __forceinline__ int piece_take (const ring<2> &h) const
    {
        int piece;

        barrier_wait (hold_full (h.place), h.parity);
        asm volatile("ld.shared.b32 %0, [%1];"
                     : "=r"(piece)
                     : "r"(base + pieces + h.place * 4)
                     : "memory");
        return piece;
    }
};

/* Of the thread that brings: the next piece's number, asked for ahead. */
static __device__ __forceinline__ int piece_next (const struct hopper_args &a,
                                                  int pieces)
{
    int i = atomicAdd (a.counter, 1);

    return i < pieces ? i : -1;
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
