/* SPDX-License-Identifier: Apache-2.0
 * decode_attention.cu - keys and values that stay, and attention of single
 * queries over them, bound by memory
 *
 * A block takes the query heads of one row that share a key. Each key is read
 * by LANES neighbours of a warp, 16 bytes each; the groups of lanes of all
 * warps take the keys in turn, each with a running softmax of its own, and
 * these are joined at the end. */
#include "kernels/decode.h"
#include "kernels/decode_early.cuh"
#include "kernels/decode_tensor.h"
#include "kernels/layers_cuda.h"

#define HEADS_MOST 4 /* of a block */
#define WARPS      (THREADS / 32)

/* One thread turns one vector of a pair, of a query or key, or moves one of a
 * value; [half] in vectors. */
template <typename L>
static __global__ void __launch_bounds__ (THREADS)
    keep (typename L::elem *k, typename L::elem *v, typename L::elem *qkv,
          const float *cosine, const float *sine, const int32_t *slot,
          const int32_t *at, size_t N, size_t T, size_t H, size_t G,
          size_t half)
{
    size_t heads = H + 2 * G, n, h, j, to;
    typename L::elem *x;
    float a[L::W], b[L::W], c[L::W], s[L::W];
    int t;

    n = divided (thread_number (), heads * half, &j);
    if (n >= N || (t = at[n]) < 0)
        return;
    h = divided (j, half, &j);
    x = qkv + (n * heads + h) * 2 * half * L::W;
    get<L> (x + j * L::W, a);
    get<L> (x + (half + j) * L::W, b);
    L::floats (cosine + ((size_t)t * half + j) * L::W, c);
    L::floats (sine + ((size_t)t * half + j) * L::W, s);
#pragma unroll
    for (int i = 0; h < H + G && i < L::W; i++) {
        float p = a[i], q = b[i];

        a[i] = p * c[i] - q * s[i];
        b[i] = q * c[i] + p * s[i];
    }
    if (h < H + G) {
        put<L> (x + j * L::W, a);
        put<L> (x + (half + j) * L::W, b);
    }
    if (h >= H) {
        to = (((size_t)slot[n] * G + (h - H) % G) * T + (size_t)t) * 2 * half;
        x = (h < H + G ? k : v) + to * L::W;
        put<L> (x + j * L::W, a);
        put<L> (x + (half + j) * L::W, b);
    }
}

template <typename E>
static void keep_run (typename E::elem *k, typename E::elem *v,
                      typename E::elem *qkv, const float *cosine,
                      const float *sine, const int32_t *slot, const int32_t *at,
                      size_t N, size_t T, size_t H, size_t G, size_t D,
                      void *stream)
{
    cudaStream_t s = (cudaStream_t)stream;
    size_t half = D / 2, all = N * (H + 2 * G) * half;

    if (all == 0)
        return;
    if (fit (k, v, qkv, cosine, sine) && half % E::PER == 0)
        keep<wide<E>><<<blocks_of (all / E::PER), THREADS, 0, s>>> (
            k, v, qkv, cosine, sine, slot, at, N, T, H, G, half / E::PER);
    else
        keep<single<E>><<<blocks_of (all), THREADS, 0, s>>> (
            k, v, qkv, cosine, sine, slot, at, N, T, H, G, half);
}

/* Block (i, j, 0 or 1) copies the kept rows of one head and layer, its keys or
 * values; [width] is D in vectors. */
template <typename L>
static __global__ void __launch_bounds__ (THREADS)
    share (typename L::elem *k, typename L::elem *v, const int32_t *from,
           const int32_t *to, const int32_t *n, size_t S, size_t G, size_t T,
           size_t width)
{
    typename L::elem *x = blockIdx.z ? v : k;
    size_t i = blockIdx.x, l = blockIdx.y / G, g = blockIdx.y % G;
    size_t a = ((l * S + (size_t)from[i]) * G + g) * T * width;
    size_t b = ((l * S + (size_t)to[i]) * G + g) * T * width;

    for (size_t j = threadIdx.x; j < (size_t)n[i] * width; j += THREADS)
        L::store (x + (b + j) * L::W, L::load (x + (a + j) * L::W));
}

