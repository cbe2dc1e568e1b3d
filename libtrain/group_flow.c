/* SPDX-License-Identifier: Apache-2.0
 * group_flow.c - calls that a GPU makes between two events while the host goes
 * on */
#include "err.h"
#include "group_impl.h"

static train_status_t check (const train_group_t *group, train_error_t *err)
{
    if (!group)
        return err_set (err, TRAIN_EINVAL, "group: no group");
    if (!group->ops->flow)
        return err_set (err, TRAIN_ENOTSUP,
                        "group '%s': backend %s has no calls that a GPU makes "
                        "in its turn; nccl has",
                        group->name, group->ops->name);
    if (group->records || group->issued)
        return err_set (err, TRAIN_ESTATE,
                        "group '%s' records a graph, or a call is being issued",
                        group->name);
    return TRAIN_OK;
}

/* The blocking call, whose group_run_now sees the events. */
#define FLOW(call)                                                             \
    do {                                                                       \
        const struct comm_flow flow = {before, after};                         \
        train_status_t status = check (group, err);                            \
                                                                               \
        if (status != TRAIN_OK)                                                \
            return status;                                                     \
        group->flow = &flow;                                                   \
        status = call;                                                         \
        group->flow = NULL;                                                    \
        return status;                                                         \
    } while (0)

train_status_t group_flow_all_gather (train_group_t *group, const DLTensor *in,
                                      DLTensor *out, void *before, void *after,
                                      train_error_t *err)
{
    FLOW (train_all_gather (group, in, out, err));
}

train_status_t group_flow_reduce_scatter (train_group_t *group,
                                          const DLTensor *in, DLTensor *out,
                                          train_op_t op, void *before,
                                          void *after, train_error_t *err)
{
    FLOW (train_reduce_scatter (group, in, out, op, err));
}

train_status_t group_flow_all_reduce (train_group_t *group, DLTensor *t,
                                      train_op_t op, void *before, void *after,
                                      train_error_t *err)
{
    FLOW (train_all_reduce (group, t, op, err));
}

train_status_t group_flow_settle (train_group_t *group, void *event,
                                  train_error_t *err)
{
    train_status_t status = check (group, err);
    train_error_t why;

    if (status != TRAIN_OK)
        return status;
    work_drain (group);
    if (group->failure.code != TRAIN_OK)
        return err_set (err, TRAIN_ESTATE,
                        "group '%s' is broken since an earlier call: %s",
                        group->name, group->failure.text);
    status = group->ops->settle (group->state, event, &why);
    return group_end_call (group, status, &why, err);
}
