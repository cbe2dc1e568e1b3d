/* SPDX-License-Identifier: Apache-2.0
 * host_elsewhere.c - watch over a call whose data moves elsewhere, by NCCL or
 * MPI
 *
 * The ranks have agreed, and each waits for what it gets; who waits says so: to
 * the ranks of its node by a moment in the segment, to other leaders by one
 * frame when the time is over. */
#include "host_watch.h"

#include <stdio.h>

#include "err.h"
#include "sock.h"

/* After the deadline. */
#define HERE_MS  1000 /* for leaders to say that they wait too */
#define STILL_MS 3000 /* without a beat: it does not go on */

struct look {
    struct host *host;
    const struct comm_call *call;
    int64_t old_ms; /* who has not waited since then does not */
};

static bool ended_early (const void *arg, int rank)
{
    const struct look *look = arg;
    int i = look->host->local_of[rank];

    return i >= 0 && seg_is_gone (&look->host->seg, i, look->call->seq);
}

static bool stands_still (const void *arg, int rank)
{
    const struct look *look = arg;
    const struct seg *seg = &look->host->seg;
    int i = look->host->local_of[rank];

    return i >= 0 && rank != look->host->rank
           && atomic_load (&seg->ranks[i].done_seq) < look->call->seq
           && atomic_load (&seg->ranks[i].beat_ms) < look->old_ms;
}

static bool is_silent (const void *arg, int rank)
{
    const struct look *look = arg;
    const struct host *host = look->host;
    int node = host->node_of[rank];

    return host->peers && node != host->node && rank == host->leader_of[node]
           && host->peers[node].here < look->call->seq;
}

/* A leader whose connection has ended before it had its result. What it gave
 * may be on the way still. */
static bool leader_ended (const void *arg, int rank)
{
    const struct look *look = arg;
    const struct host *host = look->host;
    int node = host->node_of[rank];
    struct peer *peer = host->peers ? &host->peers[node] : NULL;

    if (!peer || node == host->node || rank != host->leader_of[node]
        || !peer->gone || (peer->left && peer->left_seq >= look->call->seq))
        return false;
    if (peer->gone_ms == 0)
        peer->gone_ms = clock_ms ();
    return clock_ms () - peer->gone_ms >= HERE_MS / 2;
}

/* Records that those whom [has] picks did [what]; false: it picks nobody. */
static bool say_of (const struct look *look, comm_has_f has,
                    train_status_t code, const char *what)
{
    char ranks[160], call[200];
    train_error_t err;

    comm_ranks (has, look, look->host->size, ranks, sizeof (ranks));
    if (!watch_any (ranks))
        return false;
    watch_name (look->host, look->call, call, sizeof (call));
    err_set (&err, code, "%s %s %s", ranks, what, call);
    seg_fail (&look->host->seg, look->call->seq, err.code, err.text);
    return true;
}

/* The time is over. Ranks of this node are known at once, a leader gets a
 * moment to say that it waits too; the others leave that to their leader. */
static void say_stuck (const struct look *look, int64_t over_ms)
{
    struct host *host = look->host;
    bool last = over_ms >= (host->peers ? HERE_MS : HERE_MS * 3 / 2);
    char call[200];
    train_error_t err;

    if (say_of (look, stands_still, TRAIN_ETIMEDOUT, "did not go on with"))
        return;
    watch_say_here (host, look->call->seq);
    if ((!last && host->nodes > 1)
        || say_of (look, is_silent, TRAIN_ETIMEDOUT, "did not go on with"))
        return;
    watch_name (host, look->call, call, sizeof (call));
    err_set (&err, TRAIN_ETIMEDOUT,
             "%s did not end within %.1f s, though every rank waits for it; %s",
             call, (double)host->timeout_ms / 1000,
             host->hint ? host->hint
                        : "NCCL_DEBUG=INFO and the kernel's log may say more");
    seg_fail (&host->seg, look->call->seq, err.code, err.text);
}

static void watch_elsewhere (struct host *host, const struct comm_call *call,
                             int64_t since_ms)
{
    int64_t now = clock_ms (), over_ms = now - since_ms - host->timeout_ms;
    int64_t old_ms = host->timeout_ms / 2;
    struct look look = {.host = host, .call = call};

    look.old_ms = now - (old_ms > STILL_MS ? STILL_MS : old_ms);
    if (!say_of (&look, ended_early, TRAIN_EPEER, "ended during")
        && !say_of (&look, leader_ended, TRAIN_EPEER, "ended during")
        && over_ms >= 0)
        say_stuck (&look, over_ms);
}

train_status_t host_look (void *state, const struct comm_call *call,
                          int64_t since_ms, train_error_t *err)
{
    struct host *host = state;
    train_status_t status;

    if (atomic_load (&host->aborted))
        return err_set (err, TRAIN_EABORTED,
                        "group '%s' was destroyed during its call %llu",
                        host->name, (unsigned long long)call->seq);
    watch_beat (host, clock_ms ());
    if (host->peers)
        net_move (host);
    step_watch (host);
    watch_elsewhere (host, call, since_ms);
    status = seg_failure (&host->seg, call->seq, err);
    if (status != TRAIN_OK && host->peers)
        net_tell_failure (host);
    return status;
}

void host_end (void *state, const struct comm_call *call)
{
    struct host *host = state;

    atomic_store (&host->seg.ranks[host->local_rank].done_seq, call->seq);
}

void host_mark (void *state, uint32_t mark)
{
    struct host *host = state;

    atomic_store (&host->seg.ranks[host->local_rank].mark, mark);
}

uint32_t host_least_mark (void *state, int *ret_rank)
{
    const struct host *host = state;
    uint32_t least = UINT32_MAX;

    for (int i = 0; i < host->local_size; i++) {
        uint32_t mark = atomic_load (&host->seg.ranks[i].mark);

        if (mark >= least)
            continue;
        least = mark;
        *ret_rank = host->local[i];
    }
    return least;
}

train_status_t host_fail (void *state, const struct comm_call *call,
                          const train_error_t *why, train_error_t *err)
{
    struct host *host = state;

    seg_fail (&host->seg, call->seq, why->code, why->text);
    if (host->peers)
        net_tell_failure (host);
    return seg_failure (&host->seg, UINT64_MAX, err);
}
