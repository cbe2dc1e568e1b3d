/* SPDX-License-Identifier: Apache-2.0
 * cmd_options.h - values of the commands' options. TRAIN_EINVAL names the option,
 * and what would work. */
#ifndef RV_TRAIN_CMD_OPTIONS_H
#define RV_TRAIN_CMD_OPTIONS_H

#include <train.h>

/* cmd_whole - a whole number of [least] to [most]. */
train_status_t cmd_whole (const char *name, const char *text, long least,
                          long most, long *ret, train_error_t *err);
/* cmd_dtype - fp32, bf16 or fp16: how weights are kept. */
train_status_t cmd_dtype (const char *text, train_dtype_t *ret,
                          train_error_t *err);
/* cmd_device - auto, cpu or cuda: -1, 0, 1. */
train_status_t cmd_device (const char *text, int *ret, train_error_t *err);

#endif
