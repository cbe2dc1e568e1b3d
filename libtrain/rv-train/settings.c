/* SPDX-License-Identifier: Apache-2.0
 * settings.c - rv-train's keys, their defaults, and what does not go together */
#include "settings.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "plan/conf.h"
#include "plan/fsio.h"

#define AT(field) offsetof (struct settings, field)

/* Sections are in the order of rv-train(1). */
static const struct conf_key keys[] = {
    {"run", "task", CONF_CHOICE, AT (task), 0, 0, "pretrain,sft,grpo"},
    {"run", "steps", CONF_INT, AT (steps), 1, 1e12, NULL},
    {"run", "seed", CONF_INT, AT (seed), 0, 9e15, NULL},
    {"run", "device", CONF_CHOICE, AT (device), 0, 0, "auto,cpu,cuda"},
    {"run", "deterministic", CONF_BOOL, AT (deterministic), 0, 0, NULL},
    {"model", "dir", CONF_STRING, AT (model_dir), 0, 0, NULL},
    {"model", "layers", CONF_INT, AT (layers), 1, 1024, NULL},
    {"model", "dim", CONF_INT, AT (dim), 2, 65536, NULL},
    {"model", "heads", CONF_INT, AT (heads), 1, 1024, NULL},
    {"model", "kv_heads", CONF_INT, AT (kv_heads), 1, 1024, NULL},
    {"model", "ffn", CONF_INT, AT (ffn), 1, 1 << 20, NULL},
    {"model", "vocab", CONF_INT, AT (vocab), 2, 1 << 24, NULL},
    {"model", "tie", CONF_BOOL, AT (tie), 0, 0, NULL},
    {"model", "rope_theta", CONF_DOUBLE, AT (rope_theta), 1, 1e12, NULL},
    {"model", "lora_rank", CONF_INT, AT (tune.lora_rank), 0, 4096, NULL},
    {"model", "lora_alpha", CONF_DOUBLE, AT (tune.lora_alpha), 0, 1e6, NULL},
    {"model", "lora_targets", CONF_LIST, AT (tune.lora_targets), 0, 0, NULL},
    {"model", "dropout", CONF_DOUBLE, AT (tune.dropout), 0, 1, NULL},
    {"model", "recompute", CONF_CHOICE, AT (tune.recompute), 0, 0,
     "nothing,cheap,blocks"},
    {"data", "files", CONF_STRING, AT (files), 0, 0, NULL},
    {"data", "tokenizer", CONF_STRING, AT (tokenizer), 0, 0, NULL},
    {"data", "template", CONF_STRING, AT (rows.chat), 0, 0, NULL},
    {"data", "system", CONF_STRING, AT (rows.system), 0, 0, NULL},
    {"data", "end", CONF_STRING, AT (rows.end), 0, 0, NULL},
    {"data", "packed", CONF_BOOL, AT (rows.packed), 0, 0, NULL},
    {"data", "long", CONF_CHOICE, AT (rows.too_long), 0, 0, "refuse,skip,cut"},
    {"data", "seq", CONF_INT, AT (seq), 1, 1 << 20, NULL},
    {"data", "batch", CONF_INT, AT (batch), 1, 1 << 24, NULL},
    {"data", "micro_batch", CONF_INT, AT (micro_batch), 1, 1 << 24, NULL},
    {"data", "shuffle", CONF_BOOL, AT (shuffle), 0, 0, NULL},
    {"data", "documents", CONF_BOOL, AT (tune.documents), 0, 0, NULL},
    {"optim", "lr", CONF_DOUBLE, AT (lr), 0, 1e3, NULL},
    {"optim", "min_lr", CONF_DOUBLE, AT (min_lr), 0, 1e3, NULL},
    {"optim", "warmup", CONF_INT, AT (warmup), 0, 1e12, NULL},
    {"optim", "schedule", CONF_CHOICE, AT (schedule), 0, 0,
     "constant,linear,cosine"},
    {"optim", "beta1", CONF_DOUBLE, AT (beta1), 0, 1, NULL},
    {"optim", "beta2", CONF_DOUBLE, AT (beta2), 0, 1, NULL},
    {"optim", "eps", CONF_DOUBLE, AT (eps), 0, 1, NULL},
    {"optim", "weight_decay", CONF_DOUBLE, AT (weight_decay), 0, 1e3, NULL},
    {"optim", "clip", CONF_DOUBLE, AT (clip), 0, 1e9, NULL},
    {"optim", "no_decay", CONF_LIST, AT (no_decay), 0, 0, NULL},
    {"optim", "frozen", CONF_LIST, AT (frozen), 0, 0, NULL},
    {"shard", "strategy", CONF_CHOICE, AT (strategy), 0, 0,
     "no_shard,ddp,grad_op,full"},
    {"shard", "wrap", CONF_STRING, AT (wrap), 0, 0, NULL},
    {"shard", "prefetch", CONF_INT, AT (prefetch), 0, 1024, NULL},
    {"shard", "offload", CONF_BOOL, AT (offload), 0, 0, NULL},
    {"shard", "round_late", CONF_BOOL, AT (round_late), 0, 0, NULL},
    {"shard", "offload_weights", CONF_BOOL, AT (offload_weights), 0, 0, NULL},
    {"shard", "no_sync", CONF_BOOL, AT (tune.no_sync), 0, 0, NULL},
    {"precision", "param", CONF_CHOICE, AT (param), 0, 0,
     "fp32,fp64,bf16,fp16"},
    {"precision", "reduce", CONF_CHOICE, AT (reduce), 0, 0,
     "fp32,fp64,bf16,fp16"},
    {"precision", "buffer", CONF_CHOICE, AT (buffer), 0, 0,
     "fp32,fp64,bf16,fp16"},
    {"precision", "scaler", CONF_BOOL, AT (scaler), 0, 0, NULL},
    {"precision", "stochastic_rounding", CONF_BOOL, AT (stochastic_rounding), 0,
     0, NULL},
    {"checkpoint", "dir", CONF_STRING, AT (ckpt_dir), 0, 0, NULL},
    {"checkpoint", "every", CONF_INT, AT (ckpt_every), 0, 1e12, NULL},
    {"checkpoint", "keep", CONF_INT, AT (ckpt_keep), 1, 1e6, NULL},
    {"checkpoint", "resume", CONF_STRING, AT (resume), 0, 0, NULL},
    {"eval", "every", CONF_INT, AT (eval.every), 0, 1e12, NULL},
    {"eval", "samples", CONF_INT, AT (eval.samples), 0, 1e12, NULL},
    {"eval", "files", CONF_STRING, AT (eval.files), 0, 0, NULL},
    {"log", "file", CONF_STRING, AT (log_file), 0, 0, NULL},
    {"log", "every", CONF_INT, AT (log_every), 0, 1e12, NULL},
    {"log", "slow", CONF_DOUBLE, AT (log_slow), 0, 1e6, NULL},
    {"log", "trace", CONF_STRING, AT (trace), 0, 0, NULL},
    /* Known names that are not served yet: sink () says so. */
    {"generate", "*", CONF_STRING, 0, 0, 0, NULL},
    {"reward *", "*", CONF_STRING, 0, 0, 0, NULL},
#define GRPO(field) AT (grpo.field)
    SETTINGS_GRPO_KEYS (GRPO),
};

