/* SPDX-License-Identifier: Apache-2.0
 * attention_hopper_keys.cuh - dk and dv of causal attention on sm_90a: a block of
 * keys held, the queries of every head that reads them passing in rising order.
 * For attention_hopper_bwd.cu. */
#ifndef KERN_ATTENTION_HOPPER_KEYS_CUH
#define KERN_ATTENTION_HOPPER_KEYS_CUH

#include "kernels/attention_hopper_block.cuh"

#define QUERIES     TILE /* of a step */
#define KEYS_STAGES 4

using keys_room = room<1, KEYS_STAGES, QUERIES * 8>;

/* ROWS keys from [first], of key-value head [g] of sequence [b]: the longest
 * pieces come first. */
struct keys_piece {
    int first, g, b;

    __device__ __forceinline__ keys_piece (const struct hopper_args &a, int i)
    {
        int heads = a.B * a.G;

        first = i / heads * ROWS;
        g = i % heads % a.G;
        b = i % heads / a.G;
    }
};

static __device__ __forceinline__ void keys_bring_piece (
    const keys_room &m, ring<KEYS_STAGES> &r, const struct hopper_maps &maps,
    const struct hopper_args &a, const struct keys_piece &w)
{
    int group = a.H / a.G;

    for (int h = w.g * group; h < (w.g + 1) * group; h++) {
        const float *stats = a.stats + ((size_t)w.b * a.H + h) * PAD (a.T) * 2;

#pragma unroll 1
        for (int q = w.first; q < a.T; q += QUERIES) {
            uint32_t full = m.full (r.place);

            barrier_wait (m.free (r.place), r.parity);
            barrier_expect (full, keys_room::pass + QUERIES * 8);
            tile_bring (m.passed (r.place, 0), &maps.qkv, h, q, w.b, full);
            tile_bring (m.passed (r.place, 1), &maps.dy, h, q, w.b, full);
            bytes_bring (m.stats_at (r.place), stats + q * 2, QUERIES * 8,
                         full);
            r.next ();
        }
    }
}

static __device__ __forceinline__ void keys_bring (
    const keys_room &m, const struct hopper_maps &maps,
    const struct hopper_args &a, int pieces)
{
    ring<KEYS_STAGES> r = {0, 1};
    ring<2> hold = {0, 1};

    for (int i = piece_next (a, pieces), then; i >= 0; i = then) {
        struct keys_piece w (a, i);
        uint32_t full = m.hold_full (hold.place);

        then = piece_next (a, pieces);
        m.piece_give (hold, i);
        for (int k = 0; k < GROUPS; k++) {
            tile_bring (m.held (hold.place, 0, k), &maps.qkv, a.H + w.g,
                        w.first + k * TILE, w.b, full);
            tile_bring (m.held (hold.place, 1, k), &maps.qkv, a.H + a.G + w.g,
                        w.first + k * TILE, w.b, full);
        }
        hold.next ();
        keys_bring_piece (m, r, maps, a, w);
    }
    m.piece_give (hold, -1);
}

/* What a thread of a group holds.
 *   k, v   fragments of the piece's 64 rows
 *   s      logits (keys down, queries across), dp gradients of probabilities
 *   p, ds  fragments of probabilities and of the logits' gradients */
