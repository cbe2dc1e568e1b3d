/* SPDX-License-Identifier: Apache-2.0
 * optim_norm.c - the norm of gradients, and clipping by it */
#include <train/optim.h>

#include <math.h>

#include "err.h"
#include "kernels/kernels.h"

static const void *start (const DLTensor *t)
{
    return (const char *)t->data + t->byte_offset;
}

train_status_t train_norm (const DLTensor *t, double *ret_norm,
                           train_error_t *err)
{
    train_dtype_t dtype;
    double sum = 0;

    if (!t || !ret_norm || !train_tensor_is_compact (t))
        return err_set (err, TRAIN_EINVAL,
                        "norm: no result, or no compact tensor");
    if (t->device.device_type == kDLCUDA)
        return err_set (err, TRAIN_ENOTSUP, "norm: only of the host's memory");
    if (train_dtype_of (t->dtype, &dtype, NULL) != TRAIN_OK
        || (dtype != TRAIN_F32 && dtype != TRAIN_F64))
        return err_set (err, TRAIN_ENOTSUP, "norm: only of F32 and F64");
    if (dtype == TRAIN_F64)
        kern_sumsq_f64_host (&sum, start (t), (size_t)train_tensor_numel (t),
                             NULL);
    else
        kern_sumsq_f32_host (&sum, start (t), (size_t)train_tensor_numel (t),
                             NULL);
    *ret_norm = sqrt (sum);
    return TRAIN_OK;
}

double train_clip_scale (double norm, double max)
{
    double scale = max > 0 ? max / (norm + 1e-6) : 1;

    return scale < 1 ? scale : 1;
}
