/* SPDX-License-Identifier: Apache-2.0
 * host_blame.c - which ranks a call waits for, as far as this one can know
 *
 * A rank that ended after it had ended this call does no harm: its parts are
 * all there. So a rank is gone for a call, not as such. */
#include "host_blame.h"

#include "sock.h"

#define STOPPED_MS 500 /* without a beat, at least */

static bool has_called (const struct host *host, int rank)
{
    return atomic_load (&host_calls (host)[rank].seq) == host->run.call.seq;
}

/* The first chunk of this call whose result is not in this node. */
static uint64_t first_missing (const struct host *host)
{
    uint64_t ready = atomic_load (&host->seg.head->res_ready);

    return ready > host->run.base ? ready - host->run.base : 0;
}

/* Does this call still need something from, or to, the leader of [node]? */
bool blame_needs (const struct host *host, int node, enum watch_phase phase)
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

bool blame_gone (const void *arg, int rank)
{
    const struct host *host = arg;
    int i = host->local_of[rank];

    return i >= 0 && seg_is_gone (&host->seg, i, host->run.call.seq);
}

bool blame_left (const void *arg, int rank)
{
    const struct host *host = arg;

    return blame_gone (arg, rank)
           && atomic_load (&host->seg.ranks[host->local_of[rank]].state)
                  == HOST_LEFT;
}

/* The leader of a node speaks for it: while its own call is missing, nothing
 * is known of the others there. While that of our own leader is missing,
 * nothing is known of other nodes. */
bool blame_unknown (const struct host *host, int rank)
{
    int node = host->node_of[rank];

    if (node == host->node || has_called (host, rank))
        return false;
    return !has_called (host, host->leader_of[host->node])
           || (rank != host->leader_of[node]
               && !has_called (host, host->leader_of[node]));
}

bool blame_missing (const void *arg, int rank)
{
    const struct host *host = arg;

    return !has_called (host, rank) && !blame_unknown (host, rank);
}

/* A leader that is in the call while a rank of its node is missing: it will
 * say so itself, unless it has stopped. */
bool blame_doubtful (const void *arg, int rank)
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

bool blame_behind (const void *arg, int rank)
{
    const struct host *host = arg;

    return host->local_of[rank] >= 0
           && progress_of (host, rank) < progress_of (host, host->rank);
}

/* A rank of this node that is in this call, and does not run; or that has not
 * come to a call of a learnt step, which nobody says. */
bool blame_stopped (const void *arg, int rank)
{
    const struct host *host = arg;
    int i = host->local_of[rank];
    const struct seg_rank *r = &host->seg.ranks[i < 0 ? 0 : i];
    int64_t least_ms = host->timeout_ms / 2;

    if (i < 0 || rank == host->rank
        || (!host->run.follows && host->agreed_seq != host->run.call.seq
            && !has_called (host, rank))
        || atomic_load (&r->done_seq) >= host->run.call.seq)
        return false;
    return clock_ms () - atomic_load (&r->beat_ms)
           > (least_ms < STOPPED_MS ? STOPPED_MS : least_ms);
}

/* Leaders that the call waits for, and those of them, or of all, of whom there
 * is no sign of life: who waits for somebody else has given one. */
bool blame_needed (const void *arg, int rank)
{
    const struct host *host = arg;
    int node = host->node_of[rank];

    return host->peers && node != host->node && rank == host->leader_of[node]
           && blame_needs (host, node, WATCH_DATA);
}

bool blame_silent (const void *arg, int rank)
{
    const struct host *host = arg;

    return host_is_silent (host, rank, host->run.call.seq);
}

bool blame_needed_silent (const void *arg, int rank)
{
    return blame_needed (arg, rank) && blame_silent (arg, rank);
}

/* A rank of this node that waits in an earlier call will say whom for. */
bool blame_late (const void *arg, int rank)
{
    const struct host *host = arg;
    int i = host->local_of[rank];

    return blame_missing (arg, rank)
           && (i < 0
               || clock_ms () - atomic_load (&host->seg.ranks[i].beat_ms)
                      > STOPPED_MS);
}

bool blame_late_here (const void *arg, int rank)
{
    const struct host *host = arg;

    return host->local_of[rank] >= 0 && blame_late (arg, rank);
}
