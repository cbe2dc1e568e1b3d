/* SPDX-License-Identifier: Apache-2.0
 * cmd_options.h - values of the commands' options. TRAIN_EINVAL names the option,
 * and what would work. */
#ifndef RV_TRAIN_CMD_OPTIONS_H
#define RV_TRAIN_CMD_OPTIONS_H

#include <getopt.h>
#include <stdbool.h>

#include <train.h>

/* cmd_whole - a whole number of [least] to [most]. */
train_status_t cmd_whole (const char *name, const char *text, long least,
                          long most, long *ret, train_error_t *err);
/* cmd_dtype - fp32, bf16 or fp16: how weights are kept. */
train_status_t cmd_dtype (const char *text, train_dtype_t *ret,
                          train_error_t *err);
/* cmd_device - auto, cpu or cuda: -1, 0, 1. */
train_status_t cmd_device (const char *text, int *ret, train_error_t *err);
/* cmd_on_gpu - of cmd_device's: auto is a GPU where there is one. */
bool cmd_on_gpu (int device);

/* cmd_options - give each of the long [options] to [take], with its val and what
 * stands behind it; then optind is the first argument that is none. Changes the
 * order of argv. Ends at the first failure of [take]. */
train_status_t cmd_options (int argc, char **argv, const struct option *options,
                            train_status_t (*take) (void *arg, int which,
                                                    const char *value,
                                                    train_error_t *err),
                            void *arg, train_error_t *err);

#endif
