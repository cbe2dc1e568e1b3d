/* SPDX-License-Identifier: Apache-2.0
 * mem_impl.h - what the files of mem_table.h share. */
#ifndef TRAIN_MEM_IMPL_H
#define TRAIN_MEM_IMPL_H

#include "decoder_impl.h"
#include "mem_table.h"

struct mem_rows {
    struct mem_row *rows; /* (MEM_ROWS) */
    size_t n;
};

/* mem_add - a row, where [bytes] are not 0. mem_add_far - of the host's memory. */
void mem_add (struct mem_rows *table, const char *what, const char *dtype,
              size_t bytes, bool acts);
void mem_add_far (struct mem_rows *table, const char *what, const char *dtype,
                  size_t bytes);

/* mem_freeze - what stays as it is has no gradients, where that saves much
 * (mem_model.c). TRAIN_ENOMEM.
 * mem_add_model - rows of the weights and all that has their shape.
 *   plan    NULL: nothing is sharded
 *   gpu     in its memory; [alone]: one, and no group (trainer_gpu.c)
 * TRAIN_ENOMEM. */
train_status_t mem_freeze (train_decoder_t *decoder,
                           const train_trainer_options_t *opts,
                           train_error_t *err);
train_status_t mem_add_model (struct mem_rows *table,
                              const train_decoder_t *decoder,
                              const train_trainer_options_t *opts,
                              const train_shard_plan_t *plan, bool gpu,
                              bool alone, train_error_t *err);

#endif
