/* SPDX-License-Identifier: Apache-2.0
 * trainer_shard.h - the step of a trainer whose ranks have a GPU each, or whose
 * model is sharded on one: by the engine, enqueued. Inside libtrain only. */
#ifndef TRAIN_TRAINER_SHARD_H
#define TRAIN_TRAINER_SHARD_H

#include <train/trainer.h>

struct trainer_gpu_report;

/* trainer_shard_moves - which group moves the engine's tensors (trainer->moves).
 * TRAIN_EINVAL: a decoder on a GPU without such a group, or with one of other
 * ranks. */
train_status_t trainer_shard_moves (train_trainer_t *trainer,
                                    train_error_t *err);
/* trainer_shard_serves - is the engine on a GPU? */
bool trainer_shard_serves (const train_trainer_t *trainer);

/* trainer_shard_spread - rank 0's to all: by the group that moves such memory. */
train_status_t trainer_shard_spread (train_trainer_t *trainer, DLTensor *t,
                                     train_error_t *err);

/* trainer_shard_pass - enqueue forward and backward of the rows that were taken.
 *   counted   added to */
train_status_t trainer_shard_pass (train_trainer_t *trainer, int rows,
                                   int64_t *counted, train_error_t *err);
/* trainer_shard_step - passes, norm, update; then the one wait. */
train_status_t trainer_shard_step (train_trainer_t *trainer, double lr,
                                   bool stop, struct trainer_gpu_report *ret,
                                   train_error_t *err);
/* trainer_shard_finish - of any engine: passes are through, gradients are to be
 * looked at, and nothing is updated. */
train_status_t trainer_shard_finish (train_trainer_t *trainer,
                                     train_error_t *err);
/* trainer_shard_forward - as train_decoder_forward, with the group's deadline. */
train_status_t trainer_shard_forward (train_trainer_t *trainer,
                                      const int32_t *tokens,
                                      const int32_t *targets, int rows, int seq,
                                      double *ret_loss, int64_t *ret_n,
                                      train_error_t *err);

#endif
