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
#include "host_idle.h"
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

    return host_is_silent (look->host, rank, look->call->seq);
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
 * moment to say that it waits too; the others leave that to their leader.
 * Returns whether something has been said. */
static bool say_stuck (const struct look *look, int64_t over_ms)
{
    struct host *host = look->host;
    bool last = over_ms >= (host->peers ? HERE_MS : HERE_MS * 3 / 2);
    char call[200];
    train_error_t err;

    if (say_of (look, stands_still, TRAIN_ETIMEDOUT, "did not go on with"))
        return true;
    watch_say_here (host, look->call->seq);
    if (!last && host->nodes > 1)
        return false;
    if (say_of (look, is_silent, TRAIN_ETIMEDOUT, "did not go on with"))
        return true;
    watch_name (host, look->call, call, sizeof (call));
    err_set (&err, TRAIN_ETIMEDOUT,
             "%s did not end within %.1f s, though every rank waits for it; %s",
             call, (double)host->timeout_ms / 1000,
             host->hint[0]
                 ? host->hint
                 : "NCCL_DEBUG=INFO and the kernel's log may say more");
    seg_fail (&host->seg, look->call->seq, err.code, err.text);
    return true;
}

/* Who has not waited since then does not. */
static int64_t old_ms (const struct host *host, int64_t now)
{
    int64_t half_ms = host->timeout_ms / 2;

    return now - (half_ms > STILL_MS ? STILL_MS : half_ms);
}

/* False: it is over, and somebody has been named; maybe before, in a later call
 * that others are in already. */
static bool is_sound (struct host *host, const struct comm_call *call,
                      int64_t since_ms)
{
    int64_t now = clock_ms (), over_ms = now - since_ms - host->timeout_ms;
    struct look look = {.host = host, .call = call};

    look.old_ms = old_ms (host, now);
    if (say_of (&look, ended_early, TRAIN_EPEER, "ended during")
        || say_of (&look, leader_ended, TRAIN_EPEER, "ended during"))
        return false;
    return over_ms < 0 || !say_stuck (&look, over_ms);
}

/* Since when does a rank of this node wait in call [seq]? 0: none does. */
static int64_t waits_since (const struct host *host, uint64_t seq, int64_t now)
{
    int64_t since = 0;

    for (int i = 0; i < host->local_size; i++) {
        const struct seg_rank *r = &host->seg.ranks[i];
        int64_t at = atomic_load (&r->since_ms);

        if (atomic_load (&r->look_seq) == seq
            && atomic_load (&r->done_seq) < seq
            && now - atomic_load (&r->beat_ms) < HERE_MS / 2
            && (since == 0 || at < since))
            since = at;
    }
    return since;
}

void elsewhere_idle (struct host *host)
{
    const struct comm_call *call = &host->run.call;
    uint64_t done = atomic_load (&host->seg.ranks[host->local_rank].done_seq);
    struct look look = {.host = host, .call = call};
    int64_t now = clock_ms (), since_ms;
    bool asked = false;

    if (done < call->seq || call->seq == 0)
        return; /* it is in a call, and looks itself */
    watch_answer (host, done);
    if ((since_ms = waits_since (host, call->seq, now)) > 0)
        (void)is_sound (host, call, since_ms);
    for (int n = 0; n < host->nodes; n++)
        asked |= host->peers[n].here == call->seq;
    look.old_ms = old_ms (host, now);
    if (!say_of (&look, ended_early, TRAIN_EPEER, "ended during") && asked)
        say_of (&look, stands_still, TRAIN_ETIMEDOUT, "did not go on with");
}

static train_status_t look_once (struct host *host,
                                 const struct comm_call *call, int64_t since_ms,
                                 train_error_t *err)
{
    struct seg_rank *me = &host->seg.ranks[host->local_rank];
    train_status_t status;
    bool sound;

    if (atomic_load (&host->aborted))
        return err_set (err, TRAIN_EABORTED,
                        "group '%s' was destroyed during its call %llu",
                        host->name, (unsigned long long)comm_number (call));
    atomic_store (&me->since_ms, since_ms);
    atomic_store (&me->look_seq, call->seq);
    watch_beat (host, clock_ms ());
    if (host->peers)
        net_move (host);
    watch_answer (host, call->seq);
    step_watch (host);
    sound = is_sound (host, call, since_ms);
    status = seg_failure (&host->seg, sound ? call->seq : UINT64_MAX, err);
    if (status != TRAIN_OK && host->peers)
        net_tell_failure (host);
    return status;
}

train_status_t host_look (void *state, const struct comm_call *call,
                          int64_t since_ms, train_error_t *err)
{
    struct host *host = state;
    train_status_t status;

    idle_enter (host);
    status = look_once (host, call, since_ms, err);
    idle_leave (host);
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

uint32_t elsewhere_least_mark (const struct host *host, uint64_t seq,
                               int *ret_rank)
{
    uint32_t least = UINT32_MAX;

    for (int i = 0; i < host->local_size; i++) {
        const struct seg_rank *r = &host->seg.ranks[i];
        uint32_t mark = atomic_load (&r->mark);

        if (mark >= least || atomic_load (&r->done_seq) >= seq)
            continue;
        least = mark;
        *ret_rank = host->local[i];
    }
    return least;
}

uint32_t host_least_mark (void *state, uint64_t seq, int *ret_rank)
{
    struct host *host = state;
    uint32_t least = elsewhere_least_mark (host, seq, ret_rank);

    idle_enter (host);
    for (int n = 0; host->peers && n < host->nodes; n++) {
        const struct peer *peer = &host->peers[n];

        if (peer->here != seq || peer->mark >= least)
            continue;
        least = peer->mark;
        *ret_rank = peer->mark_rank;
    }
    idle_leave (host);
    return least;
}

void host_hint (void *state, const char *hint)
{
    struct host *host = state;

    idle_enter (host);
    snprintf (host->hint, sizeof (host->hint), "%s", hint);
    idle_leave (host);
}

train_status_t host_fail (void *state, const struct comm_call *call,
                          const train_error_t *why, train_error_t *err)
{
    struct host *host = state;
    train_status_t status;

    idle_enter (host);
    seg_fail (&host->seg, call->seq, why->code, why->text);
    if (host->peers)
        net_tell_failure (host);
    status = seg_failure (&host->seg, UINT64_MAX, err);
    idle_leave (host);
    return status;
}
