/* SPDX-License-Identifier: Apache-2.0
 * train/group.h - process groups: collectives that fail instead of hanging.
 *
 * A group is a set of ranks that call the same collectives in the same order.
 * Before data is touched the ranks compare sequence number, operation, dtype,
 * count, root and reduction; a difference is TRAIN_EMISMATCH on every rank,
 * naming the ranks and both calls. Every wait has a deadline: TRAIN_ETIMEDOUT
 * names the ranks that did not come, TRAIN_EPEER the rank that ended. After a
 * failure the group is broken: every later call but destroy and
 * survivors is TRAIN_ESTATE
 * with the first failure's text.
 *
 * Backends: "self" (one rank) and "host" (CPU tensors; shared memory within a
 * node, TCP between nodes) always exist. Both reduce by a left fold in rank
 * order, ((r0 + r1) + r2) + ..., wherever the ranks are, so a result has the
 * same bits on every rank, in every run and in every reduction that gives it.
 * "nccl" (CUDA tensors, one GPU a rank) opens libnccl.so.2, 2.18 or later, at
 * run time. It has a host group inside, by which the ranks compare their calls
 * before NCCL sees them, make objects and barriers, and find out who has ended;
 * at the deadline, or when a rank ends, the communicator is aborted and what
 * the call was to write is undefined. NCCL chooses the order of a sum by size,
 * links and release, so its bits may differ from those of host and between
 * groups; every rank gets the same. An average is NCCL's own.
 * NCCL_RUNTIME_CONNECT is set to 0, if it is unset: connections are made at the
 * beginning; with another value calls are slower. NCCL_COMM_BLOCKING=0 is
 * refused.
 * "mpi" (CPU tensors) is there where libtrain was built with MPI, and moves data
 * alone by it; else it is TRAIN_ENOTSUP. It too has a host group inside, for all
 * that nccl's has. MPI carries bytes, the ranks combine them as host does: the
 * same order, the same bits. mpirun or srun --mpi=pmix starts the ranks, once
 * for all. MPI is the program's where it has begun it, with MPI_THREAD_MULTIPLE;
 * else it begins here, asks for no call, and ends when the process exits. With
 * PMIx before 5 it must begin before other groups (TRAIN_ESTATE). MPI moves data
 * while ranks are in calls. After a failure what the call was to write is
 * undefined, and MPI is not ended by a process that exits: mpirun and Slurm end
 * the step with any of its ranks, so there are no survivors.
 *
 * Every rank of the group makes every call, also those that give or take
 * nothing in it. A tensor without elements is legal everywhere, as long as it
 * is so on every rank. Tensors are compact and in host memory, of nccl on the
 * GPU of the group; one elsewhere is TRAIN_ENOTSUP, one whose memory is not
 * where it says TRAIN_EINVAL. A call that is refused for its arguments is not counted
 * and leaves the group sound. Where there are two tensors they share no
 * memory, but for the places named as "in place". One thread uses a group at a
 * time. */
#ifndef TRAIN_GROUP_H
#define TRAIN_GROUP_H

#include <stddef.h>
#include <stdint.h>

#include <train/copy.h>
#include <train/status.h>
#include <train/tensor.h>