template <class E> struct keys_sums {
    uint32_t k[16], v[16], p[16], ds[16];
    float s[32], dp[32], dk[32], dv[32];

    __device__ __forceinline__ void hold (const keys_room &m, ring<2> &h,
                                          int group)
    {
        fragments (k, m.held (h.place, 0, group));
        fragments (v, m.held (h.place, 1, group));
        release (m.hold_free (h.place));
        h.next ();
    }
    __device__ __forceinline__ void fence ()
    {
        keep (p);
        keep (ds);
        keep (dk);
        keep (dv);
        products_fence ();
    }
    __device__ __forceinline__ void logits (const keys_room &m, int place)
    {
        product_rows<E> (s, k, describe (m.passed (place, 0)));
        product_rows<E> (dp, v, describe (m.passed (place, 1)));
    }
    __device__ __forceinline__ void add (const keys_room &m, int place,
                                         bool more)
    {
        product_columns<E> (dv, p, describe (m.passed (place, 1)), more);
        product_columns<E> (dk, ds, describe (m.passed (place, 0)), more);
    }
    __device__ __forceinline__ void wait ()
    {
        products_wait<0> ();
        keep (s);
        keep (dp);
        keep (dk);
        keep (dv);
    }

    /* [key], [query]: of the thread's first logit. */
    __device__ __forceinline__ void mask (int key, int query)
    {
#pragma unroll
        for (int i = 0; i < 32; i++)
            if (query + i / 4 * 8 + i % 2 < key + i / 2 % 2 * 8)
                s[i] = -INFINITY;
    }
    __device__ __forceinline__ void step (uint32_t stats, float scale)
    {
        stats += threadIdx.x % 4 * 16;
#pragma unroll
        for (int i = 0; i < 32; i += 4) {
            float l0, l1, d0, d1, p0, p1, p2, p3;

            asm volatile("ld.shared.v4.f32 {%0,%1,%2,%3}, [%4];"
                         : "=f"(l0), "=f"(l1), "=f"(d0), "=f"(d1)
                         : "r"(stats + i * 16));
            p0 = power_of_2 (s[i] * scale - l0);
            p1 = power_of_2 (s[i + 1] * scale - l1);
            p2 = power_of_2 (s[i + 2] * scale - l0);
            p3 = power_of_2 (s[i + 3] * scale - l1);
            p[i / 2] = E::pack (p0, p1);
            p[i / 2 + 1] = E::pack (p2, p3);
            ds[i / 2] = E::pack (p0 * (dp[i] - d0), p1 * (dp[i + 1] - d1));
            ds[i / 2 + 1] =
                E::pack (p2 * (dp[i + 2] - d0), p3 * (dp[i + 3] - d1));
        }
    }
    __device__ __forceinline__ void store (const struct hopper_args &a,
                                           const struct keys_piece &w, int row)
    {
        size_t pitch = (size_t)(a.H + 2 * a.G) * TILE;
        uint16_t *out =
            a.out + (size_t)w.b * a.T * pitch + (size_t)(a.H + w.g) * TILE;

        result_store<E> (out, pitch, dk, row, a.T, a.scale);
        result_store<E> (out + (size_t)a.G * TILE, pitch, dv, row, a.T, 1);
    }
};

template <class E>
static __device__ __forceinline__ void keys_work (const keys_room &m,
                                                  const struct hopper_args &a)
{
    int group = (int)threadIdx.x / GROUP - 1, lane = (int)threadIdx.x % 32;
    int row = group * TILE + (int)threadIdx.x % GROUP / 32 * 16;
    ring<KEYS_STAGES> r = {0, 0}, now;
    ring<2> hold = {0, 0};
    int i = m.piece_take (hold);
    keys_sums<E> x = {};

    if (i < 0)
        return;
    x.hold (m, hold, group);
    barrier_wait (m.full (r.place), r.parity);
    x.fence ();
    x.logits (m, r.place);
    products_commit ();
    x.wait ();
    for (;;) {
        struct keys_piece w (a, i);
        int each = (a.T - 1 - w.first) / QUERIES + 1;
        int steps = each * (a.H / a.G), query = w.first;

        for (int j = 1;; j++) {
            if (query < w.first + (group + 1) * TILE)
                x.mask (w.first + row + lane / 4, query + lane % 4 * 2);
            x.step (m.stats_at (r.place), a.scale * LOG2E);
            query = query + QUERIES < a.T ? query + QUERIES : w.first;
            now = r;
            r.next ();
            if (j == steps)
                break;
            barrier_wait (m.full (r.place), r.parity);
            x.fence ();
            x.add (m, now.place, j > 1);
            x.logits (m, r.place);
            products_commit ();
            x.wait ();
            release (m.free (now.place));
        }
        i = m.piece_take (hold);
        if (i >= 0) {
            x.hold (m, hold, group);
            barrier_wait (m.full (r.place), r.parity);
            x.fence ();
            x.add (m, now.place, steps > 1);
            x.logits (m, r.place);
            products_commit ();
        } else {
            x.fence ();
            x.add (m, now.place, steps > 1);
            products_commit ();
        }
        x.wait ();
        release (m.free (now.place));
        x.store (a, w, w.first + row);
        if (i < 0)
            return;
    }
}

template <class E>
static __global__ void __launch_bounds__ (BLOCK, 1)
    bwd_keys (const __grid_constant__ struct hopper_maps maps,
              struct hopper_args a, int pieces)
{
#if SERVED
    extern __shared__ char raw[];
    keys_room m;

    m.make (raw);
    if (threadIdx.x < GROUP) {
        registers_fewer<40> ();
        if (threadIdx.x == 0)
            keys_bring (m, maps, a, pieces);
    } else {
        registers_more<232> ();
        keys_work<E> (m, a);
    }
#endif
}

#endif
