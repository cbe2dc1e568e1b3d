/* SPDX-License-Identifier: Apache-2.0
 * comm_nccl.c - the backend nccl: its begin and end, and how a call is waited
 * for
 *
 * Begin: a host group; then every rank says what it has (library, GPU, rank 0
 * the id by which NCCL's ranks meet); then NCCL; then every rank says how that
 * went. So either every rank has a group or none, and all know why. */
#include "config.h"

#include "comm_nccl.h"

#include <sched.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>

#include "err.h"
#include "host.h"
#include "join.h"
#include "sock.h"

#define END_MS 5000 /* for NCCL to free what it has */

/* What a rank tells the others. Sent as it stands. */
struct card {
    struct join_word word;
    int32_t version;
    struct nccl_id id; /* of rank 0 counts */
    char gpu[120];
};

/* NCCL makes connections at the first call that needs them, which waits for
 * the other ranks, unless it is told to make them all at the beginning (since
 * 2.22). Where the user wants it otherwise every call goes by the helper. */
static train_status_t set_ways (struct nccl *nccl, train_error_t *err)
{
    const char *blocking = getenv ("NCCL_COMM_BLOCKING");
    const char *connect;

    if (blocking && strcmp (blocking, "0") == 0)
        return err_set (err, TRAIN_EINVAL,
                        "backend nccl: NCCL_COMM_BLOCKING=0 is set; it needs "
                        "communicators that block, unset the variable");
    setenv ("NCCL_RUNTIME_CONNECT", "0", 0);
    connect = getenv ("NCCL_RUNTIME_CONNECT");
    nccl->careful = connect && strcmp (connect, "0") != 0;
    return TRAIN_OK;
}

static train_status_t choose_gpu (struct nccl *nccl, const struct join *join,
                                  struct comm_where *where, train_error_t *err)
{
    int n = 0;

    TRY (nccl->gpu->probe (&n, err));
    if (where->device < 0)
        where->device = n == 1 ? 0 : join->local_rank;
    if (where->device >= n)
        return err_set (err, TRAIN_EINVAL,
                        "group '%s': rank %d wants GPU %d, %d %s visible; one "
                        "rank a GPU, or the option device",
                        nccl->name, join->rank, where->device, n,
                        n == 1 ? "is" : "are");
    nccl->device = where->device;
    nccl->after = where->stream;
    return TRAIN_OK;
}

/* What this rank has of its own. */
static train_status_t make_card (struct nccl *nccl, const struct join *join,
                                 struct comm_where *where, struct card *card,
                                 train_error_t *err)
{
    int before, rc = NCCL_RC_SUCCESS;

    nccl->sends = calloc ((size_t)join->size, sizeof (bool));
    nccl->recvs = calloc ((size_t)join->size, sizeof (bool));
    if (!nccl->sends || !nccl->recvs)
        return err_set (err, TRAIN_ENOMEM, "group: no memory");
    TRY (set_ways (nccl, err));
    TRY (nccl_open (&nccl->api, &nccl->gpu, err));
    TRY (choose_gpu (nccl, join, where, err));
    TRY (nccl->gpu->event_create (nccl->device, &nccl->ready, err));
    TRY (nccl->gpu->event_create (nccl->device, &nccl->done, err));
    TRY (nccl->gpu->ident (nccl->device, card->gpu, sizeof (card->gpu), err));
    card->version = nccl->api->version;
    if (join->rank > 0 || join->size == 1)
        return TRAIN_OK;
    before = nccl->gpu->enter (nccl->device);
    rc = nccl->api->get_id (&card->id);
    nccl->gpu->leave (before);
    if (rc != NCCL_RC_SUCCESS)
        return err_set (err, TRAIN_EDEVICE,
                        "NCCL has no id for the group: %s; "
                        "NCCL_SOCKET_IFNAME chooses the network",
                        nccl->api->error_text (rc));
    return TRAIN_OK;
}

/* Can these ranks be one communicator? The same verdict on every rank. */
static train_status_t judge (const struct card *cards, int size,
                             train_error_t *err)
{
    const char *shared = getenv ("NCCL_MULTI_RANK_GPU_ENABLE");
    bool may_share = shared && strcmp (shared, "1") == 0;

    for (int r = 1; r < size; r++) {
        const struct card *c = &cards[r];

        if (c->version != cards[0].version)
            return err_set (err, TRAIN_EMISMATCH,
                            "rank 0 has NCCL %d.%d.%d, rank %d has %d.%d.%d; "
                            "all need the same",
                            cards[0].version / 10000,
                            cards[0].version / 100 % 100,
                            cards[0].version % 100, r, c->version / 10000,
                            c->version / 100 % 100, c->version % 100);
        for (int q = 0; q < r && !may_share; q++) {
            if (strncmp (cards[q].gpu, c->gpu, sizeof (c->gpu)) == 0)
                return err_set (err, TRAIN_EINVAL,
                                "ranks %d and %d are on one GPU (%.*s), which "
                                "NCCL refuses; one rank a GPU, or backend host",
                                q, r, (int)sizeof (c->gpu), c->gpu);
        }
    }
    return TRAIN_OK;
}

