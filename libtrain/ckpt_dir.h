/* SPDX-License-Identifier: Apache-2.0
 * ckpt_dir.h - a folder of checkpoints: names, renames, `latest`. Inside
 * libtrain only; knows nothing of what a checkpoint holds. */
#ifndef TRAIN_CKPT_DIR_H
#define TRAIN_CKPT_DIR_H

#include <stdint.h>

#include <train/status.h>

/* ckpt_dir_begin - make [dir] if needed, remove what dead writers left, and
 * make an empty temporary folder in it for step [step].
 *   ret_temp   its path, malloc'ed */
train_status_t ckpt_dir_begin (const char *dir, int64_t step, char **ret_temp,
                               train_error_t *err);

/* ckpt_dir_commit - [temp] becomes DIR/step-N and the latest; then all but the
 * [keep] with the most steps (this one among them) are removed. */
train_status_t ckpt_dir_commit (const char *dir, int64_t step, const char *temp,
                                int keep, train_error_t *err);

#endif
