/* SPDX-License-Identifier: Apache-2.0
 * ckpt_run.h - a decoder and its optimizer, whole or sharded, as pieces of a
 * checkpoint. Inside libtrain only. */
#ifndef TRAIN_CKPT_RUN_H
#define TRAIN_CKPT_RUN_H

#include <train/ckpt.h>
#include <train/shard.h>

#include "ckpt_meta.h"

/* What a rank has. All borrowed. */
struct ckpt_run {
    train_decoder_t *decoder;
    DLTensor *weights, *m, *v;      /* 1-D, laid out alike */
    const train_shard_plan_t *plan; /* of them; NULL: as the decoder's arena */
    int rank;                       /* in the plan */
    int world;
    const char *strategy;             /* NULL: "whole" */
    const train_ckpt_piece_t *beside; /* (n_beside) what else is saved; of one
                                         rank alone, as they are whole */
    size_t n_beside;
};

/* The tensors of a run: weights, then m, then v of each, then what is beside. */
struct ckpt_tensors {
    train_ckpt_piece_t *piece; /* (3n + n_beside) */
    char **name; /* (2n) of the moments; the weights' are borrowed */
    size_t n, n_beside;
};

/* All that a save hands on, kept together while it does; it points into
 * itself. */
#define CKPT_DEVICE 256 /* bytes of a device's name, of libraries' versions */

struct ckpt_save {
    struct ckpt_tensors tensors;
    struct ckpt_meta meta;
    train_ckpt_bytes_t config;
    char device[CKPT_DEVICE], libs[CKPT_DEVICE];
    train_ckpt_bytes_t bytes[2]; /* of a GPU: libraries, choices of products */
    train_ckpt_options_t opts;
};

/* ckpt_save_init - TRAIN_EINVAL, TRAIN_ENOMEM. ckpt_save_fini after it. */
train_status_t ckpt_save_init (struct ckpt_save *s, const char *dir,
                               const train_ckpt_state_t *state,
                               const struct ckpt_run *run, int keep,
                               train_error_t *err);
void ckpt_save_fini (struct ckpt_save *s);

/* ckpt_run_differs - train_ckpt_differs of a run, and of a GPU which libraries
 * make its products and attention. TRAIN_EDEVICE.
 *   text   (size) written; "" when nothing differs */
train_status_t ckpt_run_differs (const train_ckpt_t *ckpt,
                                 const struct ckpt_run *run, char *text,
                                 size_t size, train_error_t *err);

/* ckpt_run_start - by [saver], as train_ckpt_start. Collective over its group.
 * ckpt_run_load - what train_ckpt_load does, of this rank's parts. Local; the
 * number of updates, and weights that are shorter than these, are the caller's
 * to set. Products get the saved choices, unless these are of another card or
 * library. */
train_status_t ckpt_run_start (train_ckpt_saver_t *saver, const char *dir,
                               const train_ckpt_state_t *state,
                               const struct ckpt_run *run, int keep,
                               train_error_t *err);
train_status_t ckpt_run_load (const char *path, const struct ckpt_run *run,
                              train_ckpt_state_t *ret_state,
                              train_error_t *err);

#endif
