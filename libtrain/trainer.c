/* SPDX-License-Identifier: Apache-2.0
 * trainer.c - the data-parallel step: passes, all-reduce, clip, AdamW
 *
 * Decisions that change weights are taken from values that an all-reduce made
 * equal on every rank, never from a rank's own. */
#include "trainer.h"

#include <math.h>
#include <stdlib.h>

#include <train/trace.h>

#include "decoder_impl.h"
#include "err.h"
#include "optim.h"
#include "opts.h"
#include "scaler.h"
#include "sock.h"

#define MAX_SKIPS 10

static train_status_t check_options (const train_trainer_options_t *opts,
                                     train_trainer_options_t *o,
                                     train_error_t *err)
{
    if (!opts)
        return err_set (err, TRAIN_EINVAL, "trainer: no options");
    TRY (opts_read (o, sizeof (*o), opts, "trainer", err));
    if (o->batch < 1)
        return err_set (err, TRAIN_EINVAL, "batch %d is below 1", o->batch);
    if (o->micro_batch < 0)
        return err_set (err, TRAIN_EINVAL, "micro_batch %d is below 0",
                        o->micro_batch);
    if (!isfinite (o->clip) || o->clip < 0)
        return err_set (err, TRAIN_EINVAL, "clip %g is not a number from 0 on",
                        o->clip);
    if (!(o->dropout >= 0 && o->dropout < 1))
        return err_set (err, TRAIN_EINVAL,
                        "dropout %g is not within 0 and below 1", o->dropout);
    if (o->max_skips < 0)
        return err_set (err, TRAIN_EINVAL, "max_skips %d is below 0",
                        o->max_skips);
    return train_schedule_check (&o->schedule, err);
}

/* Which rows of the global batch are this rank's, and how many at a time. All
 * ranks make as many passes as the one with the most rows. */
static void share_rows (train_trainer_t *t)
{
    int64_t size = train_group_size (t->group), batch = t->opts.batch;
    int64_t rank = train_group_rank (t->group);
    int most = (int)((batch + size - 1) / size), micro = t->opts.micro_batch;

    t->first = (int)(rank * batch / size);
    t->rows = (int)((rank + 1) * batch / size) - t->first;
    t->pass = micro == 0 || micro > most ? most : micro;
    t->passes = (most + t->pass - 1) / t->pass;
}

/* What would do nothing is refused, before it is known which engine serves. */
static train_status_t check_shard (const train_trainer_t *t, bool sharded,
                                   train_error_t *err)
{
    train_dtype_t dtype = train_decoder_config (t->decoder)->dtype;
    const train_trainer_options_t *o = &t->opts;
    bool arenas = train_decoder_weights (t->decoder)->data != NULL;

    if (sharded && arenas)
        return err_set (err, TRAIN_EINVAL,
                        "a sharded model needs a decoder without arenas: "
                        "train_decoder_create_bare");
    if (!sharded && !arenas)
        return err_set (err, TRAIN_EINVAL,
                        "the decoder has no arenas, and strategy %d shards "
                        "nothing",
                        o->strategy);
    if (!sharded && (o->offload_weights || o->round_late))
        return err_set (err, TRAIN_EINVAL,
                        "%s: strategy %d shards nothing; "
                        "TRAIN_FULL_SHARD would do, of one rank too",
                        o->offload_weights ? "offload_weights" : "round_late",
                        o->strategy);
    if (o->round_late && dtype != TRAIN_BF16 && dtype != TRAIN_F16)
        return err_set (err, TRAIN_EINVAL,
                        "round_late: weights of %s are masters, and nothing "
                        "is rounded; BF16 and F16 are",
                        train_dtype_name (dtype));
    return TRAIN_OK;
}

static train_status_t make_engine (train_trainer_t *t, train_error_t *err)
{
    const train_trainer_options_t *o = &t->opts;
    train_dtype_t dtype = train_decoder_config (t->decoder)->dtype;
    bool sharded =
        o->strategy == TRAIN_SHARD_GRAD_OP || o->strategy == TRAIN_FULL_SHARD;
    struct fsdp_options f = {
        .strategy = o->strategy,
        .wrap = o->wrap,
        .least = o->least,
        .prefetch = o->prefetch,
        .no_sync = o->no_sync && sharded,
        .offload = o->offload,
        .round_late = o->round_late,
        .offload_weights = o->offload_weights,
        .no_decay = o->no_decay,
        .frozen = o->frozen,
        .reduce = o->reduce_bf16       ? TRAIN_BF16
                  : dtype == TRAIN_F64 ? TRAIN_F64
                                       : TRAIN_F32,
    };

    TRY (check_shard (t, sharded, err));
    if (trainer_gpu_serves (t))
        return trainer_gpu_create (t, &t->gpu, err);
    TRY (trainer_shard_moves (t, err));
    TRY (fsdp_of_decoder (&f, t->moves, t->decoder, &t->fsdp, err));
    return fsdp_adamw (t->fsdp, t->decoder, &o->adamw, &t->adamw, err);
}

