/* SPDX-License-Identifier: Apache-2.0
 * attention_half_fwd.cu - causal attention in bf16 and f16 on the tensor cores:
 * forward
 *
 * Four warps a block, each with 16 or 32 rows of the logits, which never leave
 * its registers: a result fragment of one product is an operand of the next. */
#include "kernels/docs.h"

#include "kernels/attention_half.cuh"

static __device__ __forceinline__ float quad_max (float x)
{
    x = fmaxf (x, __shfl_xor_sync (~0u, x, 1));
    return fmaxf (x, __shfl_xor_sync (~0u, x, 2));
}

static __device__ __forceinline__ float quad_sum (float x)
{
    x += __shfl_xor_sync (~0u, x, 1);
    return x + __shfl_xor_sync (~0u, x, 2);
}

/* What a warp knows of 16 rows: two a thread, lane / 4 and that + 8. */
struct online {
    float max[2], sum[2];
};

/* Logits to probabilities against the maximum so far; what was summed before is
 * brought to the new maximum. Columns past a row are masked, with DOCS also those
 * before [start], which may be all of a step. */
template <int COLUMNS, int WIDTH, bool DOCS>
static __device__ __forceinline__ void online_step (struct online &o,
                                                    float (*y)[4],
                                                    float (*s)[4], float scale,
                                                    int row, int column,
                                                    const int *start)
{
    int lane = (int)threadIdx.x % 32;
    bool cut = column + COLUMNS - 1 > row || (DOCS && column < start[1]);

    row += lane / 4;
    column += lane % 4 * 2;
#pragma unroll
    for (int half = 0; half < 2; half++) {
        float max = o.max[half], shift, shrink, sum = 0;

#pragma unroll
        for (int i = 0; i < COLUMNS / 4; i++) {
            float *x = &s[i / 2][half * 2 + i % 2];

            *x *= scale;
            if (cut && column + i / 2 * 8 + i % 2 > row + half * 8)
                *x = -INFINITY;
            if (DOCS && cut && column + i / 2 * 8 + i % 2 < start[half])
                *x = -INFINITY;
            max = fmaxf (max, *x);
        }
        max = quad_max (max);
        shift = DOCS && max == -INFINITY ? 0 : max;
        shrink = power_of_2 (o.max[half] - shift);
#pragma unroll
        for (int i = 0; i < COLUMNS / 4; i++) {
            float *x = &s[i / 2][half * 2 + i % 2];

            *x = power_of_2 (*x - shift);
            sum += *x;
        }
        o.max[half] = max;
        o.sum[half] = o.sum[half] * shrink + sum;
#pragma unroll
        for (int n = 0; n < WIDTH / 8; n++) {
            y[n][half * 2] *= shrink;
            y[n][half * 2 + 1] *= shrink;
        }
    }
}

template <class E, int WIDTH>
static __device__ __forceinline__ void online_store (const struct online &o,
                                                     const float (*y)[4],
                                                     const struct half_args &a,
                                                     int b, int h, int row)
{
    int lane = (int)threadIdx.x % 32;
    float *lse = a.lse + ((size_t)b * a.H + h) * a.T, inverse[2];

#pragma unroll
    for (int half = 0; half < 2; half++) {
        float sum = quad_sum (o.sum[half]);
        int r = row + lane / 4 + half * 8;

        inverse[half] = 1 / sum;
        if (lane % 4 == 0 && r < a.T)
            lse[r] = o.max[half] * LN2 + logf (sum);
    }
    result_store<E, WIDTH> (a.out + ((size_t)b * a.T * a.H + h) * a.D,
                            (size_t)a.H * a.D, y, row, 0, a.T, a.D, inverse[0],
                            inverse[1]);
}

/* Blocks with the most keys first. K and V of the next step arrive while this
 * one computes; a warp leaves out a step that its rows do not see. */
