/* SPDX-License-Identifier: Apache-2.0
 * attention_hopper_bwd.cu - causal attention in bf16 and f16, heads of 64, on
 * sm_90a: backward
 *
 * One pass over the logits, five products, with a block of keys held and the
 * queries of every head that reads them passing: dk and dv are a block's own, dq
 * is added to in the order of the blocks.
 *
 * Sources: Dao 2023, arXiv:2307.08691; warps that bring and that compute, their
 * turns, what is issued ahead: Shah et al. 2024, arXiv:2407.08608. */
#include "kernels/attention_hopper.h"

#include "kernels/attention_hopper_dq.cuh"
#include "kernels/attention_hopper_keys.cuh"
#include "kernels/hopper_map.h"

#define FILL_ROWS 4  /* of a thread of stats_fill, at a time */
#define FILL_T    16 /* positions of a block */

/* A thread's eighth of a row's sum of dy y. */
template <class E>
static __device__ __forceinline__ float delta_part (const uint4 &dy,
                                                    const uint4 &y)
{
    const uint32_t *u = (const uint32_t *)&dy, *v = (const uint32_t *)&y;
    float sum = 0;

#pragma unroll
    for (int k = 0; k < 4; k++) {
        float2 f = E::floats (u[k]), g = E::floats (v[k]);

        sum += f.x * g.x + f.y * g.y;
    }
    return sum;
}

/* stats of every row of padded T, no piece taken, no turn had: FILL_T positions of
 * all heads of a sequence a block, eight threads a row. */
template <class E>
static __global__ void __launch_bounds__ (256)
    stats_fill (struct hopper_args a, const uint16_t *dy, const uint16_t *y,
                const float *lse)
{
    int padded = PAD (a.T), rows = FILL_T * a.H, each = padded / FILL_T;
    int first = (int)blockIdx.x % each * FILL_T, b = (int)blockIdx.x / each;
    const uint4 *from = (const uint4 *)dy, *beside = (const uint4 *)y;
    size_t at = ((size_t)b * a.T + first) * a.H * 8 + threadIdx.x % 8;

    if (blockIdx.x == 0 && threadIdx.x == 0)
        *a.counter = 0;
    for (int h = (int)threadIdx.x; h < a.H; h += 256)
        a.turns[((size_t)(b * a.H + h) * padded + first) / 16] = 0;
#pragma unroll 1
    for (int r0 = (int)threadIdx.x / 8; r0 < rows; r0 += 32 * FILL_ROWS) {
        uint4 p[FILL_ROWS] = {}, q[FILL_ROWS] = {};

#pragma unroll
        for (int k = 0; k < FILL_ROWS; k++) {
            int r = r0 + k * 32;

            if (r < rows && first + r / a.H < a.T) {
                p[k] = from[at + (size_t)r * 8];
                q[k] = beside[at + (size_t)r * 8];
            }
        }
#pragma unroll
        for (int k = 0; k < FILL_ROWS; k++) {
            int r = r0 + k * 32, t = first + r / a.H;
            size_t head = (size_t)b * a.H + r % a.H;
            float sum = delta_part<E> (p[k], q[k]);
            float *to =
                a.stats + (head * padded + t / TILE * TILE) * 2 + stat_at (t);

            for (int i = 4; i > 0; i /= 2)
                sum += __shfl_xor_sync (~0u, sum, i);
            if (threadIdx.x % 8 != 0 || r >= rows)
                continue;
            to[0] = t < a.T ? lse[head * a.T + t] * LOG2E : 0;
            to[TILE] = sum;
        }
    }
}

/* Tiles of (B,T,heads,64), of any type of two bytes; false: the driver refuses.
 */
static bool map_make (CUtensorMap *ret, const void *at, size_t B, size_t T,
                      size_t heads)
{
    const uint64_t sizes[] = {TILE, heads, T, B};
    const uint64_t strides[] = {TILE * 2, heads * TILE * 2,
                                T * heads * TILE * 2};
    const uint32_t box[] = {TILE, 1, TILE, 1};

    return hopper_map (ret, at, 4, sizes, strides, box);
}

