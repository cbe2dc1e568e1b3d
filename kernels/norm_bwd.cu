/* SPDX-License-Identifier: Apache-2.0
 * norm_bwd.cu - gradients of the norms of rows and heads
 *
 * Block p takes rows p, p + P, ...: a thread sees the same columns in each, so
 * the gradient of the weights is summed in registers and goes to memory once. */
#include "kernels/norm_cuda.h"

/* dx and dy stand [ld] apart, x is C apart; dx may be dy or skip. [y], of rows
 * alone, may be dy; NULL: not wanted. */
template <typename T> struct back_args {
    typename T::elem *dx, *y;
    const typename T::elem *dy, *skip, *x, *w[2];
    const float *rstd;
    float *parts; /* (P,WEIGHTS,C) */
    struct norm_lines at;
};

/* A vector of a line; the weights stay in the first cache and are read twice. */
template <typename L> struct vec {
    typename L::raw x, dy, skip;
};

template <typename L>
static __device__ float product (const struct vec<L> *v,
                                 const typename L::elem *weight)
{
    float x[L::W], dy[L::W], w[L::W], sum = 0;

    L::split (v->x, x);
    L::split (v->dy, dy);
    get<L> (weight, w);
#pragma unroll
    for (int j = 0; j < L::W; j++)
        sum = fmaf (w[j] * dy[j], x[j], sum);
    return sum;
}

/* dx of a vector, and y; [dw] += its part in the gradient of the weights. */
template <typename L>
static __device__ void slope (typename L::elem *dx, typename L::elem *y,
                              bool skip, const struct vec<L> *v,
                              const typename L::elem *weight, float r,
                              float dot, float *dw)
{
    float x[L::W], dy[L::W], w[L::W], s[L::W];

    if (skip)
        L::split (v->skip, s);
    L::split (v->x, x);
    L::split (v->dy, dy);
    get<L> (weight, w);
#pragma unroll
    for (int j = 0; j < L::W; j++) {
        float d = r * w[j] * dy[j] - dot * x[j];

        dw[j] = fmaf (r * dy[j], x[j], dw[j]);
        x[j] = x[j] * r * w[j];
        w[j] = skip ? s[j] + d : d;
    }
    put<L> (dx, w);
    if (y)
        put<L> (y, x);
}

/* The teams' sums of a block, one team after the other, to scratch. */
template <typename L, int WEIGHTS, int TEAM, int K>
static __device__ void give (float *parts, size_t C,
                             const float dw[WEIGHTS][K][L::W])
{
    extern __shared__ float sums[]; /* (WEIGHTS,C) where TEAM < THREADS */
    const size_t team = threadIdx.x / TEAM, lane = threadIdx.x % TEAM;
    float *to = TEAM < THREADS ? sums : parts;

    for (size_t t = 0; t < THREADS / TEAM; t++) {
#pragma unroll
        for (int i = 0; i < WEIGHTS * K; i++) {
            size_t c = (lane + i % K * TEAM) * L::W;
            float *at = to + i / K * C + c;

            if (t != team || c >= C)
                continue;
#pragma unroll
            for (int j = 0; j < L::W; j++)
                at[j] = (t > 0 ? at[j] : 0) + dw[i / K][i % K][j];
        }
        __syncthreads ();
    }
    for (size_t c = threadIdx.x; TEAM < THREADS && c < WEIGHTS * C;
         c += THREADS)
        parts[c] = sums[c];
}

/* What a team works on in one turn. */
template <typename L, int K> struct turn {
    size_t from, line; /* in dx and dy, in x */
    const typename L::elem *w;
    bool valid, second;
    float r;
    struct vec<L> v[K];
};

/* WEIGHTS 2 have no skip; K over 1 fetch it late, for want of registers. */
template <typename L, int WEIGHTS, int TEAM, int K>
static __device__ void fetch (struct turn<L, K> *t,
                              const struct back_args<typename L::type> &a)
{
#pragma unroll
    for (int k = 0; k < K; k++) {
        size_t c = (threadIdx.x % TEAM + k * TEAM) * L::W;

        if (!t->valid || c >= a.at.C)
            continue;
        t->v[k].x = L::load (a.x + t->line * a.at.C + c);
        t->v[k].dy = L::load (a.dy + t->from + c);
        if (WEIGHTS == 1 && K == 1 && a.skip)
            t->v[k].skip = L::load (a.skip + t->from + c);
    }
    t->r = t->valid ? a.rstd[t->line] : 0;
}

