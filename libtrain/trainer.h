/* SPDX-License-Identifier: Apache-2.0
 * trainer.h - what the parts of the trainer share. Inside libtrain only; the
 * public side is train/trainer.h. */
#ifndef TRAIN_TRAINER_INTERNAL_H
#define TRAIN_TRAINER_INTERNAL_H

#include <train/ckpt.h>
#include <train/trainer.h>

#include "fsdp.h"
#include "trainer_gpu.h"
#include "trainer_shard.h"
#include "trainer_slow.h"

#define TRAINER_BESIDE 16

/* What makes the passes where there is no data. Its losses and their mean are
 * its own: train_metrics_t has the loss that it leaves in the trainer. */
struct trainer_source {
    /* pass - forward and backward of rows first..first+n-1 of the step's batch,
     * n >= 1, with the loss times [scale].
     *   counted   added to: tokens */
    train_status_t (*pass) (void *arg, int first, int n, double scale,
                            int64_t *counted, train_error_t *err);
    /* beside - what a checkpoint of now keeps beside the model, of all ranks
     * alike: whole tensors of the host, in the order of [ret], that live until
     * the save has begun. Returns how many.
     * loaded - checkpoint [path] was read; the trainer has its step. Only rank 0
     * need be able to open it. Collective. Both or none. */
    size_t (*beside) (void *arg, train_ckpt_piece_t ret[TRAINER_BESIDE]);
    train_status_t (*loaded) (void *arg, const char *path, train_error_t *err);
    void *arg;
    int seq; /* the longest row; what follows is compared and saved */
    bool shuffle;
    uint64_t seed, hash;
    const char *hashed; /* what that is of, as messages say it */
};

struct train_trainer {
    train_trainer_options_t opts;
    train_group_t *group;     /* borrowed */
    train_group_t *moves;     /* of the engine's tensors: [group], or of GPUs */
    const train_data_t *data; /* borrowed; NULL: */
    struct trainer_source source;
    train_decoder_t *decoder;  /* borrowed */
    struct fsdp *fsdp;         /* NULL with [gpu] */
    struct trainer_gpu *gpu;   /* NULL: the engine's way */
    train_scaler_t *scaler;    /* NULL: losses are not scaled */
    train_adamw_t *adamw;      /* over this rank's shard */
    int rows;                  /* of this rank in a step */
    int pass;                  /* most rows of one pass */
    int passes;                /* of a step, on every rank */
    int first;                 /* this rank's first row in the global batch */
    int32_t *tokens, *targets; /* (pass, seq) */
    int32_t *starts;           /* (pass, seq) with documents, else NULL */
    int64_t step, n_tokens, n_skips, skip_run;
    int64_t counted, counted_from; /* targets of the step that begins there; 0:
                                      not counted yet */
    char *saved_in; /* the newest checkpoint: where, and of which step */
    int64_t saved_step;
    double loss;               /* of the last step */
    train_ckpt_saver_t *saver; /* of rank 0 alone where all have the same */
    char *saving_in;           /* what the saver is at, and of which step; */
    int64_t saving_step;       /* NULL: nothing */
    struct trainer_slow slow;
    char *nonfinite; /* see train_trainer_nonfinite */
    char *note;      /* what a load has to say; NULL: nothing */
};

/* trainer_add_note - to what a load has to say. TRAIN_ENOMEM. */
train_status_t trainer_add_note (train_trainer_t *trainer, const char *text,
                                 train_error_t *err);

/* trainer_compare - collective; TRAIN_EMISMATCH says in what ranks differ. */
train_status_t trainer_compare (train_trainer_t *trainer, train_error_t *err);

/* trainer_create - train_trainer_create from either: [data] is NULL, or
 * [source], which is copied. trainer_source_of - what a checkpoint says of
 * either; no pass. */
train_status_t trainer_create (const train_trainer_options_t *opts,
                               train_group_t *group, const train_data_t *data,
                               const struct trainer_source *source,
                               train_decoder_t *decoder,
                               train_trainer_t **ret_trainer,
                               train_error_t *err);
struct trainer_source trainer_source_of (const train_trainer_t *trainer);
/* trainer_ask - pass [pass] of a source. Returns TRAIN_OK without rows, too:
 *   ret_rows   how many there were; 0 or less: none */
train_status_t trainer_ask (train_trainer_t *trainer, int pass, int *ret_rows,
                            int64_t *counted, train_error_t *err);

/* trainer_take_rows - this rank's rows of pass [pass] of the step, to tokens and
 * targets, and their documents to the decoder.
 *   ret_rows   how many; 0 or less: none
 *   TRAIN_ECORRUPT names a damaged file of tokens
 * trainer_loss_scale - 1 without a scaler.
 * trainer_token_scale - of the loss of one token in a pass: its weight in the
 * mean of the step times the loss scale. Equal on all ranks.
 * trainer_is_sharded - has each rank a part alone?
 * trainer_updated - the masters have changed: weights follow. */
train_status_t trainer_take_rows (train_trainer_t *trainer, int pass,
                                  int *ret_rows, train_error_t *err);
double trainer_loss_scale (const train_trainer_t *trainer);
double trainer_token_scale (train_trainer_t *trainer);
bool trainer_is_sharded (const train_trainer_t *trainer);
train_status_t trainer_updated (train_trainer_t *trainer, train_error_t *err);
/* trainer_same_weights - replicas get rank 0's. Collective. */
train_status_t trainer_same_weights (train_trainer_t *trainer,
                                     train_error_t *err);

/* trainer_agree - ranks go on or stop together: all get the worst status of all.
 * A rank that failed keeps its own, and [err]; one that was fine gets "another rank
 * failed: rank 3: " with the text of the lowest that has the worst. Collective. */
train_status_t trainer_agree (train_group_t *group, train_status_t status,
                              train_error_t *err);

/* trainer_pass - pass [p] of the step: its loss and tokens are added to; with
 * [gpu] the loss stays there. */
train_status_t trainer_pass (train_trainer_t *trainer, int p, double *loss_sum,
                             int64_t *counted, train_error_t *err);
/* trainer_look - make the step's passes again, to find its first value that is
 * not finite: the trainer's [nonfinite]. Gradients are of no use then.
 * Collective. */
train_status_t trainer_look (train_trainer_t *trainer, train_error_t *err);

/* trainer_name_saved - with a rank goes its part of a sharded model: add to
 * TRAIN_EPEER and TRAIN_ETIMEDOUT from where to go on. Returns [status]. */
train_status_t trainer_name_saved (train_trainer_t *trainer,
                                   train_status_t status, train_error_t *err);

#endif
