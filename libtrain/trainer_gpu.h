/* SPDX-License-Identifier: Apache-2.0
 * trainer_gpu.h - the step of a trainer whose one rank has its decoder on a GPU:
 * the update is decided there, and the host waits once a step. Inside libtrain
 * only. */
#ifndef TRAIN_TRAINER_GPU_H
#define TRAIN_TRAINER_GPU_H

#include <train/safetensors.h>
#include <train/trainer.h>

struct trainer_gpu;

/* trainer_gpu_serves - is this the way for such a decoder and world?
 * trainer_gpu_always - tests alone: also for F32, BF16 and F16 on the host. */
bool trainer_gpu_serves (const train_trainer_t *trainer);
void trainer_gpu_always (bool always);

/* trainer_gpu_create - from options, group and decoder; makes the optimizer as
 * well (trainer->adamw). TRAIN_EINVAL, TRAIN_ENOMEM, TRAIN_EDEVICE. */
train_status_t trainer_gpu_create (train_trainer_t *trainer,
                                   struct trainer_gpu **ret,
                                   train_error_t *err);
void trainer_gpu_destroy (struct trainer_gpu *gpu); /* NULL is fine */

/* trainer_gpu_init - what train_trainer_init does, and of [files], which are of
 * hf_open and may be NULL, train_trainer_init_hf. */
train_status_t trainer_gpu_init (train_trainer_t *trainer,
                                 const train_safetensors_t *files,
                                 uint64_t seed, train_error_t *err);
/* trainer_gpu_updated - the masters have changed. */
train_status_t trainer_gpu_updated (train_trainer_t *trainer,
                                    train_error_t *err);

struct trainer_gpu_report {
    double loss_sum, norm; /* norm: unscaled, before clipping */
    int64_t n;             /* tokens counted */
    bool skipped;          /* the norm is not finite: nothing was updated */
    bool stop;             /* some rank asked to (trainer_shard_step) */
};

/* trainer_gpu_step - passes, norm, update. Counts the update if there is one. */
train_status_t trainer_gpu_step (train_trainer_t *trainer, double lr,
                                 struct trainer_gpu_report *ret,
                                 train_error_t *err);

/* trainer_gpu_begin, _pass, _finish - the passes of a step alone, to be looked
 * at: gradients are there afterwards, and nothing is updated.
 *   counted   added to: tokens of pass [pass] */
train_status_t trainer_gpu_begin (train_trainer_t *trainer, train_error_t *err);
train_status_t trainer_gpu_pass (train_trainer_t *trainer, int pass,
                                 int64_t *counted, train_error_t *err);
train_status_t trainer_gpu_finish (train_trainer_t *trainer,
                                   train_error_t *err);

const train_shard_plan_t *trainer_gpu_plan (const struct trainer_gpu *gpu);
/* trainer_gpu_unused - as train_trainer_unused. */
train_status_t trainer_gpu_unused (train_trainer_t *trainer, char *text,
                                   size_t size, train_error_t *err);

#endif
