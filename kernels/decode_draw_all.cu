/* SPDX-License-Identifier: Apache-2.0
 * decode_draw_all.cu - a token of each row of logits, of which all may be drawn
 *
 * A cluster has a row, each warp of it a range of ids. Logits are read from
 * memory once: the greatest is found, then each warp's chances are added up, and
 * the one in whose range the draw falls goes through it once more. Blocks tell
 * each other by shared memory. */
#include <cooperative_groups.h>

#include "kernels/cluster.cuh"
#include "kernels/decode_draw.h"
#include "kernels/decode_draw_all.h"
#include "kernels/decode_early.cuh"
#include "kernels/layers_cuda.h"

namespace cg = cooperative_groups;

/* As in decode_product.cuh. */
#if !defined(__CUDA_ARCH__) || __CUDA_ARCH__ >= 900
#define CLUSTERS 1
#else
#define CLUSTERS 0
#endif

#define PARTS 4 /* blocks of a row */
#define WARPS (THREADS / 32)

struct args {
    int32_t *ids;
    float *logp;
    const int32_t *text, *at;
    int V, each; /* ids of a warp */
    float heat;
    bool greedy;
    uint64_t seed;
};

#if CLUSTERS
struct best {
    float z;
    bool good; /* all logits are numbers */
};

/* Of [lanes] lanes, a power of 2 of them. */
static __device__ best join (best a, int lanes)
{
    for (int far = lanes / 2; far > 0; far /= 2) {
        a.z = fmaxf (a.z, __shfl_xor_sync (0xffffffffu, a.z, far));
        a.good &= __shfl_xor_sync (0xffffffffu, (int)a.good, far) != 0;
    }
    return a;
}

/* Of the whole row, for all threads of its cluster. */
static __device__ best join_row (const cg::cluster_group &all, best *warps,
                                 best *block, best a)
{
    int lane = (int)threadIdx.x % 32;

    a = join (a, 32);
    if (lane == 0)
        warps[threadIdx.x / 32] = a;
    __syncthreads ();
    if (threadIdx.x < 32) {
        a = join (warps[lane % WARPS], WARPS);
        if (lane == 0)
            *block = a;
    }
    cluster_tell ();
    return join (*all.map_shared_rank (block, lane % PARTS), PARTS);
}

/* Of ids first..end-1. */
template <typename L>
static __device__ best find_best (const typename L::elem *z, int first, int end)
{
    float most = -INFINITY, none = 0;

#pragma unroll 4
    for (int v = first + (int)threadIdx.x % 32 * L::W; v < end;
         v += 32 * L::W) {
        float x[L::W];

        get<L> (z + v, x);
#pragma unroll
        for (int i = 0; i < L::W; i++) {
            most = fmaxf (most, x[i]);
            none = fmaf (x[i], 0, none); /* NaN from what is no number */
        }
    }
    return best{most, none == 0};
}

/* The first of ids first..end-1 whose logit is the greatest. */
template <typename L>
static __device__ int find_id (const typename L::elem *z, int first, int end,
                               float most)
{
    int id = 0x7fffffff;

    for (int v = first + (int)threadIdx.x % 32; v < end; v += 32)
        if (L::type::get (z[v]) == most)
            id = min (id, v);
    return __reduce_min_sync (0xffffffffu, id);
}

/* The first of what all warps of the cluster found. */
static __device__ int join_ids (const cg::cluster_group &all, int *ids)
{
    int lane = (int)threadIdx.x % 32, id = 0x7fffffff;

    for (int w = lane; w < PARTS * WARPS; w += 32)
        id = min (id, all.map_shared_rank (ids, w / WARPS)[w % WARPS]);
    return __reduce_min_sync (0xffffffffu, id);
}

/* 2 to the power x, or 0 */
static __device__ float power (float x)
{
    float y;

    asm("ex2.approx.ftz.f32 %0, %1;" : "=f"(y) : "f"(x));
    return y;
}

