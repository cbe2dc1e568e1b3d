/* SPDX-License-Identifier: Apache-2.0
 * attention_f32.cu - causal attention in f32, plain arithmetic
 *
 * A block holds 32 rows, of queries or of keys; eight threads share one, each
 * with every eighth column. Tiles of 32 rows of the other side pass through
 * shared memory, their pitch odd, so that eight columns lie in different banks. */
#include "kernels/docs.h"

#define SIDE    32
#define SHARE   8
#define THREADS (SIDE * SHARE)
#define PARTS   (SIDE / SHARE)

struct f32_args {
    float *out; /* y, or dqkv */
    const float *qkv, *dy, *y;
    const int32_t *starts; /* of docs.h; NULL: one document a row */
    float *lse, *delta;
    int T, H, G, D;
    float scale;
};

/* Rows lie [pitch] elements apart. */
struct f32_rows {
    const float *at;
    size_t pitch;
};

struct f32_head {
    struct f32_rows q, k, v, dy;
    size_t at;
};

static __device__ struct f32_head head_of (const struct f32_args &a, int b,
                                           int h)
{
    size_t row = (size_t)(a.H + 2 * a.G) * a.D;
    const float *first = a.qkv + (size_t)b * a.T * row;
    const float *k = first + (size_t)(a.H + h / (a.H / a.G)) * a.D;
    struct f32_head x;

    x.q = {first + (size_t)h * a.D, row};
    x.k = {k, row};
    x.v = {k + (size_t)a.G * a.D, row};
    x.dy = {a.dy + ((size_t)b * a.T * a.H + h) * a.D, (size_t)a.H * a.D};
    x.at = ((size_t)b * a.H + h) * a.T;
    return x;
}

/* Where the document of position [t] of row [b] begins; past T the last one's. */
static __device__ int start_of (const struct f32_args &a, int b, int t)
{
    return a.starts ? a.starts[(size_t)b * a.T + min (t, a.T - 1)] : 0;
}

/* SIDE rows from [first]; those past T are 0. */
static __device__ void tile_load (float *tile, struct f32_rows x, int first,
                                  int T, int D)
{
    for (int i = (int)threadIdx.x; i < SIDE * D; i += THREADS) {
        int row = i / D, column = i % D;

        tile[row * (D + 1) + column] =
            first + row < T ? x.at[(size_t)(first + row) * x.pitch + column]
                            : 0;
    }
}

static __device__ float dot (const float *x, const float *y, int D)
{
    float sum = 0;

    for (int i = 0; i < D; i++)
        sum += x[i] * y[i];
    return sum;
}

/* Over the eight threads of a row. */
static __device__ float row_max (float x)
{
    for (int i = 1; i < SHARE; i *= 2)
        x = fmaxf (x, __shfl_xor_sync (~0u, x, i));
    return x;
}

static __device__ float row_sum (float x)
{
    for (int i = 1; i < SHARE; i *= 2)
        x += __shfl_xor_sync (~0u, x, i);
    return x;
}

/* out += a row of p (SIDE) times a tile's rows; MOST >= D / SHARE. */
template <int MOST>
static __device__ void add_product (float *out, const float *p,
                                    const float *tile, int D)
{
    const float *at = tile + threadIdx.x % SHARE;

#pragma unroll 4
    for (int j = 0; j < SIDE; j++, at += D + 1) {
#pragma unroll
        for (int i = 0; i < MOST; i++)
            if ((int)threadIdx.x % SHARE + i * SHARE < D)
                out[i] += p[j] * at[i * SHARE];
    }
}

template <int MOST>
static __device__ void row_store (float *to, const float *x, float times, int D)
{
    for (int i = 0; i < MOST; i++)
        if ((int)threadIdx.x % SHARE + i * SHARE < D)
            to[threadIdx.x % SHARE + i * SHARE] = x[i] * times;
}

template <int MOST>
static __global__ void __launch_bounds__ (THREADS) fwd (struct f32_args a)
{
    extern __shared__ float room[];
    float *q = room, *k = q + SIDE * (a.D + 1), *v = k + SIDE * (a.D + 1);
    int row = (int)threadIdx.x / SHARE, mine = (int)threadIdx.x % SHARE;
    float *p = v + SIDE * (a.D + 1) + row * (SIDE + 1);
    int h = (int)blockIdx.x % a.H, b = (int)blockIdx.x / a.H;
    int first = (int)(gridDim.y - 1 - blockIdx.y) * SIDE, t = first + row;
    struct f32_head x = head_of (a, b, h);
    int start = start_of (a, b, t);
    float y[MOST] = {}, max = -INFINITY, shift, sum = 0;

    tile_load (q, x.q, first, a.T, a.D);
    for (int j = start_of (a, b, first) / SIDE * SIDE; j <= first; j += SIDE) {
        float s[PARTS], before = max, some = 0;

        __syncthreads ();
        tile_load (k, x.k, j, a.T, a.D);
        tile_load (v, x.v, j, a.T, a.D);
        __syncthreads ();
        for (int i = 0; i < PARTS; i++) {
            int c = mine + i * SHARE;

            s[i] = j + c <= t && j + c >= start
                       ? a.scale
                             * dot (q + row * (a.D + 1), k + c * (a.D + 1), a.D)
                       : -INFINITY;
            max = fmaxf (max, s[i]);
        }
        max = row_max (max);
        shift = max == -INFINITY ? 0 : max; /* nothing seen so far */
        for (int i = 0; i < PARTS; i++) {
            p[mine + i * SHARE] = s[i] = expf (s[i] - shift);
            some += s[i];
        }
        sum = sum * expf (before - shift) + row_sum (some);
        for (int i = 0; i < MOST; i++)
            y[i] *= expf (before - shift);
        __syncwarp ();
        add_product<MOST> (y, p, v, a.D);
    }
    if (t >= a.T)
        return;
    if (mine == 0)
        a.lse[x.at + t] = max + logf (sum);
    row_store<MOST> (a.out + (((size_t)b * a.T + t) * a.H + h) * a.D, y,
                     1 / sum, a.D);
}

