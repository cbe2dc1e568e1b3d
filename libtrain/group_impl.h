/* SPDX-License-Identifier: Apache-2.0
 * group_impl.h - a process group from inside. Inside libtrain only. */
#ifndef TRAIN_GROUP_IMPL_H
#define TRAIN_GROUP_IMPL_H

#include "comm.h"

#define GROUP_NAME_BYTES 64

struct train_group {
    const struct comm_ops *ops;
    void *state;
    char name[GROUP_NAME_BYTES];
    int rank, size, local_rank, local_size;
    uint64_t seq;
    train_error_t failure; /* code TRAIN_OK while the group is sound */
};

/* group_run - count a call whose arguments are right, and run it.
 *   from, to   as comm.h says */
train_status_t group_run (train_group_t *group, struct comm_call *call,
                          const void *from, void *to, train_error_t *err);

/* group_break - the first failure of a group that came from elsewhere. */
train_status_t group_break (train_group_t *group, const train_error_t *why,
                            train_error_t *err);

/* group_root - is [root] one of the ranks? [what] stands in the message. */
train_status_t group_root (const train_group_t *group, const char *what,
                           int root, train_error_t *err);

#endif