/* NCCL's own beginning, with time left to tell each other that it failed. */
static train_status_t connect_all (struct nccl *nccl, const struct join *join,
                                   const struct nccl_id *id, train_error_t *err)
{
    int64_t now = clock_ms (), left_ms = join->deadline_ms - now;
    const char *more;
    int rc;

    TRY (link_create (nccl->api, nccl->gpu, nccl->device, join->rank,
                      join->size, id, &nccl->link, err));
    nccl->stream = link_stream (nccl->link);
    if (join->size == 1)
        return TRAIN_OK;
    nccl->now = (struct comm_call){.kind = COMM_BEGIN, .seq = COMM_BEGIN_SEQ};
    nccl->since_ms = now;
    if (!link_run (nccl->link, LINK_BEGIN, NULL, now + left_ms / 4 * 3,
                   nccl_look, nccl, &rc)) {
        if (host_look (nccl->host, &nccl->now, now, err) != TRAIN_OK)
            return TRAIN_EPEER;
        return err_set (err, TRAIN_ETIMEDOUT,
                        "NCCL did not connect the ranks within %.1f s; "
                        "NCCL_DEBUG=INFO says where it waits",
                        (double)left_ms / 4 * 3 / 1000);
    }
    more = nccl->api->last_error (NULL);
    if (rc != NCCL_RC_SUCCESS)
        return err_set (err, TRAIN_EDEVICE,
                        "NCCL cannot connect the ranks: %s%s%.*s; "
                        "NCCL_DEBUG=WARN says more",
                        nccl->api->error_text (rc), more && *more ? ": " : "",
                        (int)(more ? strcspn (more, "\n") : 0),
                        more ? more : "");
    nccl->comm = link_comm (nccl->link);
    return TRAIN_OK;
}

static void op_fini (void *state)
{
    struct nccl *nccl = state;
    int rc;

    if (nccl->gpu)
        nccl_graph_drop (nccl);
    if (!nccl->broken && nccl->comm
        && !link_run (nccl->link, LINK_END, NULL, clock_ms () + END_MS, NULL,
                      NULL, &rc))
        nccl->broken = true;
    link_release (nccl->link);
    if (nccl->ready)
        nccl->gpu->event_destroy (nccl->ready);
    if (nccl->done)
        nccl->gpu->event_destroy (nccl->done);
    /* memory of a call that did not end stays: to free it could wait for it */
    if (!nccl->broken && nccl->gpu)
        nccl->gpu->free (nccl->wire);
    if (nccl->host)
        comm_host.fini (nccl->host);
    free (nccl->sends);
    free (nccl->recvs);
    free (nccl);
}

/* Alone, there is nothing to agree on. */
static train_status_t begin (struct nccl *nccl, struct join *join,
                             struct card *cards, struct card *mine,
                             train_status_t status, train_error_t *why,
                             train_error_t *err)
{
    if (join->size == 1)
        return status == TRAIN_OK ? connect_all (nccl, join, &mine->id, err)
                                  : err_set (err, status, "%s", why->text);
    TRY (comm_host.init (join, nccl->name, nccl->timeout_ms, NULL, &nccl->host,
                         err));
    ((struct host *)nccl->host)->spins = true;
    TRY (
        join_tell (join, cards, &mine->word, sizeof (*mine), status, why, err));
    TRY (judge (cards, join->size, err));
    status = connect_all (nccl, join, &cards[0].id, why);
    if (status == TRAIN_EPEER) /* who ended cannot say how it went */
        return err_set (err, status, "%s", why->text);
    return join_tell (join, cards, &mine->word, sizeof (*mine), status, why,
                      err);
}

static train_status_t op_init (struct join *join, const char *name,
                               int64_t timeout_ms, struct comm_where *where,
                               void **ret_state, train_error_t *err)
{
    struct nccl *nccl = calloc (1, sizeof (*nccl));
    struct card *cards = calloc ((size_t)join->size, sizeof (*cards));
    struct card mine = {0};
    train_error_t why = {0};
    train_status_t status;

    if (!nccl || !cards) {
        free (nccl);
        free (cards);
        return err_set (err, TRAIN_ENOMEM, "no memory for a group of %d ranks",
                        join->size);
    }
    nccl->name = name;
    nccl->timeout_ms = timeout_ms;
    nccl->rank = join->rank;
    nccl->size = join->size;
    status = make_card (nccl, join, where, &mine, &why);
    status = begin (nccl, join, cards, &mine, status, &why, err);
    free (cards);
    if (status != TRAIN_OK) {
        op_fini (nccl);
        return err_prefix (err, status, "group '%s'", name);
    }
    *ret_state = nccl;
    return TRAIN_OK;
}

/* Soon, the GPU is watched without sleep, as CUDA itself does; a wait that
 * lasts leaves the processor to others. */
