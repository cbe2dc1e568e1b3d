/* SPDX-License-Identifier: Apache-2.0
 * group.c - process groups: check the arguments of a call, count it, run it
 *
 * A call whose arguments are wrong on this rank alone is refused before it is
 * counted and harms nothing. Once a counted call has failed, ranks may stand
 * in different places, so the group is over. */
#include <train/group.h>

#include <stdlib.h>
#include <string.h>

#include "comm.h"
#include "err.h"
#include "join.h"

#define NAME_BYTES 64

struct train_group {
    const struct comm_ops *ops;
    void *state;
    char name[NAME_BYTES];
    int rank, size, local_rank, local_size;
    uint64_t seq;
    train_error_t failure; /* code TRAIN_OK while the group is sound */
};

static train_status_t find_ops (const char *name, int size,
                                const struct comm_ops **ret_ops,
                                train_error_t *err)
{
    static const struct comm_ops *const all[] = {&comm_self, &comm_host};

    if (!name)
        name = size == 1 ? comm_self.name : comm_host.name;
    for (size_t i = 0; i < sizeof (all) / sizeof (*all); i++) {
        if (strcmp (all[i]->name, name) == 0) {
            *ret_ops = all[i];
            return TRAIN_OK;
        }
    }
    return err_set (err, TRAIN_EINVAL,
                    "group: no backend '%s'; there are self and host", name);
}

static train_status_t check_options (const train_group_options_t *opts,
                                     train_error_t *err)
{
    if (opts && opts->size != sizeof (*opts))
        return err_set (err, TRAIN_EINVAL,
                        "group: options have size %zu, not %zu", opts->size,
                        sizeof (*opts));
    if (opts && opts->timeout_ms < 0)
        return err_set (err, TRAIN_EINVAL, "group: negative timeout");
    if (opts && opts->name
        && (opts->name[0] == '\0' || strlen (opts->name) >= NAME_BYTES))
        return err_set (err, TRAIN_EINVAL, "group: a name has 1 to %d bytes",
                        NAME_BYTES - 1);
    return TRAIN_OK;
}

static train_status_t start (train_group_t *group, const char *backend,
                             int64_t timeout_ms, train_error_t *err)
{
    struct join join;
    train_status_t status = join_open (&join, group->name, timeout_ms, err);

    if (status == TRAIN_OK)
        status = find_ops (backend, join.size, &group->ops, err);
    if (status == TRAIN_OK)
        status = group->ops->init (&join, group->name,
                                   timeout_ms ? timeout_ms : join.timeout_ms,
                                   &group->state, err);
    group->rank = join.rank;
    group->size = join.size;
    group->local_rank = join.local_rank;
    group->local_size = join.local_size;
    join_close (&join);
    return status;
}

train_status_t train_group_create (const train_group_options_t *opts,
                                   train_group_t **ret_group,
                                   train_error_t *err)
{
    train_group_t *group;
    train_status_t status = check_options (opts, err);
    const struct comm_ops *ops;

    if (status == TRAIN_OK && !ret_group)
        status = err_set (err, TRAIN_EINVAL, "group: no result");
    if (status == TRAIN_OK && opts && opts->backend)
        status = find_ops (opts->backend, 0, &ops, err);
    if (status != TRAIN_OK)
        return status;
    if (!(group = calloc (1, sizeof (*group))))
        return err_set (err, TRAIN_ENOMEM, "group: no memory");
    strncpy (group->name, opts && opts->name ? opts->name : "world",
             sizeof (group->name) - 1);
    status = start (group, opts ? opts->backend : NULL,
                    opts ? opts->timeout_ms : 0, err);
    if (status != TRAIN_OK) {
        free (group);
        return status;
    }
    *ret_group = group;
    return TRAIN_OK;
}

void train_group_destroy (train_group_t *group)
{
    if (!group)
        return;
    group->ops->fini (group->state);
    free (group);
}

int train_group_rank (const train_group_t *group)
{
    return group->rank;
}

int train_group_size (const train_group_t *group)
{
    return group->size;
}

