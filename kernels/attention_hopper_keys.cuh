/* SPDX-License-Identifier: Apache-2.0
 * attention_hopper_keys.cuh - dk and dv of causal attention on sm_90a: two groups
 * of warps with 64 keys each, the queries that see them passing. For
 * attention_hopper_bwd.cu.
 *
 * A step issues the products of its logits (keys down, queries across) and those
 * that the step before still owes its sums together. As logits become
 * probabilities, the tensor cores are busy with what was issued behind them. The
 * groups take turns, so that one issues when the other's logits are there: else
 * both would want the tensor cores at once and leave them idle at once. */
#ifndef KERN_ATTENTION_HOPPER_KEYS_CUH
#define KERN_ATTENTION_HOPPER_KEYS_CUH

#include "kernels/attention_hopper_block.cuh"

static __device__ __forceinline__ void turn_wait (int group)
{
    asm volatile("bar.sync %0, 256;" ::"r"(group + 1) : "memory");
}

/* To the other group. */
static __device__ __forceinline__ void turn_pass (int group)
{
    asm volatile("bar.arrive %0, 256;" ::"r"(2 - group) : "memory");
}

/* Four in a row, of two queries and the two eight further on. */
static __device__ __forceinline__ void stats_load (float (&x)[4], uint32_t at)
{
    asm volatile("ld.shared.v4.f32 {%0,%1,%2,%3}, [%4];"
                 : "=f"(x[0]), "=f"(x[1]), "=f"(x[2]), "=f"(x[3])
                 : "r"(at));
}

/* Where in a tile a thread's row of a warp's first 16 columns is: sixteen columns
 * on is 32 with exclusive or. */
static __device__ __forceinline__ uint32_t hand_at (void)
{
    int lane = (int)threadIdx.x % 32;
    int row = (int)threadIdx.x % GROUP / 32 * 16 + lane % 16;

    return (uint32_t)(row * 128 + (lane / 16 ^ row % 8) * 16);
}

/* What a thread of a group of keys holds.
 *   keys, values   its tiles of them
 *   s, dp          logits, later probabilities, and gradients of these
 *   p, ds          fragments of probabilities and of the logits' gradients */
template <class E> struct keys_sums {
    uint64_t keys, values;
    uint32_t p[16], ds[16];
    float s[32], dp[32], dk[32], dv[32];

    /* The piece of hold [c]; nothing is owed to its sums yet. */
    __device__ __forceinline__ void hold (const hopper_room &m, int c,
                                          int group)
    {
        keys = describe (m.held (c, 0, group));
        values = describe (m.held (c, 1, group));
#pragma unroll
        for (int i = 0; i < 16; i++)
            p[i] = ds[i] = 0;
    }
    __device__ __forceinline__ void fence ()
    {
        keep (p);
        keep (ds);
        keep (dk);
        keep (dv);
        products_fence ();
    }
    /* Two sets of products. */
    __device__ __forceinline__ void logits (const hopper_room &m, int place)
    {
        product_rows<E> (s, keys, describe (m.passed (place, 0)));
        products_commit ();
        product_rows<E> (dp, values, describe (m.passed (place, 1)));
        products_commit ();
    }
    __device__ __forceinline__ void add (const hopper_room &m, int place,
                                         bool more)
    {
        product_columns<E> (dv, p, describe (m.passed (place, 1)), more);
        product_columns<E> (dk, ds, describe (m.passed (place, 0)), more);
        products_commit ();
    }
    /* For all but the last two sets of products: the logits are there. */
    __device__ __forceinline__ void wait_logits ()
    {
        products_wait<2> ();
        keep (s);
    }
    __device__ __forceinline__ void wait ()
    {
        products_wait<0> ();
        keep (s);
        keep (dp);
        keep (p);
        keep (ds);
        keep (dk);
        keep (dv);
    }

    /* [ahead]: how far the thread's first key is past its first query. */
    __device__ __forceinline__ void mask (int ahead)
    {
#pragma unroll
        for (int i = 0; i < 32; i++)
            if (i / 4 * 8 + i % 2 - i / 2 % 2 * 8 < ahead)
                s[i] = -INFINITY;
    }
    /* Logits to probabilities; [stats] of the thread's queries. */
    __device__ __forceinline__ void powers (uint32_t stats, float scale)
    {
#pragma unroll
        for (int i = 0; i < 32; i += 8) {
            float l[4];

            stats_load (l, stats + i * 2);
#pragma unroll
            for (int k = 0; k < 8; k++)
                s[i + k] = power_of_2 (s[i + k] * scale - l[k / 4 * 2 + k % 2]);
        }
    }
    __device__ __forceinline__ void gradients (uint32_t stats)
    {
#pragma unroll
        for (int i = 0; i < 32; i += 8) {
            float d[4];

            stats_load (d, stats + TILE * 4 + i * 2);
#pragma unroll
            for (int k = 0; k < 8; k += 2) {
                const float *e = d + k / 4 * 2, *x = s + i + k, *y = dp + i + k;

                p[(i + k) / 2] = E::pack (x[0], x[1]);
                ds[(i + k) / 2] =
                    E::pack (x[0] * (y[0] - e[0]), x[1] * (y[1] - e[1]));
            }
        }
    }
    /* The logits' gradients to the group that makes dq. */
    __device__ __forceinline__ void hand (const hopper_room &m, int step,
                                          int group)
    {
        uint32_t to = m.ds_at (step) + group * TILE_BYTES + hand_at ();

        barrier_wait (m.ds_free (step), phase_of<SLOTS> (step) ^ 1);
#pragma unroll
        for (int i = 0; i < 4; i++)
            asm volatile("stmatrix.sync.aligned.m8n8.x4.shared.b16 [%0], "
                         "{%1,%2,%3,%4};" ::"r"(to ^ i * 32),
                         "r"(ds[i * 4]), "r"(ds[i * 4 + 1]), "r"(ds[i * 4 + 2]),
                         "r"(ds[i * 4 + 3])
                         : "memory");
        asm volatile("fence.proxy.async.shared::cta;" ::: "memory");
        release (m.ds_full (step));
    }
    __device__ __forceinline__ void store (const struct hopper_args &a,
                                           const struct hopper_piece &w,
                                           int row)
    {
        size_t pitch = (size_t)(a.H + 2 * a.G) * TILE;
        uint16_t *out =
            a.out + (size_t)w.b * a.T * pitch + (size_t)(a.H + w.g) * TILE;

        result_store<E> (out, pitch, dk, row, a.T, a.scale);
        result_store<E> (out + (size_t)a.G * TILE, pitch, dv, row, a.T, 1);
    }
};

