/* SPDX-License-Identifier: Apache-2.0
 * attention_half_bwd.cu - causal attention in bf16 and f16 on the tensor cores:
 * backward
 *
 * Twice over the logits, once with a block of keys held (dk, dv: all queries and
 * heads that read them in rising order), once with a block of queries held (dq):
 * seven products in place of five, and no two blocks add to one sum. */
#include "kernels/docs.h"

#include "kernels/attention_half.cuh"

/* delta (B,H,T) = the sum of dy y over D: a warp a row. */
template <class E>
static __global__ void __launch_bounds__ (THREADS)
    delta (struct half_args a, size_t rows)
{
    size_t r = (size_t)blockIdx.x * WARPS + threadIdx.x / 32;
    const uint32_t *dy = (const uint32_t *)(a.dy + r * a.D);
    const uint32_t *y = (const uint32_t *)(a.y + r * a.D);
    float sum = 0;

    if (r >= rows)
        return;
    for (int i = (int)threadIdx.x % 32; i < a.D / 2; i += 32) {
        float2 p = E::floats (dy[i]), q = E::floats (y[i]);

        sum += p.x * q.x + p.y * q.y;
    }
    for (int i = 16; i > 0; i /= 2)
        sum += __shfl_xor_sync (~0u, sum, i);
    if (threadIdx.x % 32 == 0) {
        size_t h = r % a.H, t = r / a.H % a.T, b = r / a.H / a.T;

        a.delta[(b * a.H + h) * a.T + t] = sum;
    }
}

/* The queries of a step as the keys see them. */
struct queries {
    int h, first;
};

/* s: logits (keys down, queries across), becomes probabilities; dp becomes what
 * the logits' gradient is, times the scale. [end]: the first query that a key of
 * the thread does not reach. */
template <int QUERIES>
static __device__ __forceinline__ void turned_step (
    float (*s)[4], float (*dp)[4], const float *lse, const float *delta,
    float scale, int key, int query, const int *end)
{
    int lane = (int)threadIdx.x % 32, column = lane % 4 * 2;
    bool cut = query < key + 16 || query + QUERIES > end[0];

    key += lane / 4;
#pragma unroll
    for (int i = 0; i < QUERIES / 2; i++) {
        int c = i / 4 * 8 + column + i % 2, k = key + i / 2 % 2 * 8;
        float p = power_of_2 (s[i / 4][i % 4] * (scale * LOG2E) - lse[c]);

        s[i / 4][i % 4] = p;
        dp[i / 4][i % 4] = p * (dp[i / 4][i % 4] - delta[c]) * scale;
        if (cut && (query + c < k || query + c >= end[i / 2 % 2]))
            s[i / 4][i % 4] = dp[i / 4][i % 4] = 0;
    }
}

/* Everything of one step of the keys' pass to shared memory; [lse] in base 2. */
template <int QUERIES, int WIDTH>
static __device__ __forceinline__ void queries_load (uint16_t *q, uint16_t *dy,
                                                     float *lse, float *delta,
                                                     const struct half_args &a,
                                                     int b, struct queries x)
{
    struct head head = head_of (a, b, x.h);

    tile_load<QUERIES, WIDTH> (q, head.q, x.first, a.T, a.D, a.aligned);
    tile_load<QUERIES, WIDTH> (dy, head.y, x.first, a.T, a.D, a.aligned);
    if (threadIdx.x < QUERIES) {
        int t = x.first + (int)threadIdx.x;

        lse[threadIdx.x] = t < a.T ? a.lse[head.at + t] * LOG2E : 0;
        delta[threadIdx.x] = t < a.T ? a.delta[head.at + t] : 0;
    }
}

/* dk and dv of a block of keys; blockIdx.z: which OUT columns of them. A warp
 * leaves out a step whose queries do not see its keys. */