int train_group_local_rank (const train_group_t *group)
{
    return group->local_rank;
}

int train_group_local_size (const train_group_t *group)
{
    return group->local_size;
}

const char *train_group_backend (const train_group_t *group)
{
    return group->ops->name;
}

static train_status_t check_tensor (const train_group_t *group,
                                    const DLTensor *t, struct comm_call *call,
                                    train_error_t *err)
{
    train_dtype_t dtype;
    train_status_t status;

    if (!group || !t || t->ndim < 0 || (t->ndim > 0 && !t->shape))
        return err_set (err, TRAIN_EINVAL, "group: no group or no tensor");
    if (t->device.device_type != kDLCPU && t->device.device_type != kDLCUDAHost)
        return err_set (err, TRAIN_ENOTSUP,
                        "group '%s': backend %s moves host memory, this tensor "
                        "is on device type %d",
                        group->name, group->ops->name,
                        (int)t->device.device_type);
    if ((status = train_dtype_of (t->dtype, &dtype, err)) != TRAIN_OK)
        return status;
    if (!train_tensor_is_compact (t))
        return err_set (err, TRAIN_EINVAL,
                        "group '%s': the tensor is not compact", group->name);
    if (train_tensor_numel (t) < 0 || (train_tensor_numel (t) > 0 && !t->data))
        return err_set (err, TRAIN_EINVAL, "group '%s': the tensor has no data",
                        group->name);
    call->dtype = (int32_t)dtype;
    call->count = (uint64_t)train_tensor_numel (t);
    return TRAIN_OK;
}

static train_status_t run (train_group_t *group, struct comm_call *call,
                           DLTensor *t, train_error_t *err)
{
    char *data = t && t->data ? (char *)t->data + t->byte_offset : NULL;
    train_error_t why;
    train_status_t status;

    if (group->failure.code != TRAIN_OK)
        return err_set (err, TRAIN_ESTATE,
                        "group '%s' is broken since an earlier call: %s",
                        group->name, group->failure.text);
    call->seq = ++group->seq;
    status = group->ops->run (group->state, call, data, &why);
    if (status != TRAIN_OK) {
        group->failure = why;
        return err_set (err, status, "%s", why.text);
    }
    return TRAIN_OK;
}

train_status_t train_all_reduce (train_group_t *group, DLTensor *t,
                                 train_op_t op, train_error_t *err)
{
    struct comm_call call = {.kind = COMM_ALL_REDUCE, .op = (int32_t)op};
    train_status_t status = check_tensor (group, t, &call, err);

    if (status != TRAIN_OK)
        return status;
    if ((unsigned)op > TRAIN_MAX)
        return err_set (err, TRAIN_EINVAL, "all_reduce: unknown operation %d",
                        (int)op);
    if (call.dtype == TRAIN_U8)
        return err_set (err, TRAIN_ENOTSUP,
                        "all_reduce: no arithmetic on U8; I32 has it");
    if (op == TRAIN_AVG && (call.dtype == TRAIN_I64 || call.dtype == TRAIN_I32))
        return err_set (err, TRAIN_EINVAL,
                        "all_reduce: no average of %s; sum and divide",
                        train_dtype_name ((train_dtype_t)call.dtype));
    return run (group, &call, t, err);
}

train_status_t train_broadcast (train_group_t *group, DLTensor *t, int root,
                                train_error_t *err)
{
    struct comm_call call = {.kind = COMM_BROADCAST, .root = root};
    train_status_t status = check_tensor (group, t, &call, err);

    if (status != TRAIN_OK)
        return status;
    if (root < 0 || root >= group->size)
        return err_set (err, TRAIN_EINVAL,
                        "broadcast: root %d is not one of %d ranks", root,
                        group->size);
    return run (group, &call, t, err);
}

train_status_t train_barrier (train_group_t *group, train_error_t *err)
{
    struct comm_call call = {.kind = COMM_BARRIER};

    if (!group)
        return err_set (err, TRAIN_EINVAL, "group: no group");
    return run (group, &call, NULL, err);
}
