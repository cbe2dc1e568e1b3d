/* SPDX-License-Identifier: Apache-2.0
 * layers_sums.cu - sums of rows: partial sums, the bias's gradient, and the
 * gradient of a table of embeddings */
#include "kernels/layers_cuda.h"

#define COLUMNS 32 /* of a block of [add_parts], each summed by 32 threads */
#define MANY    LAYERS_MANY
#define WARPS   (THREADS / 32)
#define FLIGHT  8 /* rows that a thread asks for at once */

static __global__ void __launch_bounds__ (1024)
    add_parts (float *sums, const float *parts, size_t P, size_t C, size_t ld)
{
    __shared__ float part[32][COLUMNS + 1];
    size_t c = (size_t)blockIdx.x * COLUMNS + threadIdx.x;
    float sum = 0;

    if (c < C) {
#pragma unroll 8
        for (size_t p = threadIdx.y; p < P; p += 32)
            sum += parts[p * ld + c];
    }
    part[threadIdx.y][threadIdx.x] = sum;
    __syncthreads ();
    /* a warp a column: the same tree for each */
    sum = part[threadIdx.x][threadIdx.y];
    for (int step = 16; step > 0; step /= 2)
        sum += __shfl_xor_sync (~0u, sum, step);
    c = (size_t)blockIdx.x * COLUMNS + threadIdx.y;
    if (threadIdx.x == 0 && c < C)
        sums[c] += sum;
}

void layers_add_parts (float *sums, const float *parts, size_t P, size_t C,
                       size_t ld, cudaStream_t stream)
{
    add_parts<<<(unsigned)((C + COLUMNS - 1) / COLUMNS), dim3 (COLUMNS, 32), 0,
                stream>>> (sums, parts, P, C, ld);
}

/* Part p sums rows p, p + P, ... */
template <typename L>
static __global__ void __launch_bounds__ (THREADS)
    bias_parts (float *parts, const typename L::elem *dy, size_t N, size_t C)
{
    size_t c = thread_number () * L::W;
    float sum[L::W] = {};

    if (c >= C)
        return;
#pragma unroll 8
    for (size_t n = blockIdx.y; n < N; n += gridDim.y) {
        float x[L::W];

        get<L> (dy + n * C + c, x);
#pragma unroll
        for (int j = 0; j < L::W; j++)
            sum[j] += x[j];
    }
    L::store_floats (parts + blockIdx.y * C + c, sum);
}

template <typename T>
static void bias_run (float *db, const typename T::elem *dy, size_t N, size_t C,
                      void *scratch, void *stream)
{
    cudaStream_t s = (cudaStream_t)stream;
    bool whole = fit (dy) && C % T::PER == 0;
    size_t slices = blocks_of (whole ? C / T::PER : C);
    /* twice four blocks for each multiprocessor of an H200 in all */
    size_t most = slices < 2 ? LAYERS_PARTS : 2 * LAYERS_PARTS / slices;
    size_t P = layers_parts (N, most > 0 ? most : 1);
    dim3 grid ((unsigned)slices, (unsigned)P);
    float *parts = (float *)scratch;

    if (N == 0)
        return;
    if (whole)
        bias_parts<wide<T>><<<grid, THREADS, 0, s>>> (parts, dy, N, C);
    else
        bias_parts<single<T>><<<grid, THREADS, 0, s>>> (parts, dy, N, C);
    layers_add_parts (db, parts, P, C, C, s);
}

/* Scratch of embedding_bwd. Rows are numbered from 1 here: 0 is the end. The rows
 * of a token hang in a list, in whatever order they came; [many] holds the tokens
 * with MANY rows or more, in any order. Neither order changes a sum. */
struct lists {
    uint32_t *last, *count, *n_many, *before, *many;
};

static struct lists lists_of (void *scratch, size_t N, size_t V)
{
    uint32_t *at = (uint32_t *)scratch;
    struct lists l = {at, at + V, at + 2 * V, at + 2 * V + 1,
                      at + 2 * V + 1 + N};

    return l;
}