#define N_KEYS (sizeof (keys) / sizeof (*keys))

static int sink (void *arg, const char *section, const char *section_arg,
                 const char *key, const char *value, struct rv_error *err)
{
    struct settings *c = arg;

    if (strcmp (section, "reward") == 0)
        return settings_reward_set (&c->rewards, section_arg, key, value, err);
    return error_set (err, RV_EINVAL,
                      "[%s] %s is not served yet by this version; remove it",
                      section, key);
}

/* Every string starts as a copy, so that settings_fini frees alike. */
static int set_defaults (struct settings *c, struct rv_error *err)
{
    c->seed = 1;
    c->deterministic = true;
    c->layers = 4;
    c->dim = 128;
    c->heads = 4;
    c->vocab = 256;
    c->tie = true;
    c->rope_theta = 10000;
    c->seq = 128;
    c->batch = 16;
    c->shuffle = true;
    c->lr = 1e-3;
    c->beta1 = 0.9;
    c->beta2 = 0.95;
    c->eps = 1e-8;
    c->weight_decay = 0.1;
    c->clip = 1;
    c->schedule = TRAIN_SCHEDULE_COSINE;
    c->prefetch = -1;
    c->reduce = c->buffer = -1; /* as param */
    c->ckpt_keep = 2;
    settings_grpo_defaults (&c->grpo);
    c->eval.samples = -1;
    c->log_every = 10;
    c->log_slow = 1.5;
    if (!(c->resume = strdup ("auto")))
        return error_set (err, RV_ENOMEM, "no memory");
    return settings_tune_defaults (c, err);
}

