/* SPDX-License-Identifier: Apache-2.0
 * group_list.c - several tensors in one call
 *
 * They are laid behind each other, so that the ranks agree once and the rings
 * fill once: for many small tensors that is what costs. Where a tensor has a
 * block for each rank, block 0 of all tensors comes first, then block 1. */
#include <stdlib.h>
#include <string.h>
#include <xxhash.h>

#include "err.h"
#include "group_impl.h"

struct piece {
    char *data;
    size_t bytes; /* of a block */
};

/* One call on its way. */
struct batch {
    size_t n, in_blocks, out_blocks;
    char *from, *to; /* what goes to the backend; may be the same */
    bool packs, unpacks;
    struct piece pieces[]; /* (n) in, (n) out */
};

/* What a list call is about. */
struct list {
    const char *what;
    DLTensor *const *in, *const *out; /* (n) may be the same */
    size_t n;
    size_t in_blocks, out_blocks;
    bool reduces;
    bool packs, unpacks; /* on this rank; neither: the backend takes it whole */
};

static char *data_of (const DLTensor *t)
{
    return t->data ? (char *)t->data + t->byte_offset : NULL;
}

static train_status_t check_one (const train_group_t *group,
                                 const struct list *list, const DLTensor *t,
                                 struct comm_call *one, train_error_t *err)
{
    train_status_t status = group_check_tensor (group, t, one, err);

    if (status == TRAIN_OK && list->reduces)
        status = group_check_op (list->what, one, err);
    return status;
}

/* A backend that takes the tensors as they lie has NCCL's places: one of a pair
 * is the block of this rank in the other, or they lie apart. */
static train_status_t check_places (const train_group_t *group,
                                    const struct list *list, size_t i,
                                    size_t block, train_error_t *err)
{
    const struct piece in = {data_of (list->in[i]), block * list->in_blocks};
    const struct piece out = {data_of (list->out[i]), block * list->out_blocks};
    uintptr_t a = (uintptr_t)in.data, b = (uintptr_t)out.data;
    uintptr_t skip = block * (uintptr_t)group->rank;

    if (block == 0 || list->in == list->out || a >= b + out.bytes
        || b >= a + in.bytes)
        return TRAIN_OK;
    if (in.bytes > out.bytes ? b == a + skip : a == b + skip)
        return TRAIN_OK;
    return err_set (err, TRAIN_EINVAL,
                    "%s: both tensors %zu overlap; in place is block %d",
                    list->what, i, group->rank);
}

/* Tensor [i] of both lists: the elements of one block. */
static train_status_t check_both (const train_group_t *group,
                                  const struct list *list, size_t i,
                                  struct comm_call *ret, train_error_t *err)
{
    struct comm_call in = {.op = ret->op}, out = {.op = ret->op};
    train_status_t status = check_one (group, list, list->in[i], &in, err);

    if (status == TRAIN_OK)
        status = check_one (group, list, list->out[i], &out, err);
    if (status != TRAIN_OK)
        return status;
    if (in.dtype != out.dtype || in.count % list->in_blocks != 0
        || out.count % list->out_blocks != 0
        || in.count / list->in_blocks != out.count / list->out_blocks)
        return err_set (err, TRAIN_EINVAL,
                        "%s: tensor %zu has %llu %s on one side and %llu %s on "
                        "the other; one has a block for each of %d ranks",
                        list->what, i, (unsigned long long)in.count,
                        train_dtype_name ((train_dtype_t)in.dtype),
                        (unsigned long long)out.count,
                        train_dtype_name ((train_dtype_t)out.dtype),
                        group->size);
    ret->dtype = in.dtype;
    ret->count = in.count / list->in_blocks;
    return list->packs || list->unpacks
               ? TRAIN_OK
               : check_places (group, list, i,
                               ret->count
                                   * train_dtype_size ((train_dtype_t)in.dtype),
                               err);
}

