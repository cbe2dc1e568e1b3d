/* SPDX-License-Identifier: Apache-2.0
 * logprob.cu - log-probabilities of targets over bf16 logits, and the gradient in
 * their place
 *
 * One block a row. The first look at a row finds its maximum and sum at once
 * (Milakov and Gimelshein 2018, arXiv:1805.02867) and keeps in shared memory as
 * much of it as fits; the second writes the gradient, and reads the rest out of
 * the L2 cache, from the end, where it was seen last. */
#include "kernels/kernels.h"

#include <cuda_bf16.h>
#include <float.h>

#include "kernels/half.h"

#define THREADS 512
#define WARPS   (THREADS / 32)
#define PER     8    /* elements in 16 bytes */
#define BATCH   4    /* vectors that a thread asks for at once */
#define KEPT    6144 /* vectors of a row in shared memory: 96 KiB, two blocks */

struct args {
    uint16_t *logits;
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

static __device__ float low (uint32_t u)
{
    return half_float (u << 16);
}

static __device__ float high (uint32_t u)
{
    return half_float (u & 0xffff0000u);
}

static __device__ uint32_t larger (uint32_t a, uint32_t b)
{
    __nv_bfloat162 x, y;
    uint32_t u;

    memcpy (&x, &a, sizeof (x));
    memcpy (&y, &b, sizeof (y));
    x = __hmax2 (x, y);
    memcpy (&u, &x, sizeof (u));
    return u;
}

/* [scale] is positive, so the largest logit is the largest of all. */
template <bool MEAN>
static __device__ void look (struct state *s, const uint4 w[BATCH], float scale)
{
    uint32_t most = larger (larger (w[0].x, w[0].y), larger (w[0].z, w[0].w));

#pragma unroll
    for (int k = 1; k < BATCH; k++)
        most = larger (
            most, larger (larger (w[k].x, w[k].y), larger (w[k].z, w[k].w)));
    raise (s, scale * fmaxf (low (most), high (most)));
#pragma unroll
    for (int k = 0; k < BATCH; k++) {
        const uint32_t u[4] = {w[k].x, w[k].y, w[k].z, w[k].w};

#pragma unroll
        for (int j = 0; j < 4; j++) {
            add<MEAN> (s, low (u[j]), scale);
            add<MEAN> (s, high (u[j]), scale);
        }
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

static __device__ uint32_t two (uint32_t u, float scale, float lse, float up)
{
    __nv_bfloat162 h = __floats2bfloat162_rn (slope (low (u), scale, lse, up),
                                              slope (high (u), scale, lse, up));
    uint32_t bits;

    memcpy (&bits, &h, sizeof (bits));
    return bits;
}

static __device__ uint4 slopes (uint4 w, float scale, float lse, float up)
{
    return make_uint4 (two (w.x, scale, lse, up), two (w.y, scale, lse, up),
                       two (w.z, scale, lse, up), two (w.w, scale, lse, up));
}

static __device__ void ignore (const struct args *a, uint16_t *z)
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
struct row {
    uint16_t *z;
    uint4 *w;
    size_t lead, many, ends;
};

static __device__ struct row row_of (const struct args *a)
{
    struct row r;

    r.z = a->logits + (size_t)blockIdx.x * a->V;
    r.lead = min ((size_t)(-(uintptr_t)r.z % 16 / 2), a->V);
    r.w = (uint4 *)(r.z + r.lead);
    r.many = (a->V - r.lead) / PER;
    r.ends = a->V - r.many * PER;
    return r;
}

static __device__ uint16_t *end_of (const struct row *r, size_t i)
{
    return r->z + (i < r->lead ? i : i + r->many * PER);
}

template <bool MEAN>
static __device__ struct state first_look (const struct row *r, uint4 *kept,
                                           float scale)
{
    const uint4 none = {0xff80ff80u, 0xff80ff80u, 0xff80ff80u, 0xff80ff80u};
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
        look<MEAN> (&s, x, scale);
    }
    for (size_t i = threadIdx.x; i < r->ends; i += THREADS) {
        float z = half_from_bf16 (*end_of (r, i));

        raise (&s, scale * z);
        add<MEAN> (&s, z, scale);
    }
    return whole (s);
}

/* Every thread finds what it kept itself: no barrier. */
static __device__ void second_look (const struct row *r, const uint4 *kept,
                                    float scale, float lse, float up)
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
                __stcs (&r->w[at + k * THREADS], slopes (x[k], scale, lse, up));
        }
    }
    for (size_t i = threadIdx.x; i < r->ends; i += THREADS) {
        uint16_t *z = end_of (r, i);

        *z = half_to_bf16 (slope (half_from_bf16 (*z), scale, lse, up));
    }
}

template <bool MEAN>
static __global__ void __launch_bounds__ (THREADS, 2) logprob (struct args a)
{
    extern __shared__ uint4 kept[];
    const struct row r = row_of (&a);
    const int32_t t = a.targets[blockIdx.x];
    const float scale = a.inv_t * 1.44269504f;
    struct state s;
    float lse, up, at_target;

    if (t < 0) {
        ignore (&a, r.z);
        return;
    }
    at_target = half_from_bf16 (r.z[t]);
    s = first_look<MEAN> (&r, kept, scale);
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
    second_look (&r, kept, scale, lse, up);
    __syncthreads ();
    if (threadIdx.x == 0)
        r.z[t] = half_to_bf16 (up + slope (at_target, scale, lse, up));
}

template <bool MEAN>
static void run (struct args a, size_t N, cudaStream_t stream)
{
    const int kept = KEPT * (int)sizeof (uint4);

    cudaFuncSetAttribute (logprob<MEAN>,
                          cudaFuncAttributeMaxDynamicSharedMemorySize, kept);
    logprob<MEAN><<<(unsigned)N, THREADS, (size_t)kept, stream>>> (a);
}

void kern_logprob_bf16_cuda (uint16_t *logits, float *logp, float *entropy,
                             const int32_t *targets, const float *dlogp,
                             size_t N, size_t V, double inv_temperature,
                             void *stream)
{
    struct args a = {
        logits, logp, entropy, targets, dlogp, V, (float)inv_temperature};

    if (N > 0 && entropy)
        run<true> (a, N, (cudaStream_t)stream);
    else if (N > 0)
        run<false> (a, N, (cudaStream_t)stream);
}
