/* SPDX-License-Identifier: Apache-2.0
 * norm.cu - root mean square normalisation of rows and heads, with or without
 * the sum before it */
#include "kernels/norm_cuda.h"

enum what { PLAIN, ADD, HEADS };

/* x is normed into y, [ld] apart both; [kept] is mid or raw, C apart. */
template <typename T> struct norm_args {
    typename T::elem *y, *kept;
    const typename T::elem *x, *add, *w[2];
    float *rstd;
    struct norm_lines at;
    float eps;
};

/* Vector [c] of a line, as it is normed; what is kept of it is stored. */
template <typename L, enum what WHAT>
static __device__ typename L::raw take (
    const struct norm_args<typename L::type> *a, size_t from, size_t line,
    size_t c)
{
    typename L::raw r = L::load (a->x + from + c * L::W);

    if (WHAT == ADD) {
        float u[L::W], v[L::W];

        L::split (r, u);
        get<L> (a->add + from + c * L::W, v);
#pragma unroll
        for (int j = 0; j < L::W; j++)
            u[j] += v[j];
        r = L::join (u);
    }
    if (WHAT != PLAIN)
        L::store (a->kept + line * a->at.C + c * L::W, r);
    return r;
}

template <typename L> static __device__ float squares (typename L::raw r)
{
    float x[L::W], sum = 0;

    L::split (r, x);
#pragma unroll
    for (int j = 0; j < L::W; j++)
        sum = fmaf (x[j], x[j], sum);
    return sum;
}

template <typename L>
static __device__ void give (typename L::elem *y, typename L::raw r,
                             const typename L::elem *w, float rstd)
{
    float x[L::W], g[L::W];

    L::split (r, x);
    get<L> (w, g);
#pragma unroll
    for (int j = 0; j < L::W; j++)
        x[j] = x[j] * rstd * g[j];
    put<L> (y, x);
}

template <typename L, enum what WHAT, int TEAM, int K>
static __global__ void __launch_bounds__ (THREADS)
    norm (struct norm_args<typename L::type> a)
{
    size_t line = (size_t)blockIdx.x * (THREADS / TEAM) + threadIdx.x / TEAM;
    size_t lane = threadIdx.x % TEAM, many = a.at.C / L::W, head = 0, from;
    bool valid = line < a.at.N * a.at.heads;
    typename L::raw held[K > 0 ? K : 1];
    const typename L::elem *w;
    float sum = 0, rstd;

    from = WHAT == HEADS
               ? divided (line, a.at.heads, &head) * a.at.ld + head * a.at.C
               : line * a.at.C;
    w = head >= a.at.first ? a.w[1] : a.w[0];
#pragma unroll
    for (int k = 0; k < K; k++) {
        if (valid && lane + k * TEAM < many)
            held[k] = take<L, WHAT> (&a, from, line, lane + k * TEAM);
    }
#pragma unroll
    for (int k = 0; k < K; k++) {
        if (valid && lane + k * TEAM < many)
            sum += squares<L> (held[k]);
    }
    for (size_t c = lane; K == 0 && valid && c < many; c += TEAM)
        sum += squares<L> (take<L, WHAT> (&a, from, line, c));
    rstd = 1 / sqrtf (team_sum<TEAM> (sum, 0) / (float)a.at.C + a.eps);
    if (!valid)
        return;
    if (lane == 0)
        a.rstd[line] = rstd;
#pragma unroll
    for (int k = 0; k < K; k++) {
        size_t c = lane + k * TEAM;

        if (c < many)
            give<L> (a.y + from + c * L::W, held[k], w + c * L::W, rstd);
    }
    for (size_t c = lane; K == 0 && c < many; c += TEAM)
        give<L> (a.y + from + c * L::W,
                 L::load (WHAT == PLAIN ? a.x + from + c * L::W
                                        : a.kept + line * a.at.C + c * L::W),
                 w + c * L::W, rstd);
}

template <typename L, enum what WHAT, int TEAM, int K>
static void launch (const struct norm_args<typename L::type> *a, void *stream)
{
    size_t teams = THREADS / TEAM, lines = a->at.N * a->at.heads;

    norm<L, WHAT, TEAM, K><<<(unsigned)((lines + teams - 1) / teams), THREADS,
                             0, (cudaStream_t)stream>>> (*a);
}

template <typename T, enum what WHAT>
static void run (struct norm_args<T> a, void *stream)
{
    size_t C = a.at.C, many = C / T::PER;
    bool whole =
        fit (a.y, a.kept, a.x, a.add, a.w[0], a.w[1]) && C % T::PER == 0;

    if (a.at.N * a.at.heads == 0)
        return;
    if (!whole || many > 4 * THREADS)
        whole ? launch<wide<T>, WHAT, THREADS, 0> (&a, stream)
              : launch<single<T>, WHAT, THREADS, 0> (&a, stream);
    else if (WHAT == HEADS && many <= 8)
        launch<wide<T>, WHAT, 8, 1> (&a, stream);
    else if (WHAT == HEADS && many <= 16)
        launch<wide<T>, WHAT, 16, 1> (&a, stream);
    else if (many <= 64)
        launch<wide<T>, WHAT, 32, 2> (&a, stream);
    else if (many <= THREADS)
        launch<wide<T>, WHAT, 32, 8> (&a, stream);
    else if (many <= 2 * THREADS)
        launch<wide<T>, WHAT, THREADS, 2> (&a, stream);
    else
        launch<wide<T>, WHAT, THREADS, 4> (&a, stream);
}

#define MAKE(d)                                                                \
    void kern_rmsnorm_fwd_##d##_cuda (LAYERS_ELEM (d) * y, float *rstd,        \
                                      const LAYERS_ELEM (d) * x,               \
                                      const LAYERS_ELEM (d) * w, size_t N,     \
                                      size_t C, double eps, void *stream)      \
    {                                                                          \
        struct norm_args<as_##d> a = {                                         \
            y, NULL, x, NULL, {w, w}, rstd, {N, C, 1, 1, C}, (float)eps        \
        };                                                                     \
                                                                               \
        run<as_##d, PLAIN> (a, stream);                                        \
    }                                                                          \
    void kern_addnorm_fwd_##d##_cuda (                                         \
        LAYERS_ELEM (d) * y, LAYERS_ELEM (d) * mid, float *rstd,               \
        const LAYERS_ELEM (d) * x, const LAYERS_ELEM (d) * t,                  \
        const LAYERS_ELEM (d) * w, size_t N, size_t C, double eps,             \
        void *stream)                                                          \
    {                                                                          \
        struct norm_args<as_##d> a = {                                         \
            y, mid, x, t, {w, w}, rstd, {N, C, 1, 1, C}, (float)eps            \
        };                                                                     \
                                                                               \
        run<as_##d, ADD> (a, stream);                                          \
    }                                                                          \
    void kern_headnorm_fwd_##d##_cuda (                                        \
        LAYERS_ELEM (d) * qkv, LAYERS_ELEM (d) * raw, float *rstd,             \
        const LAYERS_ELEM (d) * wq, const LAYERS_ELEM (d) * wk, size_t N,      \
        size_t H, size_t G, size_t D, double eps, void *stream)                \
    {                                                                          \
        struct norm_args<as_##d> a = {                                         \
            qkv, raw, qkv, NULL, {wq, wk}, rstd,                               \
                {N, D, H + G, H, (H + 2 * G) * D}, (float)eps                  \
        };                                                                     \
                                                                               \
        run<as_##d, HEADS> (a, stream);                                        \
    }

LAYERS_EACH (MAKE)
