/* SPDX-License-Identifier: Apache-2.0
 * ckpt_cmd.h - rv-train ckpt: list a checkpoint and verify its sums */
#ifndef RV_TRAIN_CKPT_CMD_H
#define RV_TRAIN_CKPT_CMD_H

#include <train/status.h>

/* ckpt_cmd - list what [path] has: a checkpoint, the latest of a folder of
 * them, or one .safetensors file; then verify every sum there is. What is
 * damaged is an error that names the file; the list is printed before. */
train_status_t ckpt_cmd (const char *path, train_error_t *err);

#endif
