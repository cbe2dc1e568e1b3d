/* SPDX-License-Identifier: Apache-2.0
 * trainer_shard.c - the engine's step on GPUs: what ranks must know of each
 * other stays there until the step ends */
#include "trainer_shard.h"

#include "decoder_impl.h"
#include "err.h"
#include "trainer.h"

static bool on_gpu (const train_trainer_t *t)
{
    return train_decoder_config (t->decoder)->device.device_type == kDLCUDA;
}

train_status_t trainer_shard_moves (train_trainer_t *t, train_error_t *err)
{
    train_group_t *g = t->opts.device_group;

    t->moves = t->group;
    if (!on_gpu (t))
        return TRAIN_OK;
    if (!g)
        return err_set (err, TRAIN_EINVAL,
                        "a decoder on a GPU that is sharded, or of several "
                        "ranks, needs device_group, a group of backend nccl");
    if (train_group_size (g) != train_group_size (t->group)
        || train_group_rank (g) != train_group_rank (t->group))
        return err_set (err, TRAIN_EINVAL,
                        "device_group: rank %d of %d, and group has this as "
                        "rank %d of %d",
                        train_group_rank (g), train_group_size (g),
                        train_group_rank (t->group),
                        train_group_size (t->group));
    t->moves = g;
    return TRAIN_OK;
}

bool trainer_shard_serves (const train_trainer_t *t)
{
    return t->fsdp && on_gpu (t);
}

train_status_t trainer_shard_spread (train_trainer_t *t, DLTensor *tensor,
                                     train_error_t *err)
{
    bool gpu = tensor->device.device_type == kDLCUDA;

    return train_broadcast (gpu ? t->moves : t->group, tensor, 0, err);
}

train_status_t trainer_shard_pass (train_trainer_t *t, int rows,
                                   int64_t *counted, train_error_t *err)
{
    int64_t n = 0;

    TRY (decoder_step_add (t->decoder, t->tokens, t->targets, rows,
                           train_data_seq (t->data), trainer_token_scale (t),
                           &n, err));
    *counted += n;
    return TRAIN_OK;
}

/* All has come that this step's clock was set by. */
static train_status_t add_time (train_trainer_t *t, train_error_t *err)
{
    bool timed;
    double s;

    TRY (slow_gpu_read (t->slow.gpu, &s, &timed, err));
    if (timed)
        trainer_slow_add (&t->slow, s, 0);
    else
        trainer_slow_skip (&t->slow);
    return TRAIN_OK;
}

train_status_t trainer_shard_step (train_trainer_t *t, double lr, bool stop,
                                   struct trainer_gpu_report *ret,
                                   train_error_t *err)
{
    const struct fsdp_update update = {lr, t->opts.clip,
                                       1 / trainer_loss_scale (t)};
    struct fsdp_report r = {0};
    double own[2] = {0, stop}, loss = 0;
    int64_t n = 0;

    TRY (fsdp_begin (t->fsdp, err));
    TRY (slow_gpu_begin (t->slow.gpu, err));
    for (int p = 0; p < t->passes; p++)
        TRY (trainer_pass (t, p, &loss, &n, err));
    TRY (slow_gpu_end (t->slow.gpu, err));
    own[0] = (double)n;
    TRY (fsdp_finish (t->fsdp, t->adamw, &update, own, 2, &r, err));
    *ret = (struct trainer_gpu_report){r.loss, r.norm, (int64_t)r.sums[0],
                                       r.skipped, r.sums[1] > 0};
    return add_time (t, err);
}

/* The loss of these passes is nobody's. */
train_status_t trainer_shard_finish (train_trainer_t *t, train_error_t *err)
{
    double loss;

    TRY (fsdp_stop (t->fsdp, err));
    return on_gpu (t) ? decoder_loss_read (t->decoder, &loss, err) : TRAIN_OK;
}

train_status_t trainer_shard_forward (train_trainer_t *t, const int32_t *tokens,
                                      const int32_t *targets, int rows, int seq,
                                      double *ret_loss, int64_t *ret_n,
                                      train_error_t *err)
{
    TRY (decoder_forward_add (t->decoder, NULL, tokens, targets, rows, seq,
                              ret_n, err));
    TRY (fsdp_settle (t->fsdp, err));
    return decoder_loss_read (t->decoder, ret_loss, err);
}