/* Line [i] of the block's [lines], on its way. */
template <typename L, int WEIGHTS, int TEAM, int K>
static __device__ struct turn<L, K> turn_of (
    const struct back_args<typename L::type> &a, size_t i, size_t lines) {
    size_t head = 0, n;
    struct turn<L, K> t;

    n = blockIdx.x
        + (WEIGHTS > 1 ? divided (i, a.at.heads, &head) : i) * gridDim.x;
    t.valid = i < lines;
    t.second = WEIGHTS > 1 && head >= a.at.first;
    t.from = n * a.at.ld + head * a.at.C;
    t.line = n * a.at.heads + head;
    t.w = t.second ? a.w[1] : a.w[0];
    fetch<L, WEIGHTS, TEAM, K> (&t, a);
    return t;
}

template <typename L, int TEAM, int K>
static __device__ float products (const struct turn<L, K> *t, size_t C)
{
    float dot = 0;

#pragma unroll
    for (int k = 0; k < K; k++) {
        size_t c = (threadIdx.x % TEAM + k * TEAM) * L::W;

        if (t->valid && c < C)
            dot += product<L> (&t->v[k], t->w + c);
    }
    return dot;
}

template <typename L, int WEIGHTS, int TEAM, int K>
static __device__ void slopes (float dw[WEIGHTS][K][L::W],
                               const struct back_args<typename L::type> &a,
                               struct turn<L, K> *t, float dot)
{
#pragma unroll
    for (int k = 0; k < K; k++) {
        size_t c = (threadIdx.x % TEAM + k * TEAM) * L::W;

        if (!t->valid || c >= a.at.C)
            continue;
        if (WEIGHTS == 1 && K > 1 && a.skip)
            t->v[k].skip = L::load (a.skip + t->from + c);
        if (t->second)
            slope<L> (a.dx + t->from + c, NULL, false, &t->v[k], t->w + c, t->r,
                      dot, dw[WEIGHTS - 1][k]);
        else
            slope<L> (a.dx + t->from + c,
                      WEIGHTS == 1 && a.y ? a.y + t->from + c : NULL,
                      WEIGHTS == 1 && a.skip, &t->v[k], t->w + c, t->r, dot,
                      dw[0][k]);
    }
}

/* Of a multiprocessor, with the registers that so many vectors want. */
static constexpr int blocks_at_once (int weights, int k)
{
    return k == 1 ? 4 : weights * k == 2 ? 3 : 2;
}

/* The block's lines are (row, head), [heads] a row; every team makes as many
 * turns. Where registers are there for it, the next turn's vectors are on their
 * way during one. WEIGHTS 2: of queries and keys. */
template <typename L, int WEIGHTS, int TEAM, int K>
static __global__ void __launch_bounds__ (THREADS, blocks_at_once (WEIGHTS, K))
    back (struct back_args<typename L::type> a)
{
    const size_t P = gridDim.x, p = blockIdx.x, C = a.at.C;
    const size_t lines = (a.at.N - p + P - 1) / P * a.at.heads;
    const size_t teams = THREADS / TEAM, turns = (lines + teams - 1) / teams;
    const size_t team = threadIdx.x / TEAM;
    const bool ahead = WEIGHTS * K == 1;
    struct turn<L, K> t, next;
    float dw[WEIGHTS][K][L::W] = {};

    if (ahead)
        next = turn_of<L, WEIGHTS, TEAM, K> (a, team, lines);
    for (size_t i = 0; i < turns; i++) {
        float dot;

        t = ahead ? next
                  : turn_of<L, WEIGHTS, TEAM, K> (a, i * teams + team, lines);
        if (ahead)
            next =
                turn_of<L, WEIGHTS, TEAM, K> (a, (i + 1) * teams + team, lines);
        dot = products<L, TEAM, K> (&t, C);
        dot = team_sum<TEAM> (dot, (int)i) * t.r * t.r * t.r / (float)C;
        slopes<L, WEIGHTS, TEAM, K> (dw, a, &t, dot);
    }
    give<L, WEIGHTS, TEAM, K> (a.parts + p * WEIGHTS * C, C, dw);
}