/* Logits [less] and times this are the powers of 2 that are their chances beside
 * that of the likeliest. The difference comes first: of a small heat the two
 * products are so great that their rounding is more than all there is to tell. */
struct scale {
    float by, less;
};

/* Chances of ids v..v+W-1, and their sum. */
template <typename L>
static __device__ float chances (float *p, const typename L::elem *z, int v,
                                 int end, scale s)
{
    float sum = 0;

    if (v < end)
        get<L> (z + v, p);
#pragma unroll
    for (int i = 0; i < L::W; i++) {
        p[i] = v < end ? power ((p[i] - s.less) * s.by) : 0;
        sum += p[i];
    }
    return sum;
}

template <typename L>
static __device__ double sum_range (const typename L::elem *z, int first,
                                    int end, scale s)
{
    double sum = 0;

    for (int v = first + (int)threadIdx.x % 32 * L::W; v < end;
         v += 32 * L::W) {
        float p[L::W];

        sum += (double)chances<L> (p, z, v, end, s);
    }
    for (int far = 16; far > 0; far /= 2)
        sum += __shfl_xor_sync (0xffffffffu, sum, far);
    return sum;
}

/* The sum of this lane and all before it. */
static __device__ double sum_before (double x)
{
    for (int far = 1; far < 32; far *= 2) {
        double left = __shfl_up_sync (0xffffffffu, x, far);

        x += (int)threadIdx.x % 32 >= far ? left : 0;
    }
    return x;
}

/* The warp of the cluster in whose range u of the whole falls: the first whose
 * ranges up to it are beyond it, or the last that has any. */
static __device__ int find_warp (const cg::cluster_group &all, double *sums,
                                 double chance, double *ret_all, double *ret_u)
{
    enum { OF_LANE = PARTS * WARPS / 32 };
    double own[OF_LANE], sum = 0, before, u;
    int lane = (int)threadIdx.x % 32, pick = -1, last = -1;

#pragma unroll
    for (int i = 0; i < OF_LANE; i++) {
        int w = lane * OF_LANE + i;

        own[i] = all.map_shared_rank (sums, w / WARPS)[w % WARPS];
        sum += own[i];
    }
    before = sum_before (sum);
    *ret_all = __shfl_sync (0xffffffffu, before, 31);
    u = chance * *ret_all;
    before -= sum;
    for (int i = 0; i < OF_LANE; i++) {
        if (own[i] > 0)
            last = i;
        if (pick < 0 && own[i] > 0 && u < before + own[i])
            pick = i;
        if (pick < 0)
            before += own[i];
    }
    unsigned have = __ballot_sync (0xffffffffu, pick >= 0);
    unsigned some = __ballot_sync (0xffffffffu, last >= 0);
    int from = have ? __ffs ((int)have) - 1 : 31 - __clz ((int)some);

    before = __shfl_sync (0xffffffffu, before, from);
    *ret_u = have ? u - before : INFINITY;
    return from * OF_LANE + __shfl_sync (0xffffffffu, have ? pick : last, from);
}

/* The first id of first..end-1 at which the sum passes u; the last that has a
 * chance if none does. */
template <typename L>
static __device__ int walk (const typename L::elem *z, int first, int end,
                            scale s, double u)
{
    int lane = (int)threadIdx.x % 32, last = first;

    for (int base = first; base < end; base += 32 * L::W) {
        int v = base + lane * L::W, mine = -1, pick = -1;
        float p[L::W], x = 0;
        double sum = (double)chances<L> (p, z, v, end, s);
        double to = sum_before (sum), left = u - (to - sum);
        unsigned past, some;

#pragma unroll
        for (int i = 0; i < L::W; i++) {
            x += p[i];
            mine = p[i] > 0 ? v + i : mine;
            pick = pick < 0 && p[i] > 0 && left < (double)x ? v + i : pick;
        }
        past = __ballot_sync (0xffffffffu, pick >= 0);
        some = __ballot_sync (0xffffffffu, mine >= 0);
        if (past)
            return __shfl_sync (0xffffffffu, pick, __ffs ((int)past) - 1);
        if (some)
            last = __shfl_sync (0xffffffffu, mine, 31 - __clz ((int)some));
        u -= __shfl_sync (0xffffffffu, to, 31);
    }
    return last;
}
#endif

