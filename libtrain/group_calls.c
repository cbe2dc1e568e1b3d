/* SPDX-License-Identifier: Apache-2.0
 * group_calls.c - the collectives: check the arguments of a call, count it,
 * run it
 *
 * A call whose arguments are wrong on this rank alone is refused before it is
 * counted and harms nothing. Once a counted call has failed, ranks may stand
 * in different places, so the group is over. */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "err.h"
#include "group_impl.h"

static char *data_of (const DLTensor *t)
{
    return t && t->data ? (char *)t->data + t->byte_offset : NULL;
}

static bool is_host (const DLTensor *t)
{
    return t->device.device_type == kDLCPU
           || t->device.device_type == kDLCUDAHost;
}

static bool is_there (const train_group_t *group, const DLTensor *t)
{
    if (!group->ops->gpu)
        return is_host (t);
    return t->device.device_type == kDLCUDA
           && t->device.device_id == group->where.device;
}

static train_status_t say_elsewhere (const train_group_t *group,
                                     const DLTensor *t, train_error_t *err)
{
    const char *would = "backend nccl moves what is on a GPU, train_copy "
                        "brings it to the host";
    char moves[48] = "host memory", lies[48] = "in host memory";

    if (t->device.device_type == kDLCUDA)
        snprintf (lies, sizeof (lies), "on GPU %d", t->device.device_id);
    else if (!is_host (t))
        snprintf (lies, sizeof (lies), "on device type %d",
                  (int)t->device.device_type);
    if (group->ops->gpu) {
        snprintf (moves, sizeof (moves), "memory of GPU %d",
                  group->where.device);
        would = "backend host moves what is in host memory, train_copy brings "
                "it to that GPU";
    }
    return err_set (err, TRAIN_ENOTSUP,
                    "group '%s': backend %s moves %s, this tensor is %s; %s",
                    group->name, group->ops->name, moves, lies, would);
}

/* Is [t] a tensor that a call can use? Writes its dtype and count. */
static train_status_t check_shape (const train_group_t *group,
                                   const DLTensor *t, struct comm_call *call,
                                   train_error_t *err)
{
    train_dtype_t dtype;
    train_status_t status;

    if (!group || !t || t->ndim < 0 || (t->ndim > 0 && !t->shape))
        return err_set (err, TRAIN_EINVAL, "group: no group or no tensor");
    if (!is_there (group, t))
        return say_elsewhere (group, t, err);
    if ((status = train_dtype_of (t->dtype, &dtype, err)) != TRAIN_OK)
        return status;
    for (int i = 0; i < t->ndim; i++)
        if (t->shape[i] < 0)
            return err_set (err, TRAIN_EINVAL,
                            "group '%s': the tensor has a negative size",
                            group->name);
    if (!train_tensor_is_compact (t))
        return err_set (err, TRAIN_EINVAL,
                        "group '%s': the tensor is not compact, or too large",
                        group->name);
    call->dtype = (int32_t)dtype;
    call->count = (uint64_t)train_tensor_numel (t);
    return TRAIN_OK;
}

train_status_t group_check_tensor (const train_group_t *group,
                                   const DLTensor *t, struct comm_call *call,
                                   train_error_t *err)
{
    train_status_t status = check_shape (group, t, call, err);

    if (status == TRAIN_OK && call->count > 0 && !t->data)
        return err_set (err, TRAIN_EINVAL, "group '%s': the tensor has no data",
                        group->name);
    if (status == TRAIN_OK && call->count > 0 && group->ops->check)
        status = group->ops->check (group->state, data_of (t), err);
    return status;
}

train_status_t group_check_op (const char *what, const struct comm_call *call,
                               train_error_t *err)
{
    if ((unsigned)call->op > TRAIN_PROD)
        return err_set (err, TRAIN_EINVAL, "%s: unknown operation %d", what,
                        call->op);
    if (call->dtype == TRAIN_U8)
        return err_set (err, TRAIN_ENOTSUP,
                        "%s: no arithmetic on U8; I32 has it", what);
    if (call->op == TRAIN_AVG
        && (call->dtype == TRAIN_I64 || call->dtype == TRAIN_I32))
        return err_set (err, TRAIN_EINVAL,
                        "%s: no average of %s; sum and divide", what,
                        train_dtype_name ((train_dtype_t)call->dtype));
    return TRAIN_OK;
}

train_status_t group_root (const train_group_t *group, const char *what,
                           int root, train_error_t *err)
{
    if (root < 0 || root >= group->size)
        return err_set (err, TRAIN_EINVAL, "%s: root %d is not one of %d ranks",
                        what, root, group->size);
    return TRAIN_OK;
}

