/* SPDX-License-Identifier: Apache-2.0
 * trainer_same.c - do all ranks have the same options, model and data? */
#include "trainer.h"

#include <string.h>
#include <xxhash.h>

#include "err.h"

static double hash_text (const char *text)
{
    return text ? (double)(XXH3_64bits (text, strlen (text)) >> 11) : 0;
}

static int64_t hash_options (const train_trainer_options_t *o)
{
    train_scaler_options_t scaler =
        o->scaler ? *o->scaler : (train_scaler_options_t){0};
    /* Values one by one: padding has no value. */
    double v[] = {o->batch,
                  o->micro_batch,
                  o->clip,
                  o->max_skips,
                  o->adamw.beta1,
                  o->adamw.beta2,
                  o->adamw.eps,
                  o->adamw.weight_decay,
                  o->adamw.stochastic,
                  (double)o->adamw.seed,
                  o->schedule.kind,
                  o->schedule.lr,
                  o->schedule.min_lr,
                  (double)o->schedule.warmup,
                  (double)o->schedule.steps,
                  o->strategy,
                  o->wrap,
                  (double)o->least,
                  o->prefetch,
                  o->no_sync,
                  o->reduce_bf16,
                  o->scaler != NULL,
                  o->offload,
                  o->round_late,
                  o->offload_weights,
                  scaler.init,
                  scaler.growth,
                  scaler.backoff,
                  (double)scaler.interval,
                  scaler.hysteresis,
                  scaler.floor,
                  scaler.patience,
                  hash_text (o->no_decay),
                  hash_text (o->frozen),
                  o->dropout};

    return (int64_t)XXH3_64bits (v, sizeof (v));
}

static int64_t hash_model (const train_decoder_config_t *c)
{
    double v[] = {c->layers,        c->dim,
                  c->heads,         c->kv_heads,
                  c->ffn,           c->vocab,
                  c->tie,           c->rope_theta,
                  c->norm_eps,      c->dtype,
                  c->buffer,        c->head_dim,
                  c->qkv_bias,      c->qk_norm,
                  c->rope.kind,     c->rope.factor,
                  c->rope.original, c->rope.low,
                  c->rope.high,     c->rope.attention,
                  c->rope.whole,    c->device.device_type == kDLCUDA,
                  c->deterministic, c->lora.rank,
                  c->lora.alpha,    c->lora.targets};

    return (int64_t)XXH3_64bits (v, sizeof (v));
}

static int64_t hash_source (struct trainer_source s)
{
    uint64_t v[] = {s.hash, s.seed, (uint64_t)s.seq, s.shuffle};

    return (int64_t)XXH3_64bits (v, sizeof (v));
}

/* Hashes of what all ranks must have alike, by MIN and by MAX: if the two
 * differ, ranks do. */
train_status_t trainer_compare (train_trainer_t *t, train_error_t *err)
{
    static const char *const what[3] = {"options", "model", "data"};
    int64_t own[3] = {hash_options (&t->opts),
                      hash_model (train_decoder_config (t->decoder)),
                      hash_source (trainer_source_of (t))};
    int64_t low[3], high[3], shape[1] = {3};
    train_tensor_t view;
    train_status_t status;

    memcpy (low, own, sizeof (own));
    memcpy (high, own, sizeof (own));
    status = train_tensor_view (&view, low, TRAIN_I64, 1, shape, err);
    if (status == TRAIN_OK)
        status = train_all_reduce (t->group, &view.t, TRAIN_MIN, err);
    if (status == TRAIN_OK)
        status = train_tensor_view (&view, high, TRAIN_I64, 1, shape, err);
    if (status == TRAIN_OK)
        status = train_all_reduce (t->group, &view.t, TRAIN_MAX, err);
    for (int i = 0; i < 3 && status == TRAIN_OK; i++)
        if (low[i] != high[i])
            status = err_set (err, TRAIN_EMISMATCH,
                              "ranks differ in their %s: %016llx here, others "
                              "%016llx to %016llx; start all with the same "
                              "file and the same text",
                              what[i], (unsigned long long)own[i],
                              (unsigned long long)low[i],
                              (unsigned long long)high[i]);
    return status;
}