/* Any length and alignment: the block's sums stand in its own part of scratch. */
template <typename L, int WEIGHTS>
static __global__ void __launch_bounds__ (THREADS)
    back_any (struct back_args<typename L::type> a)
{
    const size_t P = gridDim.x, p = blockIdx.x, C = a.at.C;
    const size_t lines = (a.at.N - p + P - 1) / P * a.at.heads;
    float *parts = a.parts + p * WEIGHTS * C;

    for (size_t c = threadIdx.x * L::W; c < C; c += THREADS * L::W) {
        float zero[L::W] = {};

        for (int s = 0; s < WEIGHTS; s++)
            L::store_floats (parts + s * C + c, zero);
    }
    for (size_t i = 0; i < lines; i++) {
        size_t head, n = p + divided (i, a.at.heads, &head) * P;
        size_t from = n * a.at.ld + head * C, line = n * a.at.heads + head;
        bool second = WEIGHTS > 1 && head >= a.at.first;
        const typename L::elem *w = second ? a.w[1] : a.w[0];
        float dot = 0, r = a.rstd[line];
        struct vec<L> v;

        for (int round = 0; round < 2; round++) {
            for (size_t c = threadIdx.x * L::W; c < C; c += THREADS * L::W) {
                float *sum = parts + second * C + c, dw[L::W];

                v.x = L::load (a.x + line * C + c);
                v.dy = L::load (a.dy + from + c);
                if (round == 0) {
                    dot += product<L> (&v, w + c);
                    continue;
                }
                L::floats (sum, dw);
                if (a.skip)
                    v.skip = L::load (a.skip + from + c);
                slope<L> (a.dx + from + c, a.y ? a.y + from + c : NULL,
                          a.skip != NULL, &v, w + c, r, dot, dw);
                L::store_floats (sum, dw);
            }
            if (round == 0)
                dot = team_sum<THREADS> (dot, (int)i) * r * r * r / (float)C;
        }
    }
}

template <typename L, int WEIGHTS, int TEAM, int K>
static void launch (const struct back_args<typename L::type> *a, size_t P,
                    cudaStream_t stream)
{
    size_t shared = TEAM < THREADS ? WEIGHTS * a->at.C * sizeof (float) : 0;

    back<L, WEIGHTS, TEAM, K><<<(unsigned)P, THREADS, shared, stream>>> (*a);
}

template <typename T>
static bool narrow (const struct back_args<T> *a, size_t P, cudaStream_t s)
{
    size_t many = a->at.C / T::PER;

    if (many <= 64)
        launch<wide<T>, 1, 32, 2> (a, P, s);
    else if (many <= THREADS)
        launch<wide<T>, 1, THREADS, 1> (a, P, s);
    else if (many <= 2 * THREADS)
        launch<wide<T>, 1, THREADS, 2> (a, P, s);
    else if (many <= 4 * THREADS)
        launch<wide<T>, 1, THREADS, 4> (a, P, s);
    else
        return false;
    return true;
}

template <typename T>
static bool narrow_heads (const struct back_args<T> *a, size_t P,
                          cudaStream_t s)
{
    size_t many = a->at.C / T::PER;

    if (many <= 8)
        launch<wide<T>, 2, 8, 1> (a, P, s);
    else if (many <= 16)
        launch<wide<T>, 2, 16, 1> (a, P, s);
    else if (many <= 32)
        launch<wide<T>, 2, 32, 1> (a, P, s);
    else if (many <= 64)
        launch<wide<T>, 2, 32, 2> (a, P, s);
    else
        return false;
    return true;
}