/* [one] has the elements of one rank, [all] those of all; they lie apart, or
 * [one] is the block of this rank in [all]. */
static train_status_t check_pair (const train_group_t *group, const char *what,
                                  const DLTensor *one, const DLTensor *all,
                                  struct comm_call *call, train_error_t *err)
{
    struct comm_call many = {0};
    train_status_t status = group_check_tensor (group, all, &many, err);
    uint64_t want = 0, block;
    uintptr_t a, b;

    if (status == TRAIN_OK)
        status = group_check_tensor (group, one, call, err);
    if (status != TRAIN_OK)
        return status;
    if (many.dtype != call->dtype)
        return err_set (err, TRAIN_EINVAL, "%s: the tensors are %s and %s",
                        what, train_dtype_name ((train_dtype_t)call->dtype),
                        train_dtype_name ((train_dtype_t)many.dtype));
    if (__builtin_mul_overflow (call->count, (uint64_t)group->size, &want)
        || want != many.count)
        return err_set (err, TRAIN_EINVAL,
                        "%s: %llu elements for each of %d ranks are not the "
                        "%llu of the other tensor",
                        what, (unsigned long long)call->count, group->size,
                        (unsigned long long)many.count);
    block = call->count * train_dtype_size ((train_dtype_t)call->dtype);
    a = (uintptr_t)data_of (one);
    b = (uintptr_t)data_of (all);
    if (block > 0 && a < b + block * (uint64_t)group->size && b < a + block
        && a != b + block * (uint64_t)group->rank)
        return err_set (err, TRAIN_EINVAL,
                        "%s: the tensors overlap; in place is block %d", what,
                        group->rank);
    return TRAIN_OK;
}

train_status_t train_all_reduce (train_group_t *group, DLTensor *t,
                                 train_op_t op, train_error_t *err)
{
    struct comm_call call = {.kind = COMM_ALL_REDUCE, .op = (int32_t)op};
    train_status_t status = group_check_tensor (group, t, &call, err);

    if (status == TRAIN_OK)
        status = group_check_op ("all_reduce", &call, err);
    if (status != TRAIN_OK)
        return status;
    return group_run (group, &call, data_of (t), data_of (t), err);
}

train_status_t train_reduce (train_group_t *group, DLTensor *t, train_op_t op,
                             int root, train_error_t *err)
{
    struct comm_call call = {
        .kind = COMM_REDUCE, .op = (int32_t)op, .root = root};
    train_status_t status = group_check_tensor (group, t, &call, err);

    if (status == TRAIN_OK)
        status = group_check_op ("reduce", &call, err);
    if (status == TRAIN_OK)
        status = group_root (group, "reduce", root, err);
    if (status != TRAIN_OK)
        return status;
    return group_run (group, &call, data_of (t),
                      group->rank == root ? data_of (t) : NULL, err);
}

train_status_t train_reduce_scatter (train_group_t *group, const DLTensor *in,
                                     DLTensor *out, train_op_t op,
                                     train_error_t *err)
{
    struct comm_call call = {.kind = COMM_REDUCE_SCATTER, .op = (int32_t)op};
    train_status_t status =
        check_pair (group, "reduce_scatter", out, in, &call, err);

    if (status == TRAIN_OK)
        status = group_check_op ("reduce_scatter", &call, err);
    if (status != TRAIN_OK)
        return status;
    return group_run (group, &call, data_of (in), data_of (out), err);
}

train_status_t train_all_gather (train_group_t *group, const DLTensor *in,
                                 DLTensor *out, train_error_t *err)
{
    struct comm_call call = {.kind = COMM_ALL_GATHER};
    train_status_t status =
        check_pair (group, "all_gather", in, out, &call, err);

    if (status != TRAIN_OK)
        return status;
    return group_run (group, &call, data_of (in), data_of (out), err);
}

/* What gather and scatter have in common: [one] of each, [all] of the root. */
static train_status_t check_rooted (const train_group_t *group,
                                    const char *what, const DLTensor *one,
                                    const DLTensor *all, struct comm_call *call,
                                    train_error_t *err)
{
    train_status_t status = group_check_tensor (group, one, call, err);

    if (status == TRAIN_OK)
        status = group_root (group, what, call->root, err);
    if (status == TRAIN_OK && call->root == group->rank)
        status = check_pair (group, what, one, all, call, err);
    return status;
}

train_status_t train_gather (train_group_t *group, const DLTensor *in,
                             DLTensor *out, int root, train_error_t *err)
{
    struct comm_call call = {.kind = COMM_GATHER, .root = root};
    train_status_t status = check_rooted (group, "gather", in, out, &call, err);

    if (status != TRAIN_OK)
        return status;
    return group_run (group, &call, data_of (in),
                      group->rank == root ? data_of (out) : NULL, err);
}

