/* SPDX-License-Identifier: Apache-2.0
 * attention_hopper_bwd.cu - causal attention in bf16 and f16, heads of 64, on
 * sm_90a: backward
 *
 * Twice over the logits, as attention_half_bwd.cu: once with a block of keys
 * held (dk, dv: the queries of every head that reads them in rising order),
 * once with a block of queries held (dq). So no two blocks add to one sum, and
 * no group of warps waits for what another made: each has 64 rows of the held
 * side, and hands its logits' gradients to the next products in registers.
 * These are issued together with the products of the logits after, of the next
 * piece at the end.
 *
 * Sources: Dao 2023, arXiv:2307.08691; warps that bring and that compute, and
 * their turns: Shah et al. 2024, arXiv:2407.08608. */
#include "kernels/attention_hopper.h"

#include "kernels/attention_hopper_keys.cuh"
#include "kernels/attention_hopper_queries.cuh"

#define FILL_ROWS 4 /* of a thread of stats_fill */

/* A thread's eighth of a row's sum of dy y. */
template <class E>
static __device__ __forceinline__ float delta_part (const uint4 &dy,
                                                    const uint4 &y)
{
    const uint32_t *u = (const uint32_t *)&dy, *v = (const uint32_t *)&y;
    float sum = 0;

#pragma unroll
    for (int k = 0; k < 4; k++) {
        float2 f = E::floats (u[k]), g = E::floats (v[k]);

        sum += f.x * g.x + f.y * g.y;
    }
    return sum;
}

/* stats of every row of padded T, and the counters; eight threads a row. */
template <class E>
static __global__ void __launch_bounds__ (256)
    stats_fill (struct hopper_args a, const uint16_t *dy, const uint16_t *y,
                const float *lse)
{
    size_t padded = PAD (a.T), T = (size_t)a.T, H = (size_t)a.H;
    size_t first = (size_t)blockIdx.x * 32 * FILL_ROWS + threadIdx.x / 8;
    uint4 p[FILL_ROWS] = {}, q[FILL_ROWS] = {};

    if (blockIdx.x == 0 && threadIdx.x < 2)
        a.counter[threadIdx.x] = 0;
#pragma unroll
    for (int k = 0; k < FILL_ROWS; k++) {
        size_t r = first + (size_t)k * 32, t = r / H % padded;
        size_t b = r / H / padded;
        size_t i = ((b * T + t) * H + r % H) * 8 + threadIdx.x % 8;

        if (b < (size_t)a.B && t < T) {
            p[k] = ((const uint4 *)dy)[i];
            q[k] = ((const uint4 *)y)[i];
        }
    }
#pragma unroll
    for (int k = 0; k < FILL_ROWS; k++) {
        size_t r = first + (size_t)k * 32, t = r / H % padded;
        size_t b = r / H / padded, head = b * H + r % H;
        float sum = delta_part<E> (p[k], q[k]);
        float *at = a.stats + (head * padded + t / 2 * 2) * 2 + t % 2;

        for (int i = 4; i > 0; i /= 2)
            sum += __shfl_xor_sync (~0u, sum, i);
        if (threadIdx.x % 8 != 0 || b >= (size_t)a.B)
            continue;
        at[0] = t < T ? lse[head * T + t] * LOG2E : 0;
        at[2] = sum;
    }
}

typedef CUresult (*encode_fn) (CUtensorMap *, CUtensorMapDataType, cuuint32_t,
                               void *, const cuuint64_t *, const cuuint64_t *,
                               const cuuint32_t *, const cuuint32_t *,
                               CUtensorMapInterleave, CUtensorMapSwizzle,
                               CUtensorMapL2promotion, CUtensorMapFloatOOBfill);

