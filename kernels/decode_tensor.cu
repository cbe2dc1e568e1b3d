/* SPDX-License-Identifier: Apache-2.0
 * decode_tensor.cu - attention of single queries over kept keys and values, on
 * the tensor cores
 *
 * A block has the query heads of one row that share a key: they are the rows of
 * the 16 x 8 x 16 products, whose columns are keys and then the places of a
 * value. Warps take 16 keys in turn, straight from memory to registers: which
 * place of a head a thread's 16 bytes hold differs from what the instruction
 * calls them, alike for both factors. The softmax is made as the keys come
 * (Milakov and Gimelshein 2018, arXiv:1805.02867), the warps' are joined at the
 * end.
 *
 * PTX ISA, "Matrix multiply-accumulate operation using mma instruction" says
 * which thread holds which element. */
#include "kernels/decode_early.cuh"
#include "kernels/decode_mma.cuh"
#include "kernels/decode_tensor.h"
#include "kernels/layers_cuda.h"

#define WARPS 4
#define BLOCK (WARPS * 32)
#define HEADS 8  /* of a product */
#define TILE  16 /* keys */
#define STEP  (WARPS * TILE)

struct args {
    uint16_t *y, *k, *v;
    const uint16_t *qkv;
    const float *cosine, *sine;
    const int32_t *slot, *at, *lead, *shared;
    size_t T;
    int H, G;
    float scale;
};

/* The last key and value. */
template <int D> struct fresh {
    alignas (16) uint16_t k[D], v[D];
};

/* What each warp has of each head. */
template <int D> struct partial {
    float most[WARPS][HEADS], sum[WARPS][HEADS], y[WARPS][HEADS][D + 8];
};

/* What a lane has of TILE keys and values: of keys 4 vectors of 32 places each
 * for two rows, of values those of 4 rows. */
template <int U> struct tile {
    uint4 k[2][2 * U], v[4][U];
};

/* What turns the vector pairs of a head that a lane has: pair c * 4 + t of its
 * neighbours t. */
template <int U> struct angles {
    float c[U][8], s[U][8];
};

template <int U>
static __device__ void find_angles (angles<U> *r, const args &a, int at)
{
    enum { D = 64 * U };
    size_t from = (size_t)at * (D / 2) + threadIdx.x % 4 * 8;

#pragma unroll
    for (int c = 0; c < U; c++) {
        wide<as_bf16>::floats (a.cosine + from + c * 32, r->c[c]);
        wide<as_bf16>::floats (a.sine + from + c * 32, r->s[c]);
    }
}

template <typename T>
static __device__ void turn (uint4 *first, uint4 *second, const float *c,
                             const float *s)
{
    float x[8], y[8];

    wide<T>::split (*first, x);
    wide<T>::split (*second, y);
#pragma unroll
    for (int i = 0; i < 8; i++) {
        float p = x[i], q = y[i];

        x[i] = p * c[i] - q * s[i];
        y[i] = q * c[i] + p * s[i];
    }
    *first = wide<T>::join (x);
    *second = wide<T>::join (y);
}

/* Vectors c * 4 + t of a head [from], for c below 2 U, turned. */
template <typename T, int U>
static __device__ void load_head (uint4 x[2 * U], const uint16_t *from,
                                  const angles<U> &by, bool turned)
{
#pragma unroll
    for (int c = 0; c < 2 * U; c++)
        x[c] = *(const uint4 *)(from + (c * 4 + threadIdx.x % 4) * 8);
#pragma unroll
    for (int c = 0; turned && c < U; c++)
        turn<T> (x + c, x + U + c, by.c[c], by.s[c]);
}

/* Fill [f], by the warp that has the last key; [end] is its place. What is new is
 * kept as well. */
