/* SPDX-License-Identifier: Apache-2.0
 * settings_tune.h - keys of several sections that fine-tuning asks for. */
#ifndef RV_TRAIN_SETTINGS_TUNE_H
#define RV_TRAIN_SETTINGS_TUNE_H

#include <stdbool.h>
#include <stdint.h>

#include <train.h>

#include "plan/error.h"

struct settings;

struct settings_tune {
    int64_t lora_rank; /* [model]; 0: no adapters */
    double lora_alpha;
    char *lora_targets; /* a list; read by settings_tune_check */
    train_lora_t lora;  /* made of them */
    double dropout;     /* [model]: of what the halves of a block add */
    bool no_sync;       /* [shard]: reduce once a step, not once a pass */
    bool documents;     /* [data]: attention and loss stay within documents */
    int recompute;      /* [model]: a train_recompute_t */
};

int settings_tune_defaults (struct settings *set, struct rv_error *err);
/* What they are together; reads the targets. RV_EINVAL names the key. */
int settings_tune_check (struct settings *set, struct rv_error *err);

#endif
