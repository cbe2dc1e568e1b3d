/* SPDX-License-Identifier: Apache-2.0
 * comm_self.c - the backend of a group of one rank: every result is the input
 *
 * An average over one rank divides by one, so it too is the identity (PyTorch's
 * FSDP warns that NCCL's average of one rank may not be). */
#include "comm.h"

#include <string.h>

#include "err.h"
#include "join.h"

static train_status_t op_init (struct join *join, const char *name,
                               int64_t timeout_ms, struct comm_where *where,
                               void **ret_state, train_error_t *err)
{
    (void)timeout_ms, (void)where;
    if (join->size != 1)
        return err_set (err, TRAIN_EINVAL,
                        "group '%s': backend self serves one rank, this job "
                        "has %d; use host",
                        name, join->size);
    *ret_state = NULL;
    return TRAIN_OK;
}

static train_status_t op_run (void *state, const struct comm_call *call,
                              const void *from, void *to, train_error_t *err)
{
    size_t bytes = call->count * train_dtype_size ((train_dtype_t)call->dtype);

    (void)state, (void)err;
    if (from && to && bytes)
        memmove (to, from, bytes);
    return TRAIN_OK;
}

static void op_fini (void *state)
{
    (void)state;
}

const struct comm_ops comm_self = {
    .name = "self",
    .init = op_init,
    .run = op_run,
    .fini = op_fini,
};