/* delta (B,H,T) = the sum of dy y over D: a warp a row. */
static __global__ void __launch_bounds__ (THREADS)
    delta (struct f32_args a, size_t rows)
{
    size_t r = (size_t)blockIdx.x * (THREADS / 32) + threadIdx.x / 32;
    float sum = 0;

    if (r >= rows)
        return;
    for (int i = (int)threadIdx.x % 32; i < a.D; i += 32)
        sum += a.dy[r * a.D + i] * a.y[r * a.D + i];
    for (int i = 16; i > 0; i /= 2)
        sum += __shfl_xor_sync (~0u, sum, i);
    if (threadIdx.x % 32 == 0) {
        size_t h = r % a.H, t = r / a.H % a.T, b = r / a.H / a.T;

        a.delta[(b * a.H + h) * a.T + t] = sum;
    }
}

/* The probability of (query, key) and the gradient of its logit times the scale;
 * both 0 where it is masked. */
static __device__ void pair (const struct f32_args &a, size_t at, int b,
                             int query, int key, const float *q, const float *k,
                             const float *dy, const float *v, float *p,
                             float *ds)
{
    *p = *ds = 0;
    if (key > query || query >= a.T || key < start_of (a, b, query))
        return;
    *p = expf (a.scale * dot (q, k, a.D) - a.lse[at + query]);
    *ds = *p * (dot (dy, v, a.D) - a.delta[at + query]) * a.scale;
}

/* dk and dv of a block of keys: all heads and queries that read them. */
template <int MOST>
static __global__ void __launch_bounds__ (THREADS) bwd_keys (struct f32_args a)
{
    extern __shared__ float room[];
    int tile = SIDE * (a.D + 1);
    float *k = room, *v = k + tile, *q = v + tile, *dy = q + tile;
    int row = (int)threadIdx.x / SHARE, mine = (int)threadIdx.x % SHARE;
    float *p = dy + tile + row * (SIDE + 1), *ds = p + SIDE * (SIDE + 1);
    int g = (int)blockIdx.x % a.G, b = (int)blockIdx.x / a.G;
    int first = (int)blockIdx.y * SIDE, t = first + row, group = a.H / a.G;
    float dk[MOST] = {}, dv[MOST] = {};
    struct f32_head x = head_of (a, b, g * group);
    float *out = a.out + (x.k.at - a.qkv) + (size_t)t * x.k.pitch;

    tile_load (k, x.k, first, a.T, a.D);
    tile_load (v, x.v, first, a.T, a.D);
    for (int h = g * group; h < (g + 1) * group; h++) {
        x = head_of (a, b, h);
        for (int j = first;
             j < a.T && (j == first || start_of (a, b, j) < first + SIDE);
             j += SIDE) {
            __syncthreads ();
            tile_load (q, x.q, j, a.T, a.D);
            tile_load (dy, x.dy, j, a.T, a.D);
            __syncthreads ();
            for (int c = mine; c < SIDE; c += SHARE)
                pair (a, x.at, b, j + c, t, q + c * (a.D + 1),
                      k + row * (a.D + 1), dy + c * (a.D + 1),
                      v + row * (a.D + 1), p + c, ds + c);
            __syncwarp ();
            add_product<MOST> (dk, ds, q, a.D);
            add_product<MOST> (dv, p, dy, a.D);
        }
    }
    if (t >= a.T)
        return;
    row_store<MOST> (out, dk, 1, a.D);
    row_store<MOST> (out + (size_t)a.G * a.D, dv, 1, a.D);
}

