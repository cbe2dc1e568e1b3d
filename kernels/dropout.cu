/* SPDX-License-Identifier: Apache-2.0
 * dropout.cu - dropout by counter: a thread takes the eight elements of one draw,
 * as one vector where they lie so */
#include "kernels/dropout_elem.h"
#include "kernels/layers_cuda.h"

template <typename T> struct alignas (16) eight {
    typename T::elem at[8];
};

template <typename T>
static __device__ typename T::elem one (typename T::elem x, float factor)
{
    return factor == 0 ? T::put (0) : T::put (T::get (x) * factor);
}

/* [whole]: element 0 begins a draw, and both arrays lie at 16 bytes. */
template <typename T>
static __global__ void __launch_bounds__ (THREADS)
    dropout (typename T::elem *y, const typename T::elem *x, size_t n,
             struct kern_dropout d, bool whole)
{
    uint64_t k = d.first / 8 + thread_number ();
    int64_t at = (int64_t)(k * 8 - d.first); /* may be below 0 for the first */
    uint32_t words[4];

    if (at >= (int64_t)n)
        return;
    dropout_words (&d, k, words);
    if (whole && at + 8 <= (int64_t)n) {
        struct eight<T> v = *(const struct eight<T> *)(x + at);

#pragma unroll
        for (unsigned j = 0; j < 8; j++)
            v.at[j] = one<T> (v.at[j], dropout_factor (&d, words, j));
        *(struct eight<T> *)(y + at) = v;
        return;
    }
    for (unsigned j = 0; j < 8; j++)
        if (at + j >= 0 && at + j < (int64_t)n)
            y[at + j] = one<T> (x[at + j], dropout_factor (&d, words, j));
}

template <typename T>
static void run (typename T::elem *y, const typename T::elem *x, size_t n,
                 const struct kern_dropout *d, void *stream)
{
    bool whole =
        d->first % 8 == 0 && (uintptr_t)x % 16 == 0 && (uintptr_t)y % 16 == 0;
    uint64_t draws = (d->first + n + 7) / 8 - d->first / 8;

    if (n > 0)
        dropout<T><<<blocks_of (draws), THREADS, 0, (cudaStream_t)stream>>> (
            y, x, n, *d, whole);
}

#define DROPOUT(name, elem)                                                    \
    void kern_dropout_##name##_cuda (elem *y, const elem *x, size_t n,         \
                                     const struct kern_dropout *d,             \
                                     void *stream)                             \
    {                                                                          \
        run<as_##name> (y, x, n, d, stream);                                   \
    }

DROPOUT (f32, float)
DROPOUT (bf16, uint16_t)
DROPOUT (f16, uint16_t)
