/* SPDX-License-Identifier: Apache-2.0
 * ckpt_job.h - one rank's part in writing one checkpoint. Inside libtrain only.
 *
 * Ranks meet in the folder alone: each but rank 0 leaves a part-N.json behind
 * its files, which rank 0 waits for and merges. So it may run in a thread while
 * the group does something else. */
#ifndef TRAIN_CKPT_JOB_H
#define TRAIN_CKPT_JOB_H

#include <jansson.h>
#include <stdatomic.h>

#include <train/ckpt_pieces.h>

#include "ckpt_place.h"

struct ckpt_job {
    int rank, writers;
    char *dir, *temp; /* temp: the caller's, malloc'ed, from ckpt_dir_begin */
    int64_t step;
    int keep;
    double timeout_s;
    atomic_bool hurry; /* the owner ends: wait for no rank past a moment */
    train_ckpt_piece_t *piece; /* (n) with strings of their own */
    size_t n;
    json_t *root; /* rank 0: the manifest's head; else an empty part */
    train_ckpt_bytes_t *beside; /* (n_beside) rank 0's, copied */
    size_t n_beside;
};

/* ckpt_job_init - check pieces and options and copy all but the elements.
 *   opts      as by opts_read
 *   writers   ranks that share the tensors
 * ckpt_job_fini after a failure, too. */
train_status_t ckpt_job_init (struct ckpt_job *job,
                              const train_ckpt_piece_t *pieces, size_t n,
                              const train_ckpt_options_t *opts, int rank,
                              int writers, train_error_t *err);
void ckpt_job_fini (struct ckpt_job *job);

/* ckpt_job_copy - from now on the job has elements of its own, in host memory.
 *   room   stays between jobs, grown as needed
 * ckpt_job_is_gpu - is a piece on a GPU? Then ckpt_job_run needs a copy. */
train_status_t ckpt_job_copy (struct ckpt_job *job, struct ckpt_room *room,
                              train_error_t *err);
bool ckpt_job_is_gpu (const struct ckpt_job *job);

/* ckpt_job_run - write this rank's files; rank 0 publishes the checkpoint when
 * all ranks have, and removes what is there of one that failed. */
train_status_t ckpt_job_run (struct ckpt_job *job, train_error_t *err);

/* ckpt_saver_agree - trainer_agree of the saver's group; alone, [status].
 * Before a call of the saver, of what a rank does for it by itself. */
train_status_t ckpt_saver_agree (train_ckpt_saver_t *saver,
                                 train_status_t status, train_error_t *err);

#endif
