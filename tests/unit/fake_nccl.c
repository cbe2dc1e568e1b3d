/* SPDX-License-Identifier: Apache-2.0
 * fake_nccl.c - an NCCL between processes, in host memory */
#include "fake_impl.h"

#include <assert.h>
#include <poll.h>
#include <stdlib.h>
#include <string.h>

static _Thread_local struct op *group;
static _Thread_local size_t group_n;
static _Thread_local int group_depth;

/* NCCL. */

static int op_get_id (struct nccl_id *id)
{
    memset (id, 0, sizeof (*id));
    id->bytes[0] = (char)atomic_fetch_add (&world->ids, 1);
    return 0;
}

static int op_init (void **ret, int size, struct nccl_id id, int rank)
{
    struct comm *c = calloc (1, sizeof (*c));
    enum fake_fault fault = order_of (rank, world->orders.begin);

    *ret = c;
    c->meeting = &world->meetings[(int)id.bytes[0]];
    c->rank = rank;
    c->size = size;
    if (fault == FAKE_ERROR)
        return 2;
    suffer (fault);
    atomic_fetch_add (&c->meeting->here, 1);
    while (atomic_load (&c->meeting->here) < size)
        poll (NULL, 0, 1);
    atomic_fetch_add (&world->seen[rank].begun, 1);
    return 0;
}

static int op_abort (void *comm)
{
    struct comm *c = comm;

    atomic_fetch_add (&world->seen[c->rank].aborts, 1);
    atomic_fetch_add (&world->seen[c->rank].held, atomic_load (&graphs));
    pthread_mutex_lock (&lock);
    c->aborted = true; /* stays: streams may hold it */
    pthread_mutex_unlock (&lock);
    return 0;
}

static int op_destroy (void *comm)
{
    struct comm *c = comm;

    atomic_fetch_add (&world->seen[c->rank].destroys, 1);
    atomic_fetch_add (&world->seen[c->rank].held, atomic_load (&graphs));
    free (c);
    return 0;
}

static int op_async_error (void *comm, int *error)
{
    const struct comm *c = comm;

    *error = c->fails ? NCCL_RC_REMOTE : NCCL_RC_SUCCESS;
    return 0;
}

static const char *op_error_text (int error)
{
    return error == NCCL_RC_REMOTE ? "made-up remote error"
                                   : "made-up system error";
}

static const char *op_last_error (void *comm)
{
    (void)comm;
    return "made-up\nsecond line";
}

static int give (struct op *o, struct stream *s)
{
    struct comm *c = o->comm;

    atomic_fetch_add (&world->seen[c->rank].calls, 1);
    if (order_of (c->rank, world->orders.kernel) == FAKE_ERROR)
        c->fails = true;
    pthread_mutex_lock (&lock);
    if (!recorded)
        o->seq = ++c->seq;
    if (c->fails)
        o->kind = OP_LOCK;
    push (s, o);
    go_on (s);
    pthread_mutex_unlock (&lock);
    return 0;
}

static int reduction (const void *in, void *out, size_t n, size_t give_n,
                      int dtype, int op, size_t skip, void *comm, void *stream)
{
    struct op o = {.kind = OP_REDUCE,
                   .comm = comm,
                   .in = in,
                   .out = out,
                   .n = give_n,
                   .bytes = n * size_of (dtype),
                   .dtype = dtype,
                   .op = op,
                   .skip = skip * size_of (dtype)};

    return give (&o, stream);
}

static int op_all_reduce (const void *in, void *out, size_t n, int dtype,
                          int op, void *comm, void *stream)
{
    return reduction (in, out, n, n, dtype, op, 0, comm, stream);
}

static int op_reduce (const void *in, void *out, size_t n, int dtype, int op,
                      int root, void *comm, void *stream)
{
    const struct comm *c = comm;

    return reduction (in, c->rank == root ? out : NULL, n, n, dtype, op, 0,
                      comm, stream);
}

