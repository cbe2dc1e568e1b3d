/* SPDX-License-Identifier: Apache-2.0
 * run_impl.h - what the tasks of rv-train share of a run. */
#ifndef RV_TRAIN_RUN_IMPL_H
#define RV_TRAIN_RUN_IMPL_H

#include "progress.h"
#include "run.h"
#include "slow.h"

struct run {
    const struct settings *set;
    train_group_t *group, *gpus;   /* gpus: of backend nccl, or NULL */
    train_decoder_config_t config; /* of the model, as it is to be created */
    char *model_dir;               /* where its weights are; NULL: drawn */
    train_data_t *data;
    train_decoder_t *decoder;
    train_trainer_t *trainer;
    struct eval *eval;       /* NULL: none is asked for */
    struct metrics *metrics; /* rank 0's, NULL when no file is asked for */
    bool first;              /* this is rank 0 */
    char device[256];        /* what trains, in words */
    int64_t saved;           /* step of the last checkpoint, -1 none */
    struct progress progress;
    struct slow slow;
    bool skipping; /* the last step was skipped */
    bool begun;    /* there was a step, */
    bool aimless;  /* and one without any target, which was said */
    double loss_begin, loss_end, begin_s; /* losses: NAN, none yet */
};

double run_now (void); /* seconds */
/* run_peak_bytes - the most that this process has held: of arrays on its GPU,
 * or of the host's memory. */
int64_t run_peak_bytes (const struct run *r);
/* run_say_end - on rank 0's stdout: what came of it, and the last checkpoint.
 *   begun         a step was made
 *   first, last   of [what], at the beginning and the end */
void run_say_end (const struct run *r, bool begun, const char *what,
                  double first, double last);
/* run_say_skip - on stderr, when a step is the first of some to be skipped. */
void run_say_skip (struct run *r, const train_metrics_t *m);

/* run_share_cpus - among the ranks of a node.
 * run_describe - see what model it is; collective.
 * run_prepare_ckpt - see that a checkpoint can be written. Collective, as are
 * those below.
 * run_first_weights - those that the model has before it is trained, of all
 * strategies.
 * run_say_shard - how the model lies on the ranks, a line; local.
 * run_resume - go on from a checkpoint, as [checkpoint] resume says.
 * run_save - begin a checkpoint of now, run_save_last - and wait for it.
 * run_stopped - a request to stop was met: save, or TRAIN_EABORTED. */
void run_share_cpus (const train_group_t *group);
train_status_t run_describe (struct run *r, train_error_t *err);
train_status_t run_prepare_ckpt (struct run *r, train_error_t *err);
train_status_t run_first_weights (struct run *r, train_error_t *err);
void run_say_shard (const struct run *r);
/* run_say_slow - a rank that is slower than the others, as [log] slow has it;
 * collective. */
train_status_t run_say_slow (struct run *r, train_error_t *err);
/* run_open_file - of metrics or completions, on rank 0, where the run stands;
 * NULL: none. Collective.
 * run_say_file - where it takes no more, or does again, a line; local.
 * run_end_file - what it has not taken by now is lost: TRAIN_EIO, or of a run that
 * was [stopped], and so is to go on, a line. Local. */
train_status_t run_open_file (const struct run *r, const char *path,
                              struct metrics **ret, train_error_t *err);
void run_say_file (struct run *r, struct metrics *file);
train_status_t run_end_file (const struct run *r, struct metrics *file,
                             bool stopped, train_error_t *err);
train_status_t run_resume (struct run *r, train_error_t *err);
train_status_t run_save (struct run *r, train_error_t *err);
train_status_t run_save_last (struct run *r, train_error_t *err);
train_status_t run_stopped (struct run *r, bool *ret_stopped,
                            train_error_t *err);

#endif
