/* SPDX-License-Identifier: Apache-2.0
 * decode_draw.cu - a token of each row of logits, by its chance
 *
 * A block has a row. Who may be drawn is a threshold: keys are numbers in the
 * order of the logits, and rounds over the row count how many, and what chance,
 * are at or above three keys at a time, in whole numbers, so that the order of
 * adding does not matter. Then each warp sums a range of ids, and the one in
 * which the draw falls goes through it once more. */
#include "kernels/decode.h"
#include "kernels/decode_draw_all.h"
#include "kernels/layers_cuda.h"

#define BLOCK 1024
#define WARPS (BLOCK / 32)
#define WHOLE 1099511627776.0f /* the likeliest's chance */

struct args {
    int32_t *ids;
    float *logp;
    const int32_t *text, *at, *slot;
    const uint32_t *seen; /* NULL: no repetition */
    int V, top_k;
    float heat, repetition, top_p, min_p;
    bool greedy;
    uint64_t seed;
};

template <typename T> struct row {
    const typename T::elem *z;
    const uint32_t *seen;
    float repetition;
    int V;
    __device__ float raw (int v) const
    {
        return T::get (z[v]);
    }
    __device__ float get (int v) const
    {
        float x = T::get (z[v]);

        if (seen && (seen[v / 32] >> v % 32 & 1))
            x = x < 0 ? x * repetition : x / repetition;
        return x;
    }
};

/* Numbers in the order of floats; both zeros are one. */
static __device__ uint32_t key_of (float x)
{
    uint32_t u = __float_as_uint (x + 0.0f);

    return u >> 31 ? ~u : u | 0x80000000u;
}

static __device__ float of_key (uint32_t k)
{
    return __uint_as_float (k >> 31 ? k & 0x7fffffffu : ~k);
}

struct best {
    float z, least;
    int id; /* -1: some logit is no number */
};

static __device__ best better (best a, best b)
{
    float least = fminf (a.least, b.least);

    if (a.id < 0 || b.id < 0)
        a = a.id < 0 ? a : b;
    else
        a = b.z > a.z || (b.z == a.z && b.id < a.id) ? b : a;
    a.least = least;
    return a;
}

