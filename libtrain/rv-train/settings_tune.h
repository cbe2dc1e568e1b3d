/* SPDX-License-Identifier: Apache-2.0
 * settings_tune.h - keys of several sections that fine-tuning asks for. */
#ifndef RV_TRAIN_SETTINGS_TUNE_H
#define RV_TRAIN_SETTINGS_TUNE_H

#include <stdbool.h>

struct settings_tune {
    bool documents; /* [data]: attention and loss stay within documents */
};

#endif