template <class E, int MT, int WIDTH, int OUT, int QUERIES, bool DOCS>
static __global__ void __launch_bounds__ (THREADS) bwd_keys (struct half_args a)
{
    extern __shared__ __align__ (16) uint16_t room[];
    constexpr int TILE = QUERIES * PITCH (WIDTH), ROWS = MT * BLOCK;
    uint16_t *k = room, *v = k + ROWS * PITCH (WIDTH);
    uint16_t *q = v + ROWS * PITCH (WIDTH), *dy = q + 2 * TILE;
    float *lse = (float *)(dy + 2 * TILE), *sums = lse + 2 * QUERIES;
    int g = (int)blockIdx.x % a.G, b = (int)blockIdx.x / a.G;
    int first = (int)blockIdx.y * ROWS, warp = (int)threadIdx.x / 32 * 16 * MT;
    int group = a.H / a.G, begin = first / QUERIES;
    int last = end_of<DOCS> (a, b, first + ROWS - 1);
    int each = (last + QUERIES - 1) / QUERIES - begin, steps = each * group;
    int mine = end_of<DOCS> (a, b, first + warp + 16 * MT - 1), end[MT][2];
    struct head x = head_of (a, b, g * group);
    float s[MT][QUERIES / 8][4], dp[MT][QUERIES / 8][4];
    float dk[MT][OUT / 8][4] = {}, dv[MT][OUT / 8][4] = {};
    int from = (int)blockIdx.z * OUT;
    uint16_t *out = a.out + (x.k.at - a.qkv);

#pragma unroll
    for (int i = 0; i < MT * 2; i++)
        end[i / 2][i % 2] = end_of<DOCS> (
            a, b, first + warp + (int)threadIdx.x % 32 / 4 + i * 8);
    tile_load<ROWS, WIDTH> (k, x.k, first, a.T, a.D, a.aligned);
    tile_load<ROWS, WIDTH> (v, x.v, first, a.T, a.D, a.aligned);
    queries_load<QUERIES, WIDTH> (q, dy, lse, sums, a, b,
                                  {g * group, begin * QUERIES});
    copies_end ();
    for (int i = 0; i < steps; i++) {
        int now = i % 2, then = 1 - now, j = i + 1;
        int query = (begin + i % each) * QUERIES;

        if (j < steps)
            queries_load<QUERIES, WIDTH> (
                q + then * TILE, dy + then * TILE, lse + then * QUERIES,
                sums + then * QUERIES, a, b,
                {g * group + j / each, (begin + j % each) * QUERIES});
        copies_end ();
        copies_wait<1> ();
        __syncthreads ();
        if (query + QUERIES > first + warp && query < mine) {
            product_rows<E, MT, QUERIES, WIDTH> (s, k, warp, q + now * TILE);
            product_rows<E, MT, QUERIES, WIDTH> (dp, v, warp, dy + now * TILE);
#pragma unroll
            for (int m = 0; m < MT; m++)
                turned_step<QUERIES> (s[m], dp[m], lse + now * QUERIES,
                                      sums + now * QUERIES, a.scale,
                                      first + warp + m * 16, query, end[m]);
            product_columns<E, MT, QUERIES, OUT, WIDTH> (dv, s, dy + now * TILE,
                                                         from);
            product_columns<E, MT, QUERIES, OUT, WIDTH> (dk, dp, q + now * TILE,
                                                         from);
        }
        __syncthreads ();
    }
#pragma unroll
    for (int m = 0; m < MT; m++) {
        int row = first + warp + m * 16;

        result_store<E, OUT> (out, x.k.pitch, dk[m], row, from, a.T, a.D, 1, 1);
        result_store<E, OUT> (out + (size_t)a.G * a.D, x.k.pitch, dv[m], row,
                              from, a.T, a.D, 1, 1);
    }
}

/* dp becomes the gradient of the logits s, times the scale. */
template <int COLUMNS, bool DOCS>
static __device__ __forceinline__ void straight_step (
    const float (*s)[4], float (*dp)[4], const float *lse, const float *sums,
    float scale, int row, int column, const int *start)
{
    int lane = (int)threadIdx.x % 32;
    bool cut = column + COLUMNS - 1 > row || (DOCS && column < start[1]);

    row += lane / 4;
    column += lane % 4 * 2;
#pragma unroll
    for (int i = 0; i < COLUMNS / 2; i++) {
        int half = i / 2 % 2;
        float p = power_of_2 (s[i / 4][i % 4] * (scale * LOG2E) - lse[half]);

        dp[i / 4][i % 4] = p * (dp[i / 4][i % 4] - sums[half]) * scale;
        if (cut && column + i / 4 * 8 + i % 2 > row + half * 8)
            dp[i / 4][i % 4] = 0;
        if (DOCS && cut && column + i / 4 * 8 + i % 2 < start[half])
            dp[i / 4][i % 4] = 0;
    }
}

