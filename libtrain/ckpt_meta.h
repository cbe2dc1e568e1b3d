/* SPDX-License-Identifier: Apache-2.0
 * ckpt_meta.h - a run's state and its model as keys and values of a manifest.
 * Inside libtrain only.
 *
 * Each number stands in a text that reads back as exactly itself. */
#ifndef TRAIN_CKPT_META_H
#define TRAIN_CKPT_META_H

#include <train/ckpt.h>

#define CKPT_META_ITEMS 39
#define CKPT_META_VALUE 40 /* bytes, NUL included */

struct ckpt_meta {
    train_st_meta_t item[CKPT_META_ITEMS]; /* point into value */
    char value[CKPT_META_ITEMS][CKPT_META_VALUE];
};

/* ckpt_meta_write - [meta] points into itself: it is not to be copied. */
void ckpt_meta_write (struct ckpt_meta *meta, const train_ckpt_state_t *state,
                      const train_decoder_config_t *config);

/* ckpt_meta_read - strict about every number: TRAIN_EFORMAT. */
train_status_t ckpt_meta_read (const train_ckpt_t *ckpt,
                               train_ckpt_state_t *ret_state,
                               train_decoder_config_t *ret_config,
                               train_error_t *err);

/* ckpt_meta_same_model - TRAIN_EINVAL lists each size in which [there] and
 * [here] differ. */
train_status_t ckpt_meta_same_model (const train_decoder_config_t *there,
                                     const train_decoder_config_t *here,
                                     train_error_t *err);

#endif
