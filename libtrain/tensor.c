/* SPDX-License-Identifier: Apache-2.0
 * tensor.c - views of memory as DLTensor, and the table of element types */
#include <train/tensor.h>

#include "err.h"

#define DLPACK_BFLOAT 4 /* kDLBfloat; Debian 12's dlpack.h 0.6 has it */

static const struct {
    const char *name;
    size_t size;
    uint8_t code, bits;
} dtypes[TRAIN_N_DTYPES] = {
    [TRAIN_F32] = {"F32", 4, kDLFloat, 32},
    [TRAIN_F64] = {"F64", 8, kDLFloat, 64},
    [TRAIN_BF16] = {"BF16", 2, DLPACK_BFLOAT, 16},
    [TRAIN_F16] = {"F16", 2, kDLFloat, 16},
    [TRAIN_I64] = {"I64", 8, kDLInt, 64},
    [TRAIN_I32] = {"I32", 4, kDLInt, 32},
    [TRAIN_U8] = {"U8", 1, kDLUInt, 8},
};

static bool known (train_dtype_t dtype)
{
    return (unsigned)dtype < TRAIN_N_DTYPES;
}

size_t train_dtype_size (train_dtype_t dtype)
{
    return known (dtype) ? dtypes[dtype].size : 0;
}

const char *train_dtype_name (train_dtype_t dtype)
{
    return known (dtype) ? dtypes[dtype].name : "unknown";
}

DLDataType train_dtype_dlpack (train_dtype_t dtype)
{
    DLDataType type = {0, 0, 0};

    if (known (dtype))
        type = (DLDataType){dtypes[dtype].code, dtypes[dtype].bits, 1};
    return type;
}

train_status_t train_dtype_of (DLDataType type, train_dtype_t *ret_dtype,
                               train_error_t *err)
{
    for (int i = 0; i < TRAIN_N_DTYPES; i++) {
        if (type.lanes == 1 && type.code == dtypes[i].code
            && type.bits == dtypes[i].bits) {
            *ret_dtype = (train_dtype_t)i;
            return TRAIN_OK;
        }
    }
    return err_set (err, TRAIN_ENOTSUP,
                    "element type (DLPack code %d, bits %d, lanes %d) is not "
                    "one of libtrain's",
                    type.code, type.bits, type.lanes);
}

train_status_t train_tensor_view (train_tensor_t *ret, void *data,
                                  train_dtype_t dtype, int ndim,
                                  const int64_t *shape, train_error_t *err)
{
    int64_t stride = 1, n = 1;

    if (!ret || !known (dtype))
        return err_set (err, TRAIN_EINVAL, "tensor: no view or unknown dtype");
    if (ndim < 0 || ndim > TRAIN_MAX_DIMS)
        return err_set (err, TRAIN_EINVAL, "tensor: %d dimensions, not 0..%d",
                        ndim, TRAIN_MAX_DIMS);
    for (int i = 0; i < ndim; i++) {
        if (shape[i] < 0 || __builtin_mul_overflow (n, shape[i], &n)
            || n > INT64_MAX / 8)
            return err_set (err, TRAIN_EINVAL,
                            "tensor: size %lld of dimension %d is negative or "
                            "too large",
                            (long long)shape[i], i);
    }
    if (!data && n > 0)
        return err_set (err, TRAIN_EINVAL, "tensor: no data");
    for (int i = ndim - 1; i >= 0; i--) {
        ret->shape[i] = shape[i];
        ret->strides[i] = stride;
        stride *= shape[i] > 0 ? shape[i] : 1;
    }
    ret->t = (DLTensor){
        .data = data,
        .ndim = ndim,
        .dtype = train_dtype_dlpack (dtype),
        .shape = ret->shape,
        .strides = ret->strides,
        .byte_offset = 0,
    };
    ret->t.device.device_type = kDLCPU;
    ret->t.device.device_id = 0;
    return TRAIN_OK;
}

int64_t train_tensor_numel (const DLTensor *t)
{
    int64_t n = 1;

    for (int i = 0; i < t->ndim; i++)
        n *= t->shape[i];
    return n;
}

size_t train_tensor_bytes (const DLTensor *t)
{
    return (size_t)train_tensor_numel (t) * (t->dtype.bits / 8)
           * t->dtype.lanes;
}

/* Sizes whose product is a number of elements, as train_tensor_view has them. */
static bool is_sized (const DLTensor *t)
{
    int64_t n = 1;

    for (int i = 0; i < t->ndim; i++)
        if (t->shape[i] < 0 || __builtin_mul_overflow (n, t->shape[i], &n)
            || n > INT64_MAX / 8)
            return false;
    return true;
}

bool train_tensor_is_compact (const DLTensor *t)
{
    int64_t want = 1;

    if (!is_sized (t))
        return false;
    for (int i = t->ndim - 1; i >= 0 && t->strides; i--) {
        if (t->shape[i] != 1 && t->strides[i] != want)
            return false;
        if (__builtin_mul_overflow (want, t->shape[i], &want))
            return false;
    }
    return true;
}
