/* SPDX-License-Identifier: Apache-2.0
 * comm_nccl_run.c - one call of the backend nccl, from agreement to the event
 * that ends it */
#include "config.h"

#include "comm_nccl.h"

#include <poll.h>
#include <sched.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>

#include "err.h"
#include "host.h"
#include "sock.h"

#define SLICE_MS   100
#define ABORT_MS   2000
#define SUSPECT_MS 1000 /* NCCL has failed: who ended is known soon */

/* The communicator of a broken group is aborted at once: what runs on the GPU
 * ends, and ranks that wait for this one learn of it. */
static void give_up (struct nccl *nccl)
{
    int rc;

    if (nccl->broken)
        return;
    nccl->broken = true;
    nccl->comm = NULL;
    if (nccl->link)
        (void)link_run (nccl->link, LINK_ABORT, NULL, clock_ms () + ABORT_MS,
                        NULL, NULL, &rc);
}

/* [why] is recorded, or what was first; the text says what became of data. */
static train_status_t fail (struct nccl *nccl, const train_error_t *why,
                            train_error_t *err)
{
    train_error_t first = *why;
    train_status_t status = why->code;
    size_t at;

    if (nccl->host && status != TRAIN_EABORTED) /* others hear it by the end */
        status = host_fail (nccl->host, &nccl->now, why, &first);
    give_up (nccl);
    at = strlen (first.text);
    if (!strstr (first.text, "undefined"))
        snprintf (first.text + at, sizeof (first.text) - at,
                  "; what it was to write on the GPU is undefined");
    return err_set (err, status, "%s", first.text);
}

/* NCCL's own error. A rank that ended is a better answer. */
static train_status_t fail_rc (struct nccl *nccl, int rc, train_error_t *err)
{
    int64_t until_ms = clock_ms () + SUSPECT_MS;
    const char *more = nccl->api->last_error (NULL);
    char text[160], what[96];
    train_error_t why;

    snprintf (text, sizeof (text), "%s", more ? more : "");
    text[strcspn (text, "\n")] = '\0';
    while (nccl->host && clock_ms () < until_ms) {
        if (host_look (nccl->host, &nccl->now, nccl->since_ms, &why)
            != TRAIN_OK)
            return fail (nccl, &why, err);
        poll (NULL, 0, SLICE_MS / 2);
    }
    comm_describe (&nccl->now, what, sizeof (what));
    err_set (&why, rc == NCCL_RC_REMOTE ? TRAIN_EPEER : TRAIN_EDEVICE,
             "group '%s': rank %d: NCCL failed in %s: %s%s%s; NCCL_DEBUG=WARN "
             "says more",
             nccl->name, nccl->rank, what, nccl->api->error_text (rc),
             text[0] ? ": " : "", text);
    return fail (nccl, &why, err);
}

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
            TRY (nccl->gpu->alloc (nccl->device, all, &nccl->copy, err));
            plan->from = nccl->copy;
            return nccl->gpu->copy (nccl->copy, from, all, nccl->stream, err);
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

bool nccl_look (void *arg)
{
    struct nccl *nccl = arg;

    return host_look (nccl->host, &nccl->now, nccl->since_ms, NULL) == TRAIN_OK;
}

/* By the helper: with the deadline. */
static train_status_t by_helper (struct nccl *nccl,
                                 const struct nccl_plan *plan, int *ret_rc,
                                 train_error_t *err)
{
    /* after the host's watch has had its time to name somebody */
    int64_t until_ms = nccl->since_ms + nccl->timeout_ms + 2 * SUSPECT_MS;
    struct nccl_plan *copy = malloc (sizeof (*copy));
    train_error_t why;
    char what[96];

    if (!copy) {
        free (plan->pieces);
        err_set (&why, TRAIN_ENOMEM, "group '%s': no memory", nccl->name);
        return fail (nccl, &why, err);
    }
    *copy = *plan;
    if (link_run (nccl->link, LINK_CALL, copy, until_ms, nccl_look, nccl,
                  ret_rc))
        return TRAIN_OK;
    nccl->broken = true; /* the helper aborts once it is back */
    nccl->comm = NULL;
    if (host_look (nccl->host, &nccl->now, nccl->since_ms, &why) == TRAIN_OK) {
        comm_describe (&nccl->now, what, sizeof (what));
        err_set (&why, TRAIN_ETIMEDOUT,
                 "group '%s': rank %d: NCCL did not connect the ranks of %s "
                 "within %.1f s",
                 nccl->name, nccl->rank, what, (double)nccl->timeout_ms / 1000);
    }
    return fail (nccl, &why, err);
}