#ifdef __cplusplus
extern "C" {
#endif

typedef struct train_group train_group_t;
typedef struct train_work train_work_t; /* a call under way */

typedef enum train_op {
    TRAIN_SUM = 0,
    TRAIN_AVG = 1, /* sum / size, once, in the accumulation type: fp16 values
                      whose sum has no fp16 have their average */
    TRAIN_MIN = 2,
    TRAIN_MAX = 3,
    TRAIN_PROD = 4, /* integers wrap around, as their sums do */
} train_op_t;

typedef struct train_group_options {
    size_t size;         /* sizeof (train_group_options_t); here and in
                            every struct that begins with it, an older, smaller
                            one leaves the rest at its defaults */
    const char *backend; /* "self", "host", "nccl", "mpi"; NULL = self for one
                            rank, else host */
    int64_t timeout_ms;  /* of every wait; 0 = the job's (rv_job_timeout_ms) */
    const char *name;    /* stands in messages; NULL = "world" */
    const char *device;  /* of "nccl": "cuda:1"; NULL = that of the local rank,
                            or the only one that is visible */
    train_stream_t stream; /* of "nccl", of that GPU: a call comes after the
                              work that it has been given (train/copy.h);
                              NULL = CUDA's default stream */
} train_group_options_t;

/* train_group_create - the group of all ranks of the job.
 * Boots by rv_job_init (PMIx, Slurm, single); or, where RANK, WORLD_SIZE,
 * LOCAL_RANK, LOCAL_WORLD_SIZE, MASTER_ADDR and MASTER_PORT are all set, by
 * those, so that programs started by rv-exec, torchrun or by hand join too.
 * Collective, under the deadline. Where the ranks meet by PMIx none returns with
 * the group before all have left PMIx, and they join it no more: for later groups
 * of the process they meet at a port that rank 0 keeps, unless one was not made.
 *   ret_group   end with train_group_destroy */
train_status_t train_group_create (const train_group_options_t *opts,
                                   train_group_t **ret_group,
                                   train_error_t *err);

/* train_group_destroy - leave the group and free it; NULL is fine. Does not
 * wait for the others. Asynchronous calls that are outstanding end with
 * TRAIN_EABORTED, their data undefined; their handles are still to be waited
 * for. */
void train_group_destroy (train_group_t *group);

/* train_group_split - subgroups by colour: the ranks that give one colour form
 * a group, in the order of their keys, equal keys in the order of their ranks
 * (MPI-4.1, section 7.4.2, MPI_Comm_split). Every rank of [group] calls it,
 * under its deadline, and it is one of its calls. The new group has its
 * deadline and backend (self for one rank), lives and breaks on its own and may
 * outlive [group]. Its errors say which ranks of the first group its ranks are.
 *   colour      0 or more; TRAIN_NO_COLOUR: in no subgroup
 *   name        the same on all ranks of a subgroup; NULL = "split"
 *   ret_group   NULL for TRAIN_NO_COLOUR; end with train_group_destroy
 * When a subgroup cannot begin its ranks get the error, and [group] stays
 * sound. TRAIN_EMISMATCH: the names of a subgroup differ; on every rank. */
#define TRAIN_NO_COLOUR (-1)
train_status_t train_group_split (train_group_t *group, int colour, int key,
                                  const char *name, train_group_t **ret_group,
                                  train_error_t *err);

/* train_group_subset - a subgroup of the ranks in a list, in its order. Every
 * rank of [group] calls it with the same list, also those that are not in it.
 *   ranks   (n) different ranks of [group]; n at least 1
 *   rest    as above; NULL for ranks that are not in the list
 * TRAIN_EMISMATCH: the lists differ; on every rank, which names them. */
train_status_t train_group_subset (train_group_t *group, const int *ranks,
                                   int n, const char *name,
                                   train_group_t **ret_group,
                                   train_error_t *err);

/* train_group_survivors - a new group of the ranks that are left of a broken
 * one, in its order, with its backend and deadline, after an error of a call
 * (TRAIN_EPEER, TRAIN_ETIMEDOUT and the like): every rank that is left calls
 * it. Ranks that have ended, or destroyed the group, are found out at once; one
 * that has stopped, or is busy elsewhere, is left behind after a deadline of
 * [group], and gets an error should it come later: what is left must be more
 * than half of the ranks, so that no two parts both go on. May take two
 * deadlines and 3 s for each rank that does not answer. [group] stays
 * broken and is still destroyed by its user. Not for "mpi", whose step ends.
 *   min_size    fewer ranks are TRAIN_EPEER, which names who did not come; 0 =
 *               more than half of the ranks of [group]. Less is two groups
 *               should a network part
 *   name        NULL = "survivors"
 *   ret_group   end with train_group_destroy
 * TRAIN_EPEER also when one more ended meanwhile: call it again. TRAIN_ESTATE
 * for a group of one rank. TRAIN_ENOTSUP for "mpi". */
train_status_t train_group_survivors (train_group_t *group, int min_size,
                                      const char *name,
                                      train_group_t **ret_group,
                                      train_error_t *err);

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

/* train_all_reduce_list - the same for several tensors in one call: the ranks
 * agree once, and what many small tensors cost is paid once. The results have
 * the bits that a call each gives.
 *   list   (n) at least one, each as [t] above and all of one dtype; the same
 *          number and sizes on every rank. TRAIN_EINVAL where two share memory
 * TRAIN_ENOMEM (not counted): self and host make a copy of all; "nccl" takes the
 * tensors as they lie, as one group of calls. */
train_status_t train_all_reduce_list (train_group_t *group,
                                      DLTensor *const *list, size_t n,
                                      train_op_t op, train_error_t *err);

/* train_broadcast_list, train_all_gather_list, train_reduce_scatter_list - the
 * same for those calls: each tensor of a list, or pair of [in] and [out], as
 * the single call has it, all of one dtype.
 *   in, out   (n) two arrays; TRAIN_EINVAL where tensors of different numbers
 *             share memory. Tensor i of one may be, or overlap, tensor i of the
 *             other in any way; with "nccl" as the single call has it */
train_status_t train_broadcast_list (train_group_t *group,
                                     DLTensor *const *list, size_t n, int root,
                                     train_error_t *err);
train_status_t train_all_gather_list (train_group_t *group, DLTensor *const *in,
                                      DLTensor *const *out, size_t n,
                                      train_error_t *err);
train_status_t train_reduce_scatter_list (train_group_t *group,
                                          DLTensor *const *in,
                                          DLTensor *const *out, size_t n,
                                          train_op_t op, train_error_t *err);

/* train_reduce - as train_all_reduce, but [root] alone gets the result.
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
 *             it is made then, TRAIN_ENOMEM; of nccl on the GPU, and there
 *             the group is broken by it) */
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

/* train_broadcast_wire, train_reduce_wire - for F32 tensors, which travel as
 * [wire]: TRAIN_BF16 or TRAIN_F16, half the bytes. Rounding is
 * to nearest even; what is too large for [wire] becomes infinity (F16: from
 * 65,520 on), NaN stays NaN.
 *   broadcast   [root]'s values are rounded once. Every rank, [root] too, ends
 *               with the rounded values, so all have the same bits
 *   reduce      each rank's values are rounded once, [root]'s too, then
 *               combined in rank order in F32; the result (an average after its
 *               division) is rounded to [wire] once and widened for [root]. So
 *               it does not depend on which rank is root. Between nodes the sum
 *               so far travels as F32. The others' tensors stay as they are.
 *               With "nccl" the sum is NCCL's own, of the rounded values in
 *               [wire]: it may round at each addition, and in another order
 * Groups of one rank round in the same way. On the wire, and so for the
 * comparison of calls, it is the call of that type: a rank may give a tensor
 * that is [wire] already to train_broadcast or train_reduce.
 * With "nccl" the group keeps memory of the GPU for the largest of these calls,
 * two bytes an element, until it is destroyed; where there is none the group is
 * broken by TRAIN_ENOMEM.
 * TRAIN_EINVAL: other types; TRAIN_ENOMEM on the host. Neither is counted. */
train_status_t train_broadcast_wire (train_group_t *group, DLTensor *t,
                                     int root, train_dtype_t wire,
                                     train_error_t *err);
train_status_t train_reduce_wire (train_group_t *group, DLTensor *t,
                                  train_op_t op, int root, train_dtype_t wire,
                                  train_error_t *err);

/* train_divide_factors - how to average over [size] ranks by a TRAIN_SUM that
 * accumulates in F16, as other libraries do: every rank divides its values by
 * ret_before, and the sum by ret_after. ret_before is a power of two, so the
 * first division is exact but for subnormals; ret_before * ret_after = size,
 * both near its root, so that neither the values vanish nor the sum overflows.
 * train_all_reduce with TRAIN_AVG needs none of this on host backends: it
 * accumulates in F32.
 *   size   at least 1, e.g. 8: 4 and 2
 * TRAIN_EINVAL: size, or a result is NULL. Any thread; pure. */
train_status_t train_divide_factors (int size, float *ret_before,
                                     float *ret_after, train_error_t *err);

/* train_step_begin, train_step_end - a sequence of calls that comes again.
 * Every rank of the group marks its steps; between the two stand any calls of
 * this group, none or many. The calls of a step are compared like all others
 * while it is new, and its end once more, by one hash over all. Then it is
 * learnt: the calls of the next steps that are as the learnt one has them, and
 * their end, need no agreement; each returns as soon as its own data has come,
 * and one without elements at once. A barrier waits for all ranks even then.
 *
 * A rank whose next call, or end, is another than the learnt one says so before
 * it touches data and waits for all to say the same. If they do, as with a last
 * batch that is smaller everywhere, that call succeeds, the rest of the step is
 * compared like a new one, and the step that its end agrees on is learnt in
 * place of the old. If one does not, because its call is the learnt one or it
 * is past it, TRAIN_EMISMATCH on every rank names ranks and both calls: within
 * 1 s on those that wait in a call, at once in the next call of others. What
 * the calls of this step wrote is undefined then, and the group is broken. A
 * rank that makes no further call at all is named at the deadline, as ever.
 *
 * Steps do not nest; a call outside is compared. Cost: the ranks of a learnt
 * step look at one word of memory a call. There is no way to switch it off.
 *   TRAIN_ESTATE    begin in an open step, end without one, broken group
 *   TRAIN_ENOMEM    of end, and of each call of a step that is not learnt yet:
 *                   not counted, may be tried again
 *   others          of end, while the step is new: as train_barrier */
train_status_t train_step_begin (train_group_t *group, train_error_t *err);
train_status_t train_step_end (train_group_t *group, train_error_t *err);

/* train_barrier - returns when every rank has called it. */
train_status_t train_barrier (train_group_t *group, train_error_t *err);

/* Asynchronous forms: the same arguments, and the call returns as soon as they
 * are checked. What is wrong with them is that call's error, and then there is
 * no handle; all else is train_work_wait's. The tensors themselves, their
 * shapes and strides, are read during the call only; the memory they show lives
 * and is not looked at until the end of the work, or, where it is input only,
 * not changed.
 *
 * A thread of the group, made by the first of these calls and with all signals
 * blocked, runs them in the order in which they were issued. Blocking calls of
 * the group, train_step_begin, train_step_end and train_group_survivors first
 * wait until it has run all that was issued, so the order of calls is that of
 * the program. The deadline of a call begins when its turn comes. When one has
 * failed the group is broken: those behind it end with TRAIN_ESTATE. As ever
 * one thread at a time uses the group; the handles may be waited for by any
 * thread, each by one.
 * With "nccl" a call comes after the work that the group's stream has been given
 * when its turn comes.
 *   ret_work   end with train_work_wait, also after train_group_destroy
 * TRAIN_ENOMEM: also no thread could be made; not counted. */
train_status_t train_all_reduce_async (train_group_t *group, DLTensor *t,
                                       train_op_t op, train_work_t **ret_work,
                                       train_error_t *err);
train_status_t train_all_reduce_list_async (train_group_t *group,
                                            DLTensor *const *list, size_t n,
                                            train_op_t op,
                                            train_work_t **ret_work,
                                            train_error_t *err);
train_status_t train_broadcast_list_async (train_group_t *group,
                                           DLTensor *const *list, size_t n,
                                           int root, train_work_t **ret_work,
                                           train_error_t *err);
train_status_t train_all_gather_list_async (train_group_t *group,
                                            DLTensor *const *in,
                                            DLTensor *const *out, size_t n,
                                            train_work_t **ret_work,
                                            train_error_t *err);
train_status_t train_reduce_scatter_list_async (
    train_group_t *group, DLTensor *const *in, DLTensor *const *out, size_t n,
    train_op_t op, train_work_t **ret_work, train_error_t *err);
train_status_t train_reduce_async (train_group_t *group, DLTensor *t,
                                   train_op_t op, int root,
                                   train_work_t **ret_work, train_error_t *err);
train_status_t train_reduce_scatter_async (train_group_t *group,
                                           const DLTensor *in, DLTensor *out,
                                           train_op_t op,
                                           train_work_t **ret_work,
                                           train_error_t *err);
train_status_t train_all_gather_async (train_group_t *group, const DLTensor *in,
                                       DLTensor *out, train_work_t **ret_work,
                                       train_error_t *err);
train_status_t train_gather_async (train_group_t *group, const DLTensor *in,
                                   DLTensor *out, int root,
                                   train_work_t **ret_work, train_error_t *err);
train_status_t train_scatter_async (train_group_t *group, const DLTensor *in,
                                    DLTensor *out, int root,
                                    train_work_t **ret_work,
                                    train_error_t *err);
train_status_t train_all_to_all_async (train_group_t *group, const DLTensor *in,
                                       DLTensor *out, train_work_t **ret_work,
                                       train_error_t *err);
train_status_t train_send_recv_async (train_group_t *group, DLTensor *t,
                                      int from, int to, train_work_t **ret_work,
                                      train_error_t *err);
train_status_t train_broadcast_async (train_group_t *group, DLTensor *t,
                                      int root, train_work_t **ret_work,
                                      train_error_t *err);
train_status_t train_broadcast_wire_async (train_group_t *group, DLTensor *t,
                                           int root, train_dtype_t wire,
                                           train_work_t **ret_work,
                                           train_error_t *err);
train_status_t train_reduce_wire_async (train_group_t *group, DLTensor *t,
                                        train_op_t op, int root,
                                        train_dtype_t wire,
                                        train_work_t **ret_work,
                                        train_error_t *err);
train_status_t train_barrier_async (train_group_t *group,
                                    train_work_t **ret_work,
                                    train_error_t *err);

/* train_work_wait - until the call has ended; its status.
 *   work         ended and freed by the call, except with TRAIN_PENDING
 *   timeout_ms   < 0 = for ever: the call itself has a deadline; 0 = ask only
 * TRAIN_PENDING: it has not ended within timeout_ms, and goes on. */
train_status_t train_work_wait (train_work_t *work, int64_t timeout_ms,
                                train_error_t *err);
/* train_work_test - TRAIN_PENDING, or its status. Does not free it. */
train_status_t train_work_test (train_work_t *work);

#ifdef __cplusplus
}
#endif
#endif
