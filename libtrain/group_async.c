/* SPDX-License-Identifier: Apache-2.0
 * group_async.c - the asynchronous form of each collective */
#include "group_impl.h"

/* The blocking call, whose group_run puts it into the queue. */
#define ISSUE(call)                                                            \
    do {                                                                       \
        train_status_t status = work_issue (group, ret_work, err);             \
                                                                               \
        if (status != TRAIN_OK)                                                \
            return status;                                                     \
        return work_issued (group, call, ret_work);                            \
    } while (0)

train_status_t train_all_reduce_async (train_group_t *group, DLTensor *t,
                                       train_op_t op, train_work_t **ret_work,
                                       train_error_t *err)
{
    ISSUE (train_all_reduce (group, t, op, err));
}

train_status_t train_all_reduce_list_async (train_group_t *group,
                                            DLTensor *const *list, size_t n,
                                            train_op_t op,
                                            train_work_t **ret_work,
                                            train_error_t *err)
{
    ISSUE (train_all_reduce_list (group, list, n, op, err));
}

train_status_t train_broadcast_list_async (train_group_t *group,
                                           DLTensor *const *list, size_t n,
                                           int root, train_work_t **ret_work,
                                           train_error_t *err)
{
    ISSUE (train_broadcast_list (group, list, n, root, err));
}

train_status_t train_all_gather_list_async (train_group_t *group,
                                            DLTensor *const *in,
                                            DLTensor *const *out, size_t n,
                                            train_work_t **ret_work,
                                            train_error_t *err)
{
    ISSUE (train_all_gather_list (group, in, out, n, err));
}

train_status_t train_reduce_scatter_list_async (
    train_group_t *group, DLTensor *const *in, DLTensor *const *out, size_t n,
    train_op_t op, train_work_t **ret_work, train_error_t *err)
{
    ISSUE (train_reduce_scatter_list (group, in, out, n, op, err));
}

train_status_t train_reduce_async (train_group_t *group, DLTensor *t,
                                   train_op_t op, int root,
                                   train_work_t **ret_work, train_error_t *err)
{
    ISSUE (train_reduce (group, t, op, root, err));
}

train_status_t train_reduce_scatter_async (train_group_t *group,
                                           const DLTensor *in, DLTensor *out,
                                           train_op_t op,
                                           train_work_t **ret_work,
                                           train_error_t *err)
{
    ISSUE (train_reduce_scatter (group, in, out, op, err));
}

train_status_t train_all_gather_async (train_group_t *group, const DLTensor *in,
                                       DLTensor *out, train_work_t **ret_work,
                                       train_error_t *err)
{
    ISSUE (train_all_gather (group, in, out, err));
}

train_status_t train_gather_async (train_group_t *group, const DLTensor *in,
                                   DLTensor *out, int root,
                                   train_work_t **ret_work, train_error_t *err)
{
    ISSUE (train_gather (group, in, out, root, err));
}

train_status_t train_scatter_async (train_group_t *group, const DLTensor *in,
                                    DLTensor *out, int root,
                                    train_work_t **ret_work, train_error_t *err)
{
    ISSUE (train_scatter (group, in, out, root, err));
}

train_status_t train_all_to_all_async (train_group_t *group, const DLTensor *in,
                                       DLTensor *out, train_work_t **ret_work,
                                       train_error_t *err)
{
    ISSUE (train_all_to_all (group, in, out, err));
}

train_status_t train_send_recv_async (train_group_t *group, DLTensor *t,
                                      int from, int to, train_work_t **ret_work,
                                      train_error_t *err)
{
    ISSUE (train_send_recv (group, t, from, to, err));
}

train_status_t train_broadcast_async (train_group_t *group, DLTensor *t,
                                      int root, train_work_t **ret_work,
                                      train_error_t *err)
{
    ISSUE (train_broadcast (group, t, root, err));
}

train_status_t train_broadcast_wire_async (train_group_t *group, DLTensor *t,
                                           int root, train_dtype_t wire,
                                           train_work_t **ret_work,
                                           train_error_t *err)
{
    ISSUE (train_broadcast_wire (group, t, root, wire, err));
}

train_status_t train_reduce_wire_async (train_group_t *group, DLTensor *t,
                                        train_op_t op, int root,
                                        train_dtype_t wire,
                                        train_work_t **ret_work,
                                        train_error_t *err)
{
    ISSUE (train_reduce_wire (group, t, op, root, wire, err));
}

train_status_t train_barrier_async (train_group_t *group,
                                    train_work_t **ret_work, train_error_t *err)
{
    ISSUE (train_barrier (group, err));
}
