/* SPDX-License-Identifier: Apache-2.0
 * elem.h - one number of an array of any of a decoder's types, of the host */
#ifndef TRAIN_ELEM_H
#define TRAIN_ELEM_H

#include <stddef.h>
#include <stdint.h>

#include <train/tensor.h>

#include "kernels/half.h"

static inline double elem_get (train_dtype_t dtype, const void *x, size_t k)
{
    switch (dtype) {
    case TRAIN_F64:
        return ((const double *)x)[k];
    case TRAIN_BF16:
        return (double)half_from_bf16 (((const uint16_t *)x)[k]);
    case TRAIN_F16:
        return (double)half_from_f16 (((const uint16_t *)x)[k]);
    default:
        return (double)((const float *)x)[k];
    }
}

/* To nearest; on its way to a half it is rounded to f32 first. */
static inline void elem_put (train_dtype_t dtype, void *y, size_t k, double x)
{
    switch (dtype) {
    case TRAIN_F64:
        ((double *)y)[k] = x;
        break;
    case TRAIN_BF16:
        ((uint16_t *)y)[k] = half_to_bf16 ((float)x);
        break;
    case TRAIN_F16:
        ((uint16_t *)y)[k] = half_to_f16 ((float)x);
        break;
    default:
        ((float *)y)[k] = (float)x;
    }
}

#endif
