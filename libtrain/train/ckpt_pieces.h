/* SPDX-License-Identifier: Apache-2.0
 * train/ckpt_pieces.h - checkpoints of any tensors, whole or in pieces.
 *
 * Each rank hands in the ranges of elements that it holds; a reader asks for
 * any ranges, whatever the number of ranks and the way they shared the tensors
 * when it was written. A checkpoint DIR/step-00000100 holds
 *   model.safetensors        one rank's pieces; with W ranks
 *   model-00001-of-0000W.safetensors, ...: a whole tensor under its own name
 *                            and shape, a piece as NAME@FIRST and flat
 *   checkpoint.json          the manifest, written last: step, world, strategy,
 *                            library, device, the caller's state; of each file
 *                            its size; of each tensor its type, shape and
 *                            pieces, each with file, first element, count and
 *                            XXH3 (64 bits); and the XXH3 of all this
 * "model" is a piece's [file]. DIR/latest names the newest complete checkpoint.
 *
 * Every file is synced, then its name; the manifest after all others; the
 * folder is filled under a temporary name and renamed when it is complete;
 * `latest`, itself replaced by a rename, follows. So whenever a writer dies,
 * what has the name step-N is whole, and of one step. One that takes the place of
 * another of its step does so by an exchange of names; where a file system has
 * none (NFS) the former has no name for a moment, and should the writer die then
 * it is still found, and gets it back. All ranks write into the same folder: the file system is shared. One run writes a folder at a time. */
#ifndef TRAIN_CKPT_PIECES_H
#define TRAIN_CKPT_PIECES_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include <train/group.h>
#include <train/safetensors.h>
#include <train/status.h>
#include <train/tensor.h>

