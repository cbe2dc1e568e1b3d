/* SPDX-License-Identifier: Apache-2.0
 * comm_nccl_call.c - the collectives in NCCL's words
 *
 * Gather, scatter, all-to-all and send are messages within one group of calls.
 * What a rank gives itself is copied by the caller and is not here. */
#include "config.h"

#include "comm_nccl.h"

static int dtype_of (const struct comm_call *call)
{
    static const int nccl[TRAIN_N_DTYPES] = {
        [TRAIN_F32] = NCCL_DTYPE_F32,   [TRAIN_F64] = NCCL_DTYPE_F64,
        [TRAIN_BF16] = NCCL_DTYPE_BF16, [TRAIN_F16] = NCCL_DTYPE_F16,
        [TRAIN_I64] = NCCL_DTYPE_I64,   [TRAIN_I32] = NCCL_DTYPE_I32,
        [TRAIN_U8] = NCCL_DTYPE_U8,
    };

    return nccl[call->dtype];
}

static int op_of (const struct comm_call *call)
{
    static const int nccl[TRAIN_PROD + 1] = {
        [TRAIN_SUM] = NCCL_OP_SUM,   [TRAIN_AVG] = NCCL_OP_AVG,
        [TRAIN_MIN] = NCCL_OP_MIN,   [TRAIN_MAX] = NCCL_OP_MAX,
        [TRAIN_PROD] = NCCL_OP_PROD,
    };

    return nccl[call->op];
}

struct nccl_way nccl_way (const struct comm_call *call, int rank, int peer)
{
    size_t p = (size_t)peer;

    switch (call->kind) {
    case COMM_GATHER:
        return (struct nccl_way){peer == call->root, rank == call->root, 0, p};
    case COMM_SCATTER:
        return (struct nccl_way){rank == call->root, peer == call->root, p, 0};
    case COMM_SEND:
        return (struct nccl_way){rank == call->root && peer == call->op,
                                 peer == call->root && rank == call->op, 0, 0};
    }
    if (call->kind == COMM_ALL_TO_ALL)
        return (struct nccl_way){true, true, p, p};
    return (struct nccl_way){0};
}

static int messages (const struct nccl_api *api, const struct nccl_plan *plan,
                     int rank, int size, void *comm, void *stream)
{
    const struct comm_call *call = &plan->call;
    size_t n = call->count,
           elem = train_dtype_size ((train_dtype_t)call->dtype);
    int dtype = dtype_of (call), rc = api->group_start (), end;

    if (rc != NCCL_RC_SUCCESS)
        return rc;
    for (int peer = 0; peer < size && rc == NCCL_RC_SUCCESS; peer++) {
        struct nccl_way w = nccl_way (call, rank, peer);

        if (peer == rank)
            continue;
        if (w.sends)
            rc = api->send (plan->from + w.from * n * elem, n, dtype, peer,
                            comm, stream);
        if (w.recvs && rc == NCCL_RC_SUCCESS)
            rc = api->recv (plan->to + w.to * n * elem, n, dtype, peer, comm,
                            stream);
    }
    end = api->group_end ();
    return rc != NCCL_RC_SUCCESS ? rc : end;
}

static int one (const struct nccl_api *api, const struct nccl_plan *plan,
                const void *from, void *to, size_t n, void *comm, void *stream)
{
    const struct comm_call *call = &plan->call;
    int dtype = dtype_of (call);

    switch (call->kind) {
    case COMM_BROADCAST:
        return api->broadcast (from, to, n, dtype, call->root, comm, stream);
    case COMM_ALL_REDUCE:
    case COMM_ALL_REDUCE_LIST:
        return api->all_reduce (from, to, n, dtype, op_of (call), comm, stream);
    case COMM_REDUCE:
        return api->reduce (from, to, n, dtype, op_of (call), call->root, comm,
                            stream);
    case COMM_REDUCE_SCATTER:
        return api->reduce_scatter (from, to, n, dtype, op_of (call), comm,
                                    stream);
    }
    return api->all_gather (from, to, n, dtype, comm, stream);
}

static int list (const struct nccl_api *api, const struct nccl_plan *plan,
                 void *comm, void *stream)
{
    int rc = api->group_start (), end;

    if (rc != NCCL_RC_SUCCESS)
        return rc;
    for (size_t i = 0; i < plan->pieces->n && rc == NCCL_RC_SUCCESS; i++) {
        const struct comm_piece *p = &plan->pieces->piece[i];

        if (p->n > 0)
            rc = one (api, plan, p->in, p->out, p->n, comm, stream);
    }
    end = api->group_end ();
    return rc != NCCL_RC_SUCCESS ? rc : end;
}

int nccl_enqueue (const struct nccl_api *api, const struct nccl_plan *plan,
                  int rank, int size, void *comm, void *stream)
{
    if (plan->pieces)
        return list (api, plan, comm, stream);
    switch (plan->call.kind) {
    case COMM_GATHER:
    case COMM_SCATTER:
    case COMM_ALL_TO_ALL:
    case COMM_SEND:
        return messages (api, plan, rank, size, comm, stream);
    }
    return one (api, plan, plan->from, plan->to, plan->call.count, comm,
                stream);
}