/* grid (N, PARTS), clusters of a row */
template <typename L>
static __global__ void __launch_bounds__ (THREADS)
    draw_all (args a, const typename L::elem *logits)
{
#if CLUSTERS
    __shared__ best warps[WARPS], block;
    __shared__ double sums[WARPS];
    __shared__ int ids[WARPS];
    cg::cluster_group all = cg::this_cluster ();
    int warp = (int)(blockIdx.y * WARPS + threadIdx.x / 32), n = blockIdx.x;
    int first = min (a.V, warp * a.each), end = min (a.V, first + a.each);
    int id, with;
    const typename L::elem *z = logits + (size_t)n * a.V;
    double sum, whole, u, chance;
    best top;
    scale s;

    early_go ();
    early_wait ();
    if (a.at[n] < 0)
        return;
    chance = draw_chance (a.seed, (uint32_t)a.text[n], (uint32_t)a.at[n] + 1);
    top = join_row (all, warps, &block, find_best<L> (z, first, end));
    s.by = fminf (1.442695041f / a.heat, 3e38f); /* 0 times it is 0 */
    s.less = top.z;
    sum = sum_range<L> (z, first, end, s);
    id = a.greedy ? find_id<L> (z, first, end, top.z) : 0;
    if (threadIdx.x % 32 == 0) {
        sums[threadIdx.x / 32] = sum;
        ids[threadIdx.x / 32] = id;
    }
    cluster_tell ();
    with = find_warp (all, sums, chance, &whole, &u);
    id = a.greedy ? join_ids (all, ids) : 0;
    cluster_leave (); /* others may read no longer */
    if (warp != (top.good && !a.greedy ? with : 0))
        return;
    if (!top.good)
        id = -1;
    else if (!a.greedy)
        id = walk<L> (z, first, end, s, u);
    if (threadIdx.x % 32 == 0) {
        a.ids[n] = id;
        if (a.logp && id >= 0)
            a.logp[n] = (float)((double)(L::type::get (z[id]) - top.z) / a.heat
                                - log (whole));
    }
#else
    (void)a;
    (void)logits;
#endif
}

template <typename L>
static void go (const struct decode_draw_all *d, const typename L::elem *logits,
                void *stream)
{
    size_t vectors = (d->V / L::W + PARTS * WARPS - 1) / (PARTS * WARPS);
    args a = {d->ids,
              d->logp,
              d->text,
              d->at,
              (int)d->V,
              (int)(vectors * L::W),
              d->heat > 0 ? (float)d->heat : 1,
              d->heat <= 0,
              d->seed};

    early_launch (draw_all<L>, dim3 ((unsigned)d->N, PARTS), THREADS, 0, PARTS,
                  true, stream, a, logits);
}

template <typename T>
static void run (const struct decode_draw_all *d, void *stream)
{
    const typename T::elem *logits = (const typename T::elem *)d->logits;

    if (d->V % T::PER == 0 && fit (logits))
        go<wide<T>> (d, logits, stream);
    else
        go<single<T>> (d, logits, stream);
}

bool decode_draw_all_served (void)
{
    return early_served ();
}

#define MAKE(dtype)                                                            \
    void decode_draw_all_##dtype (const struct decode_draw_all *d,             \
                                  void *stream)                                \
    {                                                                          \
        run<as_##dtype> (d, stream);                                           \
    }

LAYERS_EACH (MAKE)
