/* SPDX-License-Identifier: Apache-2.0
 * decode_mma.cuh - the tensor cores' 16 x 8 x 16 product of bf16 and f16 */
#ifndef KERN_DECODE_MMA_CUH
#define KERN_DECODE_MMA_CUH

#include "kernels/layers_cuda.h"

/* c += a b, of a 16 x 16 matrix whose lower 8 rows are 0: the upper 8 rows. */
template <typename T>
static __device__ void mma_top (float *c, uint32_t a0, uint32_t a2, uint32_t b0,
                                uint32_t b1);

#define MMA_TOP(type, name)                                                    \
    template <>                                                                \
    __device__ void mma_top<type> (float *c, uint32_t a0, uint32_t a2,         \
                                   uint32_t b0, uint32_t b1)                   \
    {                                                                          \
        [[maybe_unused]] float low, lower;                                     \
                                                                               \
        asm("mma.sync.aligned.m16n8k16.row.col.f32." name "." name ".f32 "     \
            "{%0,%1,%2,%3}, {%4,%5,%6,%5}, {%7,%8}, {%0,%1,%9,%9};"            \
            : "+f"(c[0]), "+f"(c[1]), "=f"(low), "=f"(lower)                   \
            : "r"(a0), "r"(0), "r"(a2), "r"(b0), "r"(b1), "f"(0.0f));          \
    }

MMA_TOP (as_bf16, "bf16")
MMA_TOP (as_f16, "f16")

#endif
