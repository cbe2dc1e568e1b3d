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

#define SLICE_MS 100
#define ABORT_MS 2000

/* The communicator of a broken group is aborted at once: what runs on the GPU
 * ends, and ranks that wait for this one learn of it. */
static void give_up (struct nccl *nccl)
{
    int rc;

    if (nccl->broken)
        return;
    nccl->broken = true;
    nccl->comm = NULL;
    nccl_graph_drop (nccl);
    if (nccl->link)
        (void)link_run (nccl->link, LINK_ABORT, NULL, clock_ms () + ABORT_MS,
                        NULL, NULL, &rc);
}

/* [why] is recorded, or what was first; the text says what became of data. */
train_status_t nccl_fail (struct nccl *nccl, const train_error_t *why,
                          train_error_t *err)
{
    train_error_t first = *why;
    train_status_t status = why->code;
    char where[240];
    size_t at;

    nccl_graph_where (nccl, where, sizeof (where));
    if (nccl->host && status != TRAIN_EABORTED) /* others hear it by the end */
        status = host_fail (nccl->host, &nccl->now, why, &first);
    give_up (nccl);
    at = strlen (first.text);
    if (!strstr (first.text, "undefined"))
        snprintf (first.text + at, sizeof (first.text) - at,
                  "%s; what it was to write on the GPU is undefined", where);
    return err_set (err, status, "%s", first.text);
}

/* NCCL's own error. A rank that ended is a better answer. */
train_status_t nccl_fail_rc (struct nccl *nccl, int rc, train_error_t *err)
{
    int64_t until_ms = clock_ms () + NCCL_SUSPECT_MS;
    const char *more = nccl->api->last_error (NULL);
    char text[160], what[96];
    train_error_t why;

    snprintf (text, sizeof (text), "%s", more ? more : "");
    text[strcspn (text, "\n")] = '\0';
    while (nccl->host && clock_ms () < until_ms) {
        if (host_look (nccl->host, &nccl->now, nccl->since_ms, &why)
            != TRAIN_OK)
            return nccl_fail (nccl, &why, err);
        poll (NULL, 0, SLICE_MS / 2);
    }
    comm_describe (&nccl->now, what, sizeof (what));
    err_set (&why, rc == NCCL_RC_REMOTE ? TRAIN_EPEER : TRAIN_EDEVICE,
             "group '%s': rank %d: NCCL failed in %s: %s%s%s; NCCL_DEBUG=WARN "
             "says more",
             nccl->name, nccl->rank, what, nccl->api->error_text (rc),
             text[0] ? ": " : "", text);
    return nccl_fail (nccl, &why, err);
}

bool nccl_look (void *arg)
{
    struct nccl *nccl = arg;

    return host_look (nccl->host, &nccl->now, nccl->since_ms, NULL) == TRAIN_OK;
}

static struct nccl_graph *plan_graph (const struct nccl_plan *plan)
{
    return (struct nccl_graph *)(uintptr_t)plan->from;
}

train_status_t nccl_start (struct nccl *nccl, const struct comm_call *call,
                           const void *from, void *to,
                           const struct comm_pieces *pieces, bool follow,
                           train_error_t *err)
{
    struct nccl_plan plan = {*call, from, to, pieces};
    train_status_t status = TRAIN_OK;
    train_error_t why = {0};

    nccl->now = *call;
    nccl_graph_ready (nccl,
                      call->kind == COMM_GRAPH ? plan_graph (&plan) : NULL);
    if (nccl->host)
        status = host_agree (nccl->host, call, follow, &why);
    nccl->since_ms = nccl->looked_ms = clock_ms ();
    if (status != TRAIN_OK) {
        give_up (nccl);
        return err_set (err, status, "%s", why.text);
    }
    nccl->idle = call->count == 0;
    if (!nccl->idle)
        status = nccl_give (nccl, &plan, &why);
    if (status != TRAIN_OK && !nccl->broken)
        return nccl_fail (nccl, &why, err);
    if (status == TRAIN_OK && nccl->capture && nccl->host)
        host_end (nccl->host, call);
    return status == TRAIN_OK ? TRAIN_OK
                              : err_set (err, status, "%s", why.text);
}

static void end (struct nccl *nccl)
{
    nccl->running = NULL;
    if (nccl->copy)
        nccl->gpu->free (nccl->copy);
    nccl->copy = NULL;
    if (nccl->host)
        host_end (nccl->host, &nccl->now);
}

/* One rank has nobody who watches it. */
static const train_error_t *say_late (const struct nccl *nccl,
                                      train_error_t *why)
{
    char what[96];

    comm_describe (&nccl->now, what, sizeof (what));
    err_set (why, TRAIN_ETIMEDOUT,
             "group '%s': %s, call %llu, did not end within %.1f s", nccl->name,
             what, (unsigned long long)comm_number (&nccl->now),
             (double)nccl->timeout_ms / 1000);
    return why;
}

train_status_t nccl_poll (struct nccl *nccl, bool *ret_done, train_error_t *err)
{
    int64_t now;
    int rc = NCCL_RC_SUCCESS;
    train_error_t why;

    *ret_done = nccl->idle;
    if (!nccl->idle
        && nccl->gpu->event_done (nccl->done, ret_done, &why) != TRAIN_OK)
        return nccl_fail (nccl, &why, err);
    now = *ret_done ? 0 : clock_ms ();
    if (!*ret_done && now - nccl->looked_ms < SLICE_MS)
        return TRAIN_OK;
    if (nccl->comm && nccl->api->async_error (nccl->comm, &rc) == 0
        && rc != NCCL_RC_SUCCESS && rc != NCCL_RC_IN_PROGRESS)
        return nccl_fail_rc (nccl, rc, err);
    if (*ret_done) {
        end (nccl);
        return TRAIN_OK;
    }
    nccl->looked_ms = now;
    nccl_graph_tell (nccl);
    if (!nccl->host && now - nccl->since_ms >= nccl->timeout_ms)
        return nccl_fail (nccl, say_late (nccl, &why), err);
    if (nccl->host
        && host_look (nccl->host, &nccl->now, nccl->since_ms, &why) != TRAIN_OK)
        return nccl_fail (nccl, &why, err);
    return TRAIN_OK;
}