template <typename T, int WEIGHTS>
static void run (const struct back_args<T> *a, float *const dw[], void *stream)
{
    cudaStream_t s = (cudaStream_t)stream;
    size_t C = a->at.C, many = C / T::PER;
    bool two = many <= 64 || (many > THREADS && many <= 2 * THREADS);
    /* as many blocks as run at once */
    size_t P = layers_parts (a->at.N, WEIGHTS > 1          ? LAYERS_PARTS
                                      : many > 2 * THREADS ? LAYERS_PARTS / 2
                                      : two ? LAYERS_PARTS / 4 * 3
                                            : LAYERS_PARTS);
    bool whole = fit (a->dx, a->y, a->dy, a->skip, a->x, a->w[0], a->w[1])
                 && C % T::PER == 0;

    if (a->at.N == 0)
        return;
    if (!whole)
        back_any<single<T>, WEIGHTS><<<(unsigned)P, THREADS, 0, s>>> (*a);
    else if (!(WEIGHTS > 1 ? narrow_heads (a, P, s) : narrow (a, P, s)))
        back_any<wide<T>, WEIGHTS><<<(unsigned)P, THREADS, 0, s>>> (*a);
    for (int i = 0; i < WEIGHTS; i++)
        layers_add_parts (dw[i], a->parts + i * C, P, C, WEIGHTS * C, s);
}

#define MAKE(d)                                                                \
    void kern_addnorm_again_bwd_##d##_cuda (                                   \
        LAYERS_ELEM (d) * dx, LAYERS_ELEM (d) * y, float *dw,                  \
        const LAYERS_ELEM (d) * dy, const LAYERS_ELEM (d) * dmid,              \
        const LAYERS_ELEM (d) * mid, const LAYERS_ELEM (d) * w,                \
        const float *rstd, size_t N, size_t C, void *scratch, void *stream)    \
    {                                                                          \
        struct back_args<as_##d> a = {                                         \
            dx, y, dy, dmid, mid, {w, w}, rstd, (float *)scratch,              \
            {                                                                  \
                N, C, 1, 1, C                                                  \
            }                                                                  \
        };                                                                     \
                                                                               \
        run<as_##d, 1> (&a, &dw, stream);                                      \
    }                                                                          \
    void kern_addnorm_bwd_##d##_cuda (                                         \
        LAYERS_ELEM (d) * dx, float *dw, const LAYERS_ELEM (d) * dy,           \
        const LAYERS_ELEM (d) * dmid, const LAYERS_ELEM (d) * mid,             \
        const LAYERS_ELEM (d) * w, const float *rstd, size_t N, size_t C,      \
        void *scratch, void *stream)                                           \
    {                                                                          \
        kern_addnorm_again_bwd_##d##_cuda (dx, NULL, dw, dy, dmid, mid, w,     \
                                           rstd, N, C, scratch, stream);       \
    }                                                                          \
    void kern_rmsnorm_bwd_##d##_cuda (                                         \
        LAYERS_ELEM (d) * dx, float *dw, const LAYERS_ELEM (d) * dy,           \
        const LAYERS_ELEM (d) * x, const LAYERS_ELEM (d) * w,                  \
        const float *rstd, size_t N, size_t C, void *scratch, void *stream)    \
    {                                                                          \
        kern_addnorm_bwd_##d##_cuda (dx, dw, dy, dx, x, w, rstd, N, C,         \
                                     scratch, stream);                         \
    }                                                                          \
    void kern_headnorm_bwd_##d##_cuda (                                        \
        LAYERS_ELEM (d) * dqkv, float *dwq, float *dwk,                        \
        const LAYERS_ELEM (d) * raw, const float *rstd,                        \
        const LAYERS_ELEM (d) * wq, const LAYERS_ELEM (d) * wk, size_t N,      \
        size_t H, size_t G, size_t D, void *scratch, void *stream)             \
    {                                                                          \
        struct back_args<as_##d> a = {                                         \
            dqkv, NULL, dqkv, NULL, raw, {wq, wk}, rstd, (float *)scratch,     \
            {                                                                  \
                N, D, H + G, H, (H + 2 * G) * D                                \
            }                                                                  \
        };                                                                     \
        float *const dw[2] = {dwq, dwk};                                       \
                                                                               \
        run<as_##d, 2> (&a, dw, stream);                                       \
    }

LAYERS_EACH (MAKE)
