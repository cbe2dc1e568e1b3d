/* SPDX-License-Identifier: Apache-2.0
 * layers_elem.cu - the sum of two streams, bias, activation, rotation, rows of a
 * table: each element by itself, bound by memory */
#include "kernels/layers_cuda.h"

#define EACH      2 /* vectors of a thread of [residual] */
#define ROWS_EACH 4 /* of [embedding] */

template <typename L>
static __global__ void __launch_bounds__ (THREADS)
    residual (typename L::elem *y, const typename L::elem *x,
              const typename L::elem *r, size_t many)
{
    size_t i = (size_t)blockIdx.x * EACH * THREADS + threadIdx.x;
    typename L::raw a[EACH], b[EACH];

#pragma unroll
    for (int k = 0; k < EACH; k++) {
        if (i + k * THREADS < many) {
            a[k] = L::load (x + (i + k * THREADS) * L::W);
            b[k] = L::load (r + (i + k * THREADS) * L::W);
        }
    }
#pragma unroll
    for (int k = 0; k < EACH; k++) {
        float u[L::W], v[L::W];

        if (i + k * THREADS >= many)
            return;
        L::split (a[k], u);
        L::split (b[k], v);
#pragma unroll
        for (int j = 0; j < L::W; j++)
            u[j] += v[j];
        put<L> (y + (i + k * THREADS) * L::W, u);
    }
}

template <typename T>
static void residual_run (typename T::elem *y, const typename T::elem *x,
                          const typename T::elem *r, size_t n, void *stream)
{
    cudaStream_t s = (cudaStream_t)stream;
    size_t many = fit (y, x, r) ? n / T::PER : 0, at = many * T::PER;

    if (many > 0)
        residual<wide<T>>
            <<<blocks_of ((many + EACH - 1) / EACH), THREADS, 0, s>>> (y, x, r,
                                                                       many);
    if (at < n)
        residual<single<T>>
            <<<blocks_of ((n - at + EACH - 1) / EACH), THREADS, 0, s>>> (
                y + at, x + at, r + at, n - at);
}

template <typename L>
static __global__ void __launch_bounds__ (THREADS)
    bias (typename L::elem *x, const typename L::elem *b, size_t N, size_t cols)
{
    size_t i = thread_number (), c;
    float u[L::W], v[L::W];

    if (i >= N * cols)
        return;
    (void)divided (i, cols, &c);
    get<L> (x + i * L::W, u);
    get<L> (b + c * L::W, v);
#pragma unroll
    for (int j = 0; j < L::W; j++)
        u[j] += v[j];
    put<L> (x + i * L::W, u);
}

template <typename T>
static void bias_run (typename T::elem *x, const typename T::elem *b, size_t N,
                      size_t C, void *stream)
{
    cudaStream_t s = (cudaStream_t)stream;

    if (N == 0)
        return;
    if (fit (x, b) && C % T::PER == 0)
        bias<wide<T>><<<blocks_of (N * C / T::PER), THREADS, 0, s>>> (
            x, b, N, C / T::PER);
    else
        bias<single<T>><<<blocks_of (N * C), THREADS, 0, s>>> (x, b, N, C);
}

template <typename L>
static __global__ void __launch_bounds__ (THREADS)
    swiglu (typename L::elem *y, const typename L::elem *gu, size_t N,
            size_t cols)
{
    size_t i = thread_number (), c, n;
    const typename L::elem *g;
    typename L::raw first, second;
    float a[L::W], u[L::W];

    if (i >= N * cols)
        return;
    n = divided (i, cols, &c);
    g = gu + (n * 2 * cols + c) * L::W;
    first = L::load (g);
    second = L::load (g + cols * L::W);
    L::split (first, a);
    L::split (second, u);
#pragma unroll
    for (int j = 0; j < L::W; j++)
        a[j] = a[j] * L::type::sigmoid (a[j]) * u[j];
    put<L> (y + i * L::W, a);
}