/* "dir =" with nothing behind it unsets, so that an override can. */
static void unset_empty (struct settings *c)
{
    char **text[] = {
        &c->model_dir,  &c->files,    &c->tokenizer,        &c->wrap,
        &c->ckpt_dir,   &c->log_file, &c->grpo.completions, &c->grpo.url,
        &c->eval.files, &c->trace,    &c->grpo.token_file};

    for (size_t i = 0; i < sizeof (text) / sizeof (*text); i++)
        if (*text[i] && !**text[i]) {
            free (*text[i]);
            *text[i] = NULL;
        }
}

/* "layer" is 0, a number of elements itself, anything else -1. */
static int64_t read_wrap (const char *wrap)
{
    char *end;
    long long n;

    if (!wrap || strcmp (wrap, "layer") == 0)
        return 0;
    n = strtoll (wrap, &end, 10);
    return *end || n < 1 || n > 1000000000000 ? -1 : n;
}

/* What follows from other settings where nothing was said. */
static void derive (struct settings *c)
{
    if (c->kv_heads == 0)
        c->kv_heads = c->heads;
    if (c->ffn == 0) /* 8/3 dim, up to the next multiple of 32 */
        c->ffn = (c->dim * 8 / 3 + 31) / 32 * 32;
    c->least = read_wrap (c->wrap);
    if (c->reduce < 0)
        c->reduce = c->param == FP64 ? FP64 : FP32;
    if (c->buffer < 0)
        c->buffer = c->param == FP64 ? FP64 : FP32;
    settings_eval_derive (c);
}

static int from_environment (struct settings *c, struct rv_error *err)
{
    const char *ckpt = getenv ("RV_CHECKPOINT_DIR");
    const char *out = getenv ("RV_OUTPUT_DIR");

    if (!c->ckpt_dir && ckpt && *ckpt && !(c->ckpt_dir = strdup (ckpt)))
        return error_set (err, RV_ENOMEM, "no memory");
    if (!c->log_file && out && *out
        && !(c->log_file = fsio_join (out, "metrics.jsonl")))
        return error_set (err, RV_ENOMEM, "no memory");
    return RV_OK;
}

int settings_rules (const struct settings *c, const struct settings_rule *rule,
                    size_t n, struct rv_error *err)
{
    char where[512];

    for (size_t i = 0; i < n; i++)
        if (rule[i].broken)
            return error_set (err, RV_EINVAL, "%s: %s",
                              settings_where (c, rule[i].section, rule[i].key,
                                              where, sizeof (where)),
                              rule[i].why);
    return RV_OK;
}

