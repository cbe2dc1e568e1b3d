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

/* Four floats at [at], a shared address, of block [block] of the cluster. */
static __device__ __forceinline__ float4 cluster_four (uint32_t at, int block)
{
    uint32_t there;
    float4 x;

    asm volatile("mapa.shared::cluster.u32 %0, %1, %2;"
                 : "=r"(there)
                 : "r"(at), "r"(block));
    asm volatile("ld.shared::cluster.v4.f32 {%0, %1, %2, %3}, [%4];"
                 : "=f"(x.x), "=f"(x.y), "=f"(x.z), "=f"(x.w)
                 : "r"(there));
    return x;
}

#endif
