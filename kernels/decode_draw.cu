/* SPDX-License-Identifier: Apache-2.0
 * decode_draw.cu - a token of each row of logits, by its chance
 *
 * A block has a row; each warp sums a range of ids, the one in which the draw
 * falls goes through it once more. */
#include "kernels/decode.h"
#include "kernels/layers_cuda.h"

#define BLOCK 1024
#define WARPS (BLOCK / 32)

struct best {
    float z;
    int id; /* -1: some logit is no number */
};

static __device__ best better (best a, best b)
{
    if (a.id < 0 || b.id < 0)
        return a.id < 0 ? a : b;
    return b.z > a.z || (b.z == a.z && b.id < a.id) ? b : a;
}

template <typename T>
static __device__ best find_best (const typename T::elem *z, int V)
{
    __shared__ best share[WARPS];
    best a = {-INFINITY, 0x7fffffff};

    for (int v = threadIdx.x; v < V; v += BLOCK) {
        best b = {T::get (z[v]), v};

        b.id = isfinite (b.z) ? v : -1;
        a = better (a, b);
    }
    for (int round = 0; round < 2; round++) {
        for (int far = 16; far > 0; far /= 2) {
            best b = {__shfl_xor_sync (0xffffffffu, a.z, far),
                      __shfl_xor_sync (0xffffffffu, a.id, far)};

            a = better (a, b);
        }
        if (round == 0) {
            if (threadIdx.x % 32 == 0)
                share[threadIdx.x / 32] = a;
            __syncthreads ();
            a = share[threadIdx.x % 32];
        }
    }
    return a;
}

static __device__ double sum_warp (double x)
{
    for (int far = 16; far > 0; far /= 2)
        x += __shfl_xor_sync (0xffffffffu, x, far);
    return x;
}

/* The first id of first..end-1 at which the sum passes u; the last if none. */
template <typename T>
static __device__ int walk (const typename T::elem *z, int first, int end,
                            float most, float heat, double u)
{
    int lane = (int)threadIdx.x % 32;

    for (int base = first; base < end; base += 32) {
        int v = base + lane;
        double p = v < end ? (double)expf ((T::get (z[v]) - most) / heat) : 0;
        unsigned past;

        for (int far = 1; far < 32; far *= 2) {
            double left = __shfl_up_sync (0xffffffffu, p, far);

            p += lane >= far ? left : 0;
        }
        past = __ballot_sync (0xffffffffu, v < end && u < p);
        if (past)
            return base + __ffs ((int)past) - 1;
        u -= __shfl_sync (0xffffffffu, p, 31);
    }
    return end - 1;
}

template <typename T>
static __global__ void __launch_bounds__ (BLOCK)
    draw (int32_t *ids, float *logp, const typename T::elem *logits,
          const int32_t *text, const int32_t *at, int V, float heat,
          uint64_t seed)
{
    __shared__ double sums[WARPS];
    size_t n = blockIdx.x;
    const typename T::elem *z = logits + n * (size_t)V;
    int warp = (int)threadIdx.x / 32, lane = (int)threadIdx.x % 32;
    int each = ((V + WARPS - 1) / WARPS + 31) / 32 * 32, w = 0;
    int first = min (V, warp * each), end = min (V, first + each);
    float rate = heat == 0 ? 1 : heat;
    double sum = 0, all = 0, u;
    best a;

    if (at[n] < 0)
        return;
    a = find_best<T> (z, V);
    if (threadIdx.x == 0 && (a.id < 0 || heat == 0))
        ids[n] = a.id;
    if (a.id < 0 || (heat == 0 && !logp))
        return;
    for (int v = first + lane; v < end; v += 32)
        sum += (double)expf ((T::get (z[v]) - a.z) / rate);
    sum = sum_warp (sum);
    if (lane == 0)
        sums[warp] = sum;
    __syncthreads ();
    for (int i = 0; i < WARPS; i++)
        all += sums[i];
    if (heat == 0) {
        if (threadIdx.x == 0)
            logp[n] = (float)-log (all);
        return;
    }
    u = all * draw_chance (seed, (uint32_t)text[n], (uint32_t)at[n] + 1);
    /* the last range with ids takes what rounding leaves */
    while ((w + 1) * each < V && u >= sums[w])
        u -= sums[w++];
    if (warp == w) {
        int id = walk<T> (z, first, end, a.z, heat, u);

        if (lane == 0)
            ids[n] = id;
        if (lane == 0 && logp)
            logp[n] =
                (float)((double)(T::get (z[id]) - a.z) / heat - log (all));
    }
}

#define MAKE(d)                                                                \
    void kern_draw_##d##_cuda (                                                \
        int32_t *ids, float *logp, const LAYERS_ELEM (d) * logits,             \
        const int32_t *text, const int32_t *at, size_t N, size_t V,            \
        double heat, uint64_t seed, void *stream)                              \
    {                                                                          \
        if (N > 0)                                                             \
            draw<as_##d><<<(unsigned)N, BLOCK, 0, (cudaStream_t)stream>>> (    \
                ids, logp, logits, text, at, (int)V, (float)heat, seed);       \
    }

LAYERS_EACH (MAKE)
