/* SPDX-License-Identifier: Apache-2.0
 * host_init.c - begin and end of the backend host
 *
 * Two exchanges. First every rank says what it made (the leaders: a segment, a
 * port); then all open it, connect, and say whether that went well, so that
 * either every rank has a group or none, and all know why. */
#include "config.h"

#include "host.h"

#include <poll.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/random.h>

#include "err.h"
#include "host_idle.h"
#include "join.h"
#include "sock.h"

static train_status_t no_memory (train_error_t *err, int size)
{
    return err_set (err, TRAIN_ENOMEM, "no memory for a group of %d ranks",
                    size);
}

static train_status_t make_tables (struct host *host, const struct join *join,
                                   train_error_t *err)
{
    size_t size = (size_t)host->size;

    host->node_of = malloc (size * sizeof (int));
    host->leader_of = malloc ((size_t)host->nodes * sizeof (int));
    host->local = malloc ((size_t)host->local_size * sizeof (int));
    host->local_of = malloc (size * sizeof (int));
    host->in_ptr = calloc ((size_t)host->local_size, sizeof (void *));
    host->n_runs = layout_runs (join->node_of, host->size, &host->runs);
    host->hop_run = malloc ((size_t)host->n_runs * sizeof (int));
    if (!host->node_of || !host->leader_of || !host->local || !host->local_of
        || !host->in_ptr || !host->runs || !host->hop_run)
        return no_memory (err, host->size);
    memcpy (host->node_of, join->node_of, size * sizeof (int));
    for (int r = host->size - 1, i = host->local_size; r >= 0; r--) {
        host->leader_of[host->node_of[r]] = r; /* the lowest is last */
        host->local_of[r] = -1;
        if (host->node_of[r] != host->node)
            continue;
        host->local[--i] = r;
        host->local_of[r] = i;
    }
    for (int i = 0; i < host->n_runs; i++) {
        if (host->runs[i].node == host->node)
            host->hop_run[host->hops++] = i;
    }
    return TRAIN_OK;
}

static train_status_t make_scratch (struct host *host, train_error_t *err)
{
    struct host_run *run = &host->run;
    size_t hops = (size_t)host->hops;

    run->part = calloc (hops, sizeof (*run->part));
    run->acc_sent = calloc (hops, sizeof (*run->acc_sent));
    run->acc_got = calloc (hops, sizeof (*run->acc_got));
    run->passed = calloc ((size_t)host->local_size, sizeof (*run->passed));
    if (!run->part || !run->acc_sent || !run->acc_got || !run->passed)
        return no_memory (err, host->size);
    return TRAIN_OK;
}

static struct host *host_new (const struct join *join, const char *name,
                              int64_t timeout_ms)
{
    struct host *host = calloc (1, sizeof (*host));

    if (!host)
        return NULL;
    host->name = name;
    host->timeout_ms = timeout_ms;
    host->rank = join->rank;
    host->size = join->size;
    host->local_rank = join->local_rank;
    host->local_size = join->local_size;
    host->node = join->node;
    host->nodes = join->nodes;
    host->seg.fd = -1;
    host->seg.bell = -1;
    host->step.first = UINT64_MAX;
    return host;
}

/* What this rank can show: a leader its segment and its port. */
static train_status_t make_card (struct host *host, struct join *join,
                                 struct host_card *card, int *listener,
                                 train_error_t *err)
{
    train_status_t status = make_tables (host, join, err);

    if (status == TRAIN_OK)
        status = make_scratch (host, err);
    if (status == TRAIN_OK
        && getrandom (&card->nonce, sizeof (card->nonce), 0)
               != sizeof (card->nonce))
        status = err_set (err, TRAIN_EIO, "getrandom failed");
    if (status == TRAIN_OK && host_is_leader (host)) {
        status = seg_create (&host->seg, host->size, host->local_size,
                             host->hops, host->nodes > 1, card->nonce, err);
        snprintf (card->shm, sizeof (card->shm), "%s", host->seg.name);
    }
    if (status == TRAIN_OK && host_is_leader (host) && host->nodes > 1) {
        status =
            join_address (join, card->addresses, sizeof (card->addresses), err);
        if (status == TRAIN_OK)
            status =
                sock_listen (strchr (card->addresses, '.') ? NULL : "::", 0,
                             listener, &card->port, err);
    }
    return status;
}

