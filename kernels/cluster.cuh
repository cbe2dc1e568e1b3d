/* SPDX-License-Identifier: Apache-2.0
 * cluster.cuh - blocks of a cluster that read each other's shared memory. For the
 * kernels of compute capability 9.
 *
 * PTX ISA, "barrier.cluster" and "fence". A barrier that releases all memory waits
 * for every store and load under way on the GPU's behalf, a microsecond where
 * memory is busy; what is told here is of shared memory alone. */
#ifndef KERN_CLUSTER_CUH
#define KERN_CLUSTER_CUH

#include <stdint.h>

/* What this block wrote to its shared memory is seen by the cluster's others; of
 * every thread of all of them. */
static __device__ __forceinline__ void cluster_tell (void)
{
#if __CUDACC_VER_MAJOR__ * 100 + __CUDACC_VER_MINOR__ >= 1209
    asm volatile("fence.release.sync_restrict::shared::cta.cluster;\n"
                 "barrier.cluster.arrive.relaxed.aligned;\n"
                 "barrier.cluster.wait.aligned;" ::
                     : "memory");
#else
    asm volatile("barrier.cluster.arrive.aligned;\n"
                 "barrier.cluster.wait.aligned;" ::
                     : "memory");
#endif
}

/* Until the cluster's other blocks have read here: of what was read, all has been
 * used, and nothing that was written must be seen by then. */
static __device__ __forceinline__ void cluster_leave (void)
{
    asm volatile("barrier.cluster.arrive.relaxed.aligned;\n"
                 "barrier.cluster.wait.aligned;" ::
                     : "memory");
}

#if !defined(__CUDA_ARCH__) || __CUDA_ARCH__ >= 900
/* Four floats at [at], shared memory, of block [block] of the cluster. */
static __device__ __forceinline__ float4 cluster_four (const float *at,
                                                       int block)
{
    return *(const float4 *)__cluster_map_shared_rank (at, (unsigned)block);
}
#endif

#endif