template <typename E>
static void share_run (typename E::elem *k, typename E::elem *v,
                       const int32_t *from, const int32_t *to, const int32_t *n,
                       size_t P, size_t L, size_t S, size_t G, size_t T,
                       size_t D, void *stream)
{
    dim3 grid ((unsigned)P, (unsigned)(L * G), 2);

    if (P == 0)
        return;
    if (fit (k, v) && D % E::PER == 0)
        share<wide<E>><<<grid, THREADS, 0, (cudaStream_t)stream>>> (
            k, v, from, to, n, S, G, T, D / E::PER);
    else
        share<single<E>><<<grid, THREADS, 0, (cudaStream_t)stream>>> (
            k, v, from, to, n, S, G, T, D);
}

/* What some keys make of one head: greatest score, sum of powers, weighted
 * values of this lane. Scores are times log2 (e). */
template <int E> struct part {
    float most, sum, y[E];
};

template <int E>
static __device__ void join (part<E> &a, float most, float sum, const float *y)
{
    float both = fmaxf (a.most, most);
    float p = both == -INFINITY ? 0 : exp2f (a.most - both);
    float q = both == -INFINITY ? 0 : exp2f (most - both);

    a.most = both;
    a.sum = a.sum * p + sum * q;
#pragma unroll
    for (int e = 0; e < E; e++)
        a.y[e] = a.y[e] * p + y[e] * q;
}

/* The lane's PER elements of a row of D, in C pieces that lie [lanes] apart. */
template <typename L, int C>
static __device__ void row_part (const typename L::elem *row, int D, int lane,
                                 int lanes, float *x)
{
#pragma unroll
    for (int c = 0; c < C; c++) {
        int d = (c * lanes + lane) * L::W;

        if (d < D)
            get<L> (row + d, x + c * L::W);
        else
            for (int i = 0; i < L::W; i++)
                x[c * L::W + i] = 0;
    }
}

/* Scores of one key with R heads, known to all its lanes. */
template <int E, int R>
static __device__ void scores (float *s, const float (*q)[E], const float *key,
                               int lanes)
{
#pragma unroll
    for (int r = 0; r < R; r++) {
        s[r] = 0;
#pragma unroll
        for (int e = 0; e < E; e++)
            s[r] += q[r][e] * key[e];
    }
    for (int far = lanes / 2; far > 0; far /= 2)
#pragma unroll
        for (int r = 0; r < R; r++)
            s[r] += __shfl_xor_sync (0xffffffffu, s[r], far);
}

template <int E>
static __device__ void take (part<E> &a, float score, const float *value)
{
    float both = fmaxf (a.most, score);
    float p = exp2f (a.most - both), q = exp2f (score - both);

    a.most = both;
    a.sum = a.sum * p + q;
#pragma unroll
    for (int e = 0; e < E; e++)
        a.y[e] = a.y[e] * p + q * value[e];
}

/* Join the groups of a warp, then the warps; lanes of group 0 of warp 0 have
 * it. */
template <int E>
static __device__ void join_block (part<E> &a, int lanes, float (*share)[32])
{
    int lane = (int)threadIdx.x % 32, warp = (int)threadIdx.x / 32;

    for (int far = lanes; far < 32; far *= 2) {
        float y[E], most = __shfl_xor_sync (0xffffffffu, a.most, far);
        float sum = __shfl_xor_sync (0xffffffffu, a.sum, far);

#pragma unroll
        for (int e = 0; e < E; e++)
            y[e] = __shfl_xor_sync (0xffffffffu, a.y[e], far);
        join (a, most, sum, y);
    }
    __syncthreads ();
    if (lane < lanes) {
        share[warp * (E + 2)][lane] = a.most;
        share[warp * (E + 2) + 1][lane] = a.sum;
#pragma unroll
        for (int e = 0; e < E; e++)
            share[warp * (E + 2) + 2 + e][lane] = a.y[e];
    }
    __syncthreads ();
    for (int w = 1; warp == 0 && lane < lanes && w < WARPS; w++) {
        float y[E];

#pragma unroll
        for (int e = 0; e < E; e++)
            y[e] = share[w * (E + 2) + 2 + e][lane];
        join (a, share[w * (E + 2)][lane], share[w * (E + 2) + 1][lane], y);
    }
}