template <typename T, int U>
static __device__ void load_fresh (fresh<64 * U> *f, const args &a,
                                   const angles<U> &by, size_t n, size_t end)
{
    enum { D = 64 * U };
    const uint16_t *row = a.qkv + n * (size_t)(a.H + 2 * a.G) * D;
    bool made = a.cosine != NULL;
    int lane = (int)threadIdx.x % 32, i = lane - 8;
    const uint16_t *k =
        made ? row + (size_t)(a.H + (int)blockIdx.y) * D : a.k + end;
    const uint16_t *v =
        made ? row + (size_t)(a.H + a.G + (int)blockIdx.y) * D : a.v + end;

    if (lane < 4) {
        uint4 x[2 * U];

        load_head<T, U> (x, k, by, made);
#pragma unroll
        for (int c = 0; c < 2 * U; c++) {
            *(uint4 *)(f->k + (c * 4 + lane) * 8) = x[c];
            if (made)
                *(uint4 *)(a.k + end + (c * 4 + lane) * 8) = x[c];
        }
    } else if (i >= 0 && i < D / 8) {
        uint4 x = *(const uint4 *)(v + i * 8);

        *(uint4 *)(f->v + i * 8) = x;
        if (made)
            *(uint4 *)(a.v + end + i * 8) = x;
    }
    __syncwarp ();
}

/* 16 bytes that nothing writes while the kernel runs, read once; with them what
 * is beside them comes to the L2 cache. */
static __device__ uint4 old_vector (const uint16_t *from)
{
    uint4 r;

    asm volatile("ld.global.nc.L1::no_allocate.L2::256B.v4.u32 "
                 "{%0,%1,%2,%3}, [%4];"
                 : "=r"(r.x), "=r"(r.y), "=r"(r.z), "=r"(r.w)
                 : "l"(from));
    return r;
}

/* Where a slot's keys and values are; those before [shared] stand [far] elements
 * behind where they would. */
struct source {
    const uint16_t *k, *v;
    ptrdiff_t far;
    int shared;
};

template <int D> static __device__ source source_of (const args &a, size_t n)
{
    size_t from = ((size_t)a.slot[n] * a.G + blockIdx.y) * a.T * D;
    source s = {a.k + from, a.v + from, 0, 0};

    if (a.lead) {
        s.far = (ptrdiff_t)(a.lead[n] - a.slot[n]) * a.G * (ptrdiff_t)(a.T * D);
        s.shared = a.shared[n];
    }
    return s;
}

/* Keys from [first] on, all of them older than the last. */
template <int U>
static __device__ void load_old (tile<U> *x, const source &of, int first)
{
    enum { D = 64 * U };
    int g = (int)threadIdx.x % 32 / 4, t = (int)threadIdx.x % 4;
    ptrdiff_t from =
        (ptrdiff_t)first * D + (first + TILE <= of.shared ? of.far : 0);
    const uint16_t *k = of.k + from + g * D + t * 8;
    const uint16_t *v = of.v + from + 2 * t * D + g * 8;

#pragma unroll
    for (int h = 0; h < 2; h++)
#pragma unroll
        for (int c = 0; c < 2 * U; c++)
            x->k[h][c] = old_vector (k + h * 8 * D + c * 32);
#pragma unroll
    for (int i = 0; i < 4; i++)
#pragma unroll
        for (int u = 0; u < U; u++)
            x->v[i][u] = old_vector (v + (i / 2 * 8 + i % 2) * D + u * 64);
}

/* Keys from [first] on; the last one and what is behind it is f's. */
template <int U>
static __device__ void load (tile<U> *x, const source &of,
                             const fresh<64 * U> *f, int first, int last)
{
    enum { D = 64 * U };
    int g = (int)threadIdx.x % 32 / 4, t = (int)threadIdx.x % 4;

    if (first + TILE <= last) {
        load_old<U> (x, of, first);
        return;
    }
#pragma unroll
    for (int h = 0; h < 2; h++) {
        int key = first + h * 8 + g;
        const uint16_t *from = key < last ? of.k + (size_t)key * D : f->k;

#pragma unroll
        for (int c = 0; c < 2 * U; c++)
            x->k[h][c] = *(const uint4 *)(from + (c * 4 + t) * 8);
    }
#pragma unroll
    for (int i = 0; i < 4; i++) {
        int key = first + i / 2 * 8 + 2 * t + i % 2;
        const uint16_t *from = key < last ? of.v + (size_t)key * D : f->v;

#pragma unroll
        for (int u = 0; u < U; u++)
            x->v[i][u] = *(const uint4 *)(from + u * 64 + g * 8);
    }
}

static __device__ uint32_t word (uint4 x, int i)
{
    return i == 0 ? x.x : i == 1 ? x.y : i == 2 ? x.z : x.w;
}

