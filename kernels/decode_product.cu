/* SPDX-License-Identifier: Apache-2.0
 * decode_product.cu - products of few rows with a large weight: a norm that stands
 * before one, then decode_wide.cu's kernel */
#include "kernels/decode_advance.h"
#include "kernels/decode_product.cuh"

/* Of all threads of a block. */
static __device__ float sum_block (float sum, float sums[THREADS / 32])
{
    for (int far = 16; far > 0; far /= 2)
        sum += __shfl_xor_sync (0xffffffffu, sum, far);
    if (threadIdx.x % 32 == 0)
        sums[threadIdx.x / 32] = sum;
    __syncthreads ();
    sum = 0;
    for (int i = 0; i < THREADS / 32; i++)
        sum += sums[i];
    return sum;
}

/* y = the rmsnorm of x. */
template <typename T>
static __global__ void __launch_bounds__ (THREADS)
    norm_rows (uint16_t *y, const uint16_t *x, const uint16_t *w, int in,
               float eps)
{
    __shared__ float sums[THREADS / 32];
    size_t from = (size_t)blockIdx.x * in;
    float v[8], g[8], sum = 0;

    early_go ();
    early_wait ();
    for (int i = (int)threadIdx.x * 8; i < in; i += THREADS * 8) {
        wide<T>::split (wide<T>::load (x + from + i), v);
        for (int j = 0; j < 8; j++)
            sum += v[j] * v[j];
    }
    sum = rsqrtf (sum_block (sum, sums) / in + eps);
    for (int i = (int)threadIdx.x * 8; i < in; i += THREADS * 8) {
        wide<T>::split (wide<T>::load (x + from + i), v);
        wide<T>::split (wide<T>::load (w + i), g);
        for (int j = 0; j < 8; j++)
            v[j] *= sum * g[j];
        wide<T>::store (y + from + i, wide<T>::join (v));
    }
}

/* A block has a row. */
template <typename T>
static __global__ void __launch_bounds__ (THREADS)
    begin (kern_product_begin b, kern_advance last)
{
    __shared__ float sums[THREADS / 32];
    size_t n = blockIdx.x;
    float sum = 0;

    early_go ();
    early_wait ();
    if (b.advance && threadIdx.x == 0)
        advance_row (&last, n);
    __syncthreads ();
    for (size_t i = threadIdx.x * 8; i < b.C; i += THREADS * 8) {
        uint4 row = wide<T>::load (b.w + (size_t)b.tokens[n] * b.C + i);
        float v[8], g[8];

        wide<T>::store (b.y + n * b.C + i, row);
        if (!b.next)
            continue;
        wide<T>::split (row, v);
        wide<T>::split (wide<T>::load (b.next + i), g);
        for (int j = 0; j < 8; j++) {
            sum += v[j] * v[j];
            v[j] *= g[j];
        }
        wide<T>::store (b.scaled + n * b.C + i, wide<T>::join (v));
    }
    if (!b.next)
        return;
    sum = sum_block (sum, sums);
    for (size_t i = threadIdx.x; i < b.n_squares; i += THREADS)
        b.squares[n * b.n_squares + i] = i == 0 ? sum : 0;
}

template <typename T>
static void begin_run (const struct kern_product_begin *b, void *stream)
{
    struct kern_advance none = {};

    if (b->N > 0)
        early_launch (begin<T>, dim3 ((unsigned)b->N), THREADS, 0, 1, b->early,
                      stream, *b, b->advance ? *b->advance : none);
}

void kern_product_begin_bf16_cuda (const struct kern_product_begin *b,
                                   void *stream)
{
    begin_run<as_bf16> (b, stream);
}

void kern_product_begin_f16_cuda (const struct kern_product_begin *b,
                                  void *stream)
{
    begin_run<as_f16> (b, stream);
}

template <typename T>
static struct kern_product normed (const struct kern_product *p, void *stream)
{
    struct kern_product q = *p;

    if (!p->norm)
        return q;
    early_launch (norm_rows<T>, dim3 ((unsigned)p->N), THREADS, 0, 1, p->early,
                  stream, p->normed, p->x, p->norm, (int)p->in, (float)p->eps);
    q.x = p->normed;
    return q;
}

void kern_product_bf16_cuda (const struct kern_product *p, void *stream)
{
    struct kern_product q = normed<as_bf16> (p, stream);

    decode_wide_bf16 (&q, stream);
}

void kern_product_f16_cuda (const struct kern_product *p, void *stream)
{
    struct kern_product q = normed<as_f16> (p, stream);

    decode_wide_f16 (&q, stream);
}
