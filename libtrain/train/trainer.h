/* SPDX-License-Identifier: Apache-2.0
 * train/trainer.h - data-parallel training: the steps that all ranks take.
 *
 * A trainer joins a group, data, a decoder, AdamW and a schedule. Step s takes
 * the [batch] samples at positions s*batch .. s*batch+batch-1 of the data;
 * rank r of W takes those from r*batch/W to (r+1)*batch/W - 1, in passes of
 * micro_batch rows; nothing has to divide, and a rank may have none. The loss
 * is the mean over all tokens of the global batch and gradients are summed over
 * the group: so losses do not depend on how a batch is shared, but for
 * rounding. A strategy (train/shard.h) says what of weights, gradients and
 * moments each rank has; each updates what it has.
 *
 * A step whose gradient norm (or loss) is not finite on any rank updates
 * nothing on every rank, is counted, and its batch is not taken again;
 * max_skips of them in a row are TRAIN_ENONFINITE. With a loss scale
 * (train/scaler.h) its own patience holds instead.
 *
 * A decoder on a GPU makes its step there: passes, collectives, norm, the choice
 * to skip (by the norm alone) and the update are enqueued together, and the host
 * waits once a step. AdamW is on the same GPU. Of BF16 and F16 the masters and
 * moments are F32. Several ranks, or a sharded model, need two groups then: one
 * of backend nccl for what lies on the GPUs, and the trainer's own, by which
 * ranks agree.
 *
 * All calls but those marked local are collective: every rank makes them in
 * the same order. After a failure only destroy is useful. One thread. */
#ifndef TRAIN_TRAINER_H
#define TRAIN_TRAINER_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include <train/data.h>
#include <train/decoder.h>
#include <train/group.h>
#include <train/optim.h>
#include <train/scaler.h>
#include <train/schedule.h>
#include <train/shard.h>
#include <train/status.h>

