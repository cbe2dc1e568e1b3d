/* SPDX-License-Identifier: Apache-2.0
 * train/group.h - process groups: collectives that fail instead of hanging.
 *
 * A group is a set of ranks that call the same collectives in the same order.
 * Before data is touched the ranks compare sequence number, operation, dtype,
 * count, root and reduction; a difference is TRAIN_EMISMATCH on every rank,
 * naming the ranks and both calls. Every wait has a deadline: TRAIN_ETIMEDOUT
 * names the ranks that did not come, TRAIN_EPEER the rank that ended. After a
 * failure the group is broken: every later call but destroy is TRAIN_ESTATE
 * with the first failure's text.
 *
 * Backends: "self" (one rank) and "host" (CPU tensors; shared memory within a
 * node, TCP between nodes) always exist. Sums are taken in rank order, so the
 * result has the same bits on every rank and in every run.
 * One thread uses a group at a time. */
#ifndef TRAIN_GROUP_H
#define TRAIN_GROUP_H

#include <stddef.h>
#include <stdint.h>

#include <train/status.h>
#include <train/tensor.h>

#ifdef __cplusplus
extern "C" {
#endif

typedef struct train_group train_group_t;

typedef enum train_op {
    TRAIN_SUM = 0,
    TRAIN_AVG = 1, /* sum / size, once, in the accumulation type */
    TRAIN_MIN = 2,
    TRAIN_MAX = 3,
} train_op_t;

typedef struct train_group_options {
    size_t size;         /* sizeof (train_group_options_t) */
    const char *backend; /* "self", "host"; NULL = self for one rank, else
                            host */
    int64_t timeout_ms;  /* of every wait; 0 = the job's (rv_job_timeout_ms) */
    const char *name;    /* stands in messages; NULL = "world" */
} train_group_options_t;

/* train_group_create - the group of all ranks of the job.
 * Boots by rv_job_init (PMIx, Slurm, single); or, where RANK, WORLD_SIZE,
 * LOCAL_RANK, LOCAL_WORLD_SIZE, MASTER_ADDR and MASTER_PORT are all set, by
 * those, so that programs started by rv-exec, torchrun or by hand join too.
 * Collective, under the deadline.
 *   ret_group   end with train_group_destroy */
train_status_t train_group_create (const train_group_options_t *opts,
                                   train_group_t **ret_group,
                                   train_error_t *err);

/* train_group_destroy - leave the group and free it; NULL is fine. Does not
 * wait for the others. */
void train_group_destroy (train_group_t *group);

int train_group_rank (const train_group_t *group);
int train_group_size (const train_group_t *group);
int train_group_local_rank (const train_group_t *group);
int train_group_local_size (const train_group_t *group);
const char *train_group_backend (const train_group_t *group);

/* train_all_reduce - combine [t] over all ranks; every rank gets the result.
 *   t    (any compact shape) in and out, in place; f32, f64, bf16, f16 (these
 *        two accumulate in f32), i64, i32; the same dtype and element count on
 *        every rank
 *   op   TRAIN_AVG is refused for integers (TRAIN_EINVAL) */
train_status_t train_all_reduce (train_group_t *group, DLTensor *t,
                                 train_op_t op, train_error_t *err);

/* train_broadcast - [root]'s bytes to every rank. Any dtype. */
train_status_t train_broadcast (train_group_t *group, DLTensor *t, int root,
                                train_error_t *err);

/* train_barrier - returns when every rank has called it. */
train_status_t train_barrier (train_group_t *group, train_error_t *err);

#ifdef __cplusplus
}
#endif
#endif
