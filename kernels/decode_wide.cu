/* SPDX-License-Identifier: Apache-2.0
 * decode_wide.cu - products of up to 64 rows with a large weight
 *
 * A block has TALL rows of the weight and a part of the sum; blocks of one cluster
 * have the other parts, and add them up by each other's shared memory. The tensor
 * cores read both factors from shared memory themselves, a warp group 64 rows of
 * the weight at a time, so that 64 rows of x cost hardly more than the weight's way
 * from memory. The sums of a norm that was begun before are waited for behind the
 * products.
 *
 * PTX ISA, "Asynchronous Warpgroup Level Matrix Multiply-Accumulate
 * Instructions" has the layout of a matrix descriptor, of rows of 128 bytes that
 * are swizzled, and of the sums. */
#include "kernels/decode_reduce.cuh"

#define ALIGN 1024 /* of what a descriptor names */

/* This file's kernel is there for what has the instructions alone. */
#if !defined(__CUDA_ARCH__) || defined(__CUDA_ARCH_FEAT_SM90_ALL)
#define SERVED 1
#else
#define SERVED 0
#endif
static __device__ int served = SERVED;

bool kern_product_served (void)
{
    int is = 0;

    if (cudaMemcpyFromSymbol (&is, served, sizeof (is)) == cudaSuccess)
        return is != 0;
    (void)cudaGetLastError ();
    return false;
}

#if SERVED
/* Rows of 128 bytes, eights of them 1024 bytes apart, swizzled over 128 bytes. */
static __device__ uint64_t describe (unsigned at)
{
    return (uint64_t)(at >> 4 & 0x3fff) | (uint64_t)1 << 16
           | (uint64_t)(1024 >> 4) << 32 | (uint64_t)1 << 62;
}

#define SUMS4(i)  "+f"(c[i]), "+f"(c[i + 1]), "+f"(c[i + 2]), "+f"(c[i + 3])
#define SUMS8(i)  SUMS4 (i), SUMS4 (i + 4)
#define SUMS16(i) SUMS8 (i), SUMS8 (i + 8)
#define SUMS24(i) SUMS16 (i), SUMS8 (i + 16)
#define SUMS32(i) SUMS16 (i), SUMS16 (i + 16)
#define LIST4     "%0,%1,%2,%3"
#define LIST8     LIST4 ",%4,%5,%6,%7"
#define LIST16    LIST8 ",%8,%9,%10,%11,%12,%13,%14,%15"
#define LIST24    LIST16 ",%16,%17,%18,%19,%20,%21,%22,%23"
#define LIST32    LIST24 ",%24,%25,%26,%27,%28,%29,%30,%31"

/* c (64 x 2 count) += a b, of sixteen columns each. */
#define MULTIPLY(type, name, count, n, a_at, b_at)                             \
    static __device__ void multiply (type, float (&c)[count], uint64_t a,      \
                                     uint64_t b)                               \
    {                                                                          \
        asm volatile("wgmma.mma_async.sync.aligned.m64n" n "k16.f32." name     \
                     "." name " {" LIST##count "}, " a_at ", " b_at            \
                                               ", 1, 1, 1, 0, 0;"              \
                     : SUMS##count (0)                                         \
                     : "l"(a), "l"(b));                                        \
    }
#define MULTIPLIES(type, name)                                                 \
    MULTIPLY (type, name, 4, "8", "%4", "%5")                                  \
    MULTIPLY (type, name, 8, "16", "%8", "%9")                                 \
    MULTIPLY (type, name, 16, "32", "%16", "%17")                              \
    MULTIPLY (type, name, 24, "48", "%24", "%25")                              \
    MULTIPLY (type, name, 32, "64", "%32", "%33")

MULTIPLIES (as_bf16, "bf16")
MULTIPLIES (as_f16, "f16")

/* Sums into shared memory: [row of x][row of w]. */
template <int NT>
static __device__ void lay (float *part, const float (&c)[NT * 4])
{
    int row = (int)threadIdx.x / 32 * 16 + (int)threadIdx.x % 32 / 4;
    int t = (int)threadIdx.x % 4;

#pragma unroll
    for (int i = 0; i < NT * 4; i++)
        part[(i / 4 * 8 + 2 * t + i % 2) * LINE + row + i % 4 / 2 * 8] = c[i];
}

#endif

/* The stages of a block, of which a multiprocessor is to have room for EACH. AHEAD
 * are under way; with LAG one more is still read while the next is summed. */
template <int NT, int EACH> struct ring {
    enum {
        LAG = EACH == 1,
        STAGES = EACH == 1   ? (NT == 8   ? 9
                                : NT == 6 ? 10
                                : NT == 4 ? 11
                                          : 12)
                 : EACH == 2 ? (NT <= 2 ? 6 : 4)
                             : (NT <= 2 ? 4 : 3),
        AHEAD = STAGES - 1 - LAG,
        STAGE = W_BYTES + NT * 8 * DEEP * 2,
        BYTES = STAGES * STAGE
    };
};

/* grid (tiles, parts, batches of X_ROWS rows); parts are a cluster, EACH blocks to
 * a multiprocessor */
