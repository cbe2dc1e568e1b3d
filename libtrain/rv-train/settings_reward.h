/* SPDX-License-Identifier: Apache-2.0
 * settings_reward.h - [reward NAME]: what completions are scored by. */
#ifndef RV_TRAIN_SETTINGS_REWARD_H
#define RV_TRAIN_SETTINGS_REWARD_H

#include <stdint.h>

#include <train.h>

#include "plan/error.h"

struct settings;

/* One section. Types are those of conf.h. */
struct settings_reward {
    char *name;
    int kind; /* train_reward_kind_t; -1: not set, which is refused */
    double weight;
    char *field, *marker, *pattern, *program; /* NULL: not set */
    int64_t min, max, soft;
    int64_t processes, timeout, start, max_faults; /* 0 = reward.h's; ms */
};

/* In the order of the file. */
struct settings_rewards {
    struct settings_reward *list; /* (n) */
    size_t n;
};

/* settings_reward_set - one key of a section, as conf's sink gets it; the
 * section begins to be with its first. RV_EINVAL, RV_ENOMEM. */
int settings_reward_set (struct settings_rewards *all, const char *name,
                         const char *key, const char *value,
                         struct rv_error *err);
/* settings_reward_check - each has its kind and what that needs, and no key of
 * another kind. RV_EINVAL with its place. */
int settings_reward_check (const struct settings *set,
                           const struct settings_rewards *all,
                           struct rv_error *err);
void settings_reward_fini (struct settings_rewards *all);

/* What train_reward_open takes; it lives with [one]. */
train_reward_options_t settings_reward_options (
    const struct settings_reward *one);

#endif