/* One call for all: the sum of the counts, and a hash of each. */
static train_status_t check_list (const train_group_t *group,
                                  const struct list *list,
                                  struct comm_call *call, int32_t *ret_hash,
                                  train_error_t *err)
{
    uint64_t hash = XXH3_64bits (&list->n, sizeof (list->n));

    if (!group || !list->in || !list->out || list->n == 0)
        return err_set (err, TRAIN_EINVAL, "group: no group or no tensors");
    for (size_t i = 0; i < list->n; i++) {
        struct comm_call one = {.op = call->op};
        train_status_t status = check_both (group, list, i, &one, err);

        if (status == TRAIN_OK && i > 0 && one.dtype != call->dtype)
            status = err_set (err, TRAIN_EINVAL,
                              "%s: tensor %zu is %s, those before %s; one list "
                              "a type",
                              list->what, i,
                              train_dtype_name ((train_dtype_t)one.dtype),
                              train_dtype_name ((train_dtype_t)call->dtype));
        if (status != TRAIN_OK)
            return status;
        call->dtype = one.dtype;
        call->count += one.count;
        hash = XXH3_64bits_withSeed (&one.count, sizeof (one.count), hash);
    }
    /* 0 says that it is no list */
    *ret_hash = (int32_t)((uint32_t)hash | 1);
    return group_apart (list->what, list->in, list->out, list->n, err);
}

/* Between the tensors and [all], where they follow each other. */
static void move (const struct piece *pieces, size_t n, size_t blocks,
                  char *all, bool back)
{
    for (size_t b = 0; b < blocks; b++) {
        for (size_t i = 0; i < n; i++) {
            size_t bytes = pieces[i].bytes;
            char *data = pieces[i].data + (bytes ? b * bytes : 0);

            if (bytes > 0)
                memcpy (back ? data : all, back ? all : data, bytes);
            all += bytes;
        }
    }
}

static struct batch *make_batch (const struct list *list, size_t bytes,
                                 size_t elem)
{
    size_t n = list->n;
    bool apart = list->in != list->out;
    size_t head = sizeof (struct batch) + 2 * n * sizeof (struct piece);
    size_t in = bytes * list->in_blocks, out = bytes * list->out_blocks;
    struct batch *batch = malloc (head + in + (apart ? out : 0) + 1);

    if (!batch)
        return NULL;
    batch->n = n;
    batch->in_blocks = list->in_blocks;
    batch->out_blocks = list->out_blocks;
    batch->from = (char *)batch + head;
    batch->to = batch->from + (apart ? in : 0);
    batch->packs = list->packs;
    batch->unpacks = list->unpacks;
    for (size_t i = 0; i < n; i++) {
        batch->pieces[i] = (struct piece){
            data_of (list->in[i]),
            (size_t)train_tensor_numel (list->in[i]) / list->in_blocks * elem};
        batch->pieces[n + i] =
            (struct piece){data_of (list->out[i]), batch->pieces[i].bytes};
    }
    return batch;
}

static void pack (void *arg)
{
    struct batch *batch = arg;

    if (batch->packs)
        move (batch->pieces, batch->n, batch->in_blocks, batch->from, false);
}

static void unpack (void *arg, train_status_t status)
{
    struct batch *batch = arg;

    if (status == TRAIN_OK && batch->unpacks)
        move (batch->pieces + batch->n, batch->n, batch->out_blocks, batch->to,
              true);
    free (batch);
}

static train_status_t say_no_memory (const struct list *list,
                                     const struct comm_call *call,
                                     train_error_t *err)
{
    return err_set (err, TRAIN_ENOMEM,
                    "%s: no memory for %zu tensors, %llu elements; shorter "
                    "lists need less",
                    list->what, list->n, (unsigned long long)call->count);
}

/* As they lie. */
static train_status_t run_pieces (train_group_t *group, const struct list *list,
                                  struct comm_call *call, train_error_t *err)
{
    struct comm_pieces *pieces = group_pieces (list->n);

    if (!pieces)
        return say_no_memory (list, call, err);
    pieces->n = list->n;
    for (size_t i = 0; i < list->n; i++)
        pieces->piece[i] = (struct comm_piece){
            data_of (list->in[i]), data_of (list->out[i]),
            (size_t)train_tensor_numel (list->in[i]) / list->in_blocks};
    return group_run_pieces (group, call, pieces, err);
}