static train_status_t set_up (train_trainer_t *t, train_error_t *err)
{
    size_t n;
    train_status_t status = train_trace_open (NULL, train_group_rank (t->group),
                                              train_group_size (t->group), err);

    share_rows (t);
    if (status == TRAIN_OK && t->opts.scaler)
        status = train_scaler_create (t->opts.scaler, &t->scaler, err);
    if (status == TRAIN_OK)
        status = make_engine (t, err);
    if (status == TRAIN_OK)
        status = trainer_slow_begin (&t->slow, t->decoder, err);
    if (status == TRAIN_OK)
        status = trainer_compare (t, err);
    if (status != TRAIN_OK)
        return status;
    n = t->data ? (size_t)t->pass * (size_t)train_data_seq (t->data) : 1;
    t->tokens = calloc (n, sizeof (*t->tokens));
    t->targets = calloc (n, sizeof (*t->targets));
    if (!t->tokens || !t->targets)
        return err_set (err, TRAIN_ENOMEM, "no memory for %zu tokens", n);
    if (t->data && train_data_is_documents (t->data)
        && !(t->starts = calloc (n, sizeof (*t->starts))))
        return err_set (err, TRAIN_ENOMEM, "no memory for %zu tokens", n);
    return trainer_same_weights (t, err);
}

train_status_t trainer_create (const train_trainer_options_t *opts,
                               train_group_t *group, const train_data_t *data,
                               const struct trainer_source *source,
                               train_decoder_t *decoder,
                               train_trainer_t **ret_trainer,
                               train_error_t *err)
{
    train_trainer_options_t o;
    train_status_t status = check_options (opts, &o, err);
    train_trainer_t *t;

    if (status != TRAIN_OK)
        return status;
    if (!group || (!data && !source) || !decoder || !ret_trainer)
        return err_set (err, TRAIN_EINVAL,
                        "trainer: group, data, decoder or ret_trainer is NULL");
    if (!(t = calloc (1, sizeof (*t))))
        return err_set (err, TRAIN_ENOMEM, "no memory for a trainer");
    t->opts = o;
    if (t->opts.max_skips == 0)
        t->opts.max_skips = MAX_SKIPS;
    t->group = group;
    t->data = data;
    if (source)
        t->source = *source;
    t->decoder = decoder;
    if ((status = set_up (t, err)) != TRAIN_OK)
        train_trainer_destroy (t);
    else
        *ret_trainer = t;
    return status;
}

void train_trainer_destroy (train_trainer_t *t)
{
    if (!t)
        return;
    train_ckpt_saver_destroy (t->saver);
    free (t->note);
    free (t->nonfinite);
    trainer_gpu_destroy (t->gpu);
    train_adamw_destroy (t->adamw);
    fsdp_destroy (t->fsdp); /* waits for what the clock looks at */
    trainer_slow_fini (&t->slow);
    train_scaler_destroy (t->scaler);
    free (t->saving_in);
    free (t->saved_in);
    if (t->starts)
        train_decoder_documents (t->decoder, NULL);
    free (t->starts);
    free (t->tokens);
    free (t->targets);
    free (t);
}

double trainer_loss_scale (const train_trainer_t *t)
{
    return t->scaler ? train_scaler_scale (t->scaler) : 1;
}

/* One pass; a rank whose rows are through takes part without any. */
train_status_t trainer_pass (train_trainer_t *t, int p, double *loss_sum,
                             int64_t *counted, train_error_t *err)
{
    int seq = trainer_source_of (t).seq, rows;
    double loss;
    int64_t n;

    if (t->gpu)
        return trainer_gpu_pass (t, p, counted, err);
    TRY (fsdp_pass (t->fsdp, p + 1 == t->passes, err));
    if (!t->data) {
        TRY (trainer_ask (t, p, &rows, counted, err));
        return rows > 0 ? TRAIN_OK : fsdp_empty_pass (t->fsdp, err);
    }
    TRY (trainer_take_rows (t, p, &rows, err));
    if (rows <= 0)
        return fsdp_empty_pass (t->fsdp, err);
    if (trainer_shard_serves (t))
        return trainer_shard_pass (t, rows, counted, err);
    TRY (train_decoder_step (t->decoder, t->tokens, t->targets, rows, seq,
                             trainer_token_scale (t), &loss, &n, err));
    *loss_sum += loss;
    *counted += n;
    return TRAIN_OK;
}

