/* SPDX-License-Identifier: Apache-2.0
 * logprob.cu - log-probabilities of targets over logits of f32, bf16 or f16, and
 * the gradient in their place
 *
 * One block a row. The first look at a row finds its maximum and sum at once
 * (Milakov and Gimelshein 2018, arXiv:1805.02867) and keeps in shared memory as
 * much of it as fits; the second writes the gradient, and reads the rest out of
 * the L2 cache, from the end, where it was seen last. */
#include "kernels/kernels.h"

#include <cuda_bf16.h>
#include <cuda_fp16.h>
#include <float.h>

#include "kernels/half.h"

#define THREADS 512
#define WARPS   (THREADS / 32)
#define BATCH   4    /* vectors that a thread asks for at once */
#define KEPT    6144 /* vectors of a row in shared memory: 96 KiB, two blocks */

template <typename ELEM> struct args {
    ELEM *logits;
    float *logp, *entropy;
    const int32_t *targets;
    const float *dlogp;
    size_t V;
    float inv_t;
};

/* sum of 2^(x - most), and of the same times (x - most) */
struct state {
    float most, sum, mean;
};

/* Within 2 ulp, 0 below 2^-126; exp2f takes three instructions more. */
static __device__ float pow2 (float x)
{
    float y;

    asm("ex2.approx.ftz.f32 %0, %1;" : "=f"(y) : "f"(x));
    return y;
}

/* A NaN stays, as the sum. */
static __device__ void join (struct state *a, struct state b)
{
    float most = fmaxf (a->most, b.most);
    float fa = a->most == most ? 1 : pow2 (a->most - most);
    float fb = b.most == most ? 1 : pow2 (b.most - most);
    float da = a->most == most ? 0 : a->most - most;
    float db = b.most == most ? 0 : b.most - most;

    a->mean = (fa > 0 ? fa * (a->mean + da * a->sum) : 0)
              + (fb > 0 ? fb * (b.mean + db * b.sum) : 0);
    a->sum = fa * a->sum + fb * b.sum;
    a->most = most;
}

template <bool MEAN>
static __device__ void add (struct state *s, float z, float scale)
{
    float d = fmaf (z, scale, -s->most), e = pow2 (d);

    s->sum += e;
    if (MEAN && e > 0)
        s->mean += e * d;
}

static __device__ void raise (struct state *s, float most)
{
    struct state none = {most, 0, 0};

    if (most > s->most)
        join (s, none);
}

/* What a dtype is made of: PER elements in 16 bytes, -Inf in all of them, the
 * largest of several vectors, and the ways to and from f32. */
template <typename PAIR> static __device__ uint32_t bits_of (PAIR h)
{
    uint32_t u;

    memcpy (&u, &h, sizeof (u));
    return u;
}

template <typename PAIR> static __device__ PAIR pair_of (uint32_t u)
{
    PAIR h;

    memcpy (&h, &u, sizeof (h));
    return h;
}

template <typename PAIR>
static __device__ uint32_t larger (uint32_t a, uint32_t b)
{
    return bits_of (__hmax2 (pair_of<PAIR> (a), pair_of<PAIR> (b)));
}

template <typename PAIR> static __device__ PAIR largest (const uint4 w[BATCH])
{
    uint32_t most = 0;

#pragma unroll
    for (int k = 0; k < BATCH; k++) {
        uint32_t m = larger<PAIR> (larger<PAIR> (w[k].x, w[k].y),
                                   larger<PAIR> (w[k].z, w[k].w));

        most = k == 0 ? m : larger<PAIR> (most, m);
    }
    return pair_of<PAIR> (most);
}

struct bf16 {
    typedef uint16_t elem;
    enum { PER = 8 };
    static constexpr uint32_t NONE = 0xff80ff80u;

    static __device__ float widen (elem x)
    {
        return half_from_bf16 (x);
    }
    static __device__ elem narrow (float x)
    {
        return half_to_bf16 (x);
    }
    static __device__ float most (const uint4 w[BATCH])
    {
        float2 f = __bfloat1622float2 (largest<__nv_bfloat162> (w));

        return fmaxf (f.x, f.y);
    }
    static __device__ void spread (uint4 w, float x[PER])
    {
        const uint32_t u[4] = {w.x, w.y, w.z, w.w};

#pragma unroll
        for (int j = 0; j < 4; j++) {
            x[2 * j] = half_float (u[j] << 16);
            x[2 * j + 1] = half_float (u[j] & 0xffff0000u);
        }
    }
    static __device__ uint32_t two (const float x[2])
    {
        return bits_of (__floats2bfloat162_rn (x[0], x[1]));
    }
    static __device__ uint4 pack (const float x[PER])
    {
        return make_uint4 (two (x), two (x + 2), two (x + 4), two (x + 6));
    }
};

struct f16 {
    typedef uint16_t elem;
    enum { PER = 8 };
    static constexpr uint32_t NONE = 0xfc00fc00u;

