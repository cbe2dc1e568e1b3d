/* SPDX-License-Identifier: Apache-2.0
 * train/safetensors.h - read and write .safetensors files.
 *
 * A file is mapped, never copied; its header is checked completely before any
 * tensor is handed out (huggingface/safetensors README, format section). The
 * file carries no device. Writing goes to a temporary file beside the target,
 * then fsync, rename and fsync of the folder, so that a reader, and a mapping
 * of the old file, never see half of it. */
#ifndef TRAIN_SAFETENSORS_H
#define TRAIN_SAFETENSORS_H

#include <stddef.h>
#include <stdint.h>

#include <train/status.h>
#include <train/tensor.h>

#ifdef __cplusplus
extern "C" {
#endif

typedef struct train_safetensors train_safetensors_t;

/* One tensor of a file, or to be written to one. */
typedef struct train_st_entry {
    const char *name; /* UTF-8; not "__metadata__" */
    train_dtype_t dtype;
    int ndim;
    int64_t shape[TRAIN_MAX_DIMS];
    const void *data; /* reading: inside the mapping; not aligned beyond 8 */
    size_t bytes;     /* reading: written; writing: ignored */
} train_st_entry_t;

typedef struct train_st_meta {
    const char *key;
    const char *value;
} train_st_meta_t;

/* train_safetensors_open - map and check [path].
 * TRAIN_ENOTFOUND, TRAIN_EIO; TRAIN_EFORMAT names what is wrong and where;
 * TRAIN_ENOTSUP for a dtype of the format that libtrain has not (named). */
train_status_t train_safetensors_open (const char *path,
                                       train_safetensors_t **ret_file,
                                       train_error_t *err);
void train_safetensors_close (train_safetensors_t *file); /* NULL is fine */

/* Entries in the order of their data; they live with [file]. */
size_t train_safetensors_count (const train_safetensors_t *file);
const train_st_entry_t *train_safetensors_entry (
    const train_safetensors_t *file, size_t index);
/* NULL when there is no tensor of that name. */
const train_st_entry_t *train_safetensors_find (const train_safetensors_t *file,
                                                const char *name);
/* Value of a __metadata__ key, or NULL. */
const char *train_safetensors_meta (const train_safetensors_t *file,
                                    const char *key);

/* train_safetensors_write - replace [path] by a file of these tensors.
 *   entries   (n) written sorted by dtype size (largest first), then name;
 *             two of one name: TRAIN_EINVAL; n may be 0
 *   meta      (n_meta) may be NULL when n_meta is 0
 * On failure [path] is as it was. */
train_status_t train_safetensors_write (const char *path,
                                        const train_st_entry_t *entries,
                                        size_t n, const train_st_meta_t *meta,
                                        size_t n_meta, train_error_t *err);

#ifdef __cplusplus
}
#endif
#endif
