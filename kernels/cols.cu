/* SPDX-License-Identifier: Apache-2.0
 * cols.cu - columns of wide rows: a thread takes one element */
#include "kernels/cols.h"
#include "kernels/layers_cuda.h"

template <typename E, bool ADD>
static __global__ void __launch_bounds__ (THREADS)
    cols (typename E::elem *y, const typename E::elem *x, size_t N, size_t W,
          size_t pitch, size_t col, float scale)
{
    size_t i = thread_number ();
    size_t wide = i / W * pitch + col + i % W;

    if (i >= N * W)
        return;
    if (ADD)
        y[wide] = E::put (E::get (y[wide]) + scale * E::get (x[i]));
    else
        y[i] = E::put (scale * E::get (x[wide]));
}

template <typename E, bool ADD>
static void run (typename E::elem *y, const typename E::elem *x, size_t N,
                 size_t W, size_t pitch, size_t col, double scale, void *stream)
{
    if (N * W > 0)
        cols<E, ADD><<<blocks_of (N * W), THREADS, 0, (cudaStream_t)stream>>> (
            y, x, N, W, pitch, col, (float)scale);
}

#define COLS(name, elem)                                                       \
    void kern_cols_add_##name##_cuda (elem *y, const elem *x, size_t N,        \
                                      size_t W, size_t pitch, size_t col,      \
                                      double scale, void *stream)              \
    {                                                                          \
        run<as_##name, true> (y, x, N, W, pitch, col, scale, stream);          \
    }                                                                          \
    void kern_cols_take_##name##_cuda (elem *y, const elem *x, size_t N,       \
                                       size_t W, size_t pitch, size_t col,     \
                                       double scale, void *stream)             \
    {                                                                          \
        run<as_##name, false> (y, x, N, W, pitch, col, scale, stream);         \
    }

COLS (f32, float)
COLS (bf16, uint16_t)
COLS (f16, uint16_t)
