/* SPDX-License-Identifier: Apache-2.0
 * mem_grpo.h - what a rank of a run of GRPO holds beside what its trainer does.
 * Inside libtrain and its programs only. */
#ifndef TRAIN_MEM_GRPO_H
#define TRAIN_MEM_GRPO_H

#include <train/grpo_trainer.h>

#include "mem_table.h"

enum mem_reference {
    MEM_REFERENCE_NONE, /* or a server's */
    MEM_REFERENCE_BASE, /* train_reference_open_base, ... */
    MEM_REFERENCE_COPY,
    MEM_REFERENCE_UNITS
};

struct mem_grpo {
    const train_grpo_trainer_options_t *opts;
    int world;
    int prompt;               /* tokens of the longest prompt */
    int held_prompt, held;    /* of evaluation, and its prompts; 0: none */
    enum mem_reference which; /* and of UNITS: */
    bool parts, offload;      /* one a rank; in the host's memory */
};

/* mem_grpo - the arrays, by arithmetic alone: those of the trainer
 * (mem_table), what completions are written with, the reference, and the
 * completions, all as long as they may be. From the second cycle on all of it is
 * there at once, while completions are written.
 *   model    of the policy, as mem_table has it
 *   rows     (MEM_ROWS) written
 *   ret_n    how many
 * As mem_table. */
train_status_t mem_grpo (const train_decoder_config_t *model, bool sm_90a,
                         const struct mem_grpo *how, struct mem_row *rows,
                         size_t *ret_n, train_error_t *err);

#endif
