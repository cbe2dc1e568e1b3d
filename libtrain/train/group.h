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
 * node, TCP between nodes) always exist. Both reduce by a left fold in rank
 * order, ((r0 + r1) + r2) + ..., wherever the ranks are, so a result has the
 * same bits on every rank, in every run and in every reduction that gives it.
 *
 * Every rank of the group makes every call, also those that give or take
 * nothing in it. A tensor without elements is legal everywhere, as long as it
 * is so on every rank. Tensors are compact and in host memory; one elsewhere
 * is TRAIN_ENOTSUP. A call that is refused for its arguments is not counted
 * and leaves the group sound. Where there are two tensors they share no
 * memory, but for the places named as "in place". One thread uses a group at a
 * time. */
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
    TRAIN_PROD = 4, /* integers wrap around, as their sums do */
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
 *   op   TRAIN_AVG is refused for integers (TRAIN_EINVAL)
 * The rules of dtype and op hold for the other reductions too. */
train_status_t train_all_reduce (train_group_t *group, DLTensor *t,
                                 train_op_t op, train_error_t *err);

/* train_reduce - the same, but [root] alone gets the result.
 *   t    in; on [root] also out. Elsewhere it stays as it is */
train_status_t train_reduce (train_group_t *group, DLTensor *t, train_op_t op,
                             int root, train_error_t *err);

/* train_reduce_scatter - combine; rank r gets block r of the result.
 *   in    size * n elements, size blocks
 *   out   n elements; in place: block [rank] of [in] */
train_status_t train_reduce_scatter (train_group_t *group, const DLTensor *in,
                                     DLTensor *out, train_op_t op,
                                     train_error_t *err);

/* train_all_gather - block r of [out] is what rank r gave, on every rank.
 *   in    n elements, any dtype
 *   out   size * n elements; in place: [in] is block [rank] of it */
train_status_t train_all_gather (train_group_t *group, const DLTensor *in,
                                 DLTensor *out, train_error_t *err);

/* train_gather - the same, to [root] alone.
 *   out   of [root]; elsewhere not looked at, may be NULL */
train_status_t train_gather (train_group_t *group, const DLTensor *in,
                             DLTensor *out, int root, train_error_t *err);

/* train_scatter - rank r gets block r of what [root] gives.
 *   in    of [root], size * n elements; elsewhere not looked at, may be NULL
 *   out   n elements; in place on [root]: block [root] of [in] */
train_status_t train_scatter (train_group_t *group, const DLTensor *in,
                              DLTensor *out, int root, train_error_t *err);

/* train_all_to_all - block s of [out] on rank r is block r of [in] on rank s.
 *   in, out   size * n elements each; in place: the same memory (a copy of
 *             it is made then, TRAIN_ENOMEM) */
train_status_t train_all_to_all (train_group_t *group, const DLTensor *in,
                                 DLTensor *out, train_error_t *err);

/* train_send_recv - move [t] from rank [from] to rank [to]. Every rank of the
 * group calls it, so that the ranks can agree; the others give a tensor of the
 * same dtype and count, whose data may be NULL and is not touched.
 *   from, to   may be equal: nothing moves */
train_status_t train_send_recv (train_group_t *group, DLTensor *t, int from,
                                int to, train_error_t *err);

/* train_broadcast_object - bytes of a length that only [root] knows.
 *   data, len   of [root]; elsewhere not looked at
 *   ret         malloc'ed on every rank, to be freed; NULL for no bytes
 * TRAIN_ENOMEM on one rank leaves the group broken, there at once and for the
 * others at the deadline. */
train_status_t train_broadcast_object (train_group_t *group, const void *data,
                                       size_t len, int root, void **ret,
                                       size_t *ret_len, train_error_t *err);

/* train_gather_object - bytes of any length from every rank.
 *   data, len   what this rank gives; NULL for no bytes
 *   root        who gets them; -1 = every rank
 *   ret         malloc'ed, to be freed: all bytes in rank order. NULL for no
 *               bytes and where this rank gets none
 *   ret_lens    (size) written on every rank
 * Memory as above. */
train_status_t train_gather_object (train_group_t *group, const void *data,
                                    size_t len, int root, void **ret,
                                    size_t *ret_lens, train_error_t *err);

/* train_broadcast - [root]'s bytes to every rank. Any dtype. */
train_status_t train_broadcast (train_group_t *group, DLTensor *t, int root,
                                train_error_t *err);

/* train_barrier - returns when every rank has called it. */
train_status_t train_barrier (train_group_t *group, train_error_t *err);

#ifdef __cplusplus
}
#endif
#endif
