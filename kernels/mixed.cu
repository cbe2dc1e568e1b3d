/* SPDX-License-Identifier: Apache-2.0
 * mixed.cu - AdamW on masters with a bf16 copy, the sum of squares, the factor of
 * the gradient, accumulation
 *
 * All are bound by memory, so a thread moves 16 bytes of each array at once;
 * arrays that are not aligned so go one element at a time. */
#include "kernels/kernels.h"

#include "kernels/adamw_elem.h"

#define THREADS 256

struct adamw_args {
    float *p, *m, *v;
    uint16_t *copy;
    const float *g, *factor;
    size_t n;
    struct adamw_step step;
    int64_t number;
    uint64_t first;
    uint32_t key[2];
};

static unsigned blocks_of (size_t threads)
{
    return (unsigned)((threads + THREADS - 1) / THREADS);
}

static bool aligned (const void *at, size_t to)
{
    return (uintptr_t)at % to == 0;
}

template <bool RANDOM>
static __global__ void __launch_bounds__ (THREADS)
    adamw_four (struct adamw_args a)
{
    size_t i = ((size_t)blockIdx.x * THREADS + threadIdx.x) * 4;
    float factor = a.factor ? *a.factor : 1;
    float4 p, m, v, g;
    ushort4 h;

    if (i >= a.n || !isfinite (factor))
        return;
    p = *(const float4 *)(a.p + i);
    m = *(const float4 *)(a.m + i);
    v = *(const float4 *)(a.v + i);
    g = __ldcs ((const float4 *)(a.g + i));
    adamw_elem (&a.step, factor, &p.x, &m.x, &v.x, g.x);
    adamw_elem (&a.step, factor, &p.y, &m.y, &v.y, g.y);
    adamw_elem (&a.step, factor, &p.z, &m.z, &v.z, g.z);
    adamw_elem (&a.step, factor, &p.w, &m.w, &v.w, g.w);
    __stcs ((float4 *)(a.p + i), p);
    __stcs ((float4 *)(a.m + i), m);
    __stcs ((float4 *)(a.v + i), v);
    if (!a.copy)
        return;
    if (RANDOM) {
        uint64_t e = a.first + i;
        uint32_t words[4];

        adamw_draws (e / 8, a.number, a.key, words);
        h.x = adamw_round (p.x, adamw_draw (words, e));
        h.y = adamw_round (p.y, adamw_draw (words, e + 1));
        h.z = adamw_round (p.z, adamw_draw (words, e + 2));
        h.w = adamw_round (p.w, adamw_draw (words, e + 3));
    } else {
        h = make_ushort4 (half_to_bf16 (p.x), half_to_bf16 (p.y),
                          half_to_bf16 (p.z), half_to_bf16 (p.w));
    }
    *(ushort4 *)(a.copy + i) = h;
}

template <bool RANDOM>
static __global__ void __launch_bounds__ (THREADS)
    adamw_one (struct adamw_args a)
{
    size_t i = (size_t)blockIdx.x * THREADS + threadIdx.x;
    float factor = a.factor ? *a.factor : 1;
    uint32_t words[4];

    if (i >= a.n || !isfinite (factor))
        return;
    adamw_elem (&a.step, factor, &a.p[i], &a.m[i], &a.v[i], a.g[i]);
    if (!a.copy)
        return;
    if (RANDOM) {
        adamw_draws ((a.first + i) / 8, a.number, a.key, words);
        a.copy[i] = adamw_round (a.p[i], adamw_draw (words, a.first + i));
    } else {
        a.copy[i] = half_to_bf16 (a.p[i]);
    }
}

template <bool RANDOM>
static void adamw_run (struct adamw_args a, cudaStream_t stream)
{
    bool wide = aligned (a.p, 16) && aligned (a.m, 16) && aligned (a.v, 16)
                && aligned (a.g, 16) && aligned (a.copy, 8) && a.first % 4 == 0;
    size_t many = wide ? a.n - a.n % 4 : 0;
    struct adamw_args rest = a;

    a.n = many;
    if (many > 0)
        adamw_four<RANDOM><<<blocks_of (many / 4), THREADS, 0, stream>>> (a);
    rest.p += many;
    rest.m += many;
    rest.v += many;
    rest.g += many;
    rest.copy = a.copy ? a.copy + many : NULL;
    rest.first += many;
    rest.n -= many;
    if (rest.n > 0)
        adamw_one<RANDOM><<<blocks_of (rest.n), THREADS, 0, stream>>> (rest);
}

static __global__ void __launch_bounds__ (THREADS)
    round_one (struct adamw_args a)
{
    size_t i = (size_t)blockIdx.x * THREADS + threadIdx.x;
    uint32_t words[4];

    if (i >= a.n)
        return;
    adamw_draws ((a.first + i) / 8, a.number, a.key, words);
    a.copy[i] = adamw_round (a.p[i], adamw_draw (words, a.first + i));
}

void kern_round_bf16_cuda (uint16_t *copy, const float *p, size_t n,
                           int64_t step, uint64_t first, const uint32_t *key,
                           void *stream)
{
    struct adamw_args a = {};

    a.p = (float *)p;
    a.copy = copy;
    a.n = n;
    a.number = step;
    a.first = first;
    a.key[0] = key[0];
    a.key[1] = key[1];
    if (n > 0)
        round_one<<<blocks_of (n), THREADS, 0, (cudaStream_t)stream>>> (a);
}

