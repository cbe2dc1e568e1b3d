/* SPDX-License-Identifier: Apache-2.0
 * comm_nccl_give.c - what the GPU is given for one call of the backend nccl */
#include "config.h"

#include "comm_nccl.h"

#include <stdlib.h>
#include <string.h>

#include "err.h"
#include "host.h"
#include "sock.h"

/* What a rank gives itself, and the copy of an all-to-all in place. */
static train_status_t own_copies (struct nccl *nccl, struct nccl_plan *plan,
                                  train_error_t *err)
{
    const struct comm_call *call = &plan->call;
    size_t block = call->count * train_dtype_size ((train_dtype_t)call->dtype);
    size_t mine = (size_t)nccl->rank * block, all = (size_t)nccl->size * block;
    const char *from = plan->from;
    char *to = plan->to;

    switch (call->kind) {
    case COMM_GATHER:
        to = nccl->rank == call->root ? to + mine : NULL;
        break;
    case COMM_SCATTER:
        from = nccl->rank == call->root ? from + mine : NULL;
        break;
    case COMM_ALL_TO_ALL:
        if (from == to) {
            void *copy = NULL;

            TRY (nccl->capture
                     ? nccl_graph_alloc (nccl, all, &copy, err)
                     : nccl->gpu->alloc (nccl->device, all, &nccl->copy, err));
            plan->from = copy ? copy : nccl->copy;
            return nccl->gpu->copy ((void *)(uintptr_t)plan->from, from, all,
                                    nccl->stream, err);
        }
        from += mine;
        to += mine;
        break;
    default:
        if (nccl->size > 1)
            return TRAIN_OK;
    }
    if (!from || !to || from == to)
        return TRAIN_OK;
    return nccl->gpu->copy (to, from, block, nccl->stream, err);
}

/* Does this call send or receive where no message went yet? Those connections
 * are made by both ranks, within NCCL. */
static bool is_new (const struct nccl *nccl, const struct comm_call *call)
{
    bool fresh = false;

    for (int p = 0; p < nccl->size; p++) {
        struct nccl_way w = nccl_way (call, nccl->rank, p);

        if (p == nccl->rank)
            continue;
        fresh |= w.sends && !nccl->sends[p];
        fresh |= w.recvs && !nccl->recvs[p];
        nccl->sends[p] |= w.sends;
        nccl->recvs[p] |= w.recvs;
    }
    return fresh;
}

static struct nccl_plan *copy_plan (const struct nccl_plan *plan)
{
    struct nccl_plan *copy = malloc (sizeof (*copy));
    struct comm_pieces *pieces = NULL;
    size_t bytes;

    if (copy)
        *copy = *plan;
    if (!copy || !plan->pieces)
        return copy;
    bytes = sizeof (*pieces) + plan->pieces->n * sizeof (*pieces->piece);
    pieces = malloc (bytes);
    if (!pieces) {
        free (copy);
        return NULL;
    }
    memcpy (pieces, plan->pieces, bytes);
    copy->pieces = pieces;
    return copy;
}

/* By the helper: with the deadline. */
static train_status_t by_helper (struct nccl *nccl,
                                 const struct nccl_plan *plan, int *ret_rc,
                                 train_error_t *err)
{
    /* after the host's watch has had its time to name somebody */
    int64_t until_ms = nccl->since_ms + nccl->timeout_ms + 2 * NCCL_SUSPECT_MS;
    struct nccl_plan *copy = copy_plan (plan);
    train_error_t why;
    char what[96];

    if (!copy)
        return err_set (err, TRAIN_ENOMEM, "group '%s': no memory", nccl->name);
    if (link_run (nccl->link, LINK_CALL, copy, until_ms, nccl_look, nccl,
                  ret_rc))
        return TRAIN_OK;
    nccl->broken = true; /* the helper aborts once it is back */
    nccl_graph_drop (nccl);
    nccl->comm = NULL;
    if (host_look (nccl->host, &nccl->now, nccl->since_ms, &why) == TRAIN_OK) {
        comm_describe (&nccl->now, what, sizeof (what));
        err_set (&why, TRAIN_ETIMEDOUT,
                 "group '%s': rank %d: NCCL did not connect the ranks of %s "
                 "within %.1f s",
                 nccl->name, nccl->rank, what, (double)nccl->timeout_ms / 1000);
    }
    return nccl_fail (nccl, &why, err);
}

/* A piece whose place differs is a copy, where there is one rank. */
static train_status_t own_pieces (struct nccl *nccl,
                                  const struct nccl_plan *plan,
                                  train_error_t *err)
{
    size_t elem = train_dtype_size ((train_dtype_t)plan->call.dtype);

    for (size_t i = 0; nccl->size == 1 && i < plan->pieces->n; i++) {
        const struct comm_piece *p = &plan->pieces->piece[i];

        if (p->n > 0 && p->in != p->out)
            TRY (nccl->gpu->copy (p->out, p->in, p->n * elem, nccl->stream,
                                  err));
    }
    return TRAIN_OK;
}

/* The memory that is cast to: kept, since to allocate may wait for the GPU. A
 * group whose call did not end makes no other, so what a lost helper may still
 * read is neither used again nor freed (comm_nccl.c, op_fini). */