template <class E, int MT, int WIDTH, int COLUMNS, bool DOCS>
static __global__ void __launch_bounds__ (THREADS) fwd (struct half_args a)
{
    extern __shared__ __align__ (16) uint16_t room[];
    constexpr int TILE = COLUMNS * PITCH (WIDTH), ROWS = MT * BLOCK;
    uint16_t *q = room, *k = q + ROWS * PITCH (WIDTH), *v = k + 2 * TILE;
    int h = (int)blockIdx.x % a.H, b = (int)blockIdx.x / a.H;
    int first = (int)(gridDim.y - 1 - blockIdx.y) * ROWS;
    int row = first + (int)threadIdx.x / 32 * 16 * MT;
    int begin = start_of<DOCS> (a, b, first) / COLUMNS;
    int steps = (min (first + ROWS, a.T) - 1) / COLUMNS + 1 - begin;
    int start[MT][2];
    struct head x = head_of (a, b, h);
    struct online o[MT];
    float s[MT][COLUMNS / 8][4], y[MT][WIDTH / 8][4] = {};

#pragma unroll
    for (int m = 0; m < MT; m++)
        o[m] = {{-INFINITY, -INFINITY}, {0, 0}};
#pragma unroll
    for (int i = 0; i < MT * 2; i++)
        start[i / 2][i % 2] =
            start_of<DOCS> (a, b, row + (int)threadIdx.x % 32 / 4 + i * 8);
    tile_load<ROWS, WIDTH> (q, x.q, first, a.T, a.D, a.aligned);
    tile_load<COLUMNS, WIDTH> (k, x.k, begin * COLUMNS, a.T, a.D, a.aligned);
    copies_end ();
    tile_load<COLUMNS, WIDTH> (v, x.v, begin * COLUMNS, a.T, a.D, a.aligned);
    copies_end ();
    for (int i = 0; i < steps; i++) {
        int now = i % 2 * TILE, then = TILE - now,
            column = (begin + i) * COLUMNS;
        bool seen = column < row + MT * 16
                    && (!DOCS || column + COLUMNS > start_of<DOCS> (a, b, row));

        copies_wait<1> ();
        __syncthreads ();
        if (i + 1 < steps)
            tile_load<COLUMNS, WIDTH> (k + then, x.k, column + COLUMNS, a.T,
                                       a.D, a.aligned);
        copies_end ();
        if (seen) {
            product_rows<E, MT, COLUMNS, WIDTH> (s, q, row - first, k + now);
#pragma unroll
            for (int m = 0; m < MT; m++)
                online_step<COLUMNS, WIDTH, DOCS> (
                    o[m], y[m], s[m], a.scale * LOG2E, row + m * 16, column,
                    start[m]);
        }
        copies_wait<1> ();
        __syncthreads ();
        if (i + 1 < steps)
            tile_load<COLUMNS, WIDTH> (v + then, x.v, column + COLUMNS, a.T,
                                       a.D, a.aligned);
        copies_end ();
        if (seen)
            product_columns<E, MT, COLUMNS, WIDTH, WIDTH> (y, s, v + now, 0);
    }
#pragma unroll
    for (int m = 0; m < MT; m++)
        online_store<E, WIDTH> (o[m], y[m], a, b, h, row + m * 16);
}

template <class E, int WIDTH>
static void run_fwd (const struct half_args &a, unsigned B, void *stream)
{
    using p = plan<WIDTH>;

    launch (a.starts ? fwd<E, p::fwd_tiles, WIDTH, p::columns, true>
                     : fwd<E, p::fwd_tiles, WIDTH, p::columns, false>,
            dim3 (B * a.H, blocks (a.T, p::fwd_tiles * BLOCK)), p::fwd_room, a,
            stream);
}

template <class E>
static void any_fwd (struct half_args a, unsigned B, void *stream)
{
    a.aligned = a.aligned && (uintptr_t)a.qkv % 16 == 0;
    if (a.D <= 64)
        run_fwd<E, 64> (a, B, stream);
    else if (a.D <= 128)
        run_fwd<E, 128> (a, B, stream);
    else
        run_fwd<E, 256> (a, B, stream);
}

#define FORWARD(name, type)                                                    \
    void kern_attention_docs_fwd_##name##_cuda (                               \
        uint16_t *y, float *lse, const uint16_t *qkv, const int32_t *starts,   \
        void *scratch, size_t B, size_t T, size_t H, size_t G, size_t D,       \
        double scale, void *stream)                                            \
    {                                                                          \
        struct half_args a = args_of (T, H, G, D, scale);                      \
                                                                               \
        (void)scratch;                                                         \
        a.out = y;                                                             \
        a.lse = lse;                                                           \
        a.qkv = qkv;                                                           \
        a.starts = starts;                                                     \
        any_fwd<type> (a, (unsigned)B, stream);                                \
    }                                                                          \
                                                                               \
    void kern_attention_fwd_##name##_cuda (                                    \
        uint16_t *y, float *lse, const uint16_t *qkv, void *scratch, size_t B, \
        size_t T, size_t H, size_t G, size_t D, double scale, void *stream)    \
    {                                                                          \
        kern_attention_docs_fwd_##name##_cuda (y, lse, qkv, NULL, scratch, B,  \
                                               T, H, G, D, scale, stream);     \
    }

FORWARD (bf16, bf16)
FORWARD (f16, f16)