/* dq of a block of queries. */
template <int MOST>
static __global__ void __launch_bounds__ (THREADS)
    bwd_queries (struct f32_args a)
{
    extern __shared__ float room[];
    int tile = SIDE * (a.D + 1);
    float *q = room, *dy = q + tile, *k = dy + tile, *v = k + tile;
    int row = (int)threadIdx.x / SHARE, mine = (int)threadIdx.x % SHARE;
    float *ds = v + tile + row * (SIDE + 1), p;
    int h = (int)blockIdx.x % a.H, b = (int)blockIdx.x / a.H;
    int first = (int)(gridDim.y - 1 - blockIdx.y) * SIDE, t = first + row;
    struct f32_head x = head_of (a, b, h);
    float dq[MOST] = {};

    tile_load (q, x.q, first, a.T, a.D);
    tile_load (dy, x.dy, first, a.T, a.D);
    for (int j = start_of (a, b, first) / SIDE * SIDE; j <= first; j += SIDE) {
        __syncthreads ();
        tile_load (k, x.k, j, a.T, a.D);
        tile_load (v, x.v, j, a.T, a.D);
        __syncthreads ();
        for (int c = mine; c < SIDE; c += SHARE)
            pair (a, x.at, b, t, j + c, q + row * (a.D + 1), k + c * (a.D + 1),
                  dy + row * (a.D + 1), v + c * (a.D + 1), &p, ds + c);
        __syncwarp ();
        add_product<MOST> (dq, ds, k, a.D);
    }
    if (t < a.T)
        row_store<MOST> (a.out + (x.q.at - a.qkv) + (size_t)t * x.q.pitch, dq,
                         1, a.D);
}

/* [tiles] of D and [squares] in shared memory; an error shows at the launch. */
template <class F>
static void launch (F *kernel, unsigned heads, int tiles, int squares,
                    const struct f32_args &a, void *stream)
{
    int room = (tiles * SIDE * (a.D + 1) + squares * SIDE * (SIDE + 1)) * 4;
    unsigned blocks = (unsigned)((a.T + SIDE - 1) / SIDE);

    (void)cudaFuncSetAttribute ((const void *)kernel,
                                cudaFuncAttributeMaxDynamicSharedMemorySize,
                                room);
    kernel<<<dim3 (heads, blocks), THREADS, room, (cudaStream_t)stream>>> (a);
}

template <int MOST>
static void run_bwd (const struct f32_args &a, unsigned B, void *stream)
{
    launch (bwd_keys<MOST>, B * a.G, 4, 2, a, stream);
    launch (bwd_queries<MOST>, B * a.H, 4, 1, a, stream);
}

void kern_attention_docs_fwd_f32_cuda (float *y, float *lse, const float *qkv,
                                       const int32_t *starts, void *scratch,
                                       size_t B, size_t T, size_t H, size_t G,
                                       size_t D, double scale, void *stream)
{
    struct f32_args a = {y,    qkv,    NULL,   NULL,   starts, lse,
                         NULL, (int)T, (int)H, (int)G, (int)D, (float)scale};

    (void)scratch;
    if (D <= 64)
        launch (fwd<8>, (unsigned)(B * H), 3, 1, a, stream);
    else if (D <= 128)
        launch (fwd<16>, (unsigned)(B * H), 3, 1, a, stream);
    else
        launch (fwd<32>, (unsigned)(B * H), 3, 1, a, stream);
}

void kern_attention_fwd_f32_cuda (float *y, float *lse, const float *qkv,
                                  void *scratch, size_t B, size_t T, size_t H,
                                  size_t G, size_t D, double scale,
                                  void *stream)
{
    kern_attention_docs_fwd_f32_cuda (y, lse, qkv, NULL, scratch, B, T, H, G, D,
                                      scale, stream);
}

void kern_attention_docs_bwd_f32_cuda (float *dqkv, const float *dy,
                                       const float *y, const float *lse,
                                       const float *qkv, const int32_t *starts,
                                       void *scratch, size_t B, size_t T,
                                       size_t H, size_t G, size_t D,
                                       double scale, void *stream)
{
    struct f32_args a = {dqkv,
                         qkv,
                         dy,
                         y,
                         starts,
                         (float *)lse,
                         (float *)scratch,
                         (int)T,
                         (int)H,
                         (int)G,
                         (int)D,
                         (float)scale};
    size_t rows = B * T * H, each = THREADS / 32;

    delta<<<(unsigned)((rows + each - 1) / each), THREADS, 0,
            (cudaStream_t)stream>>> (a, rows);
    if (D <= 64)
        run_bwd<8> (a, (unsigned)B, stream);
    else if (D <= 128)
        run_bwd<16> (a, (unsigned)B, stream);
    else
        run_bwd<32> (a, (unsigned)B, stream);
}

void kern_attention_bwd_f32_cuda (float *dqkv, const float *dy, const float *y,
                                  const float *lse, const float *qkv,
                                  void *scratch, size_t B, size_t T, size_t H,
                                  size_t G, size_t D, double scale,
                                  void *stream)
{
    kern_attention_docs_bwd_f32_cuda (dqkv, dy, y, lse, qkv, NULL, scratch, B,
                                      T, H, G, D, scale, stream);
}

size_t kern_attention_cuda_scratch (size_t B, size_t T, size_t H, size_t G,
                                    size_t D)
{
    (void)G;
    (void)D;
    return B * T * H * sizeof (float);
}
