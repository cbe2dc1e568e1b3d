/* SPDX-License-Identifier: Apache-2.0
 * train/ckpt.h - checkpoints of a decoder that one process holds whole.
 *
 * They are checkpoints of train/ckpt_pieces.h in three files: the weights in
 * model.safetensors by Hugging Face's names, which with config.json its tools
 * read; "m.NAME" and "v.NAME" of each weight in optim.safetensors. The state
 * below and the model's sizes stand in the manifest. Whatever is written by
 * pieces, sharded as well, under these names with these states loads here.
 *
 * The decoder and AdamW may be on a GPU, of which all work on them has ended.
 * Of BF16 and F16 the F32 masters are kept, so what was written in one of F32,
 * BF16 and F16 loads in each. Of a deterministic decoder on a GPU the manifest
 * has the algorithms of its products, which a load takes again on the same card
 * and library. */
#ifndef TRAIN_CKPT_H
#define TRAIN_CKPT_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include <train/ckpt_pieces.h>
#include <train/decoder.h>
#include <train/optim.h>
#include <train/status.h>

#ifdef __cplusplus
extern "C" {
#endif

/* All that a run needs beside its tensors. Numbers from 0 on. The random
 * numbers of a step are functions of seed and step. */
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
    double loss;        /* of the last step */
    /* As train_scaler_state_t has them; zeros: no loss scaling. */
    double scale;
    int64_t scale_good, scale_budget, scale_stuck;
} train_ckpt_state_t;

/* train_ckpt_prepare - make folder [dir] and see that a checkpoint can be
 * written into it, so that a run need not reach its first one to find out.
 * What a dead writer left unfinished goes. TRAIN_EINVAL for no [dir];
 * TRAIN_EIO names the path and why. */
train_status_t train_ckpt_prepare (const char *dir, train_error_t *err);

/* train_ckpt_save - write DIR/step-N (N = state->step) and name it latest.
 *   dir     made if it is not there
 *   keep    of the complete checkpoints in [dir] the [keep] >= 1 with the most
 *           steps stay; those that a dead writer left unfinished go. Failing to
 *           remove an old one is no failure.
 * On failure `latest` still names what it named, or (TRAIN_EIO from the last
 * sync) the new, whole one. */
train_status_t train_ckpt_save (const char *dir,
                                const train_ckpt_state_t *state,
                                train_decoder_t *decoder, train_adamw_t *adamw,
                                int keep, train_error_t *err);

/* train_ckpt_save_start - the same by [saver] (train_ckpt_start), from a copy
 * that is made during the call; end with train_ckpt_wait.
 *   saver   of this process alone */
train_status_t train_ckpt_save_start (train_ckpt_saver_t *saver,
                                      const char *dir,
                                      const train_ckpt_state_t *state,
                                      train_decoder_t *decoder,
                                      train_adamw_t *adamw, int keep,
                                      train_error_t *err);

/* train_ckpt_load - read checkpoint [path] into decoder and optimizer.
 *   ret_state   size set by the caller; written on success, as far as that
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
