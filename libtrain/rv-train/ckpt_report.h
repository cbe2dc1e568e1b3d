/* SPDX-License-Identifier: Apache-2.0
 * ckpt_report.h - what rv-train ckpt says of checkpoints, as text and JSON */
#ifndef RV_TRAIN_CKPT_REPORT_H
#define RV_TRAIN_CKPT_REPORT_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include <train/ckpt_pieces.h>

/* A checkpoint that was looked at. */
struct ckpt_seen {
    char *path;
    int64_t step;
    train_ckpt_t *ckpt; /* NULL: it cannot be opened */
    train_error_t damage;
    bool latest, verified, removed;
};

/* One line each. */
void ckpt_report_list (const struct ckpt_seen *seen, size_t n);
/* All of one: state, files, tensors. */
void ckpt_report_whole (const struct ckpt_seen *seen);
/* One object of schema rv.ckpt/1. Returns false for want of memory.
 *   tensors   with files and tensors of each */
bool ckpt_report_json (const char *action, const struct ckpt_seen *seen,
                       size_t n, bool tensors);
/* One object of schema rv.error/1, where none of rv.ckpt/1 can be. */
void ckpt_report_error (int status, const char *message);
/* One .safetensors file. */
train_status_t ckpt_report_file (const char *path, train_error_t *err);

#endif
