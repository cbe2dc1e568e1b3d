/* SPDX-License-Identifier: Apache-2.0
 * hopper_map.c - maps of tiles, by the driver's cuTensorMapEncodeTiled */
#include "hopper_map.h"

#include <cuda_runtime_api.h>

typedef CUresult (*encode_fn) (CUtensorMap *, CUtensorMapDataType, cuuint32_t,
                               void *, const cuuint64_t *, const cuuint64_t *,
                               const cuuint32_t *, const cuuint32_t *,
                               CUtensorMapInterleave, CUtensorMapSwizzle,
                               CUtensorMapL2promotion, CUtensorMapFloatOOBfill);

/* NULL: the driver has none. */
static encode_fn encoder (void)
{
    enum cudaDriverEntryPointQueryResult found;
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

bool hopper_map_here (void)
{
    return encoder () != NULL;
}

bool hopper_map (CUtensorMap *ret, const void *at, unsigned n,
                 const uint64_t *sizes, const uint64_t *strides,
                 const uint32_t *box)
{
    const uint32_t one[] = {1, 1, 1, 1, 1};
    encode_fn encode = encoder ();

    return encode
           && encode (ret, CU_TENSOR_MAP_DATA_TYPE_BFLOAT16, n,
                      (void *)(uintptr_t)at, sizes, strides, box, one,
                      CU_TENSOR_MAP_INTERLEAVE_NONE, CU_TENSOR_MAP_SWIZZLE_128B,
                      CU_TENSOR_MAP_L2_PROMOTION_L2_256B,
                      CU_TENSOR_MAP_FLOAT_OOB_FILL_NONE)
                  == CUDA_SUCCESS;
}
