/* SPDX-License-Identifier: Apache-2.0
 * settings.h - what rv-train's INI file says. */
#ifndef RV_TRAIN_SETTINGS_H
#define RV_TRAIN_SETTINGS_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include <train.h>

#include "plan/error.h"
#include "settings_eval.h"
#include "settings_grpo.h"
#include "settings_model.h"
#include "settings_reward.h"
#include "settings_rows.h"
#include "settings_tune.h"

/* Types are those of conf.h: choices are int, numbers int64_t or double. */
struct settings {
    const char *file;       /* borrowed from the command line */
    char *const *overrides; /* (n_overrides) borrowed likewise */
    size_t n_overrides;

    int task;      /* enum task */
    int64_t steps; /* 0 = not set, which is refused */
    int64_t seed;
    int device; /* enum device */
    bool deterministic;

    char *model_dir;
    int64_t layers, dim, heads, kv_heads, ffn, vocab; /* 0 = by the others */
    bool tie;
    double rope_theta;

    char *files;
    char *tokenizer;
    bool tokenizer_follows; /* nobody set it: it is the model's, or bytes */
    int64_t seq, batch, micro_batch;
    bool shuffle;

    double lr, min_lr, beta1, beta2, eps, weight_decay, clip;
    int64_t warmup;
    int schedule;            /* train_schedule_kind_t */
    char *no_decay, *frozen; /* patterns of parameters; NULL = none */

    int strategy;     /* train_strategy_t */
    char *wrap;       /* "layer", or elements of a flat unit */
    int64_t least;    /* of wrap: elements; 0 = by layer */
    int64_t prefetch; /* -1 = not set, and then 1 where it is of use */
    bool offload, offload_weights, round_late;

    int param, reduce, buffer; /* enum precision */
    bool scaler, stochastic_rounding;

    char *ckpt_dir; /* NULL: RV_CHECKPOINT_DIR, else none */
    int64_t ckpt_every, ckpt_keep;
    char *resume; /* "auto", "off" or a path */

    struct settings_eval eval;
    struct settings_grpo grpo;
    struct settings_rewards rewards;
    struct settings_rows rows;
    struct settings_tune tune;

    char *log_file; /* NULL: RV_OUTPUT_DIR/metrics.jsonl, else none */
    int64_t log_every;
    double log_slow; /* 0 = never, else above 1 */
    char *trace;
};

enum task { TASK_PRETRAIN, TASK_SFT, TASK_GRPO };
enum device { DEVICE_AUTO, DEVICE_CPU, DEVICE_CUDA };
enum precision { FP32, FP64, BF16, FP16 };

/* settings_read - defaults, then [file], then each override in turn, then
 * RV_CHECKPOINT_DIR and RV_OUTPUT_DIR where the file gives no folder; all of it
 * checked. On failure [set] is to be freed all the same.
 * RV_EINVAL; RV_ENOTFOUND or RV_EIO for the file itself. */
int settings_read (struct settings *set, const char *file,
                   char *const *overrides, size_t n, struct rv_error *err);
void settings_fini (struct settings *set);

/* settings_given - does the file or an override have this key? */
bool settings_given (const struct settings *set, const char *section,
                     const char *key);

/* settings_where - "FILE:LINE: [section] key" of a setting, or "section.key=..."
 * when an override has it, or "FILE: [section] key" when it stands nowhere.
 *   buf   (size) written, cut if need be. Returns buf. */
char *settings_where (const struct settings *set, const char *section,
                      const char *key, char *buf, size_t size);

/* settings_rules - refuse the first of [n] rules that is broken: EINVAL, where the
 * setting stands, and why. */
struct settings_rule {
    bool broken;
    const char *section, *key, *why;
};
int settings_rules (const struct settings *set,
                    const struct settings_rule *rules, size_t n,
                    struct rv_error *err);

#define SETTINGS_RULES(set, rules, err)                                        \
    settings_rules (set, rules, sizeof (rules) / sizeof (*(rules)), err)

/* The parts as libtrain takes them; of a model in [model] dir, model_describe
 * (model_dir.h) has the sizes. */
train_decoder_config_t settings_decoder (const struct settings *set);
train_data_options_t settings_data (const struct settings *set);
train_trainer_options_t settings_trainer (const struct settings *set);

#endif
