/* SPDX-License-Identifier: Apache-2.0
 * halves.h - bf16 or f16 in a backend's memory, f32 in the host's. Inside libtrain
 * only. */
#ifndef TRAIN_HALVES_H
#define TRAIN_HALVES_H

#include <stddef.h>
#include <stdint.h>

#include "backend.h"

struct halves {
    const struct backend_ops *ops;
    void *
        stream; /* whose order the copies have; they have ended at the return */
    train_dtype_t dtype; /* TRAIN_BF16 or TRAIN_F16 */
    uint16_t *at;
};

/* halves_put - the first [n] of them from [wide] (n), rounded to nearest.
 * TRAIN_ENOMEM; the backend's errors. */
train_status_t halves_put (const struct halves *to, const float *wide, size_t n,
                           train_error_t *err);
/* halves_get - [n] of them into [wide] (n); exact. */
train_status_t halves_get (const struct halves *from, float *wide, size_t n,
                           train_error_t *err);

#endif