    static __device__ float widen (elem x)
    {
        return half_from_f16 (x);
    }
    static __device__ elem narrow (float x)
    {
        return half_to_f16 (x);
    }
    static __device__ float most (const uint4 w[BATCH])
    {
        float2 f = __half22float2 (largest<__half2> (w));

        return fmaxf (f.x, f.y);
    }
    static __device__ void spread (uint4 w, float x[PER])
    {
        const uint32_t u[4] = {w.x, w.y, w.z, w.w};

#pragma unroll
        for (int j = 0; j < 4; j++) {
            float2 f = __half22float2 (pair_of<__half2> (u[j]));

            x[2 * j] = f.x;
            x[2 * j + 1] = f.y;
        }
    }
    static __device__ uint32_t two (const float x[2])
    {
        return bits_of (__floats2half2_rn (x[0], x[1]));
    }
    static __device__ uint4 pack (const float x[PER])
    {
        return make_uint4 (two (x), two (x + 2), two (x + 4), two (x + 6));
    }
};

struct f32 {
    typedef float elem;
    enum { PER = 4 };
    static constexpr uint32_t NONE = 0xff800000u;

    static __device__ float widen (elem x)
    {
        return x;
    }
    static __device__ elem narrow (float x)
    {
        return x;
    }
    static __device__ void spread (uint4 w, float x[PER])
    {
        memcpy (x, &w, sizeof (w));
    }
    static __device__ float most (const uint4 w[BATCH])
    {
        float most = -FLT_MAX, x[PER];

#pragma unroll
        for (int k = 0; k < BATCH; k++) {
            spread (w[k], x);
            most = fmaxf (fmaxf (fmaxf (most, x[0]), fmaxf (x[1], x[2])), x[3]);
        }
        return most;
    }
    static __device__ uint4 pack (const float x[PER])
    {
        uint4 w;

        memcpy (&w, x, sizeof (w));
        return w;
    }
};

/* [scale] is positive, so the largest logit is the largest of all. */
template <typename KIND, bool MEAN>
static __device__ void look (struct state *s, const uint4 w[BATCH], float scale)
{
    raise (s, scale * KIND::most (w));
#pragma unroll
    for (int k = 0; k < BATCH; k++) {
        float x[KIND::PER];

        KIND::spread (w[k], x);
#pragma unroll
        for (int j = 0; j < KIND::PER; j++)
            add<MEAN> (s, x[j], scale);
    }
}

/* Of all threads, in a fixed order; every thread gets it. */
static __device__ struct state whole (struct state s)
{
    __shared__ struct state part[WARPS];

    for (int step = 16; step > 0; step /= 2) {
        struct state other = {__shfl_xor_sync (~0u, s.most, step),
                              __shfl_xor_sync (~0u, s.sum, step),
                              __shfl_xor_sync (~0u, s.mean, step)};

        join (&s, other);
    }
    if (threadIdx.x % 32 == 0)
        part[threadIdx.x / 32] = s;
    __syncthreads ();
    s = part[0];
    for (int w = 1; w < WARPS; w++)
        join (&s, part[w]);
    return s;
}

/* The gradient of an element that is not the target: less up * p. */
static __device__ float slope (float z, float scale, float lse, float up)
{
    return -up * pow2 (fmaf (z, scale, -lse));
}

template <typename KIND>
static __device__ uint4 slopes (uint4 w, float scale, float lse, float up)
{
    float x[KIND::PER];

    KIND::spread (w, x);
#pragma unroll
    for (int j = 0; j < KIND::PER; j++)
        x[j] = slope (x[j], scale, lse, up);
    return KIND::pack (x);
}

template <typename ELEM>
static __device__ void ignore (const struct args<ELEM> *a, ELEM *z)
{
    if (threadIdx.x == 0) {
        a->logp[blockIdx.x] = 0;
        if (a->entropy)
            a->entropy[blockIdx.x] = 0;
    }
    for (size_t v = threadIdx.x; v < a->V && a->dlogp; v += THREADS)
        z[v] = 0;
}

/* Where a row's whole vectors are; its ends are taken one element at a time. */
template <typename KIND> struct row {
    typedef typename KIND::elem elem;
    elem *z;
    uint4 *w;
    size_t lead, many, ends;

    __device__ elem *end (size_t i) const
    {
        return z + (i < lead ? i : i + many * KIND::PER);
    }
};

template <typename KIND>
static __device__ struct row<KIND> row_of (
    const struct args<typename KIND::elem> *a) {
    struct row<KIND> r;

    r.z = a->logits + (size_t)blockIdx.x * a->V;
    r.lead = min ((size_t)(-(uintptr_t)r.z % 16 / sizeof (*r.z)), a->V);
    r.w = (uint4 *)(r.z + r.lead);
    r.many = (a->V - r.lead) / KIND::PER;
    r.ends = a->V - r.many * KIND::PER;
    return r;
}

