/* SPDX-License-Identifier: Apache-2.0
 * err.h - fill train_error_t. Inside libtrain only. */
#ifndef TRAIN_ERR_H
#define TRAIN_ERR_H

#include <train/status.h>

#include "plan/error.h"

/* err_set - write code and text; keeps errno; returns [code].
 *   err   NULL drops the text */
train_status_t err_set (train_error_t *err, train_status_t code,
                        const char *fmt, ...)
    __attribute__ ((format (printf, 3, 4)));

/* err_prefix - put "text: " before the text; returns err's code, or [code]
 * when err is NULL. */
train_status_t err_prefix (train_error_t *err, train_status_t code,
                           const char *fmt, ...)
    __attribute__ ((format (printf, 3, 4)));

/* err_from - take over an error of libplan. Returns its code. */
train_status_t err_from (train_error_t *err, const struct rv_error *from);

/* TRY - leave the function with any status but TRAIN_OK. */
#define TRY(expression)                                                        \
    do {                                                                       \
        train_status_t try_ = (expression);                                    \
        if (try_ != TRAIN_OK)                                                  \
            return try_;                                                       \
    } while (0)

#endif