/* Gradients of this rank's rows, added up pass by pass. */
static train_status_t run_passes (train_trainer_t *t, double *ret_loss_sum,
                                  int64_t *ret_n, train_error_t *err)
{
    *ret_loss_sum = 0;
    *ret_n = 0;
    TRY (fsdp_begin (t->fsdp, err));
    for (int p = 0; p < t->passes; p++)
        TRY (trainer_pass (t, p, ret_loss_sum, ret_n, err));
    return TRAIN_OK;
}

/* What the ranks sum beside the gradients. */
enum { LOSS, TOKENS, STOP, SUMSQ, N_SUMS };

static train_status_t combine (train_trainer_t *t, double sums[N_SUMS],
                               double *ret_norm, train_error_t *err)
{
    int64_t shape[1] = {N_SUMS};
    train_tensor_t view;

    TRY (fsdp_end (t->fsdp, err));
    sums[SUMSQ] = fsdp_sumsq (t->fsdp);
    TRY (train_tensor_view (&view, sums, TRAIN_F64, 1, shape, err));
    TRY (train_all_reduce (t->group, &view.t, TRAIN_SUM, err));
    *ret_norm = sqrt (sums[SUMSQ]) / trainer_loss_scale (t);
    return TRAIN_OK;
}

/* A loss scale that is too large is found out by such steps; else too many in a
 * row end the run. */
static train_status_t count_skip (train_trainer_t *t, double norm,
                                  train_error_t *err)
{
    t->n_skips++;
    t->skip_run++;
    if (t->scaler)
        return TRAIN_OK;
    if (t->skip_run == 1)
        TRY (trainer_look (t, err));
    if (t->skip_run < t->opts.max_skips)
        return TRAIN_OK;
    return err_set (err, TRAIN_ENONFINITE,
                    "step %lld: gradients are not finite for %lld steps "
                    "in a row (norm %g); %s; a lower lr or a longer warmup "
                    "would help",
                    (long long)t->step + 1, (long long)t->skip_run, fabs (norm),
                    t->nonfinite ? t->nonfinite : "it began before this run");
}

static train_status_t update (train_trainer_t *t, double lr, double norm,
                              train_error_t *err)
{
    double factor = 1 / trainer_loss_scale (t);

    TRY (train_adamw_step (
        t->adamw, fsdp_weights (t->fsdp), fsdp_grads (t->fsdp), lr,
        train_clip_scale (norm, t->opts.clip) * factor, err));
    return trainer_updated (t, err);
}

/* Grow or shrink; where it has been at its floor for too long, say by what. */
static train_status_t update_scale (train_trainer_t *t, bool bad,
                                    train_error_t *err)
{
    train_error_t own = {0};
    train_status_t status;

    scaler_found (t->scaler, bad);
    status = train_scaler_update (t->scaler, &own);
    if (status == TRAIN_OK)
        return TRAIN_OK;
    TRY (trainer_look (t, err));
    return err_set (err, status, "step %lld: %s; %s", (long long)t->step + 1,
                    own.text, t->nonfinite);
}

static train_status_t count_step (train_trainer_t *t, bool bad, double norm,
                                  train_error_t *err)
{
    if (!bad)
        t->skip_run = 0;
    else
        TRY (count_skip (t, norm, err));
    return t->scaler ? update_scale (t, bad, err) : TRAIN_OK;
}

/* What a step came to, before it is counted. */
struct outcome {
    double sums[N_SUMS], norm;
    bool bad; /* nothing was updated */
};

static train_status_t step_on_gpu (train_trainer_t *t, double lr, bool stop,
                                   struct outcome *o, train_error_t *err)
{
    struct trainer_gpu_report r = {.stop = stop};

    TRY (t->gpu ? trainer_gpu_step (t, lr, &r, err)
                : trainer_shard_step (t, lr, stop, &r, err));
    *o = (struct outcome){
        {r.loss_sum, (double)r.n, r.stop, 0}, r.norm, r.skipped};
    return TRAIN_OK;
}

