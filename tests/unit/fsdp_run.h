/* SPDX-License-Identifier: Apache-2.0
 * fsdp_run.h - a training run of one device, and the same run by a rank
 *
 * Rows, sizes and passes do not divide. */
#ifndef FSDP_RUN_H
#define FSDP_RUN_H

#include <stdbool.h>
#include <stddef.h>

#include "group_ranks.h"
#include "libtrain/fsdp.h"

#define FSDP_STEPS 50

/* One run; the ranks, which are forked, read it. */
struct rank;
struct fsdp_run {
    struct fsdp_options opts;
    /* Of a GPU: the decoder of [r] moves there; NULL: the host. */
    void (*to_gpu) (struct rank *r);
    /* Called when the engine has set its hooks; or NULL. */
    void (*hook) (struct rank *r);
    bool tie;
    bool wide; /* the embedding is larger than a block */
    train_dtype_t dtype;
    int micro, steps;
    int lora;    /* rank of adapters on all products; 0: none */
    bool uneven; /* rank 0 has no row, where there are others */
    double want[FSDP_STEPS], norm[FSDP_STEPS], bound;
    double weights;   /* sum of squares at the end, of one device */
    double part[128]; /* of each parameter's gradient in the last step */
};

extern struct fsdp_run run;
extern const train_adamw_options_t adamw;
extern const char *const worlds[]; /* of 1, 2, 3 and 4 ranks */

/* prepare - fill [run], and what one device makes of it. */
void prepare (train_dtype_t dtype, bool tie, int steps, double bound);
/* Options of this run's types; least 0: a flat unit for each unit. */
struct fsdp_options opts_of (train_strategy_t strategy, size_t least,
                             int prefetch, bool no_sync);
train_dtype_t real (void);                    /* of masters and gradients */
bool run_trains (const char *name);           /* by opts.frozen and lora */
bool near (double a, double b, double bound); /* relative to b */

struct rank {
    train_group_t *group;
    train_decoder_t *decoder;
    struct fsdp *fsdp;
    train_adamw_t *adamw;
    int first, rows, passes, micro;
};

/* open_rank - r->group is set; the rest is made by [run]. Always close_rank. */
train_status_t open_rank (struct rank *r, train_error_t *err);
void close_rank (struct rank *r);
/* rank_step - step [s]; loss and gradient norm to [ret]. */
train_status_t rank_step (struct rank *r, int s, double ret[2],
                          train_error_t *err);

/* step_agrees - the same, and a note where they are not one device's: losses to
 * run.bound, norms to 100 times that, in double to 1e-9. */
train_status_t step_agrees (struct job *job, int rank, struct rank *r, int s,
                            train_error_t *err);

/* check_unused - a note where a parameter that trains had no gradient. */
void check_unused (struct job *job, int rank, struct rank *r);

/* run_ranks - [body] by the ranks of [layout] on [backend]; the test fails, with
 * the options of [run], where one had an error, noted something or crashed.
 * open_only - a body: open_rank's status, and no more. */
void run_ranks (const char *layout, rank_f body, const char *backend);
void open_only (struct job *job, int rank, train_group_t *group);

#endif
