/* SPDX-License-Identifier: Apache-2.0
 * settings_grpo.h - [grpo] and [reference]: names are TRL's where it has the
 * thing. */
#ifndef RV_TRAIN_SETTINGS_GRPO_H
#define RV_TRAIN_SETTINGS_GRPO_H

#include <stdbool.h>
#include <stdint.h>

#include <train.h>

#include "plan/error.h"

struct settings;

enum { REFERENCE_AUTO, REFERENCE_SHARDED, REFERENCE_WHOLE };

/* What a run's reference is: none; a server; the policy without its adapters; a
 * copy of it; units, brought when they are needed. */
enum settings_reference {
    REFERENCE_NONE,
    REFERENCE_SERVER,
    REFERENCE_BASE,
    REFERENCE_COPY,
    REFERENCE_UNITS
};

/* Types are those of conf.h. Choices are in the order of train/grpo.h. */
struct settings_grpo {
    int64_t group, iterations, steps, max_new, top_k, at_once;
    double temperature, top_p, min_p, repetition;
    bool drop_cut, shuffled, invariant;
    char *stop, *stop_ids; /* one string or a JSON array; ids; NULL: none */
    int old;               /* 0: made again where needed; 1: the sampler's */
    int gather;            /* of train_grpo_gather_t */
    int loss, level, kl, correct, scale, base, combine;
    double beta, low, high, cap, delta, dual, least, most;
    double tau_positive, tau_negative; /* 0: train/grpo.h's */
    double off_policy;                 /* below 0: none is masked */
    bool kl_gradient;
    char *completions; /* file of samples; NULL: none */
    int64_t shown;     /* of a cycle, in that file */
    char *url, *token_file;
    int ref_shard; /* REFERENCE_... */
    bool ref_offload;
};

/* Rows of conf's table; FIELD (x) is where struct settings has member x of
 * this. */
