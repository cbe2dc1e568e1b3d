/* SPDX-License-Identifier: Apache-2.0
 * shard_run.h - a trainer whose ranks have a made-up GPU each, and what it is
 * made of, for its tests. */
#ifndef SHARD_RUN_H
#define SHARD_RUN_H

#include <train/trainer.h>

#define STEPS 6

/* The run of one device, and what is asked of the others. */
struct shard_run {
    train_dtype_t dtype;
    train_strategy_t strategy;
    bool saves, loads, offload, weights; /* offload_weights */
    bool stochastic;
    int prefetch;
    const char *frozen;
    train_lora_t lora;
    double loss[STEPS], norm[STEPS], eval, bound;
    bool skipped[STEPS];
};
extern struct shard_run run;

/* A trainer and what it is made of. */
struct made {
    train_data_t *data;
    train_decoder_t *decoder;
    train_trainer_t *trainer;
};

/* set_up, tear_down - a folder of its own as the current one, with a text. */
int set_up (void **state);
int tear_down (void **state);

/* options - of [run]. gpus   NULL: on the host */
train_trainer_options_t options (train_group_t *gpus);
/* parts - all but the trainer, on the host. Always drop. */
train_status_t parts (struct made *m, train_error_t *err);
void drop (struct made *m);
/* assemble - of a rank: all, on its GPU; the weights are zeros yet. */
train_status_t assemble (struct made *m, train_group_t *host,
                         train_group_t *gpus, train_error_t *err);
/* begin - the same, with weights drawn or loaded. */
train_status_t begin (struct made *m, train_group_t *host, train_group_t *gpus,
                      train_error_t *err);
/* evaluate - of five samples, the mean loss. */
train_status_t evaluate (const struct made *m, double *ret, train_error_t *err);
/* refuse_on_host - fails the test unless a trainer of [run] on the host is
 * refused with TRAIN_EINVAL and a text that has [why]. */
void refuse_on_host (const char *why);

#endif
