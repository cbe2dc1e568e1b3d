/* SPDX-License-Identifier: Apache-2.0
 * decode_texts.cu - what is kept of each text between tokens: which it has had,
 * and where it goes on */
#include "kernels/decode_advance.h"
#include "kernels/decode_early.cuh"
#include "kernels/layers_cuda.h"

static __global__ void __launch_bounds__ (THREADS)
    clear (uint32_t *seen, const int32_t *slot, const int32_t *at, size_t words)
{
    size_t n = blockIdx.x;

    for (size_t i = threadIdx.x; at[n] == 0 && i < words; i += THREADS)
        seen[(size_t)slot[n] * words + i] = 0;
}

static __global__ void __launch_bounds__ (THREADS)
    mark (uint32_t *seen, const int32_t *tokens, const int32_t *slot,
          const int32_t *at, size_t N, size_t words)
{
    size_t i = thread_number ();

    if (i < N && at[i] >= 0)
        atomicOr (seen + (size_t)slot[i] * words + tokens[i] / 32,
                  1u << tokens[i] % 32);
}

void kern_had_cuda (uint32_t *seen, const int32_t *tokens, const int32_t *slot,
                    const int32_t *at, size_t N, size_t V, void *stream)
{
    cudaStream_t s = (cudaStream_t)stream;
    size_t words = kern_seen_words (V);

    if (N == 0)
        return;
    clear<<<(unsigned)N, THREADS, 0, s>>> (seen, slot, at, words);
    mark<<<blocks_of (N), THREADS, 0, s>>> (seen, tokens, slot, at, N, words);
}

static __global__ void __launch_bounds__ (THREADS)
    mark_share (uint32_t *seen, const int32_t *from, const int32_t *to,
                size_t words)
{
    const uint32_t *x = seen + (size_t)from[blockIdx.x] * words;
    uint32_t *y = seen + (size_t)to[blockIdx.x] * words;

    for (size_t i = threadIdx.x; i < words; i += THREADS)
        y[i] = x[i];
}

void kern_had_share_cuda (uint32_t *seen, const int32_t *from,
                          const int32_t *to, size_t P, size_t V, void *stream)
{
    if (P > 0)
        mark_share<<<(unsigned)P, THREADS, 0, (cudaStream_t)stream>>> (
            seen, from, to, kern_seen_words (V));
}

static __global__ void __launch_bounds__ (THREADS) advance (kern_advance a)
{
    size_t i = thread_number ();

    early_go ();
    early_wait ();
    if (i < a.N)
        advance_row (&a, i);
}

void kern_advance_cuda (const struct kern_advance *a, void *stream)
{
    if (a->N > 0)
        early_launch (advance, dim3 (blocks_of (a->N)), THREADS, 0, 1, true,
                      stream, *a);
}