/* The head's running softmax in this lane: sum is of its own keys. */
template <int U> struct running {
    float most, sum, y[8 * U][2];
};

template <typename T, int U>
static __device__ void take (running<U> *r, const tile<U> &x,
                             const uint4 q[2 * U], int first, int last,
                             float scale)
{
    int t = (int)threadIdx.x % 4;
    float s[2][2] = {}, most = r->most, shrink;
    uint32_t p[2];

#pragma unroll
    for (int c = 0; c < 2 * U; c++)
#pragma unroll
        for (int h = 0; h < 2; h++)
            mma_top<T> (s[h], q[c].x, q[c].y, x.k[h][c].x, x.k[h][c].y);
#pragma unroll
    for (int c = 0; c < 2 * U; c++)
#pragma unroll
        for (int h = 0; h < 2; h++)
            mma_top<T> (s[h], q[c].z, q[c].w, x.k[h][c].z, x.k[h][c].w);
#pragma unroll
    for (int i = 0; i < 4; i++) {
        float *z = &s[i / 2][i % 2];

        *z = first + i / 2 * 8 + 2 * t + i % 2 <= last ? *z * scale : -INFINITY;
        most = fmaxf (most, *z);
    }
    most = fmaxf (most, __shfl_xor_sync (0xffffffffu, most, 1));
    most = fmaxf (most, __shfl_xor_sync (0xffffffffu, most, 2));
    shrink = exp2f (r->most - most);
    r->most = most;
    r->sum *= shrink;
#pragma unroll
    for (int h = 0; h < 2; h++) {
        s[h][0] = exp2f (s[h][0] - most);
        s[h][1] = exp2f (s[h][1] - most);
        r->sum += s[h][0] + s[h][1];
        p[h] = T::pair (s[h]);
    }
#pragma unroll
    for (int i = 0; i < 8 * U; i++) {
        unsigned pick = i % 2 ? 0x7632 : 0x5410;
        uint32_t low = __byte_perm (word (x.v[0][i / 8], i % 8 / 2),
                                    word (x.v[1][i / 8], i % 8 / 2), pick);
        uint32_t high = __byte_perm (word (x.v[2][i / 8], i % 8 / 2),
                                     word (x.v[3][i / 8], i % 8 / 2), pick);

        r->y[i][0] *= shrink;
        r->y[i][1] *= shrink;
        mma_top<T> (r->y[i], p[0], p[1], low, high);
    }
}

template <int U> static __device__ void lay (partial<64 * U> *to, running<U> *r)
{
    int g = (int)threadIdx.x % 32 / 4, t = (int)threadIdx.x % 4;
    int warp = (int)threadIdx.x / 32;

    r->sum += __shfl_xor_sync (0xffffffffu, r->sum, 1);
    r->sum += __shfl_xor_sync (0xffffffffu, r->sum, 2);
    if (t == 0) {
        to->most[warp][g] = r->most;
        to->sum[warp][g] = r->sum;
    }
#pragma unroll
    for (int i = 0; i < 8 * U; i++)
#pragma unroll
        for (int e = 0; e < 2; e++)
            to->y[warp][g][i / 8 * 64 + (2 * t + e) * 8 + i % 8] = r->y[i][e];
}

template <typename T, int D>
static __device__ void finish (uint16_t *y, const partial<D> *of, int R)
{
    for (int i = (int)threadIdx.x; i < R * D; i += BLOCK) {
        float most = -INFINITY, sum = 0, x = 0;
        int h = i / D;

#pragma unroll
        for (int w = 0; w < WARPS; w++)
            most = fmaxf (most, of->most[w][h]);
#pragma unroll
        for (int w = 0; w < WARPS; w++) {
            float p = exp2f (of->most[w][h] - most);

            sum += p * of->sum[w][h];
            x += p * of->y[w][h][i % D];
        }
        y[i] = T::put (x / sum);
    }
}