#ifdef __cplusplus
extern "C" {
#endif

/* A range of a tensor's elements, in row-major order. */
typedef struct train_ckpt_piece {
    const char *name; /* of the tensor, UTF-8 */
    train_dtype_t dtype;
    int ndim;
    int64_t shape[TRAIN_MAX_DIMS]; /* of the whole tensor */
    int64_t first;                 /* 0 <= first <= first + count <= numel */
    int64_t count;                 /* 0: this rank has none of it */
    void *data;                    /* (count) saving reads, loading writes */
    const char *file; /* saving: [a-z]+, "model", "optim"; NULL = "state" */
    DLDevice device;  /* of data: {kDLCUDA, k}, GPU k, whose work on it has
                       ended; zeros or kDLCPU: the host */
} train_ckpt_piece_t;

/* Bytes under a name: settings of another library, a text file. */
typedef struct train_ckpt_bytes {
    const char *key;
    const void *data; /* NULL only with size 0 */
    size_t size;
} train_ckpt_bytes_t;

/* What stands beside the pieces. Of rank 0 alone, but dir, step, timeout_s,
 * which all ranks give alike. */
typedef struct train_ckpt_options {
    size_t size;          /* sizeof (train_ckpt_options_t) */
    const char *dir;      /* folder of checkpoints; made if it is not there */
    int64_t step;         /* >= 0 */
    int keep;             /* that many stay, of the most steps; 0 = all */
    int world;            /* ranks of the run; 0 = of the saver's group */
    const char *strategy; /* "full_shard"; NULL = "whole" */
    const char *device;   /* "NVIDIA H200"; NULL = "cpu" */
    const train_st_meta_t
        *state; /* (n_state) UTF-8, read by train_ckpt_state */
    size_t n_state;
    const train_ckpt_bytes_t *bytes; /* (n_bytes) kept in the manifest */
    size_t n_bytes;
    const train_ckpt_bytes_t *beside; /* (n_beside) files of their own, such as
                                         config.json; no '/' in a key */
    size_t n_beside;
    double timeout_s; /* rank 0 waits so long for the others; 0 = 600 */
} train_ckpt_options_t;

/* A saver copies the pieces and writes them by a thread of its own. One thread
 * uses it; so many bytes as the pieces have stay allocated between saves,
 * pinned where a piece is of a GPU and they can be. */
typedef struct train_ckpt_saver train_ckpt_saver_t;

/* train_ckpt_saver_create
 *   group   whose ranks share the tensors, borrowed; NULL = this process alone */
train_status_t train_ckpt_saver_create (train_group_t *group,
                                        train_ckpt_saver_t **ret_saver,
                                        train_error_t *err);
/* Waits for what is being written, but for another rank 2 s at most: it may have
 * ended. NULL is fine. */
void train_ckpt_saver_destroy (train_ckpt_saver_t *saver);

/* train_ckpt_start - begin a checkpoint of the tensors as they are now.
 * Collective over the saver's group; returns when the copy is made: what
 * changes afterwards never reaches the files. Where the checkpoint before is
 * still being written, it waits for that first; when that failed, on any rank,
 * its error is returned and nothing is begun: call again.
 *   pieces   (n) of this rank; read during the call. All ranks' together must
 *            have each element of each tensor once, else the save fails.
 *            No two of a rank overlap.
 * TRAIN_EINVAL names the piece or option that is wrong, before anything is
 * written; TRAIN_ENOMEM; TRAIN_EIO; TRAIN_ESTATE within train_step_begin. */
train_status_t train_ckpt_start (train_ckpt_saver_t *saver,
                                 const train_ckpt_piece_t *pieces, size_t n,
                                 const train_ckpt_options_t *opts,
                                 train_error_t *err);

/* train_ckpt_done - has this rank's thread ended, or is there none? Local. */
bool train_ckpt_done (const train_ckpt_saver_t *saver);

/* train_ckpt_wait - wait until the checkpoint is written. Collective; every
 * rank gets the worst status of all: TRAIN_OK means that it is complete and
 * has its name, also when nothing was begun. An error is told once.
 * TRAIN_EIO names the file; TRAIN_EINVAL the tensor and the first element that
 * no rank or two ranks had; TRAIN_ETIMEDOUT the rank that has not written. */
train_status_t train_ckpt_wait (train_ckpt_saver_t *saver, train_error_t *err);

/* A checkpoint that is open for reading. One thread at a time. */
typedef struct train_ckpt train_ckpt_t;

/* train_ckpt_open - read and check the manifest of [path], and that its files
 * are there with their sizes. The text names the file that is wrong.
 * TRAIN_ENOTFOUND: it or a file is missing; TRAIN_ECORRUPT: a file is of
 * another size, the manifest does not match its sum; TRAIN_EFORMAT: the
 * manifest is none of ours, or lacks elements of a tensor; TRAIN_EIO. */
train_status_t train_ckpt_open (const char *path, train_ckpt_t **ret_ckpt,
                                train_error_t *err);
void train_ckpt_close (train_ckpt_t *ckpt); /* NULL is fine */

/* What the manifest says; strings live with [ckpt]. */
int64_t train_ckpt_step (const train_ckpt_t *ckpt);
int train_ckpt_world (const train_ckpt_t *ckpt);
const char *train_ckpt_strategy (const train_ckpt_t *ckpt);
const char *train_ckpt_device (const train_ckpt_t *ckpt);
const char *train_ckpt_library (const train_ckpt_t *ckpt); /* its version */
size_t train_ckpt_n_files (const train_ckpt_t *ckpt);
const char *train_ckpt_file (const train_ckpt_t *ckpt, size_t index,
                             int64_t *ret_bytes);
/* The caller's state: how many keys, the [index]th with its value (NULL past the
 * end), and the value of a key (NULL when there is none). */
size_t train_ckpt_n_states (const train_ckpt_t *ckpt);
const char *train_ckpt_state_at (const train_ckpt_t *ckpt, size_t index,
                                 const char **ret_value);
const char *train_ckpt_state (const train_ckpt_t *ckpt, const char *key);
/* The bytes under [key], malloc'ed; TRAIN_ENOTFOUND, TRAIN_ENOMEM. */
train_status_t train_ckpt_bytes (const train_ckpt_t *ckpt, const char *key,
                                 void **ret_data, size_t *ret_size,
                                 train_error_t *err);
/* Tensors, sorted by name: each as one piece of all its elements, without data
 * and file.
 *   ret_n_pieces   it is stored in so many; may be NULL */
size_t train_ckpt_n_tensors (const train_ckpt_t *ckpt);
train_status_t train_ckpt_tensor (const train_ckpt_t *ckpt, size_t index,
                                  train_ckpt_piece_t *ret_piece,
                                  size_t *ret_n_pieces, train_error_t *err);

/* train_ckpt_differs - a line that says in what the run that goes on is not the
 * one that wrote: results may then differ in bits.
 *   world, strategy, device   of the run that goes on; NULL as in the options
 *   text                      (size) written; "" when nothing differs
 * Returns whether anything does. */
bool train_ckpt_differs (const train_ckpt_t *ckpt, int world,
                         const char *strategy, const char *device, char *text,
                         size_t size);

/* train_ckpt_read - fill pieces from a checkpoint, whatever ranges they are.
 *   pieces   (n) data is written, once everything is known to be good
 * Each stored piece that has an element of them is summed whole.
 * TRAIN_ENOTFOUND: no such tensor; TRAIN_EINVAL: it has another type or shape
 * there; TRAIN_ECORRUPT names tensor and file; TRAIN_EFORMAT, TRAIN_EIO. */
train_status_t train_ckpt_read (train_ckpt_t *ckpt,
                                const train_ckpt_piece_t *pieces, size_t n,
                                train_error_t *err);

/* train_ckpt_verify - sum all stored pieces. As train_ckpt_read. */
train_status_t train_ckpt_verify (train_ckpt_t *ckpt, train_error_t *err);

/* train_ckpt_find - the checkpoint that [where] means: a checkpoint itself, or
 * the latest of a folder of them: what its file `latest` names, or without that
 * file the one with the most steps.
 *   ret_path   free with free()
 * TRAIN_ENOTFOUND when there is none (or no folder); TRAIN_EFORMAT
 * when `latest` names nothing usable; TRAIN_EIO. */
train_status_t train_ckpt_find (const char *where, char **ret_path,
                                train_error_t *err);

/* train_ckpt_find_good - the same, and verified whole. Where the latest of a
 * folder is damaged, the newest of its other checkpoints that is not.
 *   ret_passed   OK, or the first damage that was passed over; may be NULL
 * When none is good: the first one's error. */
train_status_t train_ckpt_find_good (const char *where, char **ret_path,
                                     train_error_t *ret_passed,
                                     train_error_t *err);

/* train_ckpt_list - the complete checkpoints of a folder, good or damaged.
 *   ret_steps   (*ret_n) the most first; free with free()
 * TRAIN_ENOTFOUND when there is no such folder; TRAIN_EIO, TRAIN_ENOMEM. */
train_status_t train_ckpt_list (const char *dir, int64_t **ret_steps,
                                size_t *ret_n, train_error_t *err);
/* train_ckpt_path - where that of [step] is, or would be; free with free(). */
train_status_t train_ckpt_path (const char *dir, int64_t step, char **ret_path,
                                train_error_t *err);
/* train_ckpt_remove - remove that of [step], whole or not at all to any reader.
 * TRAIN_EINVAL: it is the latest; TRAIN_ENOTFOUND; TRAIN_EIO names it. */
train_status_t train_ckpt_remove (const char *dir, int64_t step,
                                  train_error_t *err);

#ifdef __cplusplus
}
#endif
#endif