train_status_t train_scatter (train_group_t *group, const DLTensor *in,
                              DLTensor *out, int root, train_error_t *err)
{
    struct comm_call call = {.kind = COMM_SCATTER, .root = root};
    train_status_t status =
        check_rooted (group, "scatter", out, in, &call, err);

    if (status != TRAIN_OK)
        return status;
    return group_run (group, &call, group->rank == root ? data_of (in) : NULL,
                      data_of (out), err);
}

/* A block may arrive before the one in its place has gone. */
struct swap {
    size_t bytes;
    const char *data;
    char copy[];
};

static void copy_away (void *arg)
{
    struct swap *swap = arg;

    memcpy (swap->copy, swap->data, swap->bytes);
}

static void free_copy (void *arg, train_status_t status)
{
    (void)status;
    free (arg);
}

static train_status_t swap_in_place (train_group_t *group,
                                     struct comm_call *call, char *data,
                                     train_error_t *err)
{
    size_t bytes = call->count * (size_t)group->size
                   * train_dtype_size ((train_dtype_t)call->dtype);
    struct swap *swap = malloc (sizeof (*swap) + bytes);
    struct group_hooks hooks = {copy_away, free_copy, swap, NULL};

    if (!swap)
        return err_set (err, TRAIN_ENOMEM,
                        "all_to_all: no memory for a copy of %zu bytes; two "
                        "tensors need none",
                        bytes);
    swap->bytes = bytes;
    swap->data = data;
    return group_run_with (group, call, swap->copy, data, &hooks, err);
}

train_status_t train_all_to_all (train_group_t *group, const DLTensor *in,
                                 DLTensor *out, train_error_t *err)
{
    struct comm_call call = {.kind = COMM_ALL_TO_ALL}, other = {0};
    train_status_t status = group_check_tensor (group, in, &call, err);
    uintptr_t a, b;
    size_t bytes;

    if (status == TRAIN_OK)
        status = group_check_tensor (group, out, &other, err);
    if (status != TRAIN_OK)
        return status;
    if (call.dtype != other.dtype || call.count != other.count
        || call.count % (uint64_t)group->size != 0)
        return err_set (err, TRAIN_EINVAL,
                        "all_to_all: tensors of %llu %s and %llu %s; both have "
                        "a multiple of %d elements, the same",
                        (unsigned long long)call.count,
                        train_dtype_name ((train_dtype_t)call.dtype),
                        (unsigned long long)other.count,
                        train_dtype_name ((train_dtype_t)other.dtype),
                        group->size);
    bytes = call.count * train_dtype_size ((train_dtype_t)call.dtype);
    call.count /= (uint64_t)group->size;
    a = (uintptr_t)data_of (in);
    b = (uintptr_t)data_of (out);
    if (bytes > 0 && a == b && !group->ops->gpu)
        return swap_in_place (group, &call, data_of (out), err);
    if (bytes > 0 && a != b && a < b + bytes && b < a + bytes)
        return err_set (err, TRAIN_EINVAL,
                        "all_to_all: the tensors overlap in part");
    return group_run (group, &call, data_of (in), data_of (out), err);
}

train_status_t train_broadcast (train_group_t *group, DLTensor *t, int root,
                                train_error_t *err)
{
    struct comm_call call = {.kind = COMM_BROADCAST, .root = root};
    train_status_t status = group_check_tensor (group, t, &call, err);

    if (status == TRAIN_OK)
        status = group_root (group, "broadcast", root, err);
    if (status != TRAIN_OK)
        return status;
    return group_run (group, &call, data_of (t), data_of (t), err);
}

train_status_t train_send_recv (train_group_t *group, DLTensor *t, int from,
                                int to, train_error_t *err)
{
    struct comm_call call = {.kind = COMM_SEND, .root = from, .op = to};
    bool mine = group && (group->rank == from || group->rank == to);
    train_status_t status = mine ? group_check_tensor (group, t, &call, err)
                                 : check_shape (group, t, &call, err);

    if (status == TRAIN_OK)
        status = group_root (group, "send_recv: sender", from, err);
    if (status == TRAIN_OK)
        status = group_root (group, "send_recv: receiver", to, err);
    if (status != TRAIN_OK)
        return status;
    return group_run (group, &call, data_of (t), data_of (t), err);
}

train_status_t train_barrier (train_group_t *group, train_error_t *err)
{
    struct comm_call call = {.kind = COMM_BARRIER};

    if (!group)
        return err_set (err, TRAIN_EINVAL, "group: no group");
    return group_run_host (group, &call, NULL, NULL, err);
}
