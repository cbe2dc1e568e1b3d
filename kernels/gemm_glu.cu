/* SPDX-License-Identifier: Apache-2.0
 * gemm_glu.cu - SwiGLU within the product before it, and its backward within the
 * product whose result it needs, on sm_90a */
#include "kernels/gemm_glu.h"

#include <limits.h>

#include "kernels/gemm_glu.cuh"
#include "kernels/hopper_map.h"

static __device__ int served = SERVED;

bool kern_gemm_glu_served (void)
{
    int is = 0;

    if (cudaMemcpyFromSymbol (&is, served, sizeof (is)) == cudaSuccess)
        return is != 0 && hopper_map_here ();
    (void)cudaGetLastError ();
    return false;
}

bool kern_gemm_glu_fits (size_t N, size_t C, size_t F)
{
    return N > 0 && C > 0 && F > 0 && N <= INT_MAX - CLUSTER * ROWS
           && C <= INT_MAX / 2 && F <= INT_MAX / 2 && C % 8 == 0
           && F % COLS == 0;
}

/* BACK: b is (in, columns), and what is laid down is the activation's gradient. */
template <class T, int BACK>
static __global__ void __launch_bounds__ (BLOCK, 1)
    glu (const __grid_constant__ struct product_maps maps,
         const __grid_constant__ struct glu_args a)
{
#if SERVED
    extern __shared__ char raw[];
    product_room m;
    int group = (int)threadIdx.x / GROUP;

    m.make (raw);
    cluster_sync ();
    if (group == 0) {
        registers_fewer<152> ();
        if (threadIdx.x == 0)
            product_bring<BACK> (m, maps, a.p);
        else if (threadIdx.x >= 32 && BACK)
            glu_bwd_help<T> (m, a);
        else if (threadIdx.x >= 32)
            glu_fwd_help<T> (m, maps, a);
    } else {
        registers_more<176> ();
        product_work<T, BACK> (m, a.p, group - 1);
    }
    __syncwarp ();
    cluster_sync (); /* others may still arrive here */
#endif
}

/* Rows of [in], slices of [rows] of them. */
static bool map_rows (CUtensorMap *ret, const void *at, size_t n, size_t in,
                      unsigned rows)
{
    const uint64_t sizes[] = {in, n}, strides[] = {in * 2};
    const uint32_t box[] = {DEEP, rows};

    return hopper_map (ret, at, 2, sizes, strides, box);
}

/* The same array, slices of DEEP rows and HALF columns in lots of 64. */
static bool map_turned (CUtensorMap *ret, const void *at, size_t n,
                        size_t columns)
{
    const uint64_t sizes[] = {64, n, columns / 64},
                   strides[] = {columns * 2, 128};
    const uint32_t box[] = {64, DEEP, HALF / 64};

    return hopper_map (ret, at, 3, sizes, strides, box);
}

static void launch (const void *kernel, struct product_maps *maps,
                    struct glu_args *a, cudaStream_t stream)
{
    int device = 0, most = CLUSTER, clusters = a->p.down * a->p.across;
    void *args[] = {maps, a};
    cudaLaunchAttribute cluster = {};
    cudaLaunchConfig_t how = {};

    (void)cudaGetDevice (&device);
    (void)cudaDeviceGetAttribute (&most, cudaDevAttrMultiProcessorCount,
                                  device);
    (void)cudaFuncSetAttribute (kernel,
                                cudaFuncAttributeMaxDynamicSharedMemorySize,
                                product_room::bytes);
    cluster.id = cudaLaunchAttributeClusterDimension;
    cluster.val.clusterDim.x = CLUSTER;
    cluster.val.clusterDim.y = cluster.val.clusterDim.z = 1;
    how.gridDim = dim3 ((unsigned)(min (most / CLUSTER, clusters) * CLUSTER));
    how.blockDim = dim3 (BLOCK);
    how.dynamicSmemBytes = product_room::bytes;
    how.stream = stream;
    how.attrs = &cluster;
    how.numAttrs = 1;
    (void)cudaLaunchKernelExC (&how, kernel, args);
}

static struct product product_of (size_t N, size_t C, size_t across)
{
    struct product p = {};

    p.down = (int)((N + CLUSTER * ROWS - 1) / (CLUSTER * ROWS));
    p.across = (int)across;
    p.deep = (int)((C + DEEP - 1) / DEEP);
    return p;
}

template <class T>
static bool run_fwd (uint16_t *y, uint16_t *gu, const uint16_t *x,
                     const uint16_t *w, size_t N, size_t C, size_t F,
                     cudaStream_t stream)
{
    struct product_maps maps;
    struct glu_args a = {};

    if (!map_rows (&maps.a, x, N, C, ROWS)
        || !map_rows (&maps.b, w, 2 * F, C, HALF)
        || !map_rows (&maps.c, gu, N, 2 * F, ROWS) || (uintptr_t)y % 16 != 0)
        return false;
    a.p = product_of (N, C, F / HALF);
    a.p.step = HALF;
    a.p.half = (int)F;
    a.N = (int)N;
    a.F = F;
    a.y = y;
    launch ((const void *)glu<T, 0>, &maps, &a, stream);
    return true;
}

template <class T>
static bool run_bwd (uint16_t *dgu, uint16_t *y, const uint16_t *dy,
                     const uint16_t *w, const uint16_t *gu, size_t N, size_t C,
                     size_t F, cudaStream_t stream)
{
    struct product_maps maps = {};
    struct glu_args a = {};
    uintptr_t all = (uintptr_t)dgu | (uintptr_t)y | (uintptr_t)gu;

    if (!map_rows (&maps.a, dy, N, C, ROWS) || !map_turned (&maps.b, w, C, F)
        || all % 16 != 0)
        return false;
    a.p = product_of (N, C, F / COLS);
    a.p.step = COLS;
    a.p.half = HALF;
    a.N = (int)N;
    a.F = F;
    a.y = y;
    a.dgu = dgu;
    a.gu = gu;
    launch ((const void *)glu<T, 1>, &maps, &a, stream);
    return true;
}

#define GLU(name)                                                              \
    bool kern_gemm_glu_fwd_##name##_cuda (                                     \
        uint16_t *y, uint16_t *gu, const uint16_t *x, const uint16_t *w,       \
        size_t N, size_t C, size_t F, void *stream)                            \
    {                                                                          \
        return run_fwd<as_##name> (y, gu, x, w, N, C, F,                       \
                                   (cudaStream_t)stream);                      \
    }                                                                          \
    bool kern_gemm_glu_bwd_##name##_cuda (                                     \
        uint16_t *dgu, uint16_t *y, const uint16_t *dy, const uint16_t *w,     \
        const uint16_t *gu, size_t N, size_t C, size_t F, void *stream)        \
    {                                                                          \
        return run_bwd<as_##name> (dgu, y, dy, w, gu, N, C, F,                 \
                                   (cudaStream_t)stream);                      \
    }

GLU (bf16)
GLU (f16)
