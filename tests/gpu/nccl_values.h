/* SPDX-License-Identifier: Apache-2.0
 * nccl_values.h - what the ranks give, in every type, and what comes of it */
#ifndef TESTS_GPU_NCCL_VALUES_H
#define TESTS_GPU_NCCL_VALUES_H

#include <math.h>
#include <string.h>

#include <train/group.h>

#include "kernels/half.h"
#include "nccl_ranks.h"

static inline void on_gpu (train_tensor_t *t, void *data, train_dtype_t dtype,
                           size_t n, int gpu)
{
    int64_t shape[1] = {(int64_t)n};

    train_tensor_view (t, data, dtype, 1, shape, NULL);
    t->t.device.device_type = kDLCUDA;
    t->t.device.device_id = gpu;
}

static inline void put (char *data, train_dtype_t dtype, size_t i, double x)
{
    float f = (float)x;
    uint16_t h = dtype == TRAIN_BF16 ? half_to_bf16 (f) : half_to_f16 (f);
    int64_t l = (int64_t)x;
    int32_t w = (int32_t)x;
    const void *from = dtype == TRAIN_F32   ? (void *)&f
                       : dtype == TRAIN_F64 ? (void *)&x
                       : dtype == TRAIN_I64 ? (void *)&l
                       : dtype == TRAIN_I32 ? (void *)&w
                                            : (void *)&h;
    size_t size = train_dtype_size (dtype);

    memcpy (data + i * size, from, size);
}

static inline double get (const char *data, train_dtype_t dtype, size_t i)
{
    const char *at = data + i * train_dtype_size (dtype);
    uint16_t h;
    float f;
    double d;
    int64_t l;
    int32_t w;

    switch (dtype) {
    case TRAIN_F32:
        memcpy (&f, at, sizeof (f));
        return f;
    case TRAIN_F64:
        memcpy (&d, at, sizeof (d));
        return d;
    case TRAIN_I64:
        memcpy (&l, at, sizeof (l));
        return (double)l;
    case TRAIN_I32:
        memcpy (&w, at, sizeof (w));
        return w;
    default:
        memcpy (&h, at, sizeof (h));
        return dtype == TRAIN_BF16 ? half_from_bf16 (h) : half_from_f16 (h);
    }
}

static inline double given (int rank, size_t i)
{
    return (double)(rank + 1) + (double)(i % 7);
}

static inline double combined (size_t i, train_op_t op)
{
    double x = given (0, i);

    for (int r = 1; r < ranks; r++) {
        double y = given (r, i);

        x = op == TRAIN_MIN    ? fmin (x, y)
            : op == TRAIN_MAX  ? fmax (x, y)
            : op == TRAIN_PROD ? x * y
                               : x + y;
    }
    return op == TRAIN_AVG ? x / ranks : x;
}

#endif
