/* SPDX-License-Identifier: Apache-2.0
 * decode_early.cuh - kernels of one stream that begin before the last has ended
 *
 * "Programmatic dependent launch" of the CUDA programming guide: each kernel of
 * such a row lets the next begin at once, and waits itself before it reads what
 * others wrote or writes anything. GPUs before compute capability 9 have them one
 * after the other. */
#ifndef KERN_DECODE_EARLY_CUH
#define KERN_DECODE_EARLY_CUH

#include <cuda_runtime.h>

static __device__ void early_go (void)
{
#if __CUDA_ARCH__ >= 900
    asm volatile("griddepcontrol.launch_dependents;" ::: "memory");
#endif
}

static __device__ void early_wait (void)
{
#if __CUDA_ARCH__ >= 900
    asm volatile("griddepcontrol.wait;" ::: "memory");
#endif
}

static bool early_served (void)
{
    int device = 0, major = 0;

    return cudaGetDevice (&device) == cudaSuccess
           && cudaDeviceGetAttribute (&major, cudaDevAttrComputeCapabilityMajor,
                                      device)
                  == cudaSuccess
           && major >= 9;
}

/* cluster = 1: none */
template <typename... P, typename... A>
static void early_launch (void (*kernel) (P...), dim3 grid, unsigned threads,
                          size_t bytes, unsigned cluster, bool early,
                          void *stream, A... a)
{
    cudaLaunchAttribute at[2] = {};
    cudaLaunchConfig_t c = {};

    if (cluster > 1) {
        at[c.numAttrs].id = cudaLaunchAttributeClusterDimension;
        at[c.numAttrs].val.clusterDim.x = 1;
        at[c.numAttrs].val.clusterDim.y = cluster;
        at[c.numAttrs++].val.clusterDim.z = 1;
    }
    if (early && early_served ()) {
        at[c.numAttrs].id = cudaLaunchAttributeProgrammaticStreamSerialization;
        at[c.numAttrs++].val.programmaticStreamSerializationAllowed = 1;
    }
    c.gridDim = grid;
    c.blockDim = dim3 (threads);
    c.dynamicSmemBytes = bytes;
    c.stream = (cudaStream_t)stream;
    c.attrs = at;
    (void)cudaLaunchKernelEx (&c, kernel, P (a)...);
}

#endif