static train_status_t step_by_parts (train_trainer_t *t, double lr, bool stop,
                                     struct outcome *o, train_error_t *err)
{
    train_span_t part = train_trace_begin ("step", "forward and backward");
    double begin = t->slow.clock (), waited = t->slow.waited_s;
    int64_t n = 0;
    train_status_t status = run_passes (t, &o->sums[LOSS], &n, err);

    train_trace_end (&part, NULL, NULL, 0);
    trainer_slow_add (&t->slow, t->slow.clock () - begin,
                      t->slow.waited_s - waited);
    if (status != TRAIN_OK)
        return status;
    o->sums[TOKENS] = (double)n;
    o->sums[STOP] = stop;
    TRY (combine (t, o->sums, &o->norm, err));
    o->bad = !isfinite (o->norm) || !isfinite (o->sums[LOSS]);
    if (o->bad)
        return TRAIN_OK;
    part = train_trace_begin ("step", "update");
    status = update (t, lr, o->norm, err);
    train_trace_end (&part, NULL, NULL, 0);
    return status;
}

static void end_step (const train_trainer_t *t, const train_span_t *span,
                      train_status_t status)
{
    const train_trace_arg_t args[] = {{"step", t->step + 1},
                                      {"status", status}};

    train_trace_end (span, NULL, args, 2);
}

train_status_t train_trainer_step (train_trainer_t *t, bool stop,
                                   train_metrics_t *ret_metrics,
                                   train_error_t *err)
{
    double begin = clock_s (), scale = trainer_loss_scale (t);
    double lr = train_schedule_lr (&t->opts.schedule, t->step);
    train_span_t whole = train_trace_begin ("step", "step");
    struct outcome o = {0};
    train_status_t status = t->gpu || trainer_shard_serves (t)
                                ? step_on_gpu (t, lr, stop, &o, err)
                                : step_by_parts (t, lr, stop, &o, err);

    if (status == TRAIN_OK)
        status = count_step (t, o.bad, o.norm, err);
    end_step (t, &whole, status);
    if (status != TRAIN_OK)
        return trainer_name_saved (t, status, err);
    t->step++;
    t->n_tokens += (int64_t)o.sums[TOKENS];
    if (t->data)
        t->loss = o.sums[TOKENS] > 0 ? o.sums[LOSS] / o.sums[TOKENS] : NAN;
    if (ret_metrics)
        *ret_metrics = (train_metrics_t){
            .step = t->step,
            .loss = t->loss,
            .grad_norm = o.norm,
            .lr = lr,
            .tokens = t->n_tokens,
            .step_s = clock_s () - begin,
            .skipped = o.bad,
            .n_skips = t->n_skips,
            .stop = o.sums[STOP] > 0,
            .loss_scale = t->scaler ? scale : 0,
        };
    return TRAIN_OK;
}

int64_t train_trainer_steps (const train_trainer_t *t)
{
    return t->step;
}

const train_shard_plan_t *train_trainer_plan (const train_trainer_t *t)
{
    return t->gpu ? trainer_gpu_plan (t->gpu) : fsdp_plan (t->fsdp);
}

int train_trainer_place (const train_trainer_t *t)
{
    return t->gpu ? 0 : fsdp_rank (t->fsdp);
}

bool trainer_is_sharded (const train_trainer_t *t)
{
    return !t->gpu && fsdp_is_sharded (t->fsdp);
}

DLTensor *train_trainer_weights (train_trainer_t *t)
{
    DLTensor *masters = train_adamw_masters (t->adamw);

    if (!t->gpu)
        return fsdp_weights (t->fsdp);
    return masters && !adamw_is_own (t->adamw)
               ? masters
               : train_decoder_weights (t->decoder);
}

train_status_t trainer_updated (train_trainer_t *t, train_error_t *err)
{
    if (t->gpu)
        return trainer_gpu_updated (t, err);
    fsdp_updated (t->fsdp);
    if (t->opts.adamw.stochastic)
        fsdp_round (t->fsdp, t->adamw);
    return train_adamw_masters (t->adamw)
               ? adamw_narrow (t->adamw, fsdp_weights (t->fsdp), err)
               : TRAIN_OK;
}

DLTensor *train_trainer_m (train_trainer_t *t)
{
    return train_adamw_m (t->adamw);
}

DLTensor *train_trainer_v (train_trainer_t *t)
{
    return train_adamw_v (t->adamw);
}

train_status_t train_trainer_unused (train_trainer_t *t, char *text,
                                     size_t size, train_error_t *err)
{
    return t->gpu ? trainer_gpu_unused (t, text, size, err)
                  : fsdp_unused (t->fsdp, text, size, err);
}