/* Names of contracts that this version has no code for. */
static int check_served (const struct settings *c, struct rv_error *err)
{
    const struct settings_rule rule[] = {
        {c->device == DEVICE_CUDA && c->param == FP64, "run", "device",
         "cuda has no fp64; use fp32, bf16 or fp16, or device = cpu"},
        {c->offload && c->device != DEVICE_CUDA, "shard", "offload",
         "is of a GPU's memory; use off, or [run] device = cuda"},
        {c->offload_weights && c->device != DEVICE_CUDA, "shard",
         "offload_weights",
         "is of a GPU's memory; use off, or [run] device = cuda"},
        {c->param == FP16 && !c->scaler, "precision", "param",
         "fp16 needs [precision] scaler = on; bf16 does without"},
        {(c->reduce == FP64) != (c->param == FP64) || c->reduce == FP16,
         "precision", "reduce",
         "only fp32 and bf16 are served yet, with param = fp64 only fp64"},
        {c->buffer == FP64 && c->param != FP64, "precision", "buffer",
         "fp64 needs param = fp64; use fp32, bf16 or fp16"},
        {c->buffer == FP32 && c->param == FP64, "precision", "buffer",
         "with param = fp64 only fp64, bf16 or fp16"},
        {c->scaler && c->param != FP16, "precision", "scaler",
         "is of use with param = fp16 alone; use off"},
        {c->stochastic_rounding && c->param != BF16, "precision",
         "stochastic_rounding", "is of use with param = bf16 alone; use off"},
    };

    return SETTINGS_RULES (c, rule, err);
}

static int check_shard (const struct settings *c, struct rv_error *err)
{
    bool sharded =
        c->strategy == TRAIN_SHARD_GRAD_OP || c->strategy == TRAIN_FULL_SHARD;
    const struct settings_rule rule[] = {
        {c->least < 0, "shard", "wrap",
         "is neither layer nor a number of elements from 1 to 1e12"},
        {c->wrap && c->strategy == TRAIN_NO_SHARD, "shard", "wrap",
         "is of no use with strategy = no_shard; remove it, or use ddp, "
         "grad_op or full"},
        {c->prefetch >= 0 && !sharded, "shard", "prefetch",
         "is of use with strategy = grad_op or full alone; remove it"},
        {c->round_late && !sharded, "shard", "round_late",
         "is of use with strategy = grad_op or full alone; use off"},
        {c->round_late && c->param != BF16 && c->param != FP16, "shard",
         "round_late", "is of use with param = bf16 or fp16 alone; use off"},
        {c->round_late
             && (c->offload || c->offload_weights || c->stochastic_rounding),
         "shard", "round_late",
         "needs masters on the GPU and rounds to the nearest: no offload, no "
         "stochastic_rounding"},
        {c->offload_weights && !sharded, "shard", "offload_weights",
         "is of use with strategy = grad_op or full alone, full on one GPU "
         "too: the others have all weights on each"},
        {c->reduce == BF16 && !sharded, "precision", "reduce",
         "bf16 needs [shard] strategy = grad_op or full"},
        {c->tune.no_sync && !sharded, "shard", "no_sync",
         "is of use with strategy = grad_op or full alone: the others sum "
         "gradients once a step; use off"},
    };

    return SETTINGS_RULES (c, rule, err);
}

static int check_sizes (const struct settings *c, struct rv_error *err)
{
    bool bytes = strcmp (c->tokenizer, "bytes") == 0;
    const struct settings_rule rule[] = {
        {!c->files, "data", "files",
         "is not set; name text files, e.g. /usr/share/common-licenses/*"},
        {c->steps == 0, "run", "steps", "is not set; give a number above 0"},
        {c->dim % c->heads != 0, "model", "heads", "does not divide dim"},
        {c->dim % c->heads == 0 && c->dim / c->heads % 2 != 0, "model", "heads",
         "dim/heads is odd, and rotary positions need pairs"},
        {c->heads % c->kv_heads != 0, "model", "kv_heads",
         "does not divide heads"},
        {c->vocab < 256 && bytes, "model", "vocab",
         "is below 256, the number of bytes that tokenizer = bytes has"},
        {c->lr <= 0, "optim", "lr", "is not above 0"},
        {c->min_lr > c->lr, "optim", "min_lr", "is above lr"},
        {c->min_lr > 0 && c->schedule == TRAIN_SCHEDULE_CONSTANT, "optim",
         "min_lr",
         "is of no use with schedule = constant; use 0, or linear or cosine"},
        {c->warmup > c->steps, "optim", "warmup", "is above [run] steps"},
        {c->beta1 >= 1, "optim", "beta1", "is not below 1"},
        {c->beta2 >= 1, "optim", "beta2", "is not below 1"},
        {c->eps <= 0, "optim", "eps", "is not above 0"},
        {c->ckpt_every > 0 && !c->ckpt_dir, "checkpoint", "every",
         "needs [checkpoint] dir"},
        {c->log_slow != 0 && c->log_slow <= 1, "log", "slow",
         "is neither above 1 nor 0, which switches it off"},
        {!*c->resume, "checkpoint", "resume", "is not auto, off or a path"},
    };

    return SETTINGS_RULES (c, rule, err);
}