/* All keys from [first] on, of which AHEAD tiles are under way or here. */
template <typename T, int U, int AHEAD>
static __device__ void take_all (running<U> *r, tile<U> (&x)[AHEAD],
                                 const uint4 q[2 * U], const source &of,
                                 const fresh<64 * U> *f, int first, int last,
                                 float scale)
{
    for (; AHEAD > 1 && first <= last; first += AHEAD * STEP)
#pragma unroll
        for (int i = 0; i < AHEAD; i++) {
            int at = first + i * STEP, next = at + AHEAD * STEP;

            if (at <= last)
                take<T, U> (r, x[i], q, at, last, scale);
            if (next <= last)
                load<U> (&x[i], of, f, next, last);
        }
    for (; AHEAD == 1 && first <= last; first += STEP) {
        tile<U> next;

        if (first + STEP <= last)
            load<U> (&next, of, f, first + STEP, last);
        take<T, U> (r, x[0], q, first, last, scale);
        x[0] = next;
    }
}

/* grid (N, G). Keys before the last are older than the kernel before this one;
 * AHEAD tiles of each warp, and what turns the queries, are on their way while
 * that ends, as far as EACH blocks of a multiprocessor have registers for it. */
template <typename T, int U, int AHEAD, int EACH>
static __global__ void __launch_bounds__ (BLOCK, EACH) tensor (args a)
{
    enum { D = 64 * U };
    __shared__ fresh<D> f;
    __shared__ partial<D> parts;
    int g = (int)threadIdx.x % 32 / 4;
    int first = (int)threadIdx.x / 32 * TILE, last = a.at[blockIdx.x];
    size_t n = blockIdx.x;
    source of = source_of<D> (a, n);
    running<U> r = {-INFINITY, 0, {}};
    tile<U> x[AHEAD];
    int R = a.H / a.G, head = (int)blockIdx.y * R + g;
    bool mine = last / TILE % WARPS == (int)threadIdx.x / 32;
    angles<U> by;
    uint4 q[2 * U] = {};

    early_go ();
#pragma unroll
    for (int i = 0; i < AHEAD; i++)
        if (first + i * STEP + TILE <= last)
            load_old<U> (&x[i], of, first + i * STEP);
    if (AHEAD > 1 && a.cosine && last >= 0)
        find_angles<U> (&by, a, last);
    early_wait ();
    if (last < 0)
        return;
    if (AHEAD == 1 && a.cosine)
        find_angles<U> (&by, a, last);
    if (g < R)
        load_head<T, U> (q, a.qkv + (n * (size_t)(a.H + 2 * a.G) + head) * D,
                         by, a.cosine != NULL);
    if (mine)
        load_fresh<T, U> (&f, a, by, n, of.k - a.k + (size_t)last * D);
#pragma unroll
    for (int i = 0; i < AHEAD; i++) {
        int at = first + i * STEP;

        if (at + TILE > last && at <= last)
            load<U> (&x[i], of, &f, at, last);
    }
    take_all<T, U, AHEAD> (&r, x, q, of, &f, first, last, a.scale);
    lay<U> (&parts, &r);
    __syncthreads ();
    finish<T, D> (a.y + (n * a.H + (size_t)blockIdx.y * (a.H / a.G)) * D,
                  &parts, a.H / a.G);
}

/* A row's bits are the same in all of these. Of 132 multiprocessors. */
template <typename T>
static void go (const struct decode_tensor *p, void *stream)
{
    args a = {p->y,      p->k,
              p->v,      p->qkv,
              p->cosine, p->sine,
              p->slot,   p->at,
              p->lead,   p->shared,
              p->T,      (int)p->H,
              (int)p->G, (float)(p->scale * 1.4426950408889634)};
    size_t blocks = p->N * p->G;
    void (*kernel) (args) = p->D != 64          ? tensor<T, 2, 1, 2>
                            : blocks <= 2 * 132 ? tensor<T, 1, 4, 2>
                            : blocks <= 3 * 132 ? tensor<T, 1, 3, 3>
                                                : tensor<T, 1, 1, 4>;

    early_launch (kernel, dim3 ((unsigned)p->N, (unsigned)p->G), BLOCK, 0, 1,
                  p->early, stream, a);
}

void decode_tensor_bf16 (const struct decode_tensor *a, void *stream)
{
    go<as_bf16> (a, stream);
}

void decode_tensor_f16 (const struct decode_tensor *a, void *stream)
{
    go<as_f16> (a, stream);
}