#ifdef __cplusplus
extern "C" {
#endif

typedef struct train_trainer train_trainer_t;

typedef struct train_trainer_options {
    size_t size;     /* sizeof (train_trainer_options_t) */
    int batch;       /* rows of all ranks together */
    int micro_batch; /* most rows of one pass; 0 = all of a rank's */
    double clip;     /* largest gradient norm; 0 = any */
    int max_skips;   /* steps without update in a row; 0 = 10 */
    train_adamw_options_t adamw;
    train_schedule_t schedule;
    train_strategy_t strategy;
    train_wrap_t wrap; /* flat units: of DDP what is summed at a time */
    size_t least;      /* of TRAIN_WRAP_SIZE, elements */
    int prefetch;      /* sharded: units gathered ahead; 1 is usual */
    bool no_sync;      /* sharded: whole gradients of a step's passes stay on
                          each rank and are reduced once, in the last pass */
    bool reduce_bf16;  /* sharded, F32: gradients travel as BF16; sums are F32
                          and rounded once a unit and pass */
    const char *no_decay; /* parameters without weight decay beside norms and
                             biases: patterns (fnmatch(3)) of names, joined by
                             commas. Read by create; NULL = none */
    const char *frozen;   /* as above: parameters that stay as they are. They
                             have no part in the norm, and no masters, moments
                             and gradients on any rank */
    const train_scaler_options_t *scaler; /* of F16: losses are scaled, and a
                             step that is not finite shrinks the scale. Copied by
                             create; NULL = not at all */
    double dropout; /* as train_decoder_dropout, in steps alone, by the data's
                       seed; 0 = none */
    train_group_t *device_group; /* of a GPU, where there are several ranks or
                             the model is sharded: of backend nccl, on the
                             decoder's GPU, with the ranks of [group] in their
                             order; borrowed as that. Else not looked at */
    bool offload; /* of a GPU: moments, and masters of BF16 and F16, are in the
                     host's memory and pass through the GPU at each update */
    bool round_late;      /* sharded BF16 and F16, neither offloaded nor rounded
                        stochastically (else TRAIN_EINVAL): masters are rounded
                        as each unit is gathered, and no rounded shard stays.
                        The same bits */
    bool offload_weights; /* of a GPU, sharded: this rank's part of the weights
                     is in the host's memory, comes to the GPU [prefetch] units
                     ahead of each gather and goes back at each update; of F32
                     that are the masters */
} train_trainer_options_t;

/* What a step was. */
typedef struct train_metrics {
    int64_t step;     /* steps made, this one included: 1, 2, ... */
    double loss;      /* mean over the tokens of the global batch, nats; NAN
                         where it has none, as of targets that are all -1: the
                         gradient is zero then, and the update that of zeros */
    double grad_norm; /* of the whole gradient, before clipping */
    double lr;
    int64_t tokens;    /* seen since step 1, by all ranks */
    double step_s;     /* this rank's wall time, seconds */
    bool skipped;      /* no update: the norm is not finite */
    int64_t n_skips;   /* since step 1 */
    bool stop;         /* some rank asked to stop */
    double loss_scale; /* of this step; 0 = losses are not scaled */
} train_metrics_t;

/* train_trainer_create - check that all ranks are set alike and give them rank
 * 0's weights; sharded ones are zero until train_trainer_init or _load.
 *   group, data, decoder   borrowed as long as the trainer lives. Of
 *             TRAIN_SHARD_GRAD_OP and TRAIN_FULL_SHARD a decoder of
 *             train_decoder_create_bare, of the others one with weights
 * TRAIN_EINVAL names the option that is wrong and what would work;
 * TRAIN_EMISMATCH when ranks differ in options, model or data. */
train_status_t train_trainer_create (const train_trainer_options_t *opts,
                                     train_group_t *group,
                                     const train_data_t *data,
                                     train_decoder_t *decoder,
                                     train_trainer_t **ret_trainer,
                                     train_error_t *err);
void train_trainer_destroy (train_trainer_t *trainer); /* local; NULL is fine */

/* train_trainer_init - draw the weights as train_decoder_init does: sharded,
 * each rank its own part, and no rank ever has more than a unit of them. */
train_status_t train_trainer_init (train_trainer_t *trainer, uint64_t seed,
                                   train_error_t *err);

/* train_trainer_init_hf - the weights of a Hugging Face directory, as
 * train_hf_load reads them (train/hf.h), and adapters drawn by [seed]. Each rank
 * reads the files, and of a sharded model keeps its part; masters have the files'
 * numbers before they are rounded. All ranks get the worst status of
 * train_hf_load. */
train_status_t train_trainer_init_hf (train_trainer_t *trainer, const char *dir,
                                      uint64_t seed, train_error_t *err);

/* train_trainer_plan - who has which elements. It lives with the trainer, as
 * do the tensors below: this rank's shard of plan's rank train_trainer_place.
 * Without sharding it is a plan of one rank, and place is 0. Weights are masters.
 * Where some is frozen, m and v have the elements that train alone, side by side; of
 * a shard with offload they lie as the weights do and end with the last of them. Of
 * BF16 and F16 so have masters: sharded, weights are then the train_shard_moving
 * elements that may train, and without sharding the decoder's own.
 * Local. */
const train_shard_plan_t *train_trainer_plan (const train_trainer_t *trainer);
int train_trainer_place (const train_trainer_t *trainer);
DLTensor *train_trainer_weights (train_trainer_t *trainer);
DLTensor *train_trainer_m (train_trainer_t *trainer);
DLTensor *train_trainer_v (train_trainer_t *trainer);

/* train_trainer_unused - names of the parameters whose gradient of the last
 * step was zero in every element on every rank, "a, b"; "" for none. Before an
 * evaluation, which may keep activations there. An adapter's
 * A is not named: it has none as long as its B is zero.
 *   text   (size) written, cut if need be */
train_status_t train_trainer_unused (train_trainer_t *trainer, char *text,
                                     size_t size, train_error_t *err);

/* train_trainer_step - one step.
 *   stop          this rank wants to stop after it (see metrics.stop)
 *   ret_metrics   written on success; NULL = not wanted. On TRAIN_ENONFINITE
 *                 the text has the step and the counts.
 * TRAIN_EPEER, TRAIN_ETIMEDOUT: as of train/group.h; where it is sharded a part
 * of the model is gone, and the text names the newest checkpoint. */
train_status_t train_trainer_step (train_trainer_t *trainer, bool stop,
                                   train_metrics_t *ret_metrics,
                                   train_error_t *err);

int64_t train_trainer_steps (const train_trainer_t *trainer); /* local */

/* train_trainer_save - a checkpoint in folder [dir] (train/ckpt_pieces.h). Of a
 * sharded model each rank writes its part, else rank 0 writes all as
 * train_ckpt_save does. All ranks get the worst status.
 *   keep   checkpoints that stay, >= 1 */
train_status_t train_trainer_save (train_trainer_t *trainer, const char *dir,
                                   int keep, train_error_t *err);

/* train_trainer_save_start - the same while training goes on: the checkpoint is
 * of this moment. It waits for one that is still being written, and gives that
 * one's failure, without beginning another. train_trainer_save_wait ends it;
 * TRAIN_OK when there is none. Destroy waits, too. */
train_status_t train_trainer_save_start (train_trainer_t *trainer,
                                         const char *dir, int keep,
                                         train_error_t *err);
train_status_t train_trainer_save_wait (train_trainer_t *trainer,
                                        train_error_t *err);

/* train_trainer_load - read the checkpoint that rank 0 finds in [path] (see
 * train_ckpt_find_good), whatever world wrote it and however it was shared. Of a
 * sharded model each rank reads its part, else rank 0 reads all and gives it to
 * the others. What follows has the bits of a run that never stopped, given the
 * same world and strategy.
 * TRAIN_EINVAL names what differs: model, seed, data, seq, batch, shuffle.
 * The schedule and AdamW's settings may be others. */
train_status_t train_trainer_load (train_trainer_t *trainer, const char *path,
                                   train_error_t *err);

/* train_trainer_note - after a load: what a user should know of it, a line: that
 * the checkpoint is of another world, device or library, or that a newer one is
 * damaged and was passed over, and which file. NULL: nothing, and on all ranks
 * but 0. Lives until the next load. Local. */
const char *train_trainer_note (const train_trainer_t *trainer);

#ifdef __cplusplus
}
#endif
#endif