static __device__ int served = SERVED;

bool kern_attention_hopper_served (void)
{
    int is = 0;

    if (cudaMemcpyFromSymbol (&is, served, sizeof (is)) == cudaSuccess)
        return is != 0 && hopper_map_here ();
    (void)cudaGetLastError ();
    return false;
}

#define COUNTER 256 /* bytes of scratch before the stats */

size_t kern_attention_hopper_scratch (size_t B, size_t T, size_t H)
{
    size_t rows = B * H * PAD (T);

    return COUNTER + rows * (2 + TILE) * sizeof (float)
           + rows / 16 * sizeof (int);
}

/* Key-value heads whose pieces, longest first, keep all multiprocessors busy for
 * as long as the longest takes: fewer would leave some idle at the end, more
 * have more in the L2 cache. */
static int chunk_of (const struct hopper_args &a)
{
    int device = 0, blocks = (a.T - 1) / ROWS + 1, all = 1;

    (void)cudaGetDevice (&device);
    (void)cudaDeviceGetAttribute (&all, cudaDevAttrMultiProcessorCount, device);
    return max (1, min (a.B * a.G, 2 * all / blocks));
}

template <class E>
static __global__ void __launch_bounds__ (BLOCK, 1)
    bwd (const __grid_constant__ struct hopper_maps maps, struct hopper_args a,
         int pieces)
{
#if SERVED
    extern __shared__ char raw[];
    hopper_room m;
    int group = (int)threadIdx.x / GROUP;

    m.make (raw);
    if (group == 0) {
        registers_fewer<24> ();
        if (threadIdx.x == 0)
            hopper_bring (m, maps, a, pieces);
    } else if (group == 1) {
        registers_fewer<104> ();
        dq_work<E> (m, a);
    } else {
        registers_more<192> ();
        keys_work<E> (m, a);
    }
#endif
}

template <class E>
static bool run_bwd (struct hopper_args a, const uint16_t *dy,
                     const uint16_t *y, const float *lse, const uint16_t *qkv,
                     void *scratch, cudaStream_t stream)
{
    size_t B = (size_t)a.B, T = (size_t)a.T, H = (size_t)a.H, G = (size_t)a.G;
    size_t rows = B * H * PAD (T);
    struct hopper_maps maps;

    if (!map_make (&maps.qkv, qkv, B, T, H + 2 * G)
        || !map_make (&maps.dy, dy, B, T, H))
        return false;
    a.counter = (int *)scratch;
    a.stats = (float *)((char *)scratch + COUNTER);
    a.sums = a.stats + rows * 2;
    a.turns = (int *)(a.sums + rows * TILE);
    a.chunk = chunk_of (a);
    stats_fill<E><<<(unsigned)(B * (PAD (T) / FILL_T)), 256, 0, stream>>> (
        a, dy, y, lse);
    launch (bwd<E>, hopper_room::bytes, maps, a, a.B * a.G, stream);
    return true;
}

#define BACKWARD(name)                                                         \
    bool kern_attention_hopper_bwd_##name##_cuda (                             \
        uint16_t *dqkv, const uint16_t *dy, const uint16_t *y,                 \
        const float *lse, const uint16_t *qkv, void *scratch, size_t B,        \
        size_t T, size_t H, size_t G, double scale, void *stream)              \
    {                                                                          \
        struct hopper_args a = {};                                             \
                                                                               \
        a.out = dqkv;                                                          \
        a.B = (int)B;                                                          \
        a.T = (int)T;                                                          \
        a.H = (int)H;                                                          \
        a.G = (int)G;                                                          \
        a.scale = (float)scale;                                                \
        return run_bwd<name> (a, dy, y, lse, qkv, scratch,                     \
                              (cudaStream_t)stream);                           \
    }

BACKWARD (bf16)
BACKWARD (f16)
