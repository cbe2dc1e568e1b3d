/* SPDX-License-Identifier: Apache-2.0
 * layers_cuda.h - what the layers' cuda kernels share: types, 16 bytes at once
 *
 * A kernel is a template over a lane: wide<T> moves 16 bytes of type T at once,
 * single<T> one element, where addresses or sizes do not allow more. Both give
 * floats, so that a kernel is one text. */
#ifndef KERN_LAYERS_CUDA_H
#define KERN_LAYERS_CUDA_H

#include "kernels/kernels.h"

#include <cuda_bf16.h>
#include <cuda_fp16.h>

#include "kernels/half.h"
#include "kernels/layers_parts.h"

#define THREADS 256

struct as_f32 {
    typedef float elem;
    enum { PER = 4 }; /* in 16 bytes */
    static __device__ float get (float x)
    {
        return x;
    }
    static __device__ float put (float x)
    {
        return x;
    }
    static __device__ void split (uint4 r, float *x)
    {
        x[0] = __uint_as_float (r.x), x[1] = __uint_as_float (r.y);
        x[2] = __uint_as_float (r.z), x[3] = __uint_as_float (r.w);
    }
    static __device__ uint4 join (const float *x)
    {
        return make_uint4 (__float_as_uint (x[0]), __float_as_uint (x[1]),
                           __float_as_uint (x[2]), __float_as_uint (x[3]));
    }
    /* 1 / (1 + exp (-a)); never 0, as on the host */
    static __device__ float sigmoid (float a)
    {
        return 1 / (1 + expf (fminf (-a, 88.3f)));
    }
};

/* What bf16 and f16 have in common. */
template <typename T> struct as_half {
    typedef uint16_t elem;
    enum { PER = 8 };
    static __device__ void split (uint4 r, float *x)
    {
        T::two (r.x, x), T::two (r.y, x + 2);
        T::two (r.z, x + 4), T::two (r.w, x + 6);
    }
    static __device__ uint4 join (const float *x)
    {
        return make_uint4 (T::pair (x), T::pair (x + 2), T::pair (x + 4),
                           T::pair (x + 6));
    }
    static __device__ float sigmoid (float a)
    {
        return __fdividef (1, 1 + __expf (fminf (-a, 87.0f)));
    }
};

struct as_bf16 : as_half<as_bf16> {
    static __device__ float get (uint16_t h)
    {
        return half_from_bf16 (h);
    }
    static __device__ uint16_t put (float x)
    {
        return half_to_bf16 (x);
    }
    static __device__ void two (uint32_t u, float *x)
    {
        x[0] = __uint_as_float (u << 16);
        x[1] = __uint_as_float (u & 0xffff0000u);
    }
    static __device__ uint32_t pair (const float *x)
    {
        __nv_bfloat162 h = __floats2bfloat162_rn (x[0], x[1]);
        uint32_t u;

        memcpy (&u, &h, sizeof (u));
        return u;
    }
};

struct as_f16 : as_half<as_f16> {
    static __device__ float get (uint16_t h)
    {
        return half_from_f16 (h);
    }
    static __device__ uint16_t put (float x)
    {
        return half_to_f16 (x);
    }
    static __device__ void two (uint32_t u, float *x)
    {
        __half2 h;
        float2 f;

        memcpy (&h, &u, sizeof (h));
        f = __half22float2 (h);
        x[0] = f.x, x[1] = f.y;
    }
    static __device__ uint32_t pair (const float *x)
    {
        __half2 h = __floats2half2_rn (x[0], x[1]);
        uint32_t u;

        memcpy (&u, &h, sizeof (u));
        return u;
    }
};

template <typename T> struct wide {
    typedef T type;
    typedef typename T::elem elem;
    typedef uint4 raw;
    enum { W = T::PER };
    static __device__ raw load (const elem *p)
    {
        return *(const uint4 *)p;
    }
    static __device__ void store (elem *p, raw r)
    {
        *(uint4 *)p = r;
    }
    static __device__ void split (raw r, float *x)
    {
        T::split (r, x);
    }
    static __device__ raw join (const float *x)
    {
        return T::join (x);
    }
    /* W floats of an array of floats, aligned to 16 */
    static __device__ void floats (const float *p, float *x)
    {
#pragma unroll
        for (int j = 0; j < W; j += 4)
            as_f32::split (*(const uint4 *)(p + j), x + j);
    }
    static __device__ void store_floats (float *p, const float *x)
    {
#pragma unroll
        for (int j = 0; j < W; j += 4)
            *(uint4 *)(p + j) = as_f32::join (x + j);
    }
};

template <typename T> struct single {
    typedef T type;
    typedef typename T::elem elem;
    typedef elem raw;
    enum { W = 1 };
    static __device__ raw load (const elem *p)
    {
        return *p;
    }
    static __device__ void store (elem *p, raw r)
    {
        *p = r;
    }
    static __device__ void split (raw r, float *x)
    {
        x[0] = T::get (r);
    }
    static __device__ raw join (const float *x)
    {
        return T::put (x[0]);
    }
    static __device__ void floats (const float *p, float *x)
    {
        x[0] = *p;
    }
    static __device__ void store_floats (float *p, const float *x)
    {
        *p = x[0];
    }
};

template <typename L>
static __device__ void get (const typename L::elem *p, float *x)
{
    L::split (L::load (p), x);
}

template <typename L>
static __device__ void put (typename L::elem *p, const float *x)
{
    L::store (p, L::join (x));
}

/* Whether 16 bytes fit all addresses; NULL does. */
template <typename... P> static bool fit (P... at)
{
    bool all = true;

    for (const void *p : {(const void *)at...})
        all &= (uintptr_t)p % 16 == 0;
    return all;
}

static inline unsigned blocks_of (size_t threads)
{
    return (unsigned)((threads + THREADS - 1) / THREADS);
}

/* i / n, and what is left: 32 bits where they do, for 64 take four times as
 * long. */
static __device__ size_t divided (size_t i, size_t n, size_t *left)
{
    if (((i | n) >> 32) == 0) {
        *left = (uint32_t)i % (uint32_t)n;
        return (uint32_t)i / (uint32_t)n;
    }
    *left = i % n;
    return i / n;
}

static __device__ size_t thread_number (void)
{
    return (size_t)blockIdx.x * THREADS + threadIdx.x;
}

/* Define a kernel's function for each type: MAKE (f32), MAKE (bf16), ... */
#define LAYERS_EACH(MAKE)                                                      \
    MAKE (f32)                                                                 \
    MAKE (bf16)                                                                \
    MAKE (f16)
#define LAYERS_ELEM(dtype) as_##dtype::elem

/* layers_add_parts - sums (C) += parts (P,C) over P, in an order that hangs on P
 * alone. */
void layers_add_parts (float *sums, const float *parts, size_t P, size_t C,
                       size_t ld, cudaStream_t stream);

#endif
