/* SPDX-License-Identifier: Apache-2.0
 * attention_hopper_dq.cuh - dq of causal attention on sm_90a: a group of warps that
 * makes a block's part of it from the logits' gradients. For
 * attention_hopper_bwd.cu.
 *
 * The parts of all blocks of keys are added to one sum in memory, kept in the
 * order of its threads' registers, so that each adds 16 bytes where the one
 * before did. Every warp has a turn at its part of a tile, blocks in rising
 * order: the first writes, the last rounds and writes dq. So the bits are the
 * same every time, and nothing is cleared before or rounded after. Pieces are
 * taken in that order too: who waits, waits for one that runs or has ended. As
 * queries pass from the last to the first, the heads of a group side by side, a
 * block that started with the one before it follows it by a step. */
#ifndef KERN_ATTENTION_HOPPER_DQ_CUH
#define KERN_ATTENTION_HOPPER_DQ_CUH

#include "kernels/attention_hopper_block.cuh"

#define DQ_FLOATS (TILE * TILE) /* of a tile's sum */

/* The fragments of a warp's 16 elements of a head (down) of a tile's 64 keys
 * (across), for the left side. */
static __device__ __forceinline__ void fragments_turned (uint32_t *r,
                                                         uint32_t tile)
{
    int lane = (int)threadIdx.x % 32, warp = (int)threadIdx.x % GROUP / 32;
    int row = lane / 16 * 8 + lane % 8, column = warp * 2 + lane / 8 % 2;

#pragma unroll
    for (int k = 0; k < 4; k++, row += 16) {
        uint32_t at = tile + row * 128 + (column ^ row % 8) * 16;

        asm volatile("ldmatrix.sync.aligned.m8n8.x4.trans.shared.b16 "
                     "{%0,%1,%2,%3}, [%4];"
                     : "=r"(r[k * 4]), "=r"(r[k * 4 + 1]), "=r"(r[k * 4 + 2]),
                       "=r"(r[k * 4 + 3])
                     : "r"(at)
                     : "memory");
    }
}

/* Until [n] blocks have had their turn. */
static __device__ __forceinline__ void turn_await (const int *turn, int n)
{
    int had = 0;

    if (threadIdx.x % 32 == 0)
        do
            asm volatile("ld.acquire.gpu.global.b32 %0, [%1];"
                         : "=r"(had)
                         : "l"(turn)
                         : "memory");
        while (had < n);
    __syncwarp ();
}

/* What the warp has added is there for the next, after [n] blocks' turns at [ended];
 * and [n] - 1 or more have had theirs at [turn]. One fence serves both: what is
 * read before it, is waited for once more only where it was too early. NULL:
 * nothing to wait for. */
static __device__ __forceinline__ void turn_end (int *ended, const int *turn,
                                                 int n)
{
    int had = n;

    __syncwarp ();
    if (threadIdx.x % 32 == 0) {
        if (turn)
            asm volatile("ld.relaxed.gpu.global.b32 %0, [%1];"
                         : "=r"(had)
                         : "l"(turn)
                         : "memory");
        asm volatile("fence.acq_rel.gpu;\n"
                     "st.relaxed.gpu.global.b32 [%0], %1;" ::"l"(ended),
                     "r"(n)
                     : "memory");
        while (had < n - 1)
            asm volatile("ld.acquire.gpu.global.b32 %0, [%1];"
                         : "=r"(had)
                         : "l"(turn)
                         : "memory");
    }
    __syncwarp ();
}

static __device__ __forceinline__ void sum_add (float *at, const float (&c)[32])
{
#pragma unroll
    for (int i = 0; i < 32; i += 4)
        asm volatile(
            "red.relaxed.gpu.global.add.v4.f32 [%0], {%1,%2,%3,%4};" ::"l"(
                at + i * GROUP),
            "f"(c[i]), "f"(c[i + 1]), "f"(c[i + 2]), "f"(c[i + 3])
            : "memory");
}

static __device__ __forceinline__ void sum_store (float *at,
                                                  const float (&c)[32])
{
#pragma unroll
    for (int i = 0; i < 32; i += 4)
        asm volatile(
            "st.global.v4.f32 [%0], {%1,%2,%3,%4};" ::"l"(at + i * GROUP),
            "f"(c[i]), "f"(c[i + 1]), "f"(c[i + 2]), "f"(c[i + 3])
            : "memory");
}

/* What others wrote: not of this multiprocessor's own cache. */
static __device__ __forceinline__ void sum_load (float (&c)[32],
                                                 const float *at)
{
#pragma unroll
    for (int i = 0; i < 32; i += 4)
        asm volatile("ld.relaxed.gpu.global.v4.f32 {%0,%1,%2,%3}, [%4];"
                     : "=f"(c[i]), "=f"(c[i + 1]), "=f"(c[i + 2]),
                       "=f"(c[i + 3])
                     : "l"(at + i * GROUP)
                     : "memory");
}

