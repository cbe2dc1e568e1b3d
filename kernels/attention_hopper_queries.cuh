/* SPDX-License-Identifier: Apache-2.0
 * attention_hopper_queries.cuh - dq of causal attention on sm_90a: a block of
 * queries held, the keys that they see passing in rising order. For
 * attention_hopper_bwd.cu. */
#ifndef KERN_ATTENTION_HOPPER_QUERIES_CUH
#define KERN_ATTENTION_HOPPER_QUERIES_CUH

#include "kernels/attention_hopper_block.cuh"

#define KEYS           (2 * TILE) /* of a step */
#define QUERIES_STAGES 3

using queries_room = room<KEYS / TILE, QUERIES_STAGES, 0>;

/* ROWS queries from [first], of head [h] of sequence [b]: the longest pieces
 * come first. */
struct queries_piece {
    int first, h, b, steps;

    __device__ __forceinline__ queries_piece (const struct hopper_args &a,
                                              int i)
    {
        int heads = a.B * a.H;

        first = ((a.T - 1) / ROWS - i / heads) * ROWS;
        h = i % heads % a.H;
        b = i % heads / a.H;
        steps = (min (first + ROWS, a.T) - 1) / KEYS + 1;
    }
};

static __device__ __forceinline__ void queries_bring_piece (
    const queries_room &m, ring<QUERIES_STAGES> &r,
    const struct hopper_maps &maps, const struct hopper_args &a,
    const struct queries_piece &w)
{
    int k = a.H + w.h / (a.H / a.G), v = k + a.G;

#pragma unroll 1
    for (int i = 0; i < w.steps; i++) {
        uint32_t full = m.full (r.place);

        barrier_wait (m.free (r.place), r.parity);
        barrier_expect (full, queries_room::pass);
        for (int n = 0; n < KEYS / TILE; n++) {
            tile_bring (m.passed (r.place, 0) + n * TILE_BYTES, &maps.qkv, k,
                        i * KEYS + n * TILE, w.b, full);
            tile_bring (m.passed (r.place, 1) + n * TILE_BYTES, &maps.qkv, v,
                        i * KEYS + n * TILE, w.b, full);
        }
        r.next ();
    }
}

static __device__ __forceinline__ void queries_bring (
    const queries_room &m, const struct hopper_maps &maps,
    const struct hopper_args &a, int pieces)
{
    ring<QUERIES_STAGES> r = {0, 1};
    ring<2> hold = {0, 1};

    for (int i = piece_next (a, pieces), then; i >= 0; i = then) {
        struct queries_piece w (a, i);
        uint32_t full = m.hold_full (hold.place);

        then = piece_next (a, pieces);
        m.piece_give (hold, i);
        for (int k = 0; k < GROUPS; k++) {
            tile_bring (m.held (hold.place, 0, k), &maps.qkv, w.h,
                        w.first + k * TILE, w.b, full);
            tile_bring (m.held (hold.place, 1, k), &maps.dy, w.h,
                        w.first + k * TILE, w.b, full);
        }
        hold.next ();
        queries_bring_piece (m, r, maps, a, w);
    }
    m.piece_give (hold, -1);
}

/* What a thread of a group holds.
 *   s           logits (queries down, keys across), dp gradients of
 * probabilities ds          fragments of the logits' gradients lse, delta  of
 * the thread's two rows */
template <class E> struct queries_sums {
    uint32_t ds[KEYS / 4];
    float s[KEYS / 2], dp[KEYS / 2], dq[32], lse[2], delta[2];
    uint64_t q, dy;

    __device__ __forceinline__ void hold (const queries_room &m, int place,
                                          int group)
    {
        q = describe (m.held (place, 0, group));
        dy = describe (m.held (place, 1, group));
    }
    __device__ __forceinline__ void rows (const struct hopper_args &a,
                                          const struct queries_piece &w, int t)
    {
        const float *at = a.stats + ((size_t)w.b * a.H + w.h) * PAD (a.T) * 2;

#pragma unroll
        for (int j = 0; j < 2; j++, t += 8) {
            lse[j] = t < a.T ? at[(t & ~1) * 2 + (t & 1)] : 0;
            delta[j] = t < a.T ? at[(t & ~1) * 2 + 2 + (t & 1)] : 0;
        }
    }
    __device__ __forceinline__ void fence ()
    {
        keep (ds);
        keep (dq);
        products_fence ();
    }
    __device__ __forceinline__ void logits (const queries_room &m, int place)
    {
        product_rows<E> (s, q, describe (m.passed (place, 0)));
        product_rows<E> (dp, dy, describe (m.passed (place, 1)));
    }
    __device__ __forceinline__ void add (const queries_room &m, int place,
                                         bool more)
    {
        product_columns<E> (dq, ds, describe (m.passed (place, 0)), more);
    }
    __device__ __forceinline__ void wait ()
    {
        products_wait<0> ();
        keep (s);
        keep (dp);
        keep (dq);
    }

    /* [query], [key]: of the thread's first logit. */
    __device__ __forceinline__ void mask (int query, int key)
    {
#pragma unroll
        for (int i = 0; i < KEYS / 2; i++)
            if (key + i / 4 * 8 + i % 2 > query + i / 2 % 2 * 8)
                s[i] = -INFINITY;
    }
    __device__ __forceinline__ void step (float scale)
    {
#pragma unroll
        for (int i = 0; i < KEYS / 2; i += 2) {
            int j = i / 2 % 2;
            float p0 = power_of_2 (s[i] * scale - lse[j]);
            float p1 = power_of_2 (s[i + 1] * scale - lse[j]);

            ds[i / 2] =
                E::pack (p0 * (dp[i] - delta[j]), p1 * (dp[i + 1] - delta[j]));
        }
    }
    __device__ __forceinline__ void store (const struct hopper_args &a,
                                           const struct queries_piece &w,
                                           int row)
    {
        size_t pitch = (size_t)(a.H + 2 * a.G) * TILE;

        result_store<E> (a.out + (size_t)w.b * a.T * pitch + (size_t)w.h * TILE,
                         pitch, dq, row, a.T, a.scale);
    }
};