/* What has been said, by the file and by overrides. */
static int read_all (struct settings *c, struct rv_error *err)
{
    int rc = set_defaults (c, err);

    if (rc == RV_OK)
        rc = conf_read (c->file, keys, N_KEYS, c, sink, c, err);
    for (size_t i = 0; i < c->n_overrides && rc == RV_OK; i++)
        rc = conf_set (c->overrides[i], keys, N_KEYS, c, sink, c, err);
    return rc;
}

/* RV_EINVAL: what is wrong first. */
static int check_all (struct settings *c, struct rv_error *err)
{
    int rc;

    if ((rc = check_served (c, err)) || (rc = settings_model_check (c, err))
        || (rc = check_shard (c, err)) || (rc = check_sizes (c, err))
        || (rc = settings_eval_check (c, err))
        || (rc = settings_tune_check (c, err))
        || (rc = settings_reward_check (c, &c->rewards, err))
        || (rc = settings_rows_check (c, err)))
        return rc;
    return settings_grpo_check (c, err);
}

int settings_read (struct settings *c, const char *file, char *const *overrides,
                   size_t n, struct rv_error *err)
{
    int rc;

    *c = (struct settings){
        .file = file, .overrides = overrides, .n_overrides = n};
    if ((rc = read_all (c, err)))
        return rc;
    unset_empty (c);
    if ((rc = from_environment (c, err))
        || (rc = settings_model_derive (c, err)))
        return rc;
    derive (c);
    return check_all (c, err);
}

void settings_fini (struct settings *c)
{
    settings_reward_fini (&c->rewards);
    conf_free_strings (keys, N_KEYS, c);
}

static bool is_override_of (const char *text, const char *section,
                            const char *key)
{
    size_t a = strlen (section), b = strlen (key);

    return strncmp (text, section, a) == 0 && text[a] == '.'
           && strncmp (text + a + 1, key, b) == 0 && text[a + 1 + b] == '=';
}

/* Does [line] begin with [word], blanks aside, and then one of [end]? */
static const char *begins (const char *line, const char *word, const char *end)
{
    size_t n = strlen (word);

    line += strspn (line, " \t");
    if (strncmp (line, word, n) != 0)
        return NULL;
    line += n;
    line += strspn (line, " \t");
    return *line && strchr (end, *line) ? line : NULL;
}

/* The line of the file where a key stands, 0 if none: for messages about a
 * value that was fine by itself when it was read. */
static int line_of (const char *file, const char *section, const char *key)
{
    char head[64], *text, *next, *line;
    bool inside = false;
    int number = 0, found = 0;

    if (fsio_read (file, 1 << 20, &text, NULL, NULL) != RV_OK)
        return 0;
    snprintf (head, sizeof (head), "[%s", section);
    next = text;
    while (!found && (line = strsep (&next, "\n"))) {
        number++;
        if (line[strspn (line, " \t")] == '[')
            inside = begins (line, head, "]");
        else if (inside && begins (line, key, "=:"))
            found = number;
    }
    free (text);
    return found;
}

