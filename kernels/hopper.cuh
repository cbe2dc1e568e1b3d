/* SPDX-License-Identifier: Apache-2.0
 * hopper.cuh - what kernels on sm_90a are made of: barriers, the order of products
 * that the tensor cores read themselves, and registers that groups of warps hand
 * each other. For attention_hopper.cuh and gemm_hopper.cuh.
 *
 * PTX ISA: "mbarrier", "Asynchronous Warpgroup Level Matrix Multiply-Accumulate
 * Instructions", "setmaxnreg". */
#ifndef KERN_HOPPER_CUH
#define KERN_HOPPER_CUH

#include <cuda.h>
#include <stdint.h>

#define GROUP 128 /* threads of a warp group */

/* The instructions are there for sm_90a alone. */
#if !defined(__CUDA_ARCH__) || defined(__CUDA_ARCH_FEAT_SM90_ALL)
#define SERVED 1
#else
#define SERVED 0
#endif

/* elsewhere nothing uses what is here */
#if !SERVED
#pragma nv_diag_suppress 177
#endif

static __device__ __forceinline__ uint32_t shared_at (const void *p)
{
    return (uint32_t)__cvta_generic_to_shared (p);
}

static __device__ __forceinline__ void barrier_make (uint32_t at, int arrivals)
{
    asm volatile("mbarrier.init.shared::cta.b64 [%0], %1;" ::"r"(at),
                 "r"(arrivals)
                 : "memory");
}

static __device__ __forceinline__ void barrier_arrive (uint32_t at)
{
    asm volatile("mbarrier.arrive.shared::cta.b64 _, [%0];" ::"r"(at)
                 : "memory");
}

/* Arrive, and wait for [bytes] of copies too. */
static __device__ __forceinline__ void barrier_expect (uint32_t at, int bytes)
{
    asm volatile(
        "mbarrier.arrive.expect_tx.shared::cta.b64 _, [%0], %1;" ::"r"(at),
        "r"(bytes)
        : "memory");
}

/* Until the phase of [parity] is over. */
static __device__ __forceinline__ void barrier_wait (uint32_t at,
                                                     uint32_t parity)
{
    asm volatile("{\n"
                 ".reg .pred done;\n"
                 "again:\n"
                 "mbarrier.try_wait.parity.shared::cta.b64 done, [%0], %1;\n"
                 "@done bra over;\n"
                 "bra again;\n"
                 "over:\n"
                 "}" ::"r"(at),
                 "r"(parity)
                 : "memory");
}

static __device__ __forceinline__ void products_fence (void)
{
    asm volatile("wgmma.fence.sync.aligned;" ::: "memory");
}

static __device__ __forceinline__ void products_commit (void)
{
    asm volatile("wgmma.commit_group.sync.aligned;" ::: "memory");
}

template <int N> static __device__ __forceinline__ void products_wait (void)
{
    asm volatile("wgmma.wait_group.sync.aligned %0;" ::"n"(N) : "memory");
}

/* What the compiler may not move across this place. */
template <int N> static __device__ __forceinline__ void keep (float (&c)[N])
{
#pragma unroll
    for (int i = 0; i < N; i++)
        asm volatile("" : "+f"(c[i])::"memory");
}

template <int N> static __device__ __forceinline__ void keep (uint32_t (&c)[N])
{
#pragma unroll
    for (int i = 0; i < N; i++)
        asm volatile("" : "+r"(c[i])::"memory");
}

#define SUMS8(c, i)                                                            \
    "+f"(c[i]), "+f"(c[i + 1]), "+f"(c[i + 2]), "+f"(c[i + 3]),                \
        "+f"(c[i + 4]), "+f"(c[i + 5]), "+f"(c[i + 6]), "+f"(c[i + 7])
#define SUMS32(c, i)                                                           \
    SUMS8 (c, i), SUMS8 (c, i + 8), SUMS8 (c, i + 16), SUMS8 (c, i + 24)

/* Registers that the warps of a group may hold from here on. */
template <int N> static __device__ __forceinline__ void registers_more (void)
{
    asm volatile("setmaxnreg.inc.sync.aligned.u32 %0;" ::"n"(N));
}

template <int N> static __device__ __forceinline__ void registers_fewer (void)
{
    asm volatile("setmaxnreg.dec.sync.aligned.u32 %0;" ::"n"(N));
}

#endif