static train_status_t reserve_wire (struct nccl *nccl, size_t bytes, void **ret,
                                    train_error_t *err)
{
    if (nccl->capture)
        return nccl_graph_alloc (nccl, bytes, ret, err);
    *ret = nccl->wire;
    if (bytes <= nccl->wire_bytes)
        return TRAIN_OK;
    nccl->gpu->free (nccl->wire);
    nccl->wire = NULL;
    nccl->wire_bytes = 0;
    TRY (nccl->gpu->alloc (nccl->device, bytes, &nccl->wire, err));
    nccl->wire_bytes = bytes;
    *ret = nccl->wire;
    return TRAIN_OK;
}

static int elem_of (int32_t dtype)
{
    return dtype == TRAIN_BF16 ? KERN_BF16 : KERN_F16;
}

static void cast (struct nccl *nccl, const struct comm_call *call, void *wide,
                  void *wire, bool narrows)
{
    int half = elem_of (call->dtype), before;
    struct kern_view to = {.compact = 1, .n = call->count}, from = to;

    from.data = narrows ? wide : wire;
    from.from = narrows ? KERN_F32 : half;
    from.to = narrows ? half : KERN_F32;
    from.in_size = narrows ? 4 : 2;
    from.wire_size = narrows ? 2 : 4;
    to.data = narrows ? wire : wide;
    to.in_size = to.wire_size = narrows ? 2 : 4;
    before = nccl->gpu->enter (nccl->device);
    nccl->gpu->view->move (&to, &from, nccl->stream);
    nccl->gpu->leave (before);
}

/* F32 tensors go as call->dtype: from here on it is a call in place there. */
static train_status_t narrow (struct nccl *nccl, struct nccl_plan *plan,
                              train_error_t *err)
{
    const struct comm_piece *p = &plan->pieces->piece[0];

    void *wire = NULL;

    TRY (reserve_wire (nccl, p->n * sizeof (uint16_t), &wire, err));
    if (p->in)
        cast (nccl, &plan->call, (void *)(uintptr_t)p->in, wire, true);
    plan->from = plan->to = wire;
    plan->pieces = NULL;
    return TRAIN_OK;
}

static train_status_t by_nccl (struct nccl *nccl, const struct nccl_plan *plan,
                               train_error_t *err)
{
    int rc = NCCL_RC_SUCCESS;

    if (nccl->size == 1)
        return TRAIN_OK;
    if (is_new (nccl, &plan->call) || nccl->careful)
        TRY (by_helper (nccl, plan, &rc, err));
    else
        rc = nccl_enqueue (nccl->api, plan, nccl->rank, nccl->size, nccl->comm,
                           nccl->stream);
    return rc == NCCL_RC_SUCCESS ? TRAIN_OK : nccl_fail_rc (nccl, rc, err);
}

/* After what the caller's stream has been given; in a graph the caller's then
 * goes on after the call. Where that stream cannot be recorded, calls are
 * alone. */
static train_status_t before_call (struct nccl *nccl, train_error_t *err)
{
    if (nccl->flow)
        return nccl->gpu->event_wait (nccl->stream, nccl->device,
                                      nccl->flow->before, err);
    if (nccl->capture && !nccl->after)
        return TRAIN_OK;
    TRY (nccl->gpu->event_record (nccl->ready, nccl->device, nccl->after, err));
    return nccl->gpu->event_wait (nccl->stream, nccl->device, nccl->ready, err);
}

static train_status_t after_call (struct nccl *nccl, train_error_t *err)
{
    if (nccl->flow)
        return nccl->gpu->event_record (nccl->flow->after, nccl->device,
                                        nccl->stream, err);
    if (nccl->capture && !nccl->after)
        return TRAIN_OK;
    TRY (nccl->gpu->event_record (nccl->done, nccl->device, nccl->stream, err));
    return nccl->capture ? nccl->gpu->event_wait (nccl->after, nccl->device,
                                                  nccl->done, err)
                         : TRAIN_OK;
}

static train_status_t launch (struct nccl *nccl, train_error_t *err)
{
    TRY (nccl->gpu->graph->launch (nccl->running->exec, nccl->stream,
                                   nccl->device, err));
    return after_call (nccl, err);
}

train_status_t nccl_give (struct nccl *nccl, struct nccl_plan *plan,
                          train_error_t *err)
{
    const struct comm_pieces *wire =
        plan->pieces && plan->pieces->wire ? plan->pieces : NULL;

    TRY (before_call (nccl, err));
    if (plan->call.kind == COMM_GRAPH)
        return launch (nccl, err);
    if (nccl->capture)
        TRY (nccl_graph_note (nccl, &plan->call, err));
    if (wire)
        TRY (narrow (nccl, plan, err));
    else if (plan->pieces)
        TRY (own_pieces (nccl, plan, err));
    else
        TRY (own_copies (nccl, plan, err));
    TRY (by_nccl (nccl, plan, err));
    if (wire && wire->piece[0].out)
        cast (nccl, &plan->call, wire->piece[0].out, plan->to, false);
    if (nccl->capture)
        TRY (nccl_graph_noted (nccl, err));
    return after_call (nccl, err);
}