template <typename T, int NT, int EACH>
static __global__ void __launch_bounds__ (THREADS,
                                          EACH == 1 && NT > 4 ? 2 : EACH)
    wide_product (args a)
{
#if SERVED
    enum { STAGES = ring<NT, EACH>::STAGES, STAGE = ring<NT, EACH>::STAGE };
    enum { AHEAD = ring<NT, EACH>::AHEAD, LAG = ring<NT, EACH>::LAG };
    enum { X_ROWS = NT * 8, HOLD = EACH < 3 /* registers */ };
    enum { AT_ONCE = NT > 2 && EACH == 1 ? 2 : 1 };
    float4 held[HELD];
    bool hold;
    extern __shared__ char raw[];
    __shared__ float rstd[X_ROWS];
    unsigned lead = (unsigned)__cvta_generic_to_shared (raw) % ALIGN;
    char *room = raw + (ALIGN - lead) % ALIGN;
    unsigned at = (unsigned)__cvta_generic_to_shared (room);
    int group = (int)threadIdx.x / 128, first_row = (int)blockIdx.z * X_ROWS;
    float c[NT * 4] = {}, *part = (float *)room;
    const share of = share_of (a);
    way<NT> m;
    rest r[2];

    early_go ();
    find_way (&m, a, at, first_row, (int)threadIdx.x / 8 % 8);
    for (int i = 0; i < AHEAD && i < m.chunks; i++)
        bring_w<STAGES> (m, i, STAGE);
    early_wait ();
    for (int i = 0; i < AHEAD; i++) {
        if (i < m.chunks)
            bring_x<STAGES> (m, i, STAGE);
        bring_commit ();
    }
    call_rest<NT> (r, a, of, first_row);
    hold = a.sums && HOLD && hold_sums<NT> (held, a, first_row);
    if (a.sums && !hold)
        take_sums<NT> (rstd, a, first_row);
#pragma unroll 1
    for (int i = 0; i < m.chunks; i++) {
        unsigned stage = at + (unsigned)(i % STAGES) * STAGE;
        uint64_t w = describe (stage + (unsigned)group * 64 * DEEP * 2);
        uint64_t x = describe (stage + W_BYTES);
        int next = i + AHEAD;

        bring_wait<AHEAD - 1> ();
        /* what was copied is to be read by the tensor cores */
        asm volatile("fence.proxy.async.shared::cta;" ::: "memory");
        __syncthreads ();
        if (next < m.chunks) {
            bring_w<STAGES> (m, next, STAGE);
            bring_x<STAGES> (m, next, STAGE);
        }
        bring_commit ();
        asm volatile("wgmma.fence.sync.aligned;" ::: "memory");
#pragma unroll
        for (int k = 0; k < DEEP / 16; k++)
            multiply (T (), c, w + k * 2, x + k * 2);
        asm volatile("wgmma.commit_group.sync.aligned;" ::: "memory");
        asm volatile("wgmma.wait_group.sync.aligned %0;" ::"n"((int)LAG)
                     : "memory");
    }
    asm volatile("wgmma.wait_group.sync.aligned 0;" ::: "memory");
#pragma unroll
    for (int i = 0; i < NT * 4; i++)
        asm volatile("" : "+f"(c[i])::"memory");
    if (hold)
        take_held<NT> (rstd, a, held);
    else if (!a.sums && threadIdx.x < X_ROWS)
        rstd[threadIdx.x] = 1;
    __syncthreads ();
    lay<NT> (part, c);
    if (gridDim.y > 1)
        cluster_tell ();
    else
        __syncthreads ();
    reduce<T, NT, AT_ONCE> (a, part, rstd, of, first_row, r);
    if (gridDim.y > 1) /* others may still read here */
        cluster_leave ();
#else
    (void)a;
#endif
}

template <typename T, int NT, int EACH>
static void go (const struct kern_product *p, void *stream)
{
    unsigned parts = parts_of (p);
    size_t bytes = ring<NT, EACH>::BYTES + ALIGN;
    dim3 grid ((unsigned)tiles_of (p), parts,
               (unsigned)((p->N + NT * 8 - 1) / (NT * 8)));

    (void)cudaFuncSetAttribute (wide_product<T, NT, EACH>,
                                cudaFuncAttributeMaxDynamicSharedMemorySize,
                                (int)bytes);
    early_launch (wide_product<T, NT, EACH>, grid, THREADS, bytes, parts,
                  p->early, stream, args_of (p));
}

/* As few a multiprocessor as it takes to have all blocks at once: larger rings,
 * more of the weight there before x is. */
template <typename T, int NT>
static void by_blocks (const struct kern_product *p, void *stream)
{
    size_t parts = parts_of (p), blocks = tiles_of (p) * parts;

    blocks *= (p->N + NT * 8 - 1) / (NT * 8);
    if (blocks <= kern_product_at_once (parts))
        go<T, NT, 1> (p, stream);
    else if (blocks <= 264)
        go<T, NT, 2> (p, stream);
    else
        go<T, NT, 3> (p, stream);
}

/* The bits of a row are the same in all of these. */
template <typename T>
static void run (const struct kern_product *p, void *stream)
{
    if (p->N <= 8)
        by_blocks<T, 1> (p, stream);
    else if (p->N <= 16)
        by_blocks<T, 2> (p, stream);
    else if (p->N <= 32)
        by_blocks<T, 4> (p, stream);
    else if (p->N <= 48)
        by_blocks<T, 6> (p, stream);
    else
        by_blocks<T, 8> (p, stream);
}

void decode_wide_bf16 (const struct kern_product *p, void *stream)
{
    run<as_bf16> (p, stream);
}

void decode_wide_f16 (const struct kern_product *p, void *stream)
{
    run<as_f16> (p, stream);
}
