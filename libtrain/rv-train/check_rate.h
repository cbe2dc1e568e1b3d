/* SPDX-License-Identifier: Apache-2.0
 * check_rate.h - devices that rv-train check knows, and the operations of a
 * model. */
#ifndef RV_TRAIN_CHECK_RATE_H
#define RV_TRAIN_CHECK_RATE_H

#include <stdbool.h>
#include <stddef.h>

#include <train.h>

/* Thought of a process that trains: context, cuBLASLt, cuDNN. Not measured. */
#define CHECK_CUDA_BYTES ((size_t)640 << 20)

struct check_device {
    const char *name;
    bool gpu;
    double half, single; /* TFLOP/s that training is thought to reach */
    size_t bytes;        /* of its memory; 0: not known */
};

/* check_device_find - by name: cpu, a100, h100, h200. TRAIN_EINVAL lists them;
 * TRAIN_ENOTSUP: a GPU, and the build knows nothing of its layouts. */
train_status_t check_device_find (const char *name,
                                  const struct check_device **ret,
                                  train_error_t *err);
/* check_rate - TFLOP/s of a rank on it, of passes in [dtype]. */
double check_rate (const struct check_device *device, train_dtype_t dtype);

/* check_flop - operations of forward and backward for one token of a sequence of
 * [seq]: six for each weight that multiplies it (Kaplan and others 2020,
 * "Scaling laws for neural language models", 2.1), attention over half the
 * sequence, and what is made again. */
double check_flop (const train_decoder_config_t *model, int seq);

#endif