/* Steps that a group's rows do not see, so that both take as many. */
static __device__ __forceinline__ void queries_pass (const queries_room &m,
                                                     ring<QUERIES_STAGES> &r,
                                                     int steps, int group)
{
    for (; steps > 0; steps--) {
        barrier_wait (m.full (r.place), r.parity);
        turn_wait<true> (group);
        turn_pass<true> (group);
        release (m.free (r.place));
        r.next ();
    }
}

template <class E>
static __device__ __forceinline__ void queries_work (
    const queries_room &m, const struct hopper_args &a)
{
    int group = (int)threadIdx.x / GROUP - 1, lane = (int)threadIdx.x % 32;
    int row = group * TILE + (int)threadIdx.x % GROUP / 32 * 16;
    ring<QUERIES_STAGES> r = {0, 0}, now;
    ring<2> hold = {0, 0};
    int i = m.piece_take (hold);
    queries_sums<E> x = {};

    if (i < 0)
        return;
    if (group == GROUPS - 1)
        turn_pass<true> (group);
    x.hold (m, hold.place, group);
    barrier_wait (m.full (r.place), r.parity);
    turn_wait<true> (group);
    x.fence ();
    x.logits (m, r.place);
    products_commit ();
    turn_pass<true> (group);
    for (;;) {
        struct queries_piece w (a, i);
        int steps =
            min ((w.first + (group + 1) * TILE - 1) / KEYS + 1, w.steps);
        int query = w.first + row + lane / 4;
        uint32_t old = m.hold_free (hold.place);

        x.rows (a, w, query);
        x.wait ();
        for (int j = 1;; j++) {
            if (j * KEYS > w.first + group * TILE)
                x.mask (query, (j - 1) * KEYS + lane % 4 * 2);
            x.step (a.scale * LOG2E);
            now = r;
            r.next ();
            if (j == steps)
                break;
            barrier_wait (m.full (r.place), r.parity);
            turn_wait<true> (group);
            x.fence ();
            x.add (m, now.place, j > 1);
            x.logits (m, r.place);
            products_commit ();
            turn_pass<true> (group);
            x.wait ();
            release (m.free (now.place));
        }
        queries_pass (m, r, w.steps - steps, group);
        hold.next ();
        i = m.piece_take (hold);
        if (i >= 0) {
            x.hold (m, hold.place, group);
            barrier_wait (m.full (r.place), r.parity);
            turn_wait<true> (group);
            x.fence ();
            x.add (m, now.place, steps > 1);
            x.logits (m, r.place);
            products_commit ();
        } else {
            turn_wait<true> (group);
            x.fence ();
            x.add (m, now.place, steps > 1);
            products_commit ();
        }
        turn_pass<true> (group);
        x.wait ();
        release (m.free (now.place));
        release (old);
        x.store (a, w, w.first + row);
        if (i < 0)
            return;
    }
}

template <class E>
static __global__ void __launch_bounds__ (BLOCK, 1)
    bwd_queries (const __grid_constant__ struct hopper_maps maps,
                 struct hopper_args a, int pieces)
{
#if SERVED
    extern __shared__ char raw[];
    queries_room m;

    m.make (raw);
    if (threadIdx.x < GROUP) {
        registers_fewer<40> ();
        if (threadIdx.x == 0)
            queries_bring (m, maps, a, pieces);
    } else {
        registers_more<232> ();
        queries_work<E> (m, a);
    }
#endif
}

#endif