/* The driver's cuTensorMapEncodeTiled; NULL: it has none. */
static encode_fn encoder (void)
{
    cudaDriverEntryPointQueryResult found;
    void *at = NULL;

#if CUDART_VERSION >= 12050
    if (cudaGetDriverEntryPointByVersion ("cuTensorMapEncodeTiled", &at, 12000,
                                          cudaEnableDefault, &found)
        == cudaSuccess)
#else
    if (cudaGetDriverEntryPoint ("cuTensorMapEncodeTiled", &at,
                                 cudaEnableDefault, &found)
        == cudaSuccess)
#endif
        return found == cudaDriverEntryPointSuccess ? (encode_fn)at : NULL;
    (void)cudaGetLastError ();
    return NULL;
}

/* Tiles of (B,T,heads,64), of any type of two bytes; false: the driver refuses.
 */
static bool map_make (CUtensorMap *ret, encode_fn encode, const void *at,
                      size_t B, size_t T, size_t heads)
{
    const cuuint64_t sizes[] = {TILE, heads, T, B};
    const cuuint64_t strides[] = {TILE * 2, heads * TILE * 2,
                                  T * heads * TILE * 2};
    const cuuint32_t box[] = {TILE, 1, TILE, 1}, one[] = {1, 1, 1, 1};

    return encode (ret, CU_TENSOR_MAP_DATA_TYPE_BFLOAT16, 4,
                   (void *)(uintptr_t)at, sizes, strides, box, one,
                   CU_TENSOR_MAP_INTERLEAVE_NONE, CU_TENSOR_MAP_SWIZZLE_128B,
                   CU_TENSOR_MAP_L2_PROMOTION_L2_256B,
                   CU_TENSOR_MAP_FLOAT_OOB_FILL_NONE)
           == CUDA_SUCCESS;
}

static __device__ int served = SERVED;

bool kern_attention_hopper_served (void)
{
    int is = 0;

    if (cudaMemcpyFromSymbol (&is, served, sizeof (is)) == cudaSuccess)
        return is != 0 && encoder ();
    (void)cudaGetLastError ();
    return false;
}

#define COUNTERS 256 /* bytes of scratch before the stats */

size_t kern_attention_hopper_scratch (size_t B, size_t T, size_t H)
{
    return COUNTERS + B * H * PAD (T) * 2 * sizeof (float);
}

template <class E>
static bool run_bwd (struct hopper_args a, const uint16_t *dy,
                     const uint16_t *y, const float *lse, const uint16_t *qkv,
                     void *scratch, cudaStream_t stream)
{
    size_t B = (size_t)a.B, T = (size_t)a.T, H = (size_t)a.H, G = (size_t)a.G;
    size_t rows = B * H * PAD (T), each = 32 * FILL_ROWS;
    encode_fn encode = encoder ();
    struct hopper_maps maps;

    if (!encode || !map_make (&maps.qkv, encode, qkv, B, T, H + 2 * G)
        || !map_make (&maps.dy, encode, dy, B, T, H))
        return false;
    a.counter = (int *)scratch;
    a.stats = (float *)((char *)scratch + COUNTERS);
    stats_fill<E><<<(unsigned)((rows + each - 1) / each), 256, 0, stream>>> (
        a, dy, y, lse);
    launch (bwd_keys<E>, keys_room::bytes, maps, a, a.B * a.G, stream);
    a.counter++;
    launch (bwd_queries<E>, queries_room::bytes, maps, a, a.B * a.H, stream);
    return true;
}

#define BACKWARD(name, type)                                                   \
    bool kern_attention_hopper_bwd_##name##_cuda (                             \
        uint16_t *dqkv, const uint16_t *dy, const uint16_t *y,                 \
        const float *lse, const uint16_t *qkv, void *scratch, size_t B,        \
        size_t T, size_t H, size_t G, double scale, void *stream)              \
    {                                                                          \
        struct hopper_args a = {};                                             \
                                                                               \
        a.out = dqkv;                                                          \
        a.B = (int)B;                                                          \
        a.T = (int)T;                                                          \
        a.H = (int)H;                                                          \
        a.G = (int)G;                                                          \
        a.scale = (float)scale;                                                \
        return run_bwd<type> (a, dy, y, lse, qkv, scratch,                     \
                              (cudaStream_t)stream);                           \
    }

BACKWARD (bf16, bf16)
BACKWARD (f16, f16)
