/* SPDX-License-Identifier: Apache-2.0
 * train/ckpt.h - whole checkpoints on disk: complete or not there.
 *
 * A folder of checkpoints holds
 *   step-00000100/model.safetensors   weights, by Hugging Face's names
 *   step-00000100/optim.safetensors   "m.NAME" and "v.NAME" of each weight; its
 *                                     metadata have the state, the model's
 *                                     sizes and the XXH3 of every tensor, the
 *                                     weights' too, and of themselves
 *   step-00000100/config.json         the model as Hugging Face describes it
 *   latest                            name of the newest complete one
 * A checkpoint is written under a temporary name, synced, renamed, and only
 * then does `latest` (itself replaced by rename) name it: whenever the writer
 * dies, `latest` names a whole checkpoint, and files of two checkpoints never
 * pass for one. Nothing depends on how many ranks wrote it.
 *
 * One process writes a folder at a time. Any thread, one a handle. */
#ifndef TRAIN_CKPT_H
#define TRAIN_CKPT_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include <train/decoder.h>
#include <train/optim.h>
#include <train/status.h>

#ifdef __cplusplus
extern "C" {
#endif

/* All that a run needs beside its tensors. Numbers from 0 on. */
typedef struct train_ckpt_state {
    size_t size;        /* sizeof (train_ckpt_state_t) */
    int64_t step;       /* steps made */
    int64_t updates;    /* updates made: step less skipped */
    int64_t skipped;    /* steps without update since the start */
    int64_t skip_run;   /* of these, the last ones in a row */
    int64_t tokens;     /* seen */
    int64_t position;   /* samples taken from the data */
    int64_t seq, batch; /* of the run */
    bool shuffle;
    uint64_t seed;      /* of data and weights */
    uint64_t data_hash; /* train_data_hash */
} train_ckpt_state_t;

/* train_ckpt_prepare - make folder [dir] and see that a checkpoint can be
 * written into it, so that a run need not reach its first one to find out.
 * What a dead writer left unfinished goes. TRAIN_EINVAL for no [dir];
 * TRAIN_EIO names the path and why. */
train_status_t train_ckpt_prepare (const char *dir, train_error_t *err);

/* train_ckpt_save - write DIR/step-N (N = state->step) and name it latest.
 *   dir     made if it is not there
 *   keep    of the checkpoints in [dir] the [keep] >= 1 with the most steps
 *           stay; those that a dead writer left unfinished go. Failing to
 *           remove an old one is no failure.
 * On failure `latest` still names what it named, or (TRAIN_EIO from the last
 * sync) the new, whole one. */
train_status_t train_ckpt_save (const char *dir,
                                const train_ckpt_state_t *state,
                                train_decoder_t *decoder, train_adamw_t *adamw,
                                int keep, train_error_t *err);

/* train_ckpt_find - the checkpoint that [where] means: a checkpoint itself, or
 * the latest of a folder of them.
 *   ret_path   free with free()
 * TRAIN_ENOTFOUND when there is none (no folder, no `latest`); TRAIN_EFORMAT
 * when `latest` names nothing usable; TRAIN_EIO. */
train_status_t train_ckpt_find (const char *where, char **ret_path,
                                train_error_t *err);

/* train_ckpt_load - read checkpoint [path] into decoder and optimizer.
 *   ret_state   written on success
 * Everything is checked before anything is written: TRAIN_EINVAL when the
 * decoder has other sizes or another dtype (each named with both values),
 * TRAIN_EFORMAT for a missing or misshapen tensor or setting, TRAIN_ECORRUPT
 * for a checksum, TRAIN_ENOTFOUND, TRAIN_EIO. */
train_status_t train_ckpt_load (const char *path, train_decoder_t *decoder,
                                train_adamw_t *adamw,
                                train_ckpt_state_t *ret_state,
                                train_error_t *err);

#ifdef __cplusplus
}
#endif
#endif
