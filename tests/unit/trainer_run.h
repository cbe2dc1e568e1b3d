/* SPDX-License-Identifier: Apache-2.0
 * trainer_run.h - a small trainer and what it is made of, for its tests. */
#ifndef TRAINER_RUN_H
#define TRAINER_RUN_H

#include <train/trainer.h>

/* One run: its parts live together. */
struct run {
    train_data_t *data;
    train_decoder_t *decoder;
    train_trainer_t *trainer;
};

extern train_group_t *group; /* set_up: this process alone */
extern const train_trainer_options_t good;
extern const train_data_options_t text; /* of a file that set_up writes */

/* set_up, tear_down - a folder of its own as the current one, and [group]. */
int set_up (void **state);
int tear_down (void **state);

/* open_parts - all but the trainer; weights are drawn.
 *   dim   of the decoder; it has one layer and two heads */
void open_parts (struct run *r, train_dtype_t dtype, int dim,
                 const train_data_options_t *data);
struct run make (train_trainer_options_t o, train_dtype_t dtype);
void drop (struct run *r);

#endif