/* Turn a lane's elements of a head by position t; the other of each pair is half
 * the lanes away. Rounded, as it stands in memory elsewhere. */
template <typename L>
static __device__ void turn (float *x, const float *cosine, const float *sine,
                             int t, int lane, int lanes)
{
    float c[L::W], s[L::W];
    int half = lanes / 2, at = (t * half + lane % half) * L::W;

    L::floats (cosine + at, c);
    L::floats (sine + at, s);
#pragma unroll
    for (int i = 0; i < L::W; i++) {
        float other = __shfl_xor_sync (0xffffffffu, x[i], half);

        x[i] = lane < half ? x[i] * c[i] - other * s[i]
                           : x[i] * c[i] + other * s[i];
        x[i] = L::type::get (L::type::put (x[i]));
    }
}

/* grid (N, G, blocks of R heads that share a key). FRESH: the last key and value
 * and the queries stand in qkv as they came from their product; cosine and sine
 * turn them. */
template <typename L, int C, int R, bool FRESH>
static __global__ void __launch_bounds__ (THREADS)
    decode (typename L::elem *y, const typename L::elem *qkv,
            typename L::elem *k, typename L::elem *v, const float *cosine,
            const float *sine, const int32_t *slot, const int32_t *at, size_t T,
            int H, int G, int D, int lanes, float scale)
{
    enum { E = C * L::W };
    __shared__ float share[WARPS * (E + 2)][32];
    int lane = (int)threadIdx.x % lanes, groups = THREADS / lanes;
    int first = (int)blockIdx.y * (H / G) + (int)blockIdx.z * R;
    int heads = min (R, H / G - (int)blockIdx.z * R);
    size_t n = blockIdx.x, from;
    int last;
    float q[R][E], new_key[E], new_value[E];
    part<E> a[R];

    early_go ();
    early_wait ();
    last = at[n];
    if (last < 0)
        return;
    from = ((size_t)slot[n] * G + blockIdx.y) * T * D;
#pragma unroll
    for (int r = 0; r < R; r++) {
        int h = first + min (r, heads - 1);

        row_part<L, C> (qkv + (n * (H + 2 * G) + h) * D, D, lane, lanes, q[r]);
        if (FRESH)
            turn<L> (q[r], cosine, sine, last, lane, lanes);
        a[r].most = -INFINITY;
        a[r].sum = 0;
#pragma unroll
        for (int e = 0; e < E; e++) {
            q[r][e] *= scale;
            a[r].y[e] = 0;
        }
    }
    if (FRESH) {
        const typename L::elem *x =
            qkv + (n * (H + 2 * G) + H + blockIdx.y) * D + lane * L::W;
        size_t to = from + (size_t)last * D + lane * L::W;

        get<L> (x, new_key);
        get<L> (x + G * D, new_value);
        turn<L> (new_key, cosine, sine, last, lane, lanes);
        if (threadIdx.x < lanes && blockIdx.z == 0) {
            put<L> (k + to, new_key);
            put<L> (v + to, new_value);
        }
    }
    /* all lanes of a warp go round equally often, for the sums between them */
#pragma unroll 2
    for (int base = 0; base <= last; base += groups) {
        int t = base + (int)threadIdx.x / lanes;
        bool mine = t <= last, kept = t < last + !FRESH;
        size_t row = from + (size_t)(kept ? t : 0) * D;
        float key[E], value[E], s[R];

        row_part<L, C> (k + row, D, lane, lanes, key);
        row_part<L, C> (v + row, D, lane, lanes, value);
#pragma unroll
        for (int e = 0; FRESH && !kept && e < E; e++) {
            key[e] = new_key[e];
            value[e] = new_value[e];
        }
        scores<E, R> (s, q, key, lanes);
#pragma unroll
        for (int r = 0; mine && r < R; r++)
            take (a[r], s[r], value);
    }
#pragma unroll
    for (int r = 0; r < R; r++) {
        join_block (a[r], lanes, share);
        if (threadIdx.x >= lanes || r >= heads)
            continue;
#pragma unroll
        for (int c = 0; c < C; c++) {
            int d = (c * lanes + lane) * L::W;
            float x[L::W];

#pragma unroll
            for (int i = 0; i < L::W; i++)
                x[i] = a[r].y[c * L::W + i] / a[r].sum;
            if (d < D)
                put<L> (y + (n * H + first + r) * D + d, x);
        }
    }
}

