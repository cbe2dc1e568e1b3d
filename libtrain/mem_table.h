/* SPDX-License-Identifier: Apache-2.0
 * mem_table.h - what a rank of a run holds on its device, array by array.
 * Inside libtrain and its programs only. */
#ifndef TRAIN_MEM_TABLE_H
#define TRAIN_MEM_TABLE_H

#include <stddef.h>

#include <train/trainer.h>

#define MEM_ROWS 32

struct mem_row {
    const char *what;
    const char *dtype; /* "F32"; "-" where there are several */
    size_t bytes;
    bool acts; /* grows with the rows of a pass */
    bool host; /* of the host's memory, where the others are of a GPU's */
};

/* mem_table - the arrays of a trainer, by arithmetic alone.
 *   model    of train_decoder_create; of a GPU the layouts are those of one, which
 *            need not be there
 *   sm_90a   it is one of that kind (kernels/attention.h); else not looked at
 *   world    ranks; seq   tokens of a row; docs   rows hold several documents
 *   rows     (MEM_ROWS) written: those that are there
 *   ret_n    how many
 * TRAIN_EINVAL: what the model or the batch cannot be; TRAIN_ENOTSUP: a GPU, in a
 * build without CUDA; TRAIN_ENOMEM. */
train_status_t mem_table (const train_decoder_config_t *model, bool sm_90a,
                          const train_trainer_options_t *opts, int world,
                          int seq, bool docs, struct mem_row *rows,
                          size_t *ret_n, train_error_t *err);

/* mem_acts - bytes of a decoder's activations of [rows] sequences of [seq] tokens
 * that have no room lent. Errors as mem_table has them. */
train_status_t mem_acts (const train_decoder_config_t *model, bool sm_90a,
                         int rows, int seq, size_t *ret, train_error_t *err);

/* mem_eval - bytes by which those of a trainer grow once it has evaluated in passes
 * of [rows] (train_eval_options_t); 0: not. As mem_table has it. */
train_status_t mem_eval (const train_decoder_config_t *model, bool sm_90a,
                         const train_trainer_options_t *opts, int world,
                         int rows, int seq, bool docs, size_t *ret,
                         train_error_t *err);

/* mem_saved - bytes of the copy from which a checkpoint is written: masters and
 * moments of a rank. 0: the model cannot be. */
size_t mem_saved (const train_decoder_config_t *model,
                  const train_trainer_options_t *opts, int world);

/* mem_comm - bytes of the segment of a host group of [world] ranks on one node. */
size_t mem_comm (int world);

/* mem_pass - rows of a pass of the rank that has most. */
int mem_pass (const train_trainer_options_t *opts, int world);

#endif