/* The first rank that failed speaks for all. */
static train_status_t any_failed (const struct host_card *cards, int size,
                                  train_error_t *err)
{
    for (int r = 0; r < size; r++) {
        if (cards[r].code != TRAIN_OK)
            return err_set (err, (train_status_t)cards[r].code, "rank %d: %s",
                            r, cards[r].text);
    }
    return TRAIN_OK;
}

static train_status_t exchange (struct join *join, struct host_card *cards,
                                struct host_card *mine, train_status_t status,
                                const train_error_t *why, train_error_t *err)
{
    mine->code = (int32_t)status;
    if (status != TRAIN_OK)
        snprintf (mine->text, sizeof (mine->text), "%.*s",
                  (int)sizeof (mine->text) - 1, why->text);
    status = join_exchange (join, cards, mine, sizeof (*mine), err);
    if (status != TRAIN_OK)
        return status;
    for (int r = 0; r < join->size; r++) {
        cards[r].shm[sizeof (cards[r].shm) - 1] = '\0';
        cards[r].text[sizeof (cards[r].text) - 1] = '\0';
    }
    return any_failed (cards, join->size, err);
}

/* Use what the leaders made. The nonce of the segment becomes rank 0's, so it
 * is the secret of the whole group. */
static train_status_t use_cards (struct host *host, int listener,
                                 const struct host_card *cards,
                                 int64_t deadline_ms, train_error_t *err)
{
    const struct host_card *leader = &cards[host->leader_of[host->node]];

    if (!host_is_leader (host))
        return seg_open (&host->seg, host->size, host->local_size, host->hops,
                         host->local_rank, host->nodes > 1, leader->shm,
                         leader->nonce, err);
    if (host->nodes == 1)
        return TRAIN_OK;
    /* leave time to tell each other that it failed */
    deadline_ms -= (deadline_ms - clock_ms ()) / 4;
    TRY (net_init (host, listener, cards, cards[0].nonce, deadline_ms, err));
    return idle_start (host, err);
}

static void op_fini (void *state)
{
    struct host *host = state;
    struct host_run *run = &host->run;
    const struct seg_rank *me =
        host->seg.head ? &host->seg.ranks[host->local_rank] : NULL;

    idle_stop (host);
    net_fini (host, me ? atomic_load (&me->done_seq) : 0);
    seg_close (&host->seg);
    free (host->node_of);
    free (host->leader_of);
    free (host->local);
    free (host->local_of);
    free (host->in_ptr);
    free (host->runs);
    free (host->hop_run);
    free (run->part);
    free (run->acc_sent);
    free (run->acc_got);
    free (run->passed);
    free (host);
}

static void op_abort (void *state)
{
    struct host *host = state;

    atomic_store (&host->aborted, true);
    seg_signal (&host->seg);
}

static train_status_t op_init (struct join *join, const char *name,
                               int64_t timeout_ms, struct comm_where *where,
                               void **ret_state, train_error_t *err)
{
    struct host *host = host_new (join, name, timeout_ms);
    struct host_card *cards = calloc ((size_t)join->size, sizeof (*cards));
    struct host_card mine = {0};
    train_error_t why = {0};
    train_status_t status;
    int listener = -1;

    (void)where;
    if (!host || !cards) {
        free (host);
        free (cards);
        return no_memory (err, join->size);
    }
    status = make_card (host, join, &mine, &listener, &why);
    status = exchange (join, cards, &mine, status, &why, err);
    if (status == TRAIN_OK) {
        status = use_cards (host, listener, cards, join->deadline_ms, &why);
        status = exchange (join, cards, &mine, status, &why, err);
    }
    seg_unlink (&host->seg);
    sock_close (&listener);
    free (cards);
    if (status != TRAIN_OK) {
        op_fini (host);
        return err_prefix (err, status, "group '%s'", name);
    }
    *ret_state = host;
    return TRAIN_OK;
}

const struct comm_ops comm_host = {
    .name = "host",
    .init = op_init,
    .run = host_run_call,
    .step = host_step,
    .follow = host_follow,
    .abort = op_abort,
    .fini = op_fini,
};