/* dq of a block of queries. */
template <class E, int MT, int WIDTH, int COLUMNS, bool DOCS>
static __global__ void __launch_bounds__ (THREADS)
    bwd_queries (struct half_args a)
{
    extern __shared__ __align__ (16) uint16_t room[];
    constexpr int TILE = COLUMNS * PITCH (WIDTH), ROWS = MT * BLOCK;
    uint16_t *q = room, *dy = q + ROWS * PITCH (WIDTH);
    uint16_t *k = dy + ROWS * PITCH (WIDTH), *v = k + 2 * TILE;
    int h = (int)blockIdx.x % a.H, b = (int)blockIdx.x / a.H;
    int first = (int)(gridDim.y - 1 - blockIdx.y) * ROWS;
    int row = first + (int)threadIdx.x / 32 * 16 * MT;
    int begin = start_of<DOCS> (a, b, first) / COLUMNS;
    int steps = (min (first + ROWS, a.T) - 1) / COLUMNS + 1 - begin;
    struct head x = head_of (a, b, h);
    float s[MT][COLUMNS / 8][4], dp[MT][COLUMNS / 8][4];
    float dq[MT][WIDTH / 8][4] = {}, lse[MT][2], sums[MT][2];
    int start[MT][2];

#pragma unroll
    for (int i = 0; i < MT * 2; i++) {
        int r = row + (int)threadIdx.x % 32 / 4 + i * 8;

        lse[i / 2][i % 2] = r < a.T ? a.lse[x.at + r] * LOG2E : 0;
        sums[i / 2][i % 2] = r < a.T ? a.delta[x.at + r] : 0;
        start[i / 2][i % 2] = start_of<DOCS> (a, b, r);
    }
    tile_load<ROWS, WIDTH> (q, x.q, first, a.T, a.D, a.aligned);
    tile_load<ROWS, WIDTH> (dy, x.y, first, a.T, a.D, a.aligned);
    tile_load<COLUMNS, WIDTH> (k, x.k, begin * COLUMNS, a.T, a.D, a.aligned);
    tile_load<COLUMNS, WIDTH> (v, x.v, begin * COLUMNS, a.T, a.D, a.aligned);
    copies_end ();
    for (int i = 0; i < steps; i++) {
        int now = i % 2 * TILE, then = TILE - now,
            column = (begin + i) * COLUMNS;

        if (i + 1 < steps) {
            tile_load<COLUMNS, WIDTH> (k + then, x.k, column + COLUMNS, a.T,
                                       a.D, a.aligned);
            tile_load<COLUMNS, WIDTH> (v + then, x.v, column + COLUMNS, a.T,
                                       a.D, a.aligned);
        }
        copies_end ();
        copies_wait<1> ();
        __syncthreads ();
        if (column < row + MT * 16
            && (!DOCS || column + COLUMNS > start_of<DOCS> (a, b, row))) {
            product_rows<E, MT, COLUMNS, WIDTH> (s, q, row - first, k + now);
            product_rows<E, MT, COLUMNS, WIDTH> (dp, dy, row - first, v + now);
#pragma unroll
            for (int m = 0; m < MT; m++)
                straight_step<COLUMNS, DOCS> (s[m], dp[m], lse[m], sums[m],
                                              a.scale, row + m * 16, column,
                                              start[m]);
            product_columns<E, MT, COLUMNS, WIDTH, WIDTH> (dq, dp, k + now, 0);
        }
        __syncthreads ();
    }
#pragma unroll
    for (int m = 0; m < MT; m++)
        result_store<E, WIDTH> (a.out + x.q_first, x.q.pitch, dq[m],
                                row + m * 16, 0, a.T, a.D, 1, 1);
}

template <class E, int WIDTH, bool DOCS>
static void run_bwd (const struct half_args &a, unsigned B, void *stream)
{
    using p = plan<WIDTH>;
    size_t rows = (size_t)B * a.T * a.H;

    delta<E><<<(unsigned)((rows + WARPS - 1) / WARPS), THREADS, 0,
               (cudaStream_t)stream>>> (a, rows);
    launch (bwd_keys<E, p::keys_tiles, WIDTH, p::out, p::queries, DOCS>,
            dim3 (B * a.G, blocks (a.T, p::keys_tiles * BLOCK), WIDTH / p::out),
            p::keys_room, a, stream);
    launch (bwd_queries<E, p::queries_tiles, WIDTH, p::bwd_columns, DOCS>,
            dim3 (B * a.H, blocks (a.T, p::queries_tiles * BLOCK)),
            p::queries_room, a, stream);
}

template <class E, bool DOCS>
static void any_bwd (struct half_args a, unsigned B, void *stream)
{
    a.aligned =
        a.aligned && (uintptr_t)a.qkv % 16 == 0 && (uintptr_t)a.dy % 16 == 0;
    if (a.D <= 64)
        run_bwd<E, 64, DOCS> (a, B, stream);
    else if (a.D <= 128)
        run_bwd<E, 128, DOCS> (a, B, stream);
    else
        run_bwd<E, 256, DOCS> (a, B, stream);
}

#define BACKWARD(name, type)                                                   \
    void kern_attention_docs_bwd_##name##_cuda (                               \
        uint16_t *dqkv, const uint16_t *dy, const uint16_t *y,                 \
        const float *lse, const uint16_t *qkv, const int32_t *starts,          \
        void *scratch, size_t B, size_t T, size_t H, size_t G, size_t D,       \
        double scale, void *stream)                                            \
    {                                                                          \
        struct half_args a = args_of (T, H, G, D, scale);                      \
                                                                               \
        a.out = dqkv;                                                          \
        a.dy = dy;                                                             \
        a.y = y;                                                               \
        a.lse = (float *)lse;                                                  \
        a.qkv = qkv;                                                           \
        a.delta = (float *)scratch;                                            \
        a.starts = starts;                                                     \
        if (starts)                                                            \
            any_bwd<type, true> (a, (unsigned)B, stream);                      \
        else                                                                   \
            any_bwd<type, false> (a, (unsigned)B, stream);                     \
    }                                                                          \
                                                                               \
    void kern_attention_bwd_##name##_cuda (                                    \
        uint16_t *dqkv, const uint16_t *dy, const uint16_t *y,                 \
        const float *lse, const uint16_t *qkv, void *scratch, size_t B,        \
        size_t T, size_t H, size_t G, size_t D, double scale, void *stream)    \
    {                                                                          \
        kern_attention_docs_bwd_##name##_cuda (dqkv, dy, y, lse, qkv, NULL,    \
                                               scratch, B, T, H, G, D, scale,  \
                                               stream);                        \
    }

BACKWARD (bf16, bf16)
BACKWARD (f16, f16)
