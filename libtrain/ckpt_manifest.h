/* SPDX-License-Identifier: Apache-2.0
 * ckpt_manifest.h - checkpoint.json: what is in a checkpoint, and where.
 * Inside libtrain only.
 *
 * It is made as a JSON tree: a head, then the files and pieces of each rank.
 * Reading checks it completely, so a manifest is read back before it is
 * published. */
#ifndef TRAIN_CKPT_MANIFEST_H
#define TRAIN_CKPT_MANIFEST_H

#include <jansson.h>

#include <train/ckpt_pieces.h>

#include "ckpt_ranges.h"

#define CKPT_MANIFEST     "checkpoint.json"
#define CKPT_FORMAT       "rv.checkpoint/2"
#define CKPT_MANIFEST_MAX ((size_t)1 << 30)

/* Where the bytes of a range are. Strings are the tree's. */
struct ckpt_stored {
    size_t file;    /* index */
    const char *as; /* name in that file */
    uint64_t sum;   /* XXH3, 64 bits */
    bool good;      /* was summed since the checkpoint was opened */
};

struct ckpt_tensor {
    const char *name;
    train_dtype_t dtype;
    int ndim;
    int64_t shape[TRAIN_MAX_DIMS], numel;
    struct ckpt_range *range;   /* (n) sorted, none empty, without fault */
    struct ckpt_stored *stored; /* (n) */
    size_t n;
};

struct ckpt_file {
    const char *name;
    int64_t bytes;
    uint64_t sum; /* ckpt_file_sum */
    bool good;    /* was summed since the checkpoint was opened */
};

struct ckpt_manifest {
    json_t *root, *state, *bytes; /* the last two are the root's */
    int64_t step;
    int world;
    const char *strategy, *device, *library;
    struct ckpt_file *file;     /* (n_files) sorted by name */
    struct ckpt_tensor *tensor; /* (n_tensors) sorted by name */
    size_t n_files, n_tensors;
};

/* ckpt_manifest_head - a tree without files and tensors; NULL [opts]: that of a
 * rank's part. TRAIN_EINVAL: not UTF-8, a key twice. */
train_status_t ckpt_manifest_head (const train_ckpt_options_t *opts, int world,
                                   json_t **ret_root, train_error_t *err);

/* ckpt_manifest_add_file, _add_piece - to a tree. TRAIN_EINVAL: a rank before
 * gave this tensor another type or shape. */
train_status_t ckpt_manifest_add_file (json_t *root, const char *name,
                                       int64_t bytes, uint64_t sum,
                                       train_error_t *err);
train_status_t ckpt_manifest_add_piece (json_t *root,
                                        const train_ckpt_piece_t *piece,
                                        const char *file, const char *as,
                                        uint64_t sum, train_error_t *err);
/* ckpt_manifest_merge - files and pieces of [part], too. TRAIN_EINVAL as above;
 * TRAIN_EFORMAT when it is no part. */
train_status_t ckpt_manifest_merge (json_t *root, json_t *part,
                                    train_error_t *err);

/* ckpt_manifest_text - add the sum of it all, and give the JSON, malloc'ed. */
train_status_t ckpt_manifest_text (json_t *root, char **ret_text,
                                   train_error_t *err);

/* ckpt_manifest_parse - check a text completely.
 *   m   written on success; ckpt_manifest_fini
 * TRAIN_EFORMAT names what is wrong or lacks; TRAIN_ECORRUPT: not its sum. */
train_status_t ckpt_manifest_parse (const char *text, size_t n,
                                    struct ckpt_manifest *m,
                                    train_error_t *err);
void ckpt_manifest_fini (struct ckpt_manifest *m);

/* ckpt_manifest_find - NULL when there is no such tensor. */
struct ckpt_tensor *ckpt_manifest_find (const struct ckpt_manifest *m,
                                        const char *name);

/* ckpt_file_sum - size of a file, and the XXH3 of what no piece's sum covers:
 * the header of a safetensors file, all of any other. */
train_status_t ckpt_file_sum (const char *path, int64_t *ret_bytes,
                              uint64_t *ret_sum, train_error_t *err);

/* ckpt_manifest_of - an open checkpoint's. */
const struct ckpt_manifest *ckpt_manifest_of (const train_ckpt_t *ckpt);

/* ckpt_numel - of a shape; -1 when it is negative or too large. */
int64_t ckpt_numel (int ndim, const int64_t *shape);

#endif
