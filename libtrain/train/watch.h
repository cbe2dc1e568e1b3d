/* SPDX-License-Identifier: Apache-2.0
 * train/watch.h - what a run is watched by: the loss of text that it does not
 * train on, the first value that is not finite, a rank that is slow.
 *
 * Calls are of train/trainer.h's trainer, between its steps, and collective. */
#ifndef TRAIN_WATCH_H
#define TRAIN_WATCH_H

#include <stddef.h>
#include <stdint.h>

#include <train/data.h>
#include <train/status.h>
#include <train/trainer.h>

#ifdef __cplusplus
extern "C" {
#endif

typedef struct train_eval_options {
    size_t size; /* sizeof (train_eval_options_t) */
    const train_data_t
        *data;       /* its samples from position 0 on; NULL: those that
                                 the trainer's data holds out */
    int64_t samples; /* the first so many; 0 = all of an epoch, or all
                                 that are held out */
    int rows; /* samples of a pass; 0 = 1. The trainer's own number of rows spares
                 a GPU to prepare for another shape */
} train_eval_options_t;

typedef struct train_eval {
    double loss;     /* mean over tokens, nats */
    int64_t samples; /* that it is of */
    int64_t tokens;
    double eval_s; /* this rank's wall time, seconds */
} train_eval_t;

/* train_trainer_eval - the loss of samples under the weights as they are.
 * Neither weights nor what is trained on next changes.
 *   ret_eval   written on success
 * Passes are of [rows] samples each, whatever the number of ranks, which share
 * them out, and their losses are added in one order: so the loss has the same
 * bits for any world, where all ranks run the same code on the same kind of
 * machine. TRAIN_EINVAL: no samples, or more than there are; else errors of
 * train_decoder_forward and the group.
 * Gradients of the step before may be written over, as its activations were. */
train_status_t train_trainer_eval (train_trainer_t *trainer,
                                   const train_eval_options_t *opts,
                                   train_eval_t *ret_eval, train_error_t *err);

/* train_trainer_nonfinite - of the latest row of steps that were skipped, the
 * first value of its first step that was not finite: "step 7: NaN in the weight
 * model.layers.0.mlp.up_proj.weight at [3, 5] (rank 1 on n2, pass 1 of 2)". It
 * was found by making the passes again, with a look at weights, activations and
 * gradients in the order in which they are made; the earliest pass of any rank
 * counts. NULL: no step was skipped. Lives until the next such row. Local. */
const char *train_trainer_nonfinite (const train_trainer_t *trainer);

/* train_trainer_slow - compare the ranks' own times in the steps since the last
 * call: of their passes, without what they waited for each other in them, for a
 * row of the batch, or a token, padding among them, of completions, whose rows are
 * not alike (train/grpo_trainer.h). On a GPU by its own events, of one step in four.
 *   factor     slow is over so many times the median of the others; > 1
 *   ret_rank   the slowest, if it is that slow and cost 0.1 s; else -1. The same
 *              on every rank
 *   text       (size) written where there is one, a line: "rank 3 on n2 is slow:
 *              14 ms of its own for a row of the batch, the median of ..." */
train_status_t train_trainer_slow (train_trainer_t *trainer, double factor,
                                   int *ret_rank, char *text, size_t size,
                                   train_error_t *err);

#ifdef __cplusplus
}
#endif
#endif