static int op_reduce_scatter (const void *in, void *out, size_t n, int dtype,
                              int op, void *comm, void *stream)
{
    const struct comm *c = comm;

    return reduction (in, out, n, n * (size_t)c->size, dtype, op,
                      n * (size_t)c->rank, comm, stream);
}

static int sharing (const void *in, void *out, size_t n, int dtype, int root,
                    void *comm, void *stream)
{
    struct op o = {.kind = OP_SHARE,
                   .comm = comm,
                   .in = in,
                   .out = out,
                   .n = n,
                   .bytes = n * size_of (dtype),
                   .dtype = dtype,
                   .peer = root,
                   .all = root < 0};

    return give (&o, stream);
}

static int op_broadcast (const void *in, void *out, size_t n, int dtype,
                         int root, void *comm, void *stream)
{
    return sharing (in, out, n, dtype, root, comm, stream);
}

static int op_all_gather (const void *in, void *out, size_t n, int dtype,
                          void *comm, void *stream)
{
    return sharing (in, out, n, dtype, -1, comm, stream);
}

static int note_message (enum op_kind kind, const void *in, void *out, size_t n,
                         int dtype, int peer, void *comm, void *stream)
{
    struct op *o;

    assert (group_depth == 1);
    group = realloc (group, (group_n + 1) * sizeof (*group));
    o = &group[group_n++];
    *o = (struct op){.kind = kind,
                     .comm = comm,
                     .in = in,
                     .out = out,
                     .bytes = n * size_of (dtype),
                     .peer = peer,
                     .other = stream};
    return 0;
}

static int op_send (const void *in, size_t n, int dtype, int to, void *comm,
                    void *stream)
{
    return note_message (OP_SEND, in, NULL, n, dtype, to, comm, stream);
}

static int op_recv (void *out, size_t n, int dtype, int from, void *comm,
                    void *stream)
{
    return note_message (OP_RECV, NULL, out, n, dtype, from, comm, stream);
}

static int op_group_start (void)
{
    group_depth++;
    return 0;
}

/* Both ranks make a connection, inside the call. */
static void connect_pair (const struct op *o, bool waits)
{
    struct comm *c = o->comm;
    _Atomic int (*wants)[FAKE_RANKS] = c->meeting->wants;
    int side = o->kind == OP_SEND ? 1 : 2;
    int from = o->kind == OP_SEND ? c->rank : o->peer;
    int to = o->kind == OP_SEND ? o->peer : c->rank;

    suffer (order_of (c->rank, world->orders.connect));
    atomic_fetch_or (&wants[from][to], side);
    while (waits && atomic_load (&wants[from][to]) != 3)
        poll (NULL, 0, 1);
}

static int op_group_end (void)
{
    if (--group_depth > 0)
        return 0;
    for (size_t i = 0; i < 2 * group_n; i++)
        connect_pair (&group[i % group_n], i >= group_n);
    pthread_mutex_lock (&lock);
    /* sends first: here a queue runs one after the other */
    for (int pass = 0; pass < 2; pass++) {
        for (size_t i = 0; i < group_n; i++) {
            struct op o = group[i];

            if ((o.kind == OP_SEND) == (pass == 0))
                push ((struct stream *)(uintptr_t)o.other, &o);
        }
    }
    pthread_mutex_unlock (&lock);
    if (group_n > 0)
        atomic_fetch_add (&world->seen[group[0].comm->rank].calls, 1);
    free (group);
    group = NULL;
    group_n = 0;
    return 0;
}

struct nccl_api fake_nccl = {
    .version = 22809,
    .get_id = op_get_id,
    .init = op_init,
    .abort = op_abort,
    .destroy = op_destroy,
    .async_error = op_async_error,
    .error_text = op_error_text,
    .last_error = op_last_error,
    .all_reduce = op_all_reduce,
    .reduce = op_reduce,
    .reduce_scatter = op_reduce_scatter,
    .broadcast = op_broadcast,
    .all_gather = op_all_gather,
    .send = op_send,
    .recv = op_recv,
    .group_start = op_group_start,
    .group_end = op_group_end,
};