void kern_adamw_bf16_cuda (float *p, uint16_t *copy, float *m, float *v,
                           const float *g, const float *factor, size_t n,
                           double lr, double beta1, double beta2, double eps,
                           double weight_decay, int64_t step, uint64_t first,
                           const uint32_t *key, void *stream)
{
    struct adamw_args a = {
        p,
        m,
        v,
        copy,
        g,
        factor,
        n,
        adamw_step_of (lr, beta1, beta2, eps, weight_decay, step),
        step,
        first,
        {key ? key[0] : 0, key ? key[1] : 0}};

    if (key)
        adamw_run<true> (a, (cudaStream_t)stream);
    else
        adamw_run<false> (a, (cudaStream_t)stream);
}

/* The same tree for every size: the order of a sum depends on [n] alone. */
static __device__ double block_sum (double x)
{
    __shared__ double part[THREADS];

    part[threadIdx.x] = x;
    __syncthreads ();
    for (unsigned half = THREADS / 2; half > 0; half /= 2) {
        if (threadIdx.x < half)
            part[threadIdx.x] += part[threadIdx.x + half];
        __syncthreads ();
    }
    return part[0];
}

static __device__ double square (float x)
{
    return (double)x * (double)x;
}

/* WIDE: [x] lies at 16 bytes. Elsewhere a thread has the same four. */
template <bool WIDE>
static __global__ void __launch_bounds__ (THREADS)
    sumsq_parts (double *parts, const float *x, size_t n)
{
    size_t at = (size_t)blockIdx.x * THREADS + threadIdx.x;
    const size_t stride = (size_t)KERN_SUMSQ_PARTS * THREADS;
    const size_t fours = n / 4;
    double s0 = 0, s1 = 0, s2 = 0, s3 = 0;

#pragma unroll 4
    for (size_t i = at; i < fours; i += stride) {
        const float *y = x + i * 4;
        float4 f = WIDE ? __ldcs ((const float4 *)y)
                        : make_float4 (y[0], y[1], y[2], y[3]);

        s0 += square (f.x);
        s1 += square (f.y);
        s2 += square (f.z);
        s3 += square (f.w);
    }
    for (size_t i = fours * 4 + at; i < n; i += stride)
        s0 += square (x[i]);
    s0 = block_sum ((s0 + s1) + (s2 + s3));
    if (threadIdx.x == 0)
        parts[blockIdx.x] = s0;
}

static __global__ void __launch_bounds__ (THREADS)
    sumsq_whole (double *ret, const double *parts)
{
    double sum = 0;

    for (unsigned i = threadIdx.x; i < KERN_SUMSQ_PARTS; i += THREADS)
        sum += parts[i];
    sum = block_sum (sum);
    if (threadIdx.x == 0)
        *ret = sum;
}

void kern_sumsq_f32_cuda (double *ret, double *parts, const float *x, size_t n,
                          void *stream)
{
    cudaStream_t s = (cudaStream_t)stream;

    if (aligned (x, 16))
        sumsq_parts<true><<<KERN_SUMSQ_PARTS, THREADS, 0, s>>> (parts, x, n);
    else
        sumsq_parts<false><<<KERN_SUMSQ_PARTS, THREADS, 0, s>>> (parts, x, n);
    sumsq_whole<<<1, THREADS, 0, s>>> (ret, parts);
}

static __global__ void clip_factor (float *factor, double *norm,
                                    const double *sumsq, double inv_scale,
                                    double max_norm)
{
    double length = sqrt (*sumsq) * inv_scale;
    double clip = max_norm > 0 ? max_norm / (length + 1e-6) : 1;

    *norm = length;
    *factor = isfinite (length) ? (float)(inv_scale * (clip < 1 ? clip : 1))
                                : half_float (0x7fc00000u);
}

void kern_clip_factor_cuda (float *factor, double *norm, const double *sumsq,
                            double inv_scale, double max_norm, void *stream)
{
    clip_factor<<<1, 1, 0, (cudaStream_t)stream>>> (factor, norm, sumsq,
                                                    inv_scale, max_norm);
}

static __device__ float as_float (float x)
{
    return x;
}

static __device__ float as_float (uint16_t x)
{
    return half_from_bf16 (x);
}

static __device__ void four_of (const float *x, float to[4])
{
    float4 f = *(const float4 *)x;

    to[0] = f.x, to[1] = f.y, to[2] = f.z, to[3] = f.w;
}

static __device__ void four_of (const uint16_t *x, float to[4])
{
    ushort4 h = *(const ushort4 *)x;

    to[0] = half_from_bf16 (h.x), to[1] = half_from_bf16 (h.y);
    to[2] = half_from_bf16 (h.z), to[3] = half_from_bf16 (h.w);
}

template <typename T>
static __global__ void __launch_bounds__ (THREADS)
    accumulate (float *sum, const T *x, size_t n, bool wide)
{
    size_t i = ((size_t)blockIdx.x * THREADS + threadIdx.x) * 4;

    if (wide && i + 4 <= n) {
        float4 s = *(const float4 *)(sum + i);
        float f[4];

        four_of (x + i, f);
        *(float4 *)(sum + i) =
            make_float4 (s.x + f[0], s.y + f[1], s.z + f[2], s.w + f[3]);
        return;
    }
    for (size_t k = i; k < n && k < i + 4; k++)
        sum[k] += as_float (x[k]);
}

template <typename T>
static void accumulate_run (float *sum, const T *x, size_t n, void *stream)
{
    if (n > 0)
        accumulate<<<blocks_of ((n + 3) / 4), THREADS, 0,
                     (cudaStream_t)stream>>> (
            sum, x, n, aligned (sum, 16) && aligned (x, 4 * sizeof (T)));
}

void kern_accumulate_f32_cuda (float *sum, const float *x, size_t n,
                               void *stream)
{
    accumulate_run (sum, x, n, stream);
}

void kern_accumulate_bf16_cuda (float *sum, const uint16_t *x, size_t n,
                                void *stream)
{
    accumulate_run (sum, x, n, stream);
}