static train_status_t make_pieces (struct nccl_plan *plan,
                                   DLTensor *const *list, size_t n,
                                   train_error_t *err)
{
    plan->pieces = n ? calloc (n, sizeof (*plan->pieces)) : NULL;
    if (n && !plan->pieces)
        return err_set (err, TRAIN_ENOMEM, "group: no memory for a list");
    plan->n = n;
    for (size_t i = 0; i < n; i++) {
        char *data =
            list[i]->data ? (char *)list[i]->data + list[i]->byte_offset : NULL;

        plan->pieces[i] = (struct nccl_piece){
            data, data, (size_t)train_tensor_numel (list[i])};
    }
    return TRAIN_OK;
}

/* The GPU's part; all ranks have agreed. */
static train_status_t give (struct nccl *nccl, struct nccl_plan *plan,
                            train_error_t *err)
{
    const struct backend_ops *gpu = nccl->gpu;
    int rc = NCCL_RC_SUCCESS;

    TRY (gpu->event_record (nccl->ready, nccl->device, nccl->after, err));
    TRY (gpu->event_wait (nccl->stream, nccl->device, nccl->ready, err));
    if (!plan->pieces)
        TRY (own_copies (nccl, plan, err));
    if (nccl->size > 1 && (is_new (nccl, &plan->call) || nccl->careful)) {
        struct nccl_plan taken = *plan;

        plan->pieces = NULL;
        TRY (by_helper (nccl, &taken, &rc, err));
    } else if (nccl->size > 1) {
        rc = nccl_enqueue (nccl->api, plan, nccl->rank, nccl->size, nccl->comm,
                           nccl->stream);
    }
    if (rc != NCCL_RC_SUCCESS)
        return fail_rc (nccl, rc, err);
    return gpu->event_record (nccl->done, nccl->device, nccl->stream, err);
}

train_status_t nccl_start (struct nccl *nccl, const struct comm_call *call,
                           const void *from, void *to, DLTensor *const *list,
                           size_t n, bool follow, train_error_t *err)
{
    struct nccl_plan plan = {.call = *call, .from = from, .to = to};
    train_error_t why = {0};
    train_status_t status = make_pieces (&plan, list, n, &why);

    nccl->now = *call;
    if (status == TRAIN_OK && nccl->host)
        status = host_agree (nccl->host, call, follow, &why);
    nccl->since_ms = nccl->looked_ms = clock_ms ();
    if (status != TRAIN_OK) {
        free (plan.pieces);
        give_up (nccl);
        return err_set (err, status, "%s", why.text);
    }
    nccl->idle = call->count == 0;
    if (!nccl->idle)
        status = give (nccl, &plan, &why);
    free (plan.pieces);
    if (status != TRAIN_OK && !nccl->broken)
        return fail (nccl, &why, err);
    return status == TRAIN_OK ? TRAIN_OK
                              : err_set (err, status, "%s", why.text);
}

static void end (struct nccl *nccl)
{
    if (nccl->copy)
        nccl->gpu->free (nccl->copy);
    nccl->copy = NULL;
    if (nccl->host)
        host_end (nccl->host, &nccl->now);
}

train_status_t nccl_poll (struct nccl *nccl, bool *ret_done, train_error_t *err)
{
    int64_t now;
    int rc = NCCL_RC_SUCCESS;
    train_error_t why;

    *ret_done = nccl->idle;
    if (!nccl->idle
        && nccl->gpu->event_done (nccl->done, ret_done, &why) != TRAIN_OK)
        return fail (nccl, &why, err);
    now = *ret_done ? 0 : clock_ms ();
    if (!*ret_done && now - nccl->looked_ms < SLICE_MS)
        return TRAIN_OK;
    if (nccl->comm && nccl->api->async_error (nccl->comm, &rc) == 0
        && rc != NCCL_RC_SUCCESS && rc != NCCL_RC_IN_PROGRESS)
        return fail_rc (nccl, rc, err);
    if (*ret_done) {
        end (nccl);
        return TRAIN_OK;
    }
    nccl->looked_ms = now;
    if (nccl->host
        && host_look (nccl->host, &nccl->now, nccl->since_ms, &why) != TRAIN_OK)
        return fail (nccl, &why, err);
    return TRAIN_OK;
}
