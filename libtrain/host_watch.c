/* SPDX-License-Identifier: Apache-2.0
 * host_watch.c - find out who is gone, late or of another opinion
 *
 * A rank that ended after it had ended this call does no harm: its parts are
 * all there. So a rank is gone for a call, not as such. */
#include "host_watch.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "err.h"
#include "sock.h"

#define GRACE_MS 1000

/* "all_reduce (sum of 8 F32), call 3 of group 'world'" */
static void name_call (const struct host *host, char *text, size_t size)
{
    char what[96];

    comm_describe (&host->run.call, what, sizeof (what));
    snprintf (text, size, "%s, call %llu of group '%s'", what,
              (unsigned long long)host->run.call.seq, host->name);
}

static void record (struct host *host, const train_error_t *err)
{
    seg_fail (&host->seg, host->run.call.seq, err->code, err->text);
}

static bool has_called (const struct host *host, int rank)
{
    const struct seg_call *calls = host->seg.calls[host->run.call.seq & 1];

    return atomic_load (&calls[rank].seq) == host->run.call.seq;
}

/* The first chunk of this call whose result is not in this node. */
static uint64_t first_missing (const struct host *host)
{
    uint64_t ready = atomic_load (&host->seg.head->res_ready);

    return ready > host->run.base ? ready - host->run.base : 0;
}

/* Does this call still need something from, or to, the leader of [node]? */
static bool needs_node (const struct host *host, int node,
                        enum watch_phase phase)
{
    const struct peer *peer = &host->peers[node];
    const struct host_run *run = &host->run;
    uint64_t k;
    int source;

    if (peer->head != peer->tail)
        return true;
    for (int r = 0; phase == WATCH_CALLS && r < host->size; r++) {
        if (host->node_of[r] == node && !has_called (host, r))
            return true;
    }
    if (phase == WATCH_CALLS)
        return false;
    for (int h = 0; plan_reduces (run) && h < host->hops; h++) {
        int stretch = host->hop_run[h];

        if (stretch > 0 && host->runs[stretch - 1].node == node
            && run->acc_got[h] < run->n)
            return true;
    }
    k = first_missing (host);
    source = k < run->n ? plan_source (host, k) : host->node;
    return source != host->node
           && node == host->node + (source > host->node ? 1 : -1);
}

static bool peers_are_sound (struct host *host, enum watch_phase phase)
{
    for (int n = 0; n < host->nodes; n++) {
        const struct peer *peer = &host->peers[n];
        train_error_t err;
        char call[200];

        if (!peer->gone || !needs_node (host, n, phase))
            continue;
        name_call (host, call, sizeof (call));
        err_set (&err, TRAIN_EPEER, "rank %d %s during %s", host->leader_of[n],
                 peer->left ? "left the group" : "ended", call);
        record (host, &err);
        return false;
    }
    return true;
}

static bool is_gone (const void *arg, int rank)
{
    const struct host *host = arg;
    int i = host->local_of[rank];

    return i >= 0 && seg_is_gone (&host->seg, i, host->run.call.seq);
}

static bool has_left (const void *arg, int rank)
{
    const struct host *host = arg;

    return is_gone (arg, rank)
           && atomic_load (&host->seg.ranks[host->local_of[rank]].state)
                  == HOST_LEFT;
}

static bool local_is_sound (struct host *host)
{
    char ranks[160], call[200];
    train_error_t err;
    bool left = true;
    int n = 0;

    for (int i = 0; i < host->local_size; i++) {
        if (!is_gone (host, host->local[i]))
            continue;
        n++;
        left &= has_left (host, host->local[i]);
    }
    if (n == 0)
        return true;
    comm_ranks (is_gone, host, host->size, ranks, sizeof (ranks));
    name_call (host, call, sizeof (call));
    err_set (&err, TRAIN_EPEER, "%s %s during %s", ranks,
             left ? "left the group" : "ended", call);
    record (host, &err);
    return false;
}

/* The leader of a node speaks for it: while its own call is missing, nothing
 * is known of the others there. While that of our own leader is missing,
 * nothing is known of other nodes. */
static bool is_unknown (const struct host *host, int rank)
{
    int node = host->node_of[rank];

    if (node == host->node || has_called (host, rank))
        return false;
    return !has_called (host, host->leader_of[host->node])
           || (rank != host->leader_of[node]
               && !has_called (host, host->leader_of[node]));
}

static bool is_missing (const void *arg, int rank)
{
    const struct host *host = arg;

    return !has_called (host, rank) && !is_unknown (host, rank);
}

/* A leader that is in the call while a rank of its node is missing: it will
 * say so itself, unless it has stopped. */