static __device__ best join (best a)
{
    __shared__ best share[WARPS];

    __syncthreads ();
    for (int round = 0; round < 2; round++) {
        for (int far = 16; far > 0; far /= 2) {
            best b = {__shfl_xor_sync (0xffffffffu, a.z, far),
                      __shfl_xor_sync (0xffffffffu, a.least, far),
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

/* Of the logits as the rules change them, or as they are. */
template <typename T>
static __device__ best find_best (const row<T> &r, bool raw)
{
    best a = {-INFINITY, INFINITY, 0x7fffffff};

    for (int v = threadIdx.x; v < r.V; v += BLOCK) {
        float x = raw ? r.raw (v) : r.get (v);
        best b = {x, x, isfinite (r.raw (v)) ? v : -1};

        a = better (a, b);
    }
    return join (a);
}

static __device__ double sum_warp (double x)
{
    for (int far = 16; far > 0; far /= 2)
        x += __shfl_xor_sync (0xffffffffu, x, far);
    return x;
}

/* Keys at or above a key: how many, and what they weigh. */
struct above {
    uint64_t weight;
    int count;
};

/* Of three rising keys; all threads have them. */
template <typename T>
static __device__ void count (above ret[3], const row<T> &r,
                              const uint32_t key[3], float most, float heat)
{
    __shared__ above share[3];
    above mine[3] = {};

    __syncthreads ();
    if (threadIdx.x < 3)
        share[threadIdx.x] = above{0, 0};
    __syncthreads ();
    for (int v = threadIdx.x; v < r.V; v += BLOCK) {
        float x = r.get (v);
        uint32_t k = key_of (x);
        uint64_t w;

        if (k < key[0])
            continue;
        w = (uint64_t)(expf ((x - most) / heat) * WHOLE);
#pragma unroll
        for (int i = 0; i < 3; i++)
            if (k >= key[i]) {
                mine[i].weight += w;
                mine[i].count++;
            }
    }
#pragma unroll
    for (int i = 0; i < 3; i++) {
        for (int far = 16; far > 0; far /= 2) {
            mine[i].weight +=
                __shfl_xor_sync (0xffffffffu, mine[i].weight, far);
            mine[i].count += __shfl_xor_sync (0xffffffffu, mine[i].count, far);
        }
        if (threadIdx.x % 32 == 0) {
            atomicAdd ((unsigned long long *)&share[i].weight,
                       (unsigned long long)mine[i].weight);
            atomicAdd (&share[i].count, mine[i].count);
        }
    }
    __syncthreads ();
    for (int i = 0; i < 3; i++)
        ret[i] = share[i];
}

/* What is kept: keys at or above [low], of those that are [low] ids to [limit];
 * [at] is what they are together. [high] is a key that is too high, [beyond] what
 * is at or above it. */
struct span {
    uint32_t low, high;
    above at, beyond;
    int limit;
};

/* The highest low with [target] elements, or with weight [target]. */
template <typename T>
static __device__ void search (span *s, const row<T> &r, uint64_t target,
                               bool weigh, float most, float heat)
{
    while (s->high - s->low > 1 && s->at.count - s->beyond.count > 1
           && (weigh || (uint64_t)s->at.count != target)) {
        uint32_t far = s->high - s->low, key[3];
        above got[3];

        for (int i = 0; i < 3; i++) {
            uint32_t step = (uint32_t)((uint64_t)far * (i + 1) / 4);

            key[i] = s->low + min (max (step, (uint32_t)i + 1), far - 1);
        }
        count (got, r, key, most, heat);
        for (int i = 2; i >= 0; i--) {
            uint64_t have = weigh ? got[i].weight : (uint64_t)got[i].count;

            if (have >= target) {
                s->low = key[i];
                s->at = got[i];
                break;
            }
            s->high = key[i];
            s->beyond = got[i];
        }
    }
}

/* The id of the m-th logit whose key is [key]; there are that many. */
template <typename T>
static __device__ int find_id (const row<T> &r, uint32_t key, int m)
{
    __shared__ int counts[WARPS], found;
    int warp = (int)threadIdx.x / 32, lane = (int)threadIdx.x % 32;
    int each = ((r.V + WARPS - 1) / WARPS + 31) / 32 * 32, n = 0;
    int first = min (r.V, warp * each), end = min (r.V, first + each);

    __syncthreads ();
    for (int base = first; base < end; base += 32) {
        int v = base + lane;

        n += __popc (
            __ballot_sync (0xffffffffu, v < end && key_of (r.get (v)) == key));
    }
    if (lane == 0)
        counts[warp] = n;
    __syncthreads ();
    for (int i = 0; i < warp; i++)
        m -= counts[i];
    for (int base = first; m > 0 && m <= n && base < end; base += 32) {
        int v = base + lane;
        unsigned has =
            __ballot_sync (0xffffffffu, v < end && key_of (r.get (v)) == key);

        if (m <= __popc (has)) {
            for (int i = 1; i < m; i++)
                has &= has - 1;
            if (lane == 0)
                found = base + __ffs ((int)has) - 1;
            break;
        }
        m -= __popc (has);
        n -= __popc (has);
    }
    __syncthreads ();
    return found;
}

/* Of [low]'s equals only the first m are kept. */
template <typename T>
static __device__ void trim (span *s, const row<T> &r, int m, float most,
                             float heat)
{
    float x = of_key (s->low);
    uint64_t w = (uint64_t)(expf ((x - most) / heat) * WHOLE);
    int over = s->at.count - s->beyond.count - m;

    if (over <= 0)
        return;
    s->limit = find_id (r, s->low, m);
    s->at.count -= over;
    s->at.weight -= w * over;
}

template <typename T>
static __device__ void cut (span *s, const row<T> &r, const args &a, best top)
{
    uint32_t end = key_of (top.z) + 1, least = key_of (top.least);
    uint32_t key[3] = {least, least, least};
    float heat = a.heat;
    above got[3];

    count (got, r, key, top.z, heat);
    *s = span{least, end, got[0], {0, 0}, 0x7fffffff};
    if (a.top_k > 0 && a.top_k < r.V) {
        search (s, r, (uint64_t)a.top_k, false, top.z, heat);
        if (s->high - s->low == 1)
            trim (s, r, a.top_k - s->beyond.count, top.z, heat);
    }
    if (a.top_p > 0 && a.top_p < 1) {
        uint64_t target = (uint64_t)((double)a.top_p * (double)s->at.weight), w;

        s->high = end;
        s->beyond = above{0, 0};
        target = target > 0 ? target : 1;
        uint32_t low = s->low;

        search (s, r, target, true, top.z, heat);
        if (s->low != low)
            s->limit = 0x7fffffff;
        w = (uint64_t)(expf ((of_key (s->low) - top.z) / heat) * WHOLE);
        if (s->high - s->low == 1 && w > 0)
            trim (s, r, (int)((target - s->beyond.weight + w - 1) / w), top.z,
                  heat);
    }
}

/* The chance of v beside the likeliest's; 0: it may not be drawn. */
template <typename T>
static __device__ float chance (const row<T> &r, const span &s, const args &a,
                                float most, int v)
{
    float x = r.get (v), p = expf ((x - most) / a.heat);
    uint32_t k = key_of (x);

    return k < s.low || (k == s.low && v > s.limit) || p < a.min_p ? 0 : p;
}

/* The first id of first..end-1 at which the sum passes u; the last that may be
 * drawn if none. */
template <typename T>
static __device__ int walk (const row<T> &r, const span &s, const args &a,
                            int first, int end, float most, double u)
{
    int lane = (int)threadIdx.x % 32, last = first;

    for (int base = first; base < end; base += 32) {
        int v = base + lane;
        double p = v < end ? (double)chance (r, s, a, most, v) : 0;
        unsigned past, may = __ballot_sync (0xffffffffu, p > 0);

        for (int far = 1; far < 32; far *= 2) {
            double left = __shfl_up_sync (0xffffffffu, p, far);

            p += lane >= far ? left : 0;
        }
        past = __ballot_sync (0xffffffffu, v < end && u < p) & may;
        if (past)
            return base + __ffs ((int)past) - 1;
        if (may)
            last = base + 31 - __clz ((int)may);
        u -= __shfl_sync (0xffffffffu, p, 31);
    }
    return last;
}

/* Sums of each warp's range of ids; returns that of all. */
template <typename T>
static __device__ double sum_ranges (double sums[WARPS], const row<T> &r,
                                     const span &s, const args &a, bool raw,
                                     float most, int first, int end)
{
    int warp = (int)threadIdx.x / 32, lane = (int)threadIdx.x % 32;
    double sum = 0;

    for (int v = first + lane; v < end; v += 32)
        sum += raw ? (double)expf ((r.raw (v) - most) / a.heat)
                   : (double)chance (r, s, a, most, v);
    sum = sum_warp (sum);
    __syncthreads ();
    if (lane == 0)
        sums[warp] = sum;
    __syncthreads ();
    sum = 0;
    for (int i = 0; i < WARPS; i++)
        sum += sums[i];
    return sum;
}

/* CUT: not all may be drawn, or some are discouraged. */
template <typename T, bool CUT>
static __global__ void __launch_bounds__ (BLOCK)
    draw (args a, const typename T::elem *logits)
{
    __shared__ double sums[WARPS];
    size_t n = blockIdx.x;
    int V = a.V, words = (V + 31) / 32;
    int warp = (int)threadIdx.x / 32, lane = (int)threadIdx.x % 32;
    int each = ((V + WARPS - 1) / WARPS + 31) / 32 * 32, w = 0, id;
    int first = min (V, warp * each), end = min (V, first + each);
    row<T> r = {logits + n * (size_t)V, NULL, a.repetition, V};
    span s = {0, 0, {0, 0}, {0, 0}, 0x7fffffff};
    double all, sum, u;
    best top, raw;

    if (a.at[n] < 0)
        return;
    if (CUT && a.seen)
        r.seen = a.seen + (size_t)a.slot[n] * words;
    raw = top = find_best (r, true);
    if (raw.id < 0) {
        if (threadIdx.x == 0)
            a.ids[n] = -1;
        return;
    }
    if (CUT && a.seen)
        top = find_best (r, false);
    all = sum = sum_ranges (sums, r, s, a, true, raw.z, first, end);
    if (a.greedy) {
        if (threadIdx.x == 0) {
            a.ids[n] = top.id;
            if (a.logp)
                a.logp[n] = (float)((double)(r.raw (top.id) - raw.z) / a.heat
                                    - log (all));
        }
        return;
    }
    if (CUT) {
        cut (&s, r, a, top);
        sum = sum_ranges (sums, r, s, a, false, top.z, first, end);
    }
    u = sum * draw_chance (a.seed, (uint32_t)a.text[n], (uint32_t)a.at[n] + 1);
    /* the last range with ids takes what rounding leaves */
    while (w + 1 < WARPS && (w + 1) * each < V && u >= sums[w])
        u -= sums[w++];
    while (CUT && w > 0 && sums[w] <= 0)
        w--;
    if (warp != w)
        return;
    id = walk (r, s, a, first, end, top.z, u);
    if (lane == 0)
        a.ids[n] = id;
    if (lane == 0 && a.logp)
        a.logp[n] = (float)((double)(r.raw (id) - raw.z) / a.heat - log (all));
}

static void go_all (as_f32, const struct decode_draw_all *d, void *stream)
{
    decode_draw_all_f32 (d, stream);
}

static void go_all (as_bf16, const struct decode_draw_all *d, void *stream)
{
    decode_draw_all_bf16 (d, stream);
}

static void go_all (as_f16, const struct decode_draw_all *d, void *stream)
{
    decode_draw_all_f16 (d, stream);
}

template <typename T>
static void run (int32_t *ids, float *logp, const typename T::elem *logits,
                 const int32_t *text, const int32_t *at, const int32_t *slot,
                 const uint32_t *seen, size_t N, size_t V,
                 const struct kern_draw_rules *o, void *stream)
{
    bool cuts = o->top_k > 0 || (o->top_p > 0 && o->top_p < 1) || o->min_p > 0;
    bool again = o->repetition > 0;
    struct decode_draw_all all = {ids, logp, logits,  text,   at,
                                  N,   V,    o->heat, o->seed};
    args a = {ids,
              logp,
              text,
              at,
              slot,
              again ? seen : NULL,
              (int)V,
              o->top_k,
              o->heat > 0 ? (float)o->heat : 1,
              (float)o->repetition,
              (float)o->top_p,
              (float)o->min_p,
              o->heat <= 0,
              o->seed};

    if (N == 0)
        return;
    if (again || (cuts && o->heat > 0))
        draw<T, true>
            <<<(unsigned)N, BLOCK, 0, (cudaStream_t)stream>>> (a, logits);
    else if (decode_draw_all_served ())
        go_all (T (), &all, stream);
    else
        draw<T, false>
            <<<(unsigned)N, BLOCK, 0, (cudaStream_t)stream>>> (a, logits);
}

#define MAKE(d)                                                                \
    void kern_draw_##d##_cuda (                                                \
        int32_t *ids, float *logp, const LAYERS_ELEM (d) * logits,             \
        const int32_t *text, const int32_t *at, const int32_t *slot,           \
        const uint32_t *seen, size_t N, size_t V,                              \
        const struct kern_draw_rules *rules, void *scratch, void *stream)      \
    {                                                                          \
        (void)scratch;                                                         \
        run<as_##d> (ids, logp, logits, text, at, slot, seen, N, V, rules,     \
                     stream);                                                  \
    }

LAYERS_EACH (MAKE)
