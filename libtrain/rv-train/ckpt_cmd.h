/* SPDX-License-Identifier: Apache-2.0
 * ckpt_cmd.h - rv-train ckpt: list, show, verify and remove checkpoints */
#ifndef RV_TRAIN_CKPT_CMD_H
#define RV_TRAIN_CKPT_CMD_H

#include <stdbool.h>

#include <train/status.h>

/* ckpt_cmd
 *   argv   (argc) behind "ckpt": list|show|verify|prune, --json, --keep N, PATH
 *   ret_untold  --json was given, and there was no report
 * What is damaged is an error that names the file; the report is printed
 * before. TRAIN_EINVAL for what is not understood. */
train_status_t ckpt_cmd (int argc, char *const *argv, bool *ret_untold,
                         train_error_t *err);

#endif