static const char *override_of (const struct settings *c, const char *section,
                                const char *key)
{
    for (size_t i = c->n_overrides; i-- > 0;)
        if (is_override_of (c->overrides[i], section, key))
            return c->overrides[i];
    return NULL;
}

bool settings_given (const struct settings *c, const char *section,
                     const char *key)
{
    return override_of (c, section, key) || line_of (c->file, section, key) > 0;
}

char *settings_where (const struct settings *c, const char *section,
                      const char *key, char *buf, size_t size)
{
    const char *given = override_of (c, section, key);
    int line;

    if (given)
        snprintf (buf, size, "%s", given);
    else if ((line = line_of (c->file, section, key)) > 0)
        snprintf (buf, size, "%s:%d: [%s] %s", c->file, line, section, key);
    else
        snprintf (buf, size, "%s: [%s] %s", c->file, section, key);
    return buf;
}

train_decoder_config_t settings_decoder (const struct settings *c)
{
    return (train_decoder_config_t){
        .size = sizeof (train_decoder_config_t),
        .layers = (int)c->layers,
        .dim = (int)c->dim,
        .heads = (int)c->heads,
        .kv_heads = (int)c->kv_heads,
        .ffn = (int)c->ffn,
        .vocab = (int)c->vocab,
        .tie = c->tie,
        .rope_theta = c->rope_theta,
        .norm_eps = 1e-5,
        .dtype = c->param == FP64   ? TRAIN_F64
                 : c->param == BF16 ? TRAIN_BF16
                 : c->param == FP16 ? TRAIN_F16
                                    : TRAIN_F32,
        .deterministic = c->deterministic,
        .recompute = (train_recompute_t)c->tune.recompute,
        .lora = c->tune.lora,
        .buffer = c->buffer == BF16   ? TRAIN_BF16
                  : c->buffer == FP16 ? TRAIN_F16
                                      : TRAIN_F32,
    };
}

train_data_options_t settings_data (const struct settings *c)
{
    return (train_data_options_t){
        .size = sizeof (train_data_options_t),
        .files = c->files,
        .seq = (int)c->seq,
        .shuffle = c->shuffle,
        .seed = (uint64_t)c->seed,
        .held = settings_eval_held (c),
        .documents = c->tune.documents,
        .tokenizer = c->tokenizer,
        .end = c->rows.end,
        .text_alone = c->tokenizer_follows && !c->rows.end,
    };
}

train_trainer_options_t settings_trainer (const struct settings *c)
{
    static const train_scaler_options_t scaler = {.size = sizeof (scaler)};

    return (train_trainer_options_t){
        .size = sizeof (train_trainer_options_t),
        .batch = (int)c->batch,
        .micro_batch = (int)c->micro_batch,
        .clip = c->clip,
        .adamw = {.size = sizeof (train_adamw_options_t),
                  .beta1 = c->beta1,
                  .beta2 = c->beta2,
                  .eps = c->eps,
                  .weight_decay = c->weight_decay,
                  .stochastic = c->stochastic_rounding,
                  .seed = (uint64_t)c->seed},
        .schedule = {.size = sizeof (train_schedule_t),
                     .kind = (train_schedule_kind_t)c->schedule,
                     .lr = c->lr,
                     .min_lr = c->min_lr,
                     .warmup = c->warmup,
                     .steps = c->steps},
        .strategy = (train_strategy_t)c->strategy,
        .wrap = c->least > 0 ? TRAIN_WRAP_SIZE : TRAIN_WRAP_UNIT,
        .least = (size_t)c->least,
        .prefetch = c->prefetch < 0 ? 1 : (int)c->prefetch,
        .offload = c->offload,
        .round_late = c->round_late,
        .offload_weights = c->offload_weights,
        .no_sync = c->tune.no_sync,
        .reduce_bf16 = c->reduce == BF16,
        .no_decay = c->no_decay,
        .frozen = c->frozen,
        .scaler = c->scaler ? &scaler : NULL,
        .dropout = c->tune.dropout,
    };
}