template <typename KIND, bool MEAN>
static __device__ struct state first_look (const struct row<KIND> *r,
                                           uint4 *kept, float scale)
{
    const uint4 none = {KIND::NONE, KIND::NONE, KIND::NONE, KIND::NONE};
    /* finite, so that -Inf less this is no NaN */
    struct state s = {-FLT_MAX, 0, 0};

    for (size_t at = threadIdx.x; at < r->many; at += BATCH * THREADS) {
        uint4 x[BATCH];

#pragma unroll
        for (int k = 0; k < BATCH; k++)
            x[k] = at + k * THREADS < r->many ? r->w[at + k * THREADS] : none;
#pragma unroll
        for (int k = 0; k < BATCH; k++) {
            if (at + k * THREADS < KEPT)
                kept[at + k * THREADS] = x[k];
        }
        look<KIND, MEAN> (&s, x, scale);
    }
    for (size_t i = threadIdx.x; i < r->ends; i += THREADS) {
        float z = KIND::widen (*r->end (i));

        raise (&s, scale * z);
        add<MEAN> (&s, z, scale);
    }
    return whole (s);
}

/* Every thread finds what it kept itself: no barrier. */
template <typename KIND>
static __device__ void second_look (const struct row<KIND> *r,
                                    const uint4 *kept, float scale, float lse,
                                    float up)
{
    const size_t step = BATCH * THREADS;

    for (size_t n = (r->many + step - 1) / step; n-- > 0;) {
        size_t at = n * step + threadIdx.x;
        uint4 x[BATCH];

#pragma unroll
        for (int k = 0; k < BATCH; k++) {
            if (at + k * THREADS < r->many)
                x[k] = at + k * THREADS < KEPT
                           ? kept[at + k * THREADS]
                           : __ldcs (&r->w[at + k * THREADS]);
        }
#pragma unroll
        for (int k = 0; k < BATCH; k++) {
            if (at + k * THREADS < r->many)
                __stcs (&r->w[at + k * THREADS],
                        slopes<KIND> (x[k], scale, lse, up));
        }
    }
    for (size_t i = threadIdx.x; i < r->ends; i += THREADS)
        *r->end (i) =
            KIND::narrow (slope (KIND::widen (*r->end (i)), scale, lse, up));
}

template <typename KIND, bool MEAN>
static __global__ void __launch_bounds__ (THREADS, 2)
    logprob (struct args<typename KIND::elem> a)
{
    extern __shared__ uint4 kept[];
    const struct row<KIND> r = row_of<KIND> (&a);
    const int32_t t = a.targets[blockIdx.x];
    const float scale = a.inv_t * 1.44269504f;
    struct state s;
    float lse, up, at_target;

    if (t < 0) {
        ignore (&a, r.z);
        return;
    }
    at_target = KIND::widen (r.z[t]);
    s = first_look<KIND, MEAN> (&r, kept, scale);
    lse = s.most + log2f (s.sum);
    if (threadIdx.x == 0) {
        a.logp[blockIdx.x] = fmaf (at_target, scale, -lse) * 0.693147181f;
        if (MEAN)
            a.entropy[blockIdx.x] =
                (log2f (s.sum) - s.mean / s.sum) * 0.693147181f;
    }
    if (!a.dlogp)
        return;
    up = a.dlogp[blockIdx.x] * a.inv_t;
    second_look<KIND> (&r, kept, scale, lse, up);
    __syncthreads ();
    if (threadIdx.x == 0)
        r.z[t] = KIND::narrow (up + slope (at_target, scale, lse, up));
}

template <typename KIND, bool MEAN>
static void launch (const struct args<typename KIND::elem> &a, size_t N,
                    cudaStream_t stream)
{
    const int kept = KEPT * (int)sizeof (uint4);

    cudaFuncSetAttribute (logprob<KIND, MEAN>,
                          cudaFuncAttributeMaxDynamicSharedMemorySize, kept);
    logprob<KIND, MEAN><<<(unsigned)N, THREADS, (size_t)kept, stream>>> (a);
}

template <typename KIND>
static void run (typename KIND::elem *logits, float *logp, float *entropy,
                 const int32_t *targets, const float *dlogp, size_t N, size_t V,
                 double inv_temperature, void *stream)
{
    const struct args<typename KIND::elem> a = {
        logits, logp, entropy, targets, dlogp, V, (float)inv_temperature
    };

    if (N > 0 && entropy)
        launch<KIND, true> (a, N, (cudaStream_t)stream);
    else if (N > 0)
        launch<KIND, false> (a, N, (cudaStream_t)stream);
}

void kern_logprob_bf16_cuda (uint16_t *logits, float *logp, float *entropy,
                             const int32_t *targets, const float *dlogp,
                             size_t N, size_t V, double inv_temperature,
                             void *stream)
{
    run<bf16> (logits, logp, entropy, targets, dlogp, N, V, inv_temperature,
               stream);
}

void kern_logprob_f16_cuda (uint16_t *logits, float *logp, float *entropy,
                            const int32_t *targets, const float *dlogp,
                            size_t N, size_t V, double inv_temperature,
                            void *stream)
{
    run<f16> (logits, logp, entropy, targets, dlogp, N, V, inv_temperature,
              stream);
}

void kern_logprob_f32_cuda (float *logits, float *logp, float *entropy,
                            const int32_t *targets, const float *dlogp,
                            size_t N, size_t V, double inv_temperature,
                            void *stream)
{
    run<f32> (logits, logp, entropy, targets, dlogp, N, V, inv_temperature,
              stream);
}