template <typename L>
static __global__ void __launch_bounds__ (THREADS)
    swiglu_back (typename L::elem *dgu, typename L::elem *y,
                 const typename L::elem *dy, const typename L::elem *gu,
                 size_t N, size_t cols)
{
    size_t i = thread_number (), c, n, at;
    typename L::raw first, second, third;
    float a[L::W], u[L::W], d[L::W], again[L::W];

    if (i >= N * cols)
        return;
    n = divided (i, cols, &c);
    at = (n * 2 * cols + c) * L::W;
    first = L::load (gu + at);
    second = L::load (gu + at + cols * L::W);
    third = L::load (dy + i * L::W);
    L::split (first, a);
    L::split (second, u);
    L::split (third, d);
#pragma unroll
    for (int j = 0; j < L::W; j++) {
        float s = L::type::sigmoid (a[j]), up = d[j] * u[j];

        again[j] = a[j] * s * u[j];
        d[j] = d[j] * a[j] * s;
        a[j] = up * s * (1 + a[j] * (1 - s));
    }
    put<L> (dgu + at, a);
    put<L> (dgu + at + cols * L::W, d);
    if (y)
        put<L> (y + i * L::W, again);
}

template <typename T>
static void swiglu_run (typename T::elem *y, const typename T::elem *gu,
                        size_t N, size_t F, void *stream)
{
    cudaStream_t s = (cudaStream_t)stream;

    if (N == 0)
        return;
    if (fit (y, gu) && F % T::PER == 0)
        swiglu<wide<T>><<<blocks_of (N * F / T::PER), THREADS, 0, s>>> (
            y, gu, N, F / T::PER);
    else
        swiglu<single<T>><<<blocks_of (N * F), THREADS, 0, s>>> (y, gu, N, F);
}

template <typename T>
static void swiglu_back_run (typename T::elem *dgu, typename T::elem *y,
                             const typename T::elem *dy,
                             const typename T::elem *gu, size_t N, size_t F,
                             void *stream)
{
    cudaStream_t s = (cudaStream_t)stream;

    if (N == 0)
        return;
    if (fit (dgu, y, dy, gu) && F % T::PER == 0)
        swiglu_back<wide<T>><<<blocks_of (N * F / T::PER), THREADS, 0, s>>> (
            dgu, y, dy, gu, N, F / T::PER);
    else
        swiglu_back<single<T>>
            <<<blocks_of (N * F), THREADS, 0, s>>> (dgu, y, dy, gu, N, F);
}

/* [half] in vectors; neighbours in a block share the angles of a position. */
template <typename L>
static __global__ void __launch_bounds__ (THREADS)
    rope (typename L::elem *x, const float *cosine, const float *sine, size_t N,
          size_t T, size_t heads, size_t half, size_t row, float sign)
{
    size_t n, h, t, j;
    typename L::elem *at;
    typename L::raw first, second;
    float a[L::W], b[L::W], c[L::W], s[L::W];

    n = divided (thread_number (), heads * half, &j);
    if (n >= N)
        return;
    h = divided (j, half, &j);
    (void)divided (n, T, &t);
    at = x + n * row + (h * 2 * half + j) * L::W;
    first = L::load (at);
    second = L::load (at + half * L::W);
    L::floats (cosine + (t * half + j) * L::W, c);
    L::floats (sine + (t * half + j) * L::W, s);
    L::split (first, a);
    L::split (second, b);
#pragma unroll
    for (int k = 0; k < L::W; k++) {
        float u = a[k], v = b[k], sk = sign * s[k];

        a[k] = u * c[k] - v * sk;
        b[k] = v * c[k] + u * sk;
    }
    put<L> (at, a);
    put<L> (at + half * L::W, b);
}

template <typename E>
static void rope_run (typename E::elem *x, const float *cosine,
                      const float *sine, size_t B, size_t T, size_t heads,
                      size_t D, size_t row, float sign, void *stream)
{
    cudaStream_t s = (cudaStream_t)stream;
    size_t N = B * T, half = D / 2, pairs = N * heads * half;

    if (pairs == 0)
        return;
    if (fit (x, cosine, sine) && half % E::PER == 0 && row % E::PER == 0)
        rope<wide<E>><<<blocks_of (pairs / E::PER), THREADS, 0, s>>> (
            x, cosine, sine, N, T, heads, half / E::PER, row, sign);
    else
        rope<single<E>><<<blocks_of (pairs), THREADS, 0, s>>> (
            x, cosine, sine, N, T, heads, half, row, sign);
}

template <typename L>
static __global__ void __launch_bounds__ (THREADS)
    embedding (typename L::elem *y, const typename L::elem *w,
               const int32_t *tokens, size_t N, size_t cols)
{
    size_t first = (size_t)blockIdx.x * ROWS_EACH * THREADS + threadIdx.x;
    const size_t many = N * cols;
    typename L::raw r[ROWS_EACH];

#pragma unroll
    for (int k = 0; k < ROWS_EACH; k++) {
        size_t i = first + k * THREADS, c, n;

        if (i < many) {
            n = divided (i, cols, &c);
            r[k] = L::load (w + ((size_t)tokens[n] * cols + c) * L::W);
        }
    }
#pragma unroll
    for (int k = 0; k < ROWS_EACH; k++) {
        if (first + k * THREADS < many)
            L::store (y + (first + k * THREADS) * L::W, r[k]);
    }
}