/* Eight by eight: what is down goes across. */
static __device__ __forceinline__ uint32_t turned (uint32_t x)
{
    uint32_t y;

    asm volatile("movmatrix.sync.aligned.m8n8.trans.b16 %0, %1;"
                 : "=r"(y)
                 : "r"(x));
    return y;
}

/* c (elements down, queries across) to rows of dq, from query [t]. */
template <class E>
static __device__ __forceinline__ void dq_store (uint16_t *at, size_t pitch,
                                                 const float (&c)[32], int t,
                                                 int T, float times)
{
    int lane = (int)threadIdx.x % 32, warp = (int)threadIdx.x % GROUP / 32;

    t += lane / 4;
    at += warp * 16 + lane % 4 * 2;
#pragma unroll
    for (int n = 0; n < 8; n++, t += 8) {
        const float *x = c + n * 4;
        uint32_t low = turned (E::pack (x[0] * times, x[1] * times));
        uint32_t high = turned (E::pack (x[2] * times, x[3] * times));

        if (t < T) {
            *(uint32_t *)(at + (size_t)t * pitch) = low;
            *(uint32_t *)(at + (size_t)t * pitch + 8) = high;
        }
    }
}

/* Where a thread's part of a tile's sum is, and its warp's turn. */
static __device__ __forceinline__ float *sum_at (const struct hopper_args &a,
                                                 int tile)
{
    return a.sums + (size_t)tile * DQ_FLOATS + threadIdx.x % GROUP * 4;
}

static __device__ __forceinline__ int *turn_at (const struct hopper_args &a,
                                                int tile)
{
    return a.turns + tile * 4 + threadIdx.x % GROUP / 32;
}

/* dq of [tile], the [q]th of head [head] of all sequences, or the part of block [n]
 * of keys in it, goes where it belongs; true: others wait for it. */
template <class E>
static __device__ __forceinline__ bool dq_give (const struct hopper_args &a,
                                                int n, int head, int q,
                                                int tile, const float (&dq)[32])
{
    if (n == q / 2) {
        size_t pitch = (size_t)(a.H + 2 * a.G) * TILE;

        dq_store<E> (a.out + head / a.H * (a.T * pitch) + head % a.H * TILE,
                     pitch, dq, q * TILE, a.T, a.scale);
        return false;
    }
    if (n == 0)
        sum_store (sum_at (a, tile), dq);
    else
        sum_add (sum_at (a, tile), dq);
    return true;
}

/* A piece's steps from [step], with the keys' fragments [k]. The last block of a
 * tile adds its products to what the others have left. */
template <class E>
static __device__ __forceinline__ void dq_steps (const hopper_room &m,
                                                 const struct hopper_args &a,
                                                 const struct hopper_piece &w,
                                                 const uint32_t (&k)[2][16],
                                                 int step)
{
    int n = w.n, q = w.last, heads = w.group, from = w.b * a.H + w.g * heads;
    int head = from, ended = -1, tiles = PAD (a.T) / TILE;
    float dq[32];

#pragma unroll 1
    for (int to = step + w.steps (); step < to; step++) {
        int tile = head * tiles + q;
        bool last = n > 0 && n == q / 2;

        barrier_wait (m.ds_full (step), phase_of<SLOTS> (step));
        if (last) {
            turn_await (turn_at (a, tile), n);
            sum_load (dq, sum_at (a, tile));
        }
        keep (dq);
        products_fence ();
        product_columns<E> (dq, k[0], describe (m.ds_at (step)), last);
        if (q > 2 * n) { /* else before the second 64 keys */
            products_fence ();
            product_columns<E> (dq, k[1],
                                describe (m.ds_at (step) + TILE_BYTES), true);
        }
        products_commit ();
        if (ended >= 0)
            turn_end (turn_at (a, ended),
                      n > 0 && !last ? turn_at (a, tile) : NULL, n + 1);
        else if (n > 0 && !last)
            turn_await (turn_at (a, tile), n);
        products_wait<0> ();
        keep (dq);
        release (m.ds_free (step));
        ended = dq_give<E> (a, n, head, q, tile, dq) ? tile : -1;
        if (++head == from + heads) {
            head = from;
            q--;
        }
    }
}

template <class E>
static __device__ __forceinline__ void dq_work (const hopper_room &m,
                                                const struct hopper_args &a)
{
    uint32_t k[2][16];

    for (int step = 0, c = 0, i; (i = m.piece_take (c)) >= 0; c++) {
        struct hopper_piece w (a, i);

        fragments_turned (k[0], m.held (c, 0, 0));
        fragments_turned (k[1], m.held (c, 0, 1));
        release (m.hold_free (c));
        dq_steps<E> (m, a, w, k, step);
        step += w.steps ();
    }
}

#endif
