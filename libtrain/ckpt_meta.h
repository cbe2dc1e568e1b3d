/* SPDX-License-Identifier: Apache-2.0
 * ckpt_meta.h - the metadata of a checkpoint as text. Inside libtrain only.
 *
 * Keys: "format", one for each setting of the state and the model, "xxh3.NAME"
 * for each tensor, and "xxh3": the digest of all the others. */
#ifndef TRAIN_CKPT_META_H
#define TRAIN_CKPT_META_H

#include <stddef.h>
#include <stdint.h>

#include <train/ckpt.h>
#include <train/safetensors.h>

#define CKPT_FORMAT "rv.checkpoint/1"

/* A growing list of key and value; init by {0}. */
struct ckpt_meta {
    train_st_meta_t *item; /* strings are the list's */
    size_t n;
};

void ckpt_meta_fini (struct ckpt_meta *meta);

/* ckpt_meta_write - format, state and model. */
train_status_t ckpt_meta_write (struct ckpt_meta *meta,
                                const train_ckpt_state_t *state,
                                const train_decoder_config_t *config,
                                train_error_t *err);

/* ckpt_meta_tensors - add "xxh3.NAME" of each of [entries] (n). */
train_status_t ckpt_meta_tensors (struct ckpt_meta *meta,
                                  const train_st_entry_t *entries, size_t n,
                                  train_error_t *err);

/* ckpt_meta_seal - add "xxh3" over all that was added; the order of adding
 * does not matter. */
train_status_t ckpt_meta_seal (struct ckpt_meta *meta, train_error_t *err);

/* ckpt_meta_check - are the settings of [file], and the names and bytes of the
 * tensors of [file] and [model], what was sealed? TRAIN_EFORMAT names a
 * missing key, TRAIN_ECORRUPT the tensor (or "its metadata") that differs. */
train_status_t ckpt_meta_check (const train_safetensors_t *file,
                                const train_safetensors_t *model,
                                train_error_t *err);

/* ckpt_meta_read - the settings of [file]; strict about every number. */
train_status_t ckpt_meta_read (const train_safetensors_t *file,
                               train_ckpt_state_t *ret_state,
                               train_decoder_config_t *ret_config,
                               train_error_t *err);

/* ckpt_meta_same_model - TRAIN_EINVAL lists each size in which [there] and
 * [here] differ. */
train_status_t ckpt_meta_same_model (const train_decoder_config_t *there,
                                     const train_decoder_config_t *here,
                                     train_error_t *err);

#endif
