/* SPDX-License-Identifier: Apache-2.0
 * group_wire.c - fp32 tensors that travel in 16 bits, and how to divide a sum
 * that does
 *
 * The call that the ranks agree on is the one of the 16-bit type; here the
 * values are rounded before and widened after. */
#include <stdlib.h>

#include "err.h"
#include "group_impl.h"
#include "kernels/half.h"

struct wire {
    train_dtype_t dtype;
    size_t n;
    float *data;
    bool gives, takes;
    uint16_t half[];
};

static void narrow (void *arg)
{
    struct wire *w = arg;

    for (size_t i = 0; w->gives && i < w->n; i++)
        w->half[i] = w->dtype == TRAIN_BF16 ? half_to_bf16 (w->data[i])
                                            : half_to_f16 (w->data[i]);
}

static void widen (void *arg, train_status_t status)
{
    struct wire *w = arg;

    for (size_t i = 0; w->takes && status == TRAIN_OK && i < w->n; i++)
        w->data[i] = w->dtype == TRAIN_BF16 ? half_from_bf16 (w->half[i])
                                            : half_from_f16 (w->half[i]);
    free (w);
}

static train_status_t check (const train_group_t *group, const char *what,
                             const DLTensor *t, train_dtype_t dtype,
                             struct comm_call *call, train_error_t *err)
{
    train_status_t status = group_check_tensor (group, t, call, err);

    if (status == TRAIN_OK)
        status = group_root (group, what, call->root, err);
    if (status != TRAIN_OK)
        return status;
    if (call->dtype != TRAIN_F32 || (dtype != TRAIN_BF16 && dtype != TRAIN_F16))
        return err_set (err, TRAIN_EINVAL,
                        "%s: %s does not travel as %s; F32 does, as BF16 or "
                        "F16",
                        what, train_dtype_name ((train_dtype_t)call->dtype),
                        train_dtype_name (dtype));
    call->dtype = (int32_t)dtype;
    return TRAIN_OK;
}

static float *data_of (const DLTensor *t)
{
    return t->data ? (float *)((char *)t->data + t->byte_offset) : NULL;
}

static train_status_t say_no_memory (const char *what,
                                     const struct comm_call *call,
                                     train_error_t *err)
{
    return err_set (err, TRAIN_ENOMEM, "%s: no memory for %llu elements", what,
                    (unsigned long long)call->count);
}

/* The backend casts, where the tensor is. */
static train_status_t run_there (train_group_t *group, const char *what,
                                 DLTensor *t, struct comm_call *call,
                                 bool gives, bool takes, train_error_t *err)
{
    struct comm_pieces *pieces = group_pieces (1);

    if (!pieces)
        return say_no_memory (what, call, err);
    pieces->n = 1;
    pieces->wire = true;
    pieces->piece[0] =
        (struct comm_piece){gives ? data_of (t) : NULL,
                            takes ? data_of (t) : NULL, (size_t)call->count};
    return group_run_pieces (group, call, pieces, err);
}

static train_status_t run (train_group_t *group, const char *what, DLTensor *t,
                           struct comm_call *call, bool gives, bool takes,
                           train_error_t *err)
{
    struct group_hooks hooks = {.before = narrow, .after = widen};
    struct wire *w;

    if (group->ops->run_pieces)
        return run_there (group, what, t, call, gives, takes, err);
    w = calloc (1, sizeof (*w) + call->count * sizeof (*w->half));
    if (!w)
        return say_no_memory (what, call, err);
    hooks.arg = w;
    w->dtype = (train_dtype_t)call->dtype;
    w->n = (size_t)call->count;
    w->data = data_of (t);
    w->gives = gives;
    w->takes = takes;
    return group_run_with (group, call, w->half, takes ? w->half : NULL, &hooks,
                           err);
}

train_status_t train_broadcast_wire (train_group_t *group, DLTensor *t,
                                     int root, train_dtype_t wire,
                                     train_error_t *err)
{
    struct comm_call call = {.kind = COMM_BROADCAST, .root = root};
    train_status_t status =
        check (group, "broadcast_wire", t, wire, &call, err);

    if (status != TRAIN_OK)
        return status;
    return run (group, "broadcast_wire", t, &call, group->rank == root, true,
                err);
}

train_status_t train_reduce_wire (train_group_t *group, DLTensor *t,
                                  train_op_t op, int root, train_dtype_t wire,
                                  train_error_t *err)
{
    struct comm_call call = {
        .kind = COMM_REDUCE, .op = (int32_t)op, .root = root};
    train_status_t status = check (group, "reduce_wire", t, wire, &call, err);

    if (status == TRAIN_OK)
        status = group_check_op ("reduce_wire", &call, err);
    if (status != TRAIN_OK)
        return status;
    return run (group, "reduce_wire", t, &call, true, group->rank == root, err);
}

train_status_t train_divide_factors (int size, float *ret_before,
                                     float *ret_after, train_error_t *err)
{
    int f = 1;

    if (size < 1 || !ret_before || !ret_after)
        return err_set (err, TRAIN_EINVAL,
                        "divide_factors: a group of %d ranks, or no result",
                        size);
    while (size % f == 0 && size / f > f)
        f *= 2;
    *ret_before = (float)f;
    *ret_after = (float)size / (float)f;
    return TRAIN_OK;
}
