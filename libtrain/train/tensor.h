/* SPDX-License-Identifier: Apache-2.0
 * train/tensor.h - tensors are DLTensor views; the element types of libtrain.
 *
 * A view owns nothing: data, shape and strides belong to the caller. Shapes
 * and strides are in elements, strides are always written (never NULL) by
 * libtrain and may be NULL (compact, row-major) where it reads. */
#ifndef TRAIN_TENSOR_H
#define TRAIN_TENSOR_H

#include <dlpack/dlpack.h>
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include <train/status.h>

#ifdef __cplusplus
extern "C" {
#endif

/* Our own ids, since DLPack lacks some types that files have. */
typedef enum train_dtype {
    TRAIN_F32 = 0,
    TRAIN_F64 = 1, /* host only */
    TRAIN_BF16 = 2,
    TRAIN_F16 = 3,
    TRAIN_I64 = 4,
    TRAIN_I32 = 5,
    TRAIN_U8 = 6,
} train_dtype_t;

#define TRAIN_N_DTYPES 7
#define TRAIN_MAX_DIMS 8

size_t train_dtype_size (train_dtype_t dtype);      /* bytes; 0 if unknown */
const char *train_dtype_name (train_dtype_t dtype); /* "F32"; safetensors' */
DLDataType train_dtype_dlpack (train_dtype_t dtype);
/* train_dtype_of - our id of a DLPack type (lanes 1).
 * TRAIN_ENOTSUP names the type. */
train_status_t train_dtype_of (DLDataType type, train_dtype_t *ret_dtype,
                               train_error_t *err);

/* A tensor with room for its own shape and strides; [t] points into it, so
 * copy it with train_tensor_view only. */
typedef struct train_tensor {
    DLTensor t;
    int64_t shape[TRAIN_MAX_DIMS];
    int64_t strides[TRAIN_MAX_DIMS];
} train_tensor_t;

/* train_tensor_view - a compact row-major host view of [data].
 *   ret     written; its pointers point into *ret
 *   data    borrowed; NULL only when the tensor has no element
 *   shape   (ndim) copied, each >= 0; ndim 0..TRAIN_MAX_DIMS
 * TRAIN_EINVAL on a negative size, too many dimensions or overflow. */
train_status_t train_tensor_view (train_tensor_t *ret, void *data,
                                  train_dtype_t dtype, int ndim,
                                  const int64_t *shape, train_error_t *err);

int64_t train_tensor_numel (const DLTensor *t);
size_t train_tensor_bytes (const DLTensor *t); /* numel * element size */
/* Row-major, without gaps; no size below 0, and no more elements than
 * train_tensor_view takes. */
bool train_tensor_is_compact (const DLTensor *t);

#ifdef __cplusplus
}
#endif
#endif