/* From logits to the products that are to be added. [query]: the step's first,
 * from the block's first key. */
template <class E>
static __device__ __forceinline__ void keys_step (const hopper_room &m,
                                                  const struct hopper_args &a,
                                                  keys_sums<E> &x, int step,
                                                  int query, int group,
                                                  bool first)
{
    int lane = (int)threadIdx.x % 32;
    uint32_t stats = m.stats_at (step) + lane % 4 * 64;

    x.wait_logits ();
    turn_pass (group);
    if (query < (group + 1) * TILE)
        x.mask (group * TILE + (int)threadIdx.x % GROUP / 32 * 16 + lane / 4
                - lane % 4 * 2 - query);
    x.powers (stats, a.scale * LOG2E);
    x.wait ();
    if (!first)
        release (m.free (step - 1));
    x.gradients (stats);
    x.hand (m, step, group);
}

/* Steps from [step] to [to], of [heads] for every tile of queries, the first tile's
 * first query [query] from the block's first key. */
template <class E>
static __device__ __forceinline__ void keys_steps (const hopper_room &m,
                                                   const struct hopper_args &a,
                                                   keys_sums<E> &x, int step,
                                                   int to, int query, int heads,
                                                   int group)
{
    int from = step;

#pragma unroll 1
    for (int h = heads; step < to; step++) {
        barrier_wait (m.full (step), phase_of<STAGES> (step));
        turn_wait (group);
        x.fence ();
        x.logits (m, step);
        /* at first of zeros: sums of 0 */
        x.add (m, step == from ? step : step - 1, step > from);
        keys_step (m, a, x, step, query, group, step == from);
        if (--h == 0) {
            h = heads;
            query -= TILE;
        }
    }
    x.fence ();
    x.add (m, step - 1, true);
    x.wait ();
    release (m.free (step - 1));
}

/* Steps whose queries all come before the group's keys: its part of the logits'
 * gradients is not read. */
static __device__ __forceinline__ void keys_pass (const hopper_room &m,
                                                  int step, int to, int group)
{
    for (; step < to; step++) {
        barrier_wait (m.full (step), phase_of<STAGES> (step));
        turn_wait (group);
        turn_pass (group);
        release (m.free (step));
        barrier_wait (m.ds_free (step), phase_of<SLOTS> (step) ^ 1);
        release (m.ds_full (step));
    }
}

template <class E>
static __device__ __forceinline__ void keys_work (const hopper_room &m,
                                                  const struct hopper_args &a)
{
    /* the same in a warp, which the compiler cannot know */
    int group = __shfl_sync (~0u, (int)threadIdx.x / GROUP - 2, 0), step = 0;
    int row = group * TILE + (int)threadIdx.x % GROUP / 32 * 16;
    keys_sums<E> x = {};

    if (group == 1)
        turn_pass (group);
    for (int c = 0, i; (i = m.piece_take (c)) >= 0; c++) {
        int heads = a.H / a.G, steps = hopper_piece (a, i).steps ();
        int to = step + steps - group * heads;

        x.hold (m, c, group);
        if (to > step)
            keys_steps (m, a, x, step, to, (steps / heads - 1) * TILE, heads,
                        group);
        keys_pass (m, to, step + steps, group);
        step += steps;
        struct hopper_piece w (a, m.piece_take (c)); /* not held for long */
        release (m.hold_free (c));
        x.store (a, w, w.n * ROWS + row);
    }
}

#endif