/* cosine: NULL where the last keys are kept already */
template <typename L, int C, int R>
static void decode_go (typename L::elem *y, const typename L::elem *qkv,
                       typename L::elem *k, typename L::elem *v,
                       const float *cosine, const float *sine,
                       const int32_t *slot, const int32_t *at, size_t N,
                       size_t T, size_t H, size_t G, size_t D, double scale,
                       bool early, void *stream)
{
    size_t blocks = (H / G + R - 1) / R;
    int lanes = 1;

    while ((size_t)lanes * C * L::W < D)
        lanes *= 2;
    early_launch (cosine ? decode<L, C, R, C == 1> : decode<L, C, R, false>,
                  dim3 ((unsigned)N, (unsigned)G, (unsigned)blocks), THREADS, 0,
                  1, early, stream, y, qkv, k, v, cosine, sine, slot, at, T,
                  (int)H, (int)G, (int)D, lanes,
                  (float)(scale * 1.4426950408889634));
}

/* The tensor cores' way, where there is one. */
static bool on_tensor (as_f32, const struct decode_tensor *, void *)
{
    return false;
}

static bool on_tensor (as_bf16, const struct decode_tensor *a, void *stream)
{
    decode_tensor_bf16 (a, stream);
    return true;
}

static bool on_tensor (as_f16, const struct decode_tensor *a, void *stream)
{
    decode_tensor_f16 (a, stream);
    return true;
}

template <typename T>
static bool tensor_run (typename T::elem *y, const typename T::elem *qkv,
                        typename T::elem *k, typename T::elem *v,
                        const float *cosine, const float *sine,
                        const int32_t *slot, const int32_t *at,
                        const int32_t *lead, const int32_t *shared, size_t N,
                        size_t len, size_t H, size_t G, size_t D, double scale,
                        bool early, void *stream)
{
    struct decode_tensor a = {(uint16_t *)y,
                              (uint16_t *)k,
                              (uint16_t *)v,
                              (const uint16_t *)qkv,
                              cosine,
                              sine,
                              slot,
                              at,
                              lead,
                              shared,
                              N,
                              len,
                              H,
                              G,
                              D,
                              scale,
                              early};

    return decode_tensor_fits (H, G, D) && fit (y, qkv, k, v, cosine, sine)
           && on_tensor (T (), &a, stream);
}

/* Whether one vector a lane makes a row, so that pairs lie half the lanes apart */
template <typename T> static bool even_lanes (size_t D)
{
    size_t lanes = D / T::PER;

    return D % T::PER == 0 && lanes >= 2 && lanes <= 32
           && (lanes & (lanes - 1)) == 0;
}

template <typename T>
static void decode_run (typename T::elem *y, const typename T::elem *qkv,
                        typename T::elem *k, typename T::elem *v,
                        const float *cosine, const float *sine,
                        const int32_t *slot, const int32_t *at,
                        const int32_t *lead, const int32_t *shared, size_t N,
                        size_t len, size_t H, size_t G, size_t D, double scale,
                        bool early, void *stream)
{
    bool whole = fit (y, qkv, k, v) && D % T::PER == 0;

    if (N == 0
        || tensor_run<T> (y, qkv, k, v, cosine, sine, slot, at, lead, shared, N,
                          len, H, G, D, scale, early, stream))
        return;
    if (!whole)
        decode_go<single<T>, 8, 1> (y, qkv, k, v, NULL, NULL, slot, at, N, len,
                                    H, G, D, scale, early, stream);
    else if (D > 32 * T::PER)
        decode_go<wide<T>, 2, 2> (y, qkv, k, v, NULL, NULL, slot, at, N, len, H,
                                  G, D, scale, early, stream);
    else if (H == G)
        decode_go<wide<T>, 1, 1> (y, qkv, k, v, cosine, sine, slot, at, N, len,
                                  H, G, D, scale, early, stream);
    else
        decode_go<wide<T>, 1, HEADS_MOST> (y, qkv, k, v, cosine, sine, slot, at,
                                           N, len, H, G, D, scale, early,
                                           stream);
}

