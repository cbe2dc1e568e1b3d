/* SPDX-License-Identifier: Apache-2.0
 * prompts_impl.h - what the parts of the prompts share. Inside libtrain only. */
#ifndef TRAIN_PROMPTS_IMPL_H
#define TRAIN_PROMPTS_IMPL_H

#include <train/prompts.h>

struct prompt {
    char *row, *text, *answer; /* answer: NULL, there is none */
    int32_t *ids;              /* (n_ids) */
    size_t n_ids, line;
    size_t file; /* index into the handle's names */
};

struct train_prompts {
    struct prompt *row; /* (n) */
    size_t n, cap;
    char **file; /* (n_files) names */
    size_t n_files;
    int32_t end;
    uint64_t hash;
};

#endif
