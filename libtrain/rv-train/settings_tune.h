/* SPDX-License-Identifier: Apache-2.0
 * settings_tune.h - keys of several sections that fine-tuning asks for. */
#ifndef RV_TRAIN_SETTINGS_TUNE_H
#define RV_TRAIN_SETTINGS_TUNE_H

#include <stdbool.h>

struct settings_tune {
    double dropout; /* [model]: of what the halves of a block add */
    bool documents; /* [data]: attention and loss stay within documents */
};

#endif