static bool is_doubtful (const void *arg, int rank)
{
    const struct host *host = arg;
    int node = host->node_of[rank];

    if (node == host->node || rank != host->leader_of[node]
        || !has_called (host, rank))
        return false;
    for (int r = rank; r < host->size; r++) {
        if (host->node_of[r] == node && !has_called (host, r))
            return true;
    }
    return false;
}

/* Returns whether the wait is over. */
static bool say_missing (struct host *host, int64_t over_ms, const char *call)
{
    char ranks[160], doubt[160], text[220] = "";
    train_error_t err;
    bool unknown = false;

    for (int r = 0; r < host->size && !unknown; r++)
        unknown = is_unknown (host, r);
    comm_ranks (is_doubtful, host, host->size, doubt, sizeof (doubt));
    if (strncmp (doubt, "no ", 3) != 0) {
        if (over_ms < GRACE_MS)
            return false;
        snprintf (text, sizeof (text), ", or %s, which speaks for it, stopped",
                  doubt);
    }
    comm_ranks (is_missing, host, host->size, ranks, sizeof (ranks));
    err_set (&err, TRAIN_ETIMEDOUT, "%s did not come to %s, within %.1f s%s%s",
             ranks, call, (double)host->timeout_ms / 1000, text,
             unknown ? " (nor is there word of the ranks behind it)" : "");
    record (host, &err);
    return true;
}

/* How far a rank of this node has come; all counters of a call together. */
static uint64_t progress_of (const struct host *host, int rank)
{
    const struct seg *seg = &host->seg;
    int i = host->local_of[rank];
    uint64_t sum = atomic_load (&seg->ranks[i].in_done)
                   + atomic_load (&seg->ranks[i].out_done);

    for (int h = 0; h < host->hops; h++)
        sum += atomic_load (&seg->part_done[h * host->local_size + i]);
    return sum;
}

static bool is_behind (const void *arg, int rank)
{
    const struct host *host = arg;

    return host->local_of[rank] >= 0
           && progress_of (host, rank) < progress_of (host, host->rank);
}

static bool is_needed_leader (const void *arg, int rank)
{
    const struct host *host = arg;
    int node = host->node_of[rank];

    return host->peers && node != host->node && rank == host->leader_of[node]
           && needs_node (host, node, WATCH_DATA);
}

/* Who is behind on another node only a leader knows: the other ranks give it a
 * moment to say so. Returns whether the wait is over. */
static bool say_behind (struct host *host, int64_t over_ms, const char *call)
{
    char ranks[160];
    train_error_t err;

    comm_ranks (is_behind, host, host->size, ranks, sizeof (ranks));
    if (strncmp (ranks, "no ", 3) == 0 && !host->peers && over_ms < GRACE_MS)
        return false;
    if (strncmp (ranks, "no ", 3) == 0)
        comm_ranks (is_needed_leader, host, host->size, ranks, sizeof (ranks));
    if (strncmp (ranks, "no ", 3) == 0)
        snprintf (ranks, sizeof (ranks), "rank %d",
                  host->leader_of[host->node]); /* it speaks for us */
    err_set (&err, TRAIN_ETIMEDOUT, "%s did not go on with %s, for %.1f s",
             ranks, call, (double)host->timeout_ms / 1000);
    record (host, &err);
    return true;
}

bool watch_is_sound (struct host *host, enum watch_phase phase)
{
    int64_t now = clock_ms (), over_ms;
    char call[200];

    if (host->peers && !peers_are_sound (host, phase))
        return false;
    if (now - host->watched_ms < HOST_SLICE_MS)
        return true;
    host->watched_ms = now;
    if (!local_is_sound (host))
        return false;
    over_ms = now - host->run.moved_ms - host->timeout_ms;
    if (over_ms < 0)
        return true;
    name_call (host, call, sizeof (call));
    return phase == WATCH_DATA ? !say_behind (host, over_ms, call)
                               : !say_missing (host, over_ms, call);
}

train_status_t watch_mismatch (struct host *host, const struct seg_call *calls,
                               train_error_t *err)
{
    struct comm_call *list = calloc ((size_t)host->size, sizeof (*list));
    train_error_t why;
    train_status_t status;

    if (!list)
        return err_set (err, TRAIN_EMISMATCH,
                        "the ranks of group '%s' disagree at its call %llu",
                        host->name, (unsigned long long)host->run.call.seq);
    for (int r = 0; r < host->size; r++)
        list[r] = calls[r].call;
    status = comm_compare (list, host->size, host->name, &why);
    free (list);
    record (host, &why);
    return err_set (err, status, "%s", why.text);
}