static train_status_t run (train_group_t *group, const struct list *list,
                           struct comm_call *call, train_error_t *err)
{
    size_t elem = train_dtype_size ((train_dtype_t)call->dtype);
    struct group_hooks hooks = {.before = pack, .after = unpack};
    struct batch *batch;

    if (!list->packs && !list->unpacks)
        return run_pieces (group, list, call, err);
    batch = make_batch (list, call->count * elem, elem);
    if (!batch)
        return say_no_memory (list, call, err);
    hooks.arg = batch;
    return group_run_with (group, call, batch->from, batch->to, &hooks, err);
}

static bool packs (const train_group_t *group)
{
    return group && !group->ops->run_pieces;
}

train_status_t train_all_reduce_list (train_group_t *group,
                                      DLTensor *const *list, size_t n,
                                      train_op_t op, train_error_t *err)
{
    struct comm_call call = {.kind = COMM_ALL_REDUCE_LIST, .op = (int32_t)op};
    struct list all = {.what = "all_reduce_list",
                       .in = list,
                       .out = list,
                       .n = n,
                       .in_blocks = 1,
                       .out_blocks = 1,
                       .reduces = true};
    train_status_t status;

    all.packs = all.unpacks = packs (group);
    status = check_list (group, &all, &call, &call.root, err);
    return status == TRAIN_OK ? run (group, &all, &call, err) : status;
}

train_status_t train_broadcast_list (train_group_t *group,
                                     DLTensor *const *list, size_t n, int root,
                                     train_error_t *err)
{
    struct comm_call call = {.kind = COMM_BROADCAST, .root = root};
    struct list all = {.what = "broadcast_list",
                       .in = list,
                       .out = list,
                       .n = n,
                       .in_blocks = 1,
                       .out_blocks = 1,
                       .packs = packs (group) && group->rank == root,
                       .unpacks = packs (group) && group->rank != root};
    train_status_t status = check_list (group, &all, &call, &call.op, err);

    if (status == TRAIN_OK)
        status = group_root (group, all.what, root, err);
    return status == TRAIN_OK ? run (group, &all, &call, err) : status;
}

train_status_t train_all_gather_list (train_group_t *group, DLTensor *const *in,
                                      DLTensor *const *out, size_t n,
                                      train_error_t *err)
{
    struct comm_call call = {.kind = COMM_ALL_GATHER};
    struct list all = {.what = "all_gather_list",
                       .in = in,
                       .out = out,
                       .n = n,
                       .in_blocks = 1,
                       .out_blocks = group ? (size_t)group->size : 1,
                       .packs = packs (group),
                       .unpacks = packs (group)};
    train_status_t status = check_list (group, &all, &call, &call.op, err);

    if (status == TRAIN_OK && in == out)
        status =
            err_set (err, TRAIN_EINVAL, "all_gather_list: both lists are one");
    return status == TRAIN_OK ? run (group, &all, &call, err) : status;
}

train_status_t train_reduce_scatter_list (train_group_t *group,
                                          DLTensor *const *in,
                                          DLTensor *const *out, size_t n,
                                          train_op_t op, train_error_t *err)
{
    struct comm_call call = {.kind = COMM_REDUCE_SCATTER, .op = (int32_t)op};
    struct list all = {.what = "reduce_scatter_list",
                       .in = in,
                       .out = out,
                       .n = n,
                       .in_blocks = group ? (size_t)group->size : 1,
                       .out_blocks = 1,
                       .reduces = true,
                       .packs = packs (group),
                       .unpacks = packs (group)};
    train_status_t status = check_list (group, &all, &call, &call.root, err);

    if (status == TRAIN_OK && in == out)
        status = err_set (err, TRAIN_EINVAL,
                          "reduce_scatter_list: both lists are one");
    return status == TRAIN_OK ? run (group, &all, &call, err) : status;
}