#define SETTINGS_GRPO_KEYS(FIELD)                                                \
    {"grpo", "num_generations", CONF_INT, FIELD (group), 2, 1 << 16, NULL},      \
        {"grpo", "num_iterations", CONF_INT, FIELD (iterations), 1, 1e6, NULL},  \
        {"grpo", "steps_per_generation", CONF_INT, FIELD (steps), 1, 1e6, NULL}, \
        {"grpo", "max_completion_length", CONF_INT, FIELD (max_new), 1, 1 << 20, \
         NULL},                                                                  \
        {"grpo", "at_once", CONF_INT, FIELD (at_once), 0, 1 << 20, NULL},        \
        {"grpo", "temperature", CONF_DOUBLE, FIELD (temperature), 0, 100, NULL}, \
        {"grpo", "top_k", CONF_INT, FIELD (top_k), 0, 1 << 24, NULL},            \
        {"grpo", "top_p", CONF_DOUBLE, FIELD (top_p), 0, 1, NULL},               \
        {"grpo", "min_p", CONF_DOUBLE, FIELD (min_p), 0, 1, NULL},               \
        {"grpo", "repetition_penalty", CONF_DOUBLE, FIELD (repetition), 0, 100,  \
         NULL},                                                                  \
        {"grpo",    "mask_truncated_completions",                                \
         CONF_BOOL, FIELD (drop_cut),                                            \
         0,         0,                                                           \
         NULL},                                                                  \
        {"grpo", "stop", CONF_STRING, FIELD (stop), 0, 0, NULL},                 \
        {"grpo", "stop_ids", CONF_STRING, FIELD (stop_ids), 0, 0, NULL},         \
        {"grpo", "batch_invariant", CONF_BOOL, FIELD (invariant), 0, 0, NULL},   \
        {"grpo", "shuffle_advantages", CONF_BOOL, FIELD (shuffled), 0, 0, NULL}, \
        {"grpo", "old_logps", CONF_CHOICE, FIELD (old), 0, 0, "again,sampler"},  \
        {"grpo", "gather", CONF_CHOICE,      FIELD (gather),                     \
         0,      0,        "auto,whole,unit"},                                   \
        {"grpo",                                                                 \
         "loss_type",                                                            \
         CONF_CHOICE,                                                            \
         FIELD (loss),                                                           \
         0,                                                                      \
         0,                                                                      \
         "grpo,bnpo,dr_grpo,dapo,gspo,cispo,cispo_clip,sapo"},                   \
        {"grpo",                                                                 \
         "importance_sampling_level",                                            \
         CONF_CHOICE,                                                            \
         FIELD (level),                                                          \
         0,                                                                      \
         0,                                                                      \
         "token,sequence"},                                                      \
        {"grpo", "kl", CONF_CHOICE, FIELD (kl), 0, 0, "k3,k2,k1"},               \
        {"grpo",                                                                 \
         "correction",                                                           \
         CONF_CHOICE,                                                            \
         FIELD (correct),                                                        \
         0,                                                                      \
         0,                                                                      \
         "off,token_truncate,token_mask,sequence_truncate,sequence_mask"},       \
        {"grpo", "correction_min", CONF_DOUBLE, FIELD (least), 0, 1e9, NULL},    \
        {"grpo", "correction_max", CONF_DOUBLE, FIELD (most), 0, 1e9, NULL},     \
        {"grpo", "scale_rewards",   CONF_CHOICE, FIELD (scale), 0,               \
         0,      "group,batch,none"},                                            \
        {"grpo", "baseline", CONF_CHOICE, FIELD (base), 0, 0, "mean,others"},    \
        {"grpo",                                                                 \
         "multi_objective_aggregation",                                          \
         CONF_CHOICE,                                                            \
         FIELD (combine),                                                        \
         0,                                                                      \
         0,                                                                      \
         "sum_then_normalize,normalize_then_sum"},                               \
        {"grpo", "beta", CONF_DOUBLE, FIELD (beta), 0, 1e3, NULL},               \
        {"grpo", "epsilon", CONF_DOUBLE, FIELD (low), 0, 1, NULL},               \
        {"grpo", "epsilon_high", CONF_DOUBLE, FIELD (high), 0, 1e3, NULL},       \
        {"grpo", "cispo_cap", CONF_DOUBLE, FIELD (cap), 0, 1e3, NULL},           \
        {"grpo", "delta", CONF_DOUBLE, FIELD (delta), 0, 1e3, NULL},             \
        {"grpo", "dual_clip", CONF_DOUBLE, FIELD (dual), 0, 1e3, NULL},          \
        {"grpo",      "sapo_temperature_pos",                                    \
         CONF_DOUBLE, FIELD (tau_positive),                                      \
         0,           1e3,                                                       \
         NULL},                                                                  \
        {"grpo",      "sapo_temperature_neg",                                    \
         CONF_DOUBLE, FIELD (tau_negative),                                      \
         0,           1e3,                                                       \
         NULL},                                                                  \
        {"grpo",      "off_policy_mask_threshold",                               \
         CONF_DOUBLE, FIELD (off_policy),                                        \
         -1,          1e3,                                                       \
         NULL},                                                                  \
        {"grpo", "kl_gradient", CONF_BOOL, FIELD (kl_gradient), 0, 0, NULL},     \
        {"grpo", "completions", CONF_STRING, FIELD (completions), 0, 0, NULL},   \
        {"grpo", "completions_shown", CONF_INT, FIELD (shown), 0, 1 << 24,       \
         NULL},                                                                  \
        {"reference", "url", CONF_STRING, FIELD (url), 0, 0, NULL},              \
        {"reference", "shard", CONF_CHOICE,  FIELD (ref_shard),                  \
         0,           0,       "auto,on,off"},                                   \
        {"reference", "offload", CONF_BOOL, FIELD (ref_offload), 0, 0, NULL},    \
    {                                                                            \
        "reference", "token_file", CONF_STRING, FIELD (token_file), 0, 0, NULL   \
    }

void settings_grpo_defaults (struct settings_grpo *g);
/* settings_grpo_check - RV_EINVAL with the place. */
int settings_grpo_check (const struct settings *set, struct rv_error *err);

/* settings_grpo_reference - of a policy that [adapts], on [ranks].
 *   ret_parts   is it cut into a part a rank? */
enum settings_reference settings_grpo_reference (const struct settings *set,
                                                 bool adapts, int ranks,
                                                 bool *ret_parts);

/* What train_grpo_trainer_create takes, but for ends, rewards and weights. */
train_grpo_trainer_options_t settings_grpo_options (const struct settings *set);

#endif
