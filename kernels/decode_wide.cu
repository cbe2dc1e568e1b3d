/* SPDX-License-Identifier: Apache-2.0
 * decode_wide.cu - products of up to 64 rows with a large weight
 *
 * As decode_product.cu, but the tensor cores read both factors from shared
 * memory themselves, a warp group 64 rows of the weight at a time, so that 64
 * rows of x cost hardly more than the weight's way from memory.
 *
 * PTX ISA, "Asynchronous Warpgroup Level Matrix Multiply-Accumulate
 * Instructions" has the layout of a matrix descriptor, of rows of 128 bytes that
 * are swizzled, and of the sums. */
#include "kernels/decode_product.cuh"

#define NT     8 /* eights of rows of x */
#define X_ROWS (NT * 8)
#define STAGE  (W_BYTES + X_ROWS * DEEP * 2)
#define ALIGN  1024 /* of what a descriptor names */

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

#define SUMS8(i)                                                               \
    "+f"(c[i]), "+f"(c[i + 1]), "+f"(c[i + 2]), "+f"(c[i + 3]),                \
        "+f"(c[i + 4]), "+f"(c[i + 5]), "+f"(c[i + 6]), "+f"(c[i + 7])
#define WGMMA(type)                                                            \
    asm volatile("wgmma.mma_async.sync.aligned.m64n64k16.f32." type "." type   \
                 " {%0,%1,%2,%3,%4,%5,%6,%7,%8,%9,%10,%11,%12,%13,%14,%15,"    \
                 "%16,%17,%18,%19,%20,%21,%22,%23,%24,%25,%26,%27,%28,%29,"    \
                 "%30,%31}, %32, %33, 1, 1, 1, 0, 0;"                          \
                 : SUMS8 (0), SUMS8 (8), SUMS8 (16), SUMS8 (24)                \
                 : "l"(a), "l"(b))

static __device__ void multiply (as_bf16, float c[32], uint64_t a, uint64_t b)
{
    WGMMA ("bf16");
}

static __device__ void multiply (as_f16, float c[32], uint64_t a, uint64_t b)
{
    WGMMA ("f16");
}

/* Sums into shared memory: [row of x][row of w]. */
static __device__ void lay (float *part, const float c[32])
{
    int row = (int)threadIdx.x / 32 * 16 + (int)threadIdx.x % 32 / 4;
    int t = (int)threadIdx.x % 4;

#pragma unroll
    for (int i = 0; i < 32; i++)
        part[(i / 4 * 8 + 2 * t + i % 2) * LINE + row + i % 4 / 2 * 8] = c[i];
}

#endif

/* grid (tiles, parts, batches of X_ROWS rows); parts are a cluster */
template <typename T>
static __global__ void __launch_bounds__ (THREADS, 2) wide_product (args a)
{
#if SERVED
    extern __shared__ char raw[];
    __shared__ float rstd[X_ROWS];
    unsigned lead = (unsigned)__cvta_generic_to_shared (raw) % ALIGN;
    char *room = raw + (ALIGN - lead) % ALIGN;
    unsigned at = (unsigned)__cvta_generic_to_shared (room);
    int group = (int)threadIdx.x / 128, first_row = (int)blockIdx.z * X_ROWS;
    float c[32] = {}, *part = (float *)room;
    way<NT> m;

    early_go ();
    find_way (&m, a, at, first_row, (int)threadIdx.x / 8 % 8);
    for (int i = 0; i < STAGES - 1 && i < a.chunks; i++)
        bring_w (m, i, STAGE);
    early_wait ();
    for (int i = 0; i < STAGES - 1; i++) {
        if (i < a.chunks)
            bring_x (m, i, STAGE);
        bring_commit ();
    }
    if (a.sums)
        take_sums<NT> (rstd, a, first_row);
    for (int i = 0; i < a.chunks; i++) {
        unsigned stage = at + (unsigned)(i % STAGES) * STAGE;
        uint64_t w = describe (stage + (unsigned)group * 64 * DEEP * 2);
        uint64_t x = describe (stage + W_BYTES);
        int next = i + STAGES - 1;

        bring_wait ();
        /* what was copied is to be read by the tensor cores */
        asm volatile("fence.proxy.async.shared::cta;" ::: "memory");
        __syncthreads ();
        if (next < a.chunks) {
            bring_w (m, next, STAGE);
            bring_x (m, next, STAGE);
        }
        bring_commit ();
        asm volatile("wgmma.fence.sync.aligned;" ::: "memory");
#pragma unroll
        for (int k = 0; k < DEEP / 16; k++)
            multiply (T (), c, w + k * 2, x + k * 2);
        asm volatile("wgmma.commit_group.sync.aligned;" ::: "memory");
        asm volatile("wgmma.wait_group.sync.aligned 0;" ::: "memory");
    }
    __syncthreads ();
    lay (part, c);
    if (gridDim.y > 1)
        cg::this_cluster ().sync ();
    else
        __syncthreads ();
    reduce<T, NT, 1> (a, part, NULL, rstd, first_row);
    if (gridDim.y > 1) /* others may still read here */
        cg::this_cluster ().sync ();
#else
    (void)a;
#endif
}

template <typename T>
static void go (const struct kern_product *p, void *stream)
{
    unsigned parts = parts_of (p);
    size_t bytes = STAGES * STAGE + ALIGN;
    dim3 grid ((unsigned)tiles_of (p), parts,
               (unsigned)((p->N + X_ROWS - 1) / X_ROWS));

    (void)cudaFuncSetAttribute (wide_product<T>,
                                cudaFuncAttributeMaxDynamicSharedMemorySize,
                                (int)bytes);
    early_launch (wide_product<T>, grid, THREADS, bytes, parts, p->early,
                  stream, args_of (p));
}

void decode_wide_bf16 (const struct kern_product *p, void *stream)
{
    go<as_bf16> (p, stream);
}

void decode_wide_f16 (const struct kern_product *p, void *stream)
{
    go<as_f16> (p, stream);
}