template <typename T>
static void attend_run (typename T::elem *y, typename T::elem *k,
                        typename T::elem *v, typename T::elem *qkv,
                        const float *cosine, const float *sine,
                        const int32_t *slot, const int32_t *at,
                        const int32_t *lead, const int32_t *shared, size_t N,
                        size_t len, size_t H, size_t G, size_t D, double scale,
                        bool early, void *stream)
{
    bool one = fit (y, qkv, k, v, cosine, sine) && even_lanes<T> (D);

    if (N == 0)
        return;
    if (!one)
        keep_run<T> (k, v, qkv, cosine, sine, slot, at, N, len, H, G, D,
                     stream);
    decode_run<T> (y, qkv, k, v, one ? cosine : NULL, sine, slot, at, lead,
                   shared, N, len, H, G, D, scale, one && early, stream);
}

#define MAKE(d)                                                                \
    void kern_share_fwd_##d##_cuda (                                           \
        LAYERS_ELEM (d) * k, LAYERS_ELEM (d) * v, const int32_t *from,         \
        const int32_t *to, const int32_t *n, size_t P, size_t L, size_t S,     \
        size_t G, size_t T, size_t D, void *stream)                            \
    {                                                                          \
        share_run<as_##d> (k, v, from, to, n, P, L, S, G, T, D, stream);       \
    }                                                                          \
    void kern_keep_fwd_##d##_cuda (LAYERS_ELEM (d) * k, LAYERS_ELEM (d) * v,   \
                                   LAYERS_ELEM (d) * qkv, const float *cosine, \
                                   const float *sine, const int32_t *slot,     \
                                   const int32_t *at, size_t N, size_t T,      \
                                   size_t H, size_t G, size_t D, void *stream) \
    {                                                                          \
        keep_run<as_##d> (k, v, qkv, cosine, sine, slot, at, N, T, H, G, D,    \
                          stream);                                             \
    }                                                                          \
    void kern_decode_fwd_##d##_cuda (                                          \
        LAYERS_ELEM (d) * y, const LAYERS_ELEM (d) * qkv,                      \
        const LAYERS_ELEM (d) * k, const LAYERS_ELEM (d) * v,                  \
        const int32_t *slot, const int32_t *at, size_t N, size_t T, size_t H,  \
        size_t G, size_t D, double scale, void *scratch, void *stream)         \
    {                                                                          \
        (void)scratch;                                                         \
        decode_run<as_##d> (y, qkv, (LAYERS_ELEM (d) *)k,                      \
                            (LAYERS_ELEM (d) *)v, NULL, NULL, slot, at, NULL,  \
                            NULL, N, T, H, G, D, scale, false, stream);        \
    }                                                                          \
    void kern_attend_fwd_##d##_cuda (                                          \
        LAYERS_ELEM (d) * y, LAYERS_ELEM (d) * k, LAYERS_ELEM (d) * v,         \
        LAYERS_ELEM (d) * qkv, const float *cosine, const float *sine,         \
        const int32_t *slot, const int32_t *at, const int32_t *lead,           \
        const int32_t *shared, size_t N, size_t T, size_t H, size_t G,         \
        size_t D, double scale, bool early, void *scratch, void *stream)       \
    {                                                                          \
        (void)scratch;                                                         \
        attend_run<as_##d> (y, k, v, qkv, cosine, sine, slot, at, lead,        \
                            shared, N, T, H, G, D, scale, early, stream);      \
    }

LAYERS_EACH (MAKE)
