/* SPDX-License-Identifier: Apache-2.0
 * trainer_same.c - do all ranks have the same options, model and data? */
#include "trainer.h"

#include <stdio.h>
#include <string.h>
#include <xxhash.h>

#include "err.h"

#define MOST 80

/* What all ranks must have alike, one by one, so that a difference has a name. */
struct same {
    const char *of[MOST], *name[MOST];
    double value[MOST];
    bool hashed[MOST]; /* the value says nothing to a person */
    int n;
};

static void put (struct same *s, const char *of, const char *name, double value)
{
    s->of[s->n] = of;
    s->name[s->n] = name;
    s->value[s->n++] = value;
}

static void put_hash (struct same *s, const char *of, const char *name,
                      uint64_t hash)
{
    s->hashed[s->n] = true;
    put (s, of, name, (double)(hash >> 11)); /* 53 bits are a double's */
}

static void put_text (struct same *s, const char *name, const char *text)
{
    put_hash (s, "options", name, text ? XXH3_64bits (text, strlen (text)) : 0);
}

#define OPTION(name, value) put (s, "options", name, (double)(value))

static void put_update (struct same *s, const train_trainer_options_t *o)
{
    OPTION ("clip", o->clip);
    OPTION ("max_skips", o->max_skips);
    OPTION ("beta1", o->adamw.beta1);
    OPTION ("beta2", o->adamw.beta2);
    OPTION ("eps", o->adamw.eps);
    OPTION ("weight_decay", o->adamw.weight_decay);
    OPTION ("stochastic rounding", o->adamw.stochastic);
    OPTION ("seed", o->adamw.seed);
    OPTION ("schedule", o->schedule.kind);
    OPTION ("lr", o->schedule.lr);
    OPTION ("min_lr", o->schedule.min_lr);
    OPTION ("warmup", o->schedule.warmup);
    OPTION ("steps", o->schedule.steps);
    OPTION ("dropout", o->dropout);
    put_text (s, "no_decay", o->no_decay);
    put_text (s, "frozen", o->frozen);
}

static void put_shard (struct same *s, const train_trainer_options_t *o)
{
    OPTION ("batch", o->batch);
    OPTION ("micro_batch", o->micro_batch);
    OPTION ("strategy", o->strategy);
    OPTION ("wrap", o->wrap);
    OPTION ("least", o->least);
    OPTION ("prefetch", o->prefetch);
    OPTION ("no_sync", o->no_sync);
    OPTION ("reduce_bf16", o->reduce_bf16);
    OPTION ("offload", o->offload);
    OPTION ("round_late", o->round_late);
    OPTION ("offload_weights", o->offload_weights);
}

static void put_scaler (struct same *s, const train_scaler_options_t *given)
{
    train_scaler_options_t o = given ? *given : (train_scaler_options_t){0};

    OPTION ("scaler", given != NULL);
    OPTION ("the scaler's init", o.init);
    OPTION ("the scaler's growth", o.growth);
    OPTION ("the scaler's backoff", o.backoff);
    OPTION ("the scaler's interval", o.interval);
    OPTION ("the scaler's hysteresis", o.hysteresis);
    OPTION ("the scaler's floor", o.floor);
    OPTION ("the scaler's patience", o.patience);
}

#define MODEL(name, value) put (s, "model", name, (double)(value))

static void put_model (struct same *s, const train_decoder_config_t *c)
{
    MODEL ("layers", c->layers);
    MODEL ("dim", c->dim);
    MODEL ("heads", c->heads);
    MODEL ("kv_heads", c->kv_heads);
    MODEL ("ffn", c->ffn);
    MODEL ("vocab", c->vocab);
    MODEL ("tie", c->tie);
    MODEL ("rope_theta", c->rope_theta);
    MODEL ("norm_eps", c->norm_eps);
    MODEL ("dtype", c->dtype);
    MODEL ("buffer", c->buffer);
    MODEL ("head_dim", c->head_dim);
    MODEL ("qkv_bias", c->qkv_bias);
    MODEL ("qk_norm", c->qk_norm);
    MODEL ("being on a GPU", c->device.device_type == kDLCUDA);
    MODEL ("deterministic", c->deterministic);
    MODEL ("lora_rank", c->lora.rank);
    MODEL ("lora_alpha", c->lora.alpha);
    MODEL ("lora_targets", c->lora.targets);
}

static void put_rope (struct same *s, const train_rope_t *r)
{
    MODEL ("rope", r->kind);
    MODEL ("the rope's factor", r->factor);
    MODEL ("the rope's original", r->original);
    MODEL ("the rope's low", r->low);
    MODEL ("the rope's high", r->high);
    MODEL ("the rope's attention", r->attention);
    MODEL ("the rope's whole", r->whole);
}

static void put_source (struct same *s, struct trainer_source from)
{
    put (s, "data", "seq", from.seq);
    put (s, "data", "seed", (double)from.seed);
    put (s, "data", "shuffle", from.shuffle);
    put_hash (s, "data", "what is read and held out", from.hash);
}

static train_status_t differ (const struct same *s, int i, double low,
                              double high, train_error_t *err)
{
    char values[128] = "";

    if (!s->hashed[i])
        snprintf (values, sizeof (values), " is %.9g here, %.9g to %.9g on all",
                  s->value[i], low, high);
    return err_set (err, TRAIN_EMISMATCH,
                    "ranks differ in their %s: %s%s; start all with the same "
                    "file and the same text",
                    s->of[i], s->name[i], values);
}

/* Values by MIN and by MAX: if the two differ, ranks do. */
train_status_t trainer_compare (train_trainer_t *t, train_error_t *err)
{
    const train_decoder_config_t *c = train_decoder_config (t->decoder);
    struct same s = {.n = 0};
    double low[MOST], high[MOST];
    int64_t shape[1];
    train_tensor_t view;

    put_update (&s, &t->opts);
    put_shard (&s, &t->opts);
    put_scaler (&s, t->opts.scaler);
    put_model (&s, c);
    put_rope (&s, &c->rope);
    put_source (&s, trainer_source_of (t));
    shape[0] = s.n;
    memcpy (low, s.value, sizeof (low));
    memcpy (high, s.value, sizeof (high));
    TRY (train_tensor_view (&view, low, TRAIN_F64, 1, shape, err));
    TRY (train_all_reduce (t->group, &view.t, TRAIN_MIN, err));
    TRY (train_tensor_view (&view, high, TRAIN_F64, 1, shape, err));
    TRY (train_all_reduce (t->group, &view.t, TRAIN_MAX, err));
    for (int i = 0; i < s.n; i++)
        if (low[i] < high[i])
            return differ (&s, i, low[i], high[i], err);
    return TRAIN_OK;
}