static __global__ void __launch_bounds__ (THREADS)
    enlist (struct lists l, const int32_t *tokens, size_t N)
{
    size_t n = thread_number ();

    if (n >= N)
        return;
    l.before[n] = atomicExch (&l.last[tokens[n]], (uint32_t)n + 1);
    if (atomicAdd (&l.count[tokens[n]], 1) == MANY - 1)
        l.many[atomicAdd (l.n_many, 1)] = (uint32_t)tokens[n];
}

template <typename L>
static __device__ void add_row (float *sum, const typename L::elem *dy)
{
    float x[L::W];

    get<L> (dy, x);
#pragma unroll
    for (int j = 0; j < L::W; j++)
        sum[j] += x[j];
}

/* Rows row[0..n) in this order, n <= FLIGHT, all asked for at once. */
template <typename L>
static __device__ void add_rows (float *sum, const typename L::elem *dy,
                                 const uint32_t *row, uint32_t n, size_t C)
{
    typename L::raw r[FLIGHT];

#pragma unroll
    for (uint32_t k = 0; k < FLIGHT; k++) {
        if (k < n)
            r[k] = L::load (dy + row[k] * C);
    }
#pragma unroll
    for (uint32_t k = 0; k < FLIGHT; k++) {
        float x[L::W];

        if (k >= n)
            return;
        L::split (r[k], x);
#pragma unroll
        for (int j = 0; j < L::W; j++)
            sum[j] += x[j];
    }
}

template <typename L> static __device__ void add_sum (float *dw, float *sum)
{
    float x[L::W];

    L::floats (dw, x);
#pragma unroll
    for (int j = 0; j < L::W; j++)
        x[j] += sum[j];
    L::store_floats (dw, x);
}

/* A warp: the token of row [n], of which [n] is the list's first, has few rows.
 * Lane i finds the i-th of the list; they are summed in rising order. */
template <typename L>
static __device__ void few (float *dw, const typename L::elem *dy,
                            const int32_t *tokens, struct lists l, size_t n,
                            size_t C, size_t c)
{
    const uint32_t lane = threadIdx.x % 32, token = (uint32_t)tokens[n];
    uint32_t row = (uint32_t)n + 1, mine = ~0u, count, rank = 0;
    float sum[L::W] = {};

    if (l.last[token] != row)
        return;
    count = l.count[token];
    if (count >= MANY)
        return;
    for (uint32_t i = 0; i < count; i++) {
        mine = i == lane ? row : mine;
        row = i + 1 < count ? l.before[row - 1] : 0;
    }
    for (uint32_t i = 0; i < count; i++)
        rank += __shfl_sync (~0u, mine, i) < mine;
    for (uint32_t i = 0; i < count; i++) {
        uint32_t from = __ffs (__ballot_sync (~0u, rank == i)) - 1;

        row = __shfl_sync (~0u, mine, from);
        if (c < C)
            add_row<L> (sum, dy + (size_t)(row - 1) * C + c);
    }
    if (c < C)
        add_sum<L> (dw + (size_t)token * C + c, sum);
}

/* A block: all rows of a token that has many. A warp looks at every eighth 32 of
 * the tokens and queues the rows; the warps' sums are summed in order. */
template <typename L>
static __device__ void lots (float *dw, const typename L::elem *dy,
                             const int32_t *tokens, uint32_t token, size_t N,
                             size_t C, size_t c)
{
    __shared__ float part[WARPS][32 * L::W];
    __shared__ uint32_t queues[WARPS][64];
    const uint32_t lane = threadIdx.x % 32, warp = threadIdx.x / 32;
    uint32_t *queue = queues[warp], first = 0, end = 0;
    float sum[L::W] = {};

    for (size_t at = warp * 32; at < N + WARPS * 32; at += WARPS * 32) {
        bool is = at + lane < N && (uint32_t)tokens[at + lane] == token;
        uint32_t mask = __ballot_sync (~0u, is);

        if (is)
            queue[(end + __popc (mask & ((1u << lane) - 1))) % 64] =
                (uint32_t)(at + lane);
        end += __popc (mask);
        __syncwarp ();
        /* whole flights; behind the last row what is left */
        while (end - first >= (at < N ? FLIGHT : 1)) {
            uint32_t rows[FLIGHT];
            uint32_t n = end - first < FLIGHT ? end - first : FLIGHT;

#pragma unroll
            for (uint32_t k = 0; k < FLIGHT; k++)
                rows[k] = queue[(first + k) % 64];
            if (c < C)
                add_rows<L> (sum, dy + c, rows, n, C);
            first += n;
        }
        __syncwarp ();
    }
#pragma unroll
    for (int j = 0; j < L::W; j++)
        part[warp][j * 32 + lane] = sum[j];
    __syncthreads ();
    if (warp > 0 || c >= C)
        return;
    for (int w = 1; w < WARPS; w++) {
#pragma unroll
        for (int j = 0; j < L::W; j++)
            sum[j] += part[w][j * 32 + lane];
    }
    add_sum<L> (dw + (size_t)token * C + c, sum);
}