static void rest (int64_t since_ms)
{
    int64_t waits_ms = clock_ms () - since_ms;
    struct timespec t = {0, waits_ms < 100 ? 50000 : 1000000};

    if (waits_ms < 10)
        sched_yield ();
    else
        nanosleep (&t, NULL);
}

static train_status_t finish (struct nccl *nccl, train_error_t *err)
{
    bool done = nccl->capture != NULL; /* recorded */

    while (!done) {
        TRY (nccl_poll (nccl, &done, err));
        if (!done)
            rest (nccl->since_ms);
    }
    return TRAIN_OK;
}

static train_status_t op_run (void *state, const struct comm_call *call,
                              const void *from, void *to, train_error_t *err)
{
    TRY (nccl_start (state, call, from, to, NULL, false, err));
    return finish (state, err);
}

static train_status_t op_follow (void *state, const struct comm_call *call,
                                 const void *from, void *to, train_error_t *err)
{
    TRY (nccl_start (state, call, from, to, NULL, true, err));
    return finish (state, err);
}

/* host_end waits for settle: until then this rank does not have its results. */
static train_status_t op_flow (void *state, const struct comm_call *call,
                               const void *from, void *to, bool follow,
                               const struct comm_flow *flow, train_error_t *err)
{
    struct nccl *nccl = state;
    train_status_t status;

    nccl->flow = flow;
    status = nccl_start (nccl, call, from, to, NULL, follow, err);
    nccl->flow = NULL;
    return status;
}

static train_status_t op_settle (void *state, void *event, train_error_t *err)
{
    struct nccl *nccl = state;
    void *done = nccl->done;
    train_status_t status;

    nccl->since_ms = nccl->looked_ms = clock_ms ();
    nccl->idle = false;
    nccl->done = event;
    status = finish (nccl, err);
    nccl->done = done;
    return status;
}

static train_status_t op_run_pieces (void *state, const struct comm_call *call,
                                     const struct comm_pieces *pieces,
                                     bool follow, train_error_t *err)
{
    TRY (nccl_start (state, call, NULL, NULL, pieces, follow, err));
    return finish (state, err);
}

static train_status_t op_run_host (void *state, const struct comm_call *call,
                                   const void *from, void *to, bool follow,
                                   train_error_t *err)
{
    struct nccl *nccl = state;

    if (!nccl->host)
        return comm_self.run (NULL, call, from, to, err);
    return (follow ? comm_host.follow : comm_host.run) (nccl->host, call, from,
                                                        to, err);
}

static void op_step (void *state, const struct comm_call *learnt, size_t n,
                     uint64_t seq)
{
    struct nccl *nccl = state;

    if (nccl->host)
        comm_host.step (nccl->host, learnt, n, seq);
}

static train_status_t op_graph_begin (void *state, train_error_t *err)
{
    return nccl_graph_begin (state, err);
}

static train_status_t op_graph_end (void *state, struct comm_call *ret_launch,
                                    void **ret_graph, train_error_t *err)
{
    struct nccl_graph *graph = NULL;
    train_status_t status =
        nccl_graph_end (state, ret_launch, ret_graph ? &graph : NULL, err);

    if (ret_graph)
        *ret_graph = graph;
    return status;
}

static void op_graph_free (void *state, void *graph)
{
    nccl_graph_free (state, graph);
}

/* For good: who goes back to a GPU wakes it, and the one that a thread begins
 * with is another rank's. */
static void op_thread (void *state)
{
    const struct nccl *nccl = state;

    (void)nccl->gpu->enter (nccl->device);
}

static void op_abort (void *state)
{
    struct nccl *nccl = state;

    if (nccl->host)
        comm_host.abort (nccl->host);
}

static train_status_t op_check (void *state, const void *memory,
                                train_error_t *err)
{
    const struct nccl *nccl = state;
    bool pinned;
    int device;

    TRY (nccl->gpu->place (memory, &device, &pinned, err));
    if (device == nccl->device)
        return TRAIN_OK;
    if (device < 0)
        return err_set (err, TRAIN_EINVAL,
                        "group '%s': backend nccl moves memory of GPU %d; the "
                        "tensor says that it is there, its memory is the "
                        "host's",
                        nccl->name, nccl->device);
    return err_set (err, TRAIN_EINVAL,
                    "group '%s': backend nccl moves memory of GPU %d; the "
                    "tensor says that it is there, its memory is that of GPU "
                    "%d",
                    nccl->name, nccl->device, device);
}

const struct comm_ops comm_nccl = {
    .name = "nccl",
    .gpu = true,
    .init = op_init,
    .run = op_run,
    .run_host = op_run_host,
    .run_pieces = op_run_pieces,
    .step = op_step,
    .follow = op_follow,
    .graph_begin = op_graph_begin,
    .graph_end = op_graph_end,
    .graph_free = op_graph_free,
    .flow = op_flow,
    .settle = op_settle,
    .check = op_check,
    .thread = op_thread,
    .abort = op_abort,
    .fini = op_fini,
};
