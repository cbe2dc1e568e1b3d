/* SPDX-License-Identifier: Apache-2.0
 * group_object.c - bytes of any length: first how many, then they */
#include <stdlib.h>
#include <string.h>

#include "err.h"
#include "group_impl.h"

/* The others are in the next call already and cannot be told. */
static train_status_t no_memory (train_group_t *group, uint64_t bytes,
                                 train_error_t *err)
{
    train_error_t why;

    err_set (&why, TRAIN_ENOMEM,
             "group '%s': no memory for objects of %llu bytes", group->name,
             (unsigned long long)bytes);
    return group_break (group, &why, err);
}

static train_status_t check_object (const train_group_t *group,
                                    const void *data, size_t len,
                                    train_error_t *err)
{
    if (!group)
        return err_set (err, TRAIN_EINVAL, "group: no group");
    if (!data && len > 0)
        return err_set (err, TRAIN_EINVAL, "group '%s': the object has no data",
                        group->name);
    return TRAIN_OK;
}

train_status_t train_broadcast_object (train_group_t *group, const void *data,
                                       size_t len, int root, void **ret,
                                       size_t *ret_len, train_error_t *err)
{
    struct comm_call call = {
        .kind = COMM_OBJECT, .root = root, .dtype = TRAIN_I64, .count = 1};
    bool mine = group && group->rank == root;
    train_status_t status = check_object (group, data, mine ? len : 0, err);
    uint64_t n = len;
    char *bytes;

    if (status == TRAIN_OK && (!ret || !ret_len))
        status = err_set (err, TRAIN_EINVAL, "broadcast_object: no result");
    if (status == TRAIN_OK)
        status = group_root (group, "broadcast_object", root, err);
    if (status == TRAIN_OK)
        status = group_run_host (group, &call, &n, &n, err);
    if (status != TRAIN_OK)
        return status;
    if (!(bytes = malloc (n ? n : 1)))
        return no_memory (group, n, err);
    if (mine && n > 0)
        memcpy (bytes, data, n);
    call = (struct comm_call){
        .kind = COMM_BROADCAST, .root = root, .dtype = TRAIN_U8, .count = n};
    status = group_run_host (group, &call, bytes, bytes, err);
    if (status != TRAIN_OK || n == 0) {
        free (bytes);
        bytes = NULL;
    }
    if (status == TRAIN_OK) {
        *ret = bytes;
        *ret_len = n;
    }
    return status;
}

/* The bytes of all ranks, one rank after the other. */
static train_status_t gather_bytes (train_group_t *group, const void *data,
                                    int root, const uint64_t *lens, char *to,
                                    train_error_t *err)
{
    bool takes = root < 0 || root == group->rank;
    train_status_t status = TRAIN_OK;

    for (int r = 0; r < group->size && status == TRAIN_OK; r++) {
        struct comm_call call = {.kind = root < 0 ? COMM_BROADCAST : COMM_SEND,
                                 .root = r,
                                 .op = root < 0 ? 0 : root,
                                 .dtype = TRAIN_U8,
                                 .count = lens[r]};

        status = group_run_host (group, &call, data, takes ? to : NULL, err);
        if (takes)
            to += lens[r];
    }
    return status;
}

static train_status_t gather_lens (train_group_t *group, size_t len, int root,
                                   uint64_t *lens, uint64_t *ret_sum,
                                   train_error_t *err)
{
    struct comm_call call = {
        .kind = COMM_OBJECTS, .root = root, .dtype = TRAIN_I64, .count = 1};
    uint64_t mine = len;
    train_status_t status = group_run_host (group, &call, &mine, lens, err);

    *ret_sum = 0;
    for (int r = 0; status == TRAIN_OK && r < group->size; r++) {
        if (__builtin_add_overflow (*ret_sum, lens[r], ret_sum))
            return no_memory (group, UINT64_MAX, err);
    }
    return status;
}

train_status_t train_gather_object (train_group_t *group, const void *data,
                                    size_t len, int root, void **ret,
                                    size_t *ret_lens, train_error_t *err)
{
    train_status_t status = check_object (group, data, len, err);
    uint64_t *lens, sum;
    char *bytes = NULL;

    if (status == TRAIN_OK && (!ret || !ret_lens))
        status = err_set (err, TRAIN_EINVAL, "gather_object: no result");
    if (status == TRAIN_OK && root != -1)
        status = group_root (group, "gather_object", root, err);
    if (status != TRAIN_OK)
        return status;
    if (!(lens = calloc ((size_t)group->size, sizeof (*lens))))
        return err_set (err, TRAIN_ENOMEM, "gather_object: no memory");
    status = gather_lens (group, len, root, lens, &sum, err);
    if (status == TRAIN_OK && (root < 0 || root == group->rank)
        && !(bytes = malloc (sum ? sum : 1)))
        status = no_memory (group, sum, err);
    if (status == TRAIN_OK)
        status = gather_bytes (group, data, root, lens, bytes, err);
    for (int r = 0; status == TRAIN_OK && r < group->size; r++)
        ret_lens[r] = lens[r];
    free (lens);
    if (status != TRAIN_OK || sum == 0) {
        free (bytes);
        bytes = NULL;
    }
    if (status == TRAIN_OK)
        *ret = bytes;
    return status;
}
