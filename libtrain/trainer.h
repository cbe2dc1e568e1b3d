/* SPDX-License-Identifier: Apache-2.0
 * trainer.h - what the parts of the trainer share. Inside libtrain only; the
 * public side is train/trainer.h. */
#ifndef TRAIN_TRAINER_INTERNAL_H
#define TRAIN_TRAINER_INTERNAL_H

#include <train/trainer.h>

struct train_trainer {
    train_trainer_options_t opts;
    train_group_t *group;     /* borrowed */
    const train_data_t *data; /* borrowed */
    train_decoder_t *decoder; /* borrowed */
    train_adamw_t *adamw;
    int rows;                  /* of this rank in a step */
    int pass;                  /* rows of one pass */
    int first;                 /* this rank's first row in the global batch */
    int32_t *tokens, *targets; /* (pass, seq) */
    int64_t step, n_tokens, n_skips, skip_run;
};

/* trainer_agree - all-reduce [status] by MAX, so that ranks go on or stop
 * together. Returns the worst; a rank that was fine itself gets the text
 * "another rank failed: NAME". [err] of the rank that failed is kept. */
train_status_t trainer_agree (train_group_t *group, train_status_t status,
                              train_error_t *err);

#endif
