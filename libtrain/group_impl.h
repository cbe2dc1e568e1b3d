/* SPDX-License-Identifier: Apache-2.0
 * group_impl.h - a process group from inside. Inside libtrain only. */
#ifndef TRAIN_GROUP_IMPL_H
#define TRAIN_GROUP_IMPL_H

#include <train/trace.h>

#include "comm.h"
#include "join.h"

#define GROUP_NAME_BYTES 64

struct survive;

/* A step on its way, and the one that is learnt (group_step.c). */
struct group_step {
    bool open;
    bool known;              /* something is learnt */
    bool follows;            /* so far this step is as the learnt one */
    size_t n;                /* calls of this step */
    struct comm_call *calls; /* (max) these, while it does not follow */
    size_t max;
    struct comm_call *learnt; /* (n_learnt) seq 0 */
    size_t n_learnt, max_learnt;
    train_span_t span; /* while it is open */
};

struct train_group {
    const struct comm_ops *ops;
    void *state;
    char name[GROUP_NAME_BYTES];
    int rank, size, local_rank, local_size;
    int64_t timeout_ms;
    int *node_of; /* (size) */
    int *world;   /* (size) rank in the first group; NULL: the same */
    char root_name[GROUP_NAME_BYTES]; /* of the first group */
    char address[JOIN_ADDRESS_MAX];   /* of this node */
    struct survive *survive;          /* NULL for one rank */
    struct comm_where where;          /* of a backend that moves GPU memory */
    uint64_t seq;
    struct group_step step;
    bool records; /* calls go into a graph (group_graph.c) */
    struct train_graph *graphs;
    struct work_queue *queue;     /* NULL before the first asynchronous call */
    struct train_work *issued;    /* the asynchronous call being made */
    const struct comm_flow *flow; /* of the call being made, or NULL */
    train_error_t failure;        /* code TRAIN_OK while the group is sound */
};

/* group_run - count a call whose arguments are right, and run it; or put it
 * into the queue, where it is asynchronous.
 *   from, to   as comm.h says */
train_status_t group_run (train_group_t *group, struct comm_call *call,
                          const void *from, void *to, train_error_t *err);

/* group_run_host - the same with host memory, whatever the backend. */
train_status_t group_run_host (train_group_t *group, struct comm_call *call,
                               const void *from, void *to, train_error_t *err);

/* group_run_with - as group_run, for calls with something to do at their own
 * time, perhaps on another thread. before   when the turn of the call has come;
 * not if it never does; or NULL after    at its end, whatever happened, once
 *   pieces   for backends that have run_pieces, which gets them instead of
 *            [from] and [to]; live until [after]; or NULL */
struct group_hooks {
    void (*before) (void *arg);
    void (*after) (void *arg, train_status_t status);
    void *arg;
    const struct comm_pieces *pieces;
};
train_status_t group_run_with (train_group_t *group, struct comm_call *call,
                               const void *from, void *to,
                               const struct group_hooks *hooks,
                               train_error_t *err);

/* group_run_pieces - with pieces, which it frees.
 * group_pieces - room for [n] of them, or NULL. */
train_status_t group_run_pieces (train_group_t *group, struct comm_call *call,
                                 struct comm_pieces *pieces,
                                 train_error_t *err);
struct comm_pieces *group_pieces (size_t n);

/* group_run_now - the same on this thread, at once.
 *   host     as group_run_host
 *   pieces   or NULL */
train_status_t group_run_now (train_group_t *group, struct comm_call *call,
                              const void *from, void *to, bool host,
                              const struct comm_pieces *pieces,
                              train_error_t *err);

/* group_end_call - what a call that is over makes of its group: nothing, or it
 * breaks by [why]. Returns [status]. */
train_status_t group_end_call (train_group_t *group, train_status_t status,
                               train_error_t *why, train_error_t *err);

/* Calls that a GPU makes in its turn (group_flow.c), of backends with flow;
 * TRAIN_ENOTSUP of others. Each is checked and agreed on as the blocking one,
 * then the GPU is given it behind event [before], of the group's device, and
 * event [after] is recorded behind it; the call does not wait for data. Calls
 * come in the order in which they are made. A tensor without elements records
 * no event.
 * group_flow_settle - wait for an event that comes behind such calls. What has
 * become of them is known here: before, a rank that has ended is not missed. */