template <typename T>
static void embedding_run (typename T::elem *y, const typename T::elem *w,
                           const int32_t *tokens, size_t N, size_t C,
                           void *stream)
{
    cudaStream_t s = (cudaStream_t)stream;

    if (N == 0)
        return;
    if (fit (y, w) && C % T::PER == 0)
        embedding<wide<T>>
            <<<blocks_of ((N * C / T::PER + ROWS_EACH - 1) / ROWS_EACH),
               THREADS, 0, s>>> (y, w, tokens, N, C / T::PER);
    else
        embedding<single<T>><<<blocks_of ((N * C + ROWS_EACH - 1) / ROWS_EACH),
                               THREADS, 0, s>>> (y, w, tokens, N, C);
}

#define MAKE_SUMS(d)                                                           \
    void kern_residual_fwd_##d##_cuda (                                        \
        LAYERS_ELEM (d) * y, const LAYERS_ELEM (d) * x,                        \
        const LAYERS_ELEM (d) * r, size_t n, void *stream)                     \
    {                                                                          \
        residual_run<as_##d> (y, x, r, n, stream);                             \
    }                                                                          \
    void kern_bias_fwd_##d##_cuda (LAYERS_ELEM (d) * x,                        \
                                   const LAYERS_ELEM (d) * b, size_t N,        \
                                   size_t C, void *stream)                     \
    {                                                                          \
        bias_run<as_##d> (x, b, N, C, stream);                                 \
    }                                                                          \
    void kern_embedding_fwd_##d##_cuda (                                       \
        LAYERS_ELEM (d) * y, const LAYERS_ELEM (d) * w, const int32_t *tokens, \
        size_t N, size_t C, void *stream)                                      \
    {                                                                          \
        embedding_run<as_##d> (y, w, tokens, N, C, stream);                    \
    }
#define MAKE_SWIGLU(d)                                                         \
    void kern_swiglu_fwd_##d##_cuda (LAYERS_ELEM (d) * y,                      \
                                     const LAYERS_ELEM (d) * gu, size_t N,     \
                                     size_t F, void *stream)                   \
    {                                                                          \
        swiglu_run<as_##d> (y, gu, N, F, stream);                              \
    }                                                                          \
    void kern_swiglu_bwd_##d##_cuda (                                          \
        LAYERS_ELEM (d) * dgu, const LAYERS_ELEM (d) * dy,                     \
        const LAYERS_ELEM (d) * gu, size_t N, size_t F, void *stream)          \
    {                                                                          \
        swiglu_back_run<as_##d> (dgu, NULL, dy, gu, N, F, stream);             \
    }                                                                          \
    void kern_swiglu_again_bwd_##d##_cuda (                                    \
        LAYERS_ELEM (d) * dgu, LAYERS_ELEM (d) * y,                            \
        const LAYERS_ELEM (d) * dy, const LAYERS_ELEM (d) * gu, size_t N,      \
        size_t F, void *stream)                                                \
    {                                                                          \
        swiglu_back_run<as_##d> (dgu, y, dy, gu, N, F, stream);                \
    }
#define MAKE_ROPE(d)                                                           \
    void kern_rope_fwd_##d##_cuda (                                            \
        LAYERS_ELEM (d) * x, const float *cosine, const float *sine, size_t B, \
        size_t T, size_t heads, size_t D, size_t row, void *stream)            \
    {                                                                          \
        rope_run<as_##d> (x, cosine, sine, B, T, heads, D, row, 1, stream);    \
    }                                                                          \
    void kern_rope_bwd_##d##_cuda (                                            \
        LAYERS_ELEM (d) * dx, const float *cosine, const float *sine,          \
        size_t B, size_t T, size_t heads, size_t D, size_t row, void *stream)  \
    {                                                                          \
        rope_run<as_##d> (dx, cosine, sine, B, T, heads, D, row, -1, stream);  \
    }

LAYERS_EACH (MAKE_SUMS)
LAYERS_EACH (MAKE_SWIGLU)
LAYERS_EACH (MAKE_ROPE)