/* A warp for each row and slice of 32 vectors. */
template <typename L>
static __global__ void __launch_bounds__ (THREADS)
    embedding_few (float *dw, const typename L::elem *dy, const int32_t *tokens,
                   struct lists l, size_t N, size_t C, size_t slices)
{
    size_t slice, n;

    n = divided ((size_t)blockIdx.x * WARPS + threadIdx.x / 32, slices, &slice);
    if (n < N)
        few<L> (dw, dy, tokens, l, n, C,
                (slice * 32 + threadIdx.x % 32) * L::W);
}

/* A block for each token that may have many rows, and slice. */
template <typename L>
static __global__ void __launch_bounds__ (THREADS)
    embedding_lots (float *dw, const typename L::elem *dy,
                    const int32_t *tokens, struct lists l, size_t N, size_t C,
                    size_t slices)
{
    size_t slice, n = divided (blockIdx.x, slices, &slice);

    if (n < *l.n_many)
        lots<L> (dw, dy, tokens, l.many[n], N, C,
                 (slice * 32 + threadIdx.x % 32) * L::W);
}

template <typename L>
static void sums_run (float *dw, const typename L::elem *dy,
                      const int32_t *tokens, struct lists l, size_t N, size_t C,
                      cudaStream_t s)
{
    size_t slices = (C + 32 * L::W - 1) / (32 * L::W);
    size_t many = N / MANY * slices, warps = N * slices;

    if (many > 0)
        embedding_lots<L><<<(unsigned)many, THREADS, 0, s>>> (dw, dy, tokens, l,
                                                              N, C, slices);
    embedding_few<L>
        <<<(unsigned)((warps + WARPS - 1) / WARPS), THREADS, 0, s>>> (
            dw, dy, tokens, l, N, C, slices);
}

template <typename T>
static void embedding_run (float *dw, const typename T::elem *dy,
                           const int32_t *tokens, size_t N, size_t C, size_t V,
                           void *scratch, void *stream)
{
    cudaStream_t s = (cudaStream_t)stream;
    struct lists l = lists_of (scratch, N, V);

    if (N == 0)
        return;
    cudaMemsetAsync (scratch, 0, (2 * V + 1) * sizeof (uint32_t), s);
    enlist<<<blocks_of (N), THREADS, 0, s>>> (l, tokens, N);
    if (fit (dw, dy) && C % T::PER == 0)
        sums_run<wide<T>> (dw, dy, tokens, l, N, C, s);
    else
        sums_run<single<T>> (dw, dy, tokens, l, N, C, s);
}

#define MAKE(d)                                                                \
    void kern_bias_bwd_##d##_cuda (float *db, const LAYERS_ELEM (d) * dy,      \
                                   size_t N, size_t C, void *scratch,          \
                                   void *stream)                               \
    {                                                                          \
        bias_run<as_##d> (db, dy, N, C, scratch, stream);                      \
    }                                                                          \
    void kern_embedding_bwd_##d##_cuda (                                       \
        float *dw, const LAYERS_ELEM (d) * dy, const int32_t *tokens,          \
        size_t N, size_t C, size_t V, void *scratch, void *stream)             \
    {                                                                          \
        embedding_run<as_##d> (dw, dy, tokens, N, C, V, scratch, stream);      \
    }

LAYERS_EACH (MAKE)