train_status_t group_flow_all_gather (train_group_t *group, const DLTensor *in,
                                      DLTensor *out, void *before, void *after,
                                      train_error_t *err);
train_status_t group_flow_reduce_scatter (train_group_t *group,
                                          const DLTensor *in, DLTensor *out,
                                          train_op_t op, void *before,
                                          void *after, train_error_t *err);
train_status_t group_flow_all_reduce (train_group_t *group, DLTensor *t,
                                      train_op_t op, void *before, void *after,
                                      train_error_t *err);
train_status_t group_flow_settle (train_group_t *group, void *event,
                                  train_error_t *err);

/* graph_fini - end the graphs of a group that ends. */
void graph_fini (train_group_t *group);

/* group_apart - do tensors of two lists share memory? Tensor i of one may with
 * tensor i of the other. TRAIN_EINVAL names both; TRAIN_ENOMEM.
 *   in, out   (n) may be the same
 *   what      stands in the message */
train_status_t group_apart (const char *what, DLTensor *const *in,
                            DLTensor *const *out, size_t n, train_error_t *err);

/* group_span - of a call that is counted, and of a step, on the group's row of
 * the trace. */
train_span_t group_span_begin (const struct comm_call *call);
void group_span_end (const train_group_t *group, const train_span_t *span,
                     const struct comm_call *call, train_status_t status);
void group_span_step (const train_group_t *group, const train_span_t *span,
                      train_status_t status);

/* work_issue - from here on the next group_run is asynchronous; work_issued
 * ends that, with the status of the call that made it.
 * work_put - put it into the queue. Always TRAIN_OK.
 * work_drain - until the queue is empty and nothing runs.
 * work_fini - end what is outstanding, and the thread. */
train_status_t work_issue (train_group_t *group, train_work_t **ret_work,
                           train_error_t *err);
train_status_t work_issued (train_group_t *group, train_status_t status,
                            train_work_t **ret_work);
train_status_t work_put (train_group_t *group, const struct comm_call *call,
                         const void *from, void *to, bool host,
                         const struct group_hooks *hooks);
void work_drain (train_group_t *group);
void work_fini (train_group_t *group);

/* group_begin - make a group of who has joined.
 *   backend   NULL = self for one rank, else host; not where there is [from]
 *   where     of a backend that moves GPU memory; not where there is [from]
 *   join      open; its node_of becomes the group's
 *   from      the group whose ranks these are, and whose backend it gets, or
 *             NULL
 *   ranks     (join->size) there */
train_status_t group_begin (struct join *join, const char *backend,
                            struct comm_where where, const train_group_t *from,
                            const int *ranks, train_group_t **ret_group,
                            train_error_t *err);

/* step_count - a call that is about to be made, as one of the open step.
 *   ret_follow   it need not be compared
 * TRAIN_ENOMEM: nothing was counted. */
train_status_t step_count (train_group_t *group, const struct comm_call *call,
                           bool *ret_follow, train_error_t *err);
void step_fini (struct group_step *step);

/* group_check_name - may a group have this name? NULL is fine. */
train_status_t group_check_name (const char *name, train_error_t *err);

/* group_members - node and place of each of [n] ranks of a group.
 *   join   rank, size and ranks of the node are written; node_of malloc'ed */
train_status_t group_members (const train_group_t *group, const int *ranks,
                              int n, struct join *join, train_error_t *err);

/* group_break - the first failure of a group that came from elsewhere. */
train_status_t group_break (train_group_t *group, const train_error_t *why,
                            train_error_t *err);

/* group_check_tensor - can a call use [t]? Writes dtype and count of [call].
 * group_check_op - can the operation of [call] be done with its dtype? */
train_status_t group_check_tensor (const train_group_t *group,
                                   const DLTensor *t, struct comm_call *call,
                                   train_error_t *err);
train_status_t group_check_op (const char *what, const struct comm_call *call,
                               train_error_t *err);

/* group_root - is [root] one of the ranks? [what] stands in the message. */
train_status_t group_root (const train_group_t *group, const char *what,
                           int root, train_error_t *err);

#endif
