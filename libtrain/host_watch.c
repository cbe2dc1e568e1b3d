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

/* After the deadline of a call, for those who know better who is to blame:
 * the leader of the node where a rank has stopped. All is said within 2 s. */
#define GRACE_MS   800
#define OTHERS_MS  1600
#define STOPPED_MS 500 /* without a beat, at least */

/* The same for data elsewhere. */
#define HERE_MS  1000 /* for leaders to say that they wait too */
#define STILL_MS 3000 /* without a beat: it does not go on */

/* "all_reduce (sum of 8 F32), call 3 of group 'world'" */
static void name_one (const struct host *host, const struct comm_call *call,
                      char *text, size_t size)
{
    char what[96];

    if (call->kind == COMM_BEGIN) {
        snprintf (text, size, "the beginning of group '%s'", host->name);
        return;
    }
    comm_describe (call, what, sizeof (what));
    snprintf (text, size, "%s, call %llu of group '%s'", what,
              (unsigned long long)call->seq, host->name);
}

static void name_call (const struct host *host, char *text, size_t size)
{
    name_one (host, &host->run.call, text, size);
}

static void record (struct host *host, const train_error_t *err)
{
    seg_fail (&host->seg, host->run.call.seq, err->code, err->text);
}

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

void watch_beat (struct host *host, int64_t now_ms)
{
    atomic_store_explicit (&host->seg.ranks[host->local_rank].beat_ms, now_ms,
                           memory_order_relaxed);
}

/* A rank of this node that is in this call, and does not run; or that has not
 * come to a call of a learnt step, which nobody says. */
static bool has_stopped (const void *arg, int rank)
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
static bool is_needed_leader (const void *arg, int rank)
{
    const struct host *host = arg;
    int node = host->node_of[rank];

    return host->peers && node != host->node && rank == host->leader_of[node]
           && needs_node (host, node, WATCH_DATA);
}

static bool is_silent_leader (const void *arg, int rank)
{
    const struct host *host = arg;
    int node = host->node_of[rank];

    return host->peers && node != host->node && rank == host->leader_of[node]
           && host->peers[node].here < host->run.call.seq;
}

static bool is_needed_and_silent (const void *arg, int rank)
{
    return is_needed_leader (arg, rank) && is_silent_leader (arg, rank);
}

static bool any (const char *ranks)
{
    return strncmp (ranks, "no ", 3) != 0;
}

/* Who has stopped is known on its own node alone. Elsewhere its leader is the
 * one that is waited for, so others give that one a moment to say who it is.
 * Returns whether the wait is over. */
static bool say_behind (struct host *host, int64_t over_ms, const char *call)
{
    static const comm_has_f blame[] = {has_stopped, is_needed_and_silent,
                                       is_silent_leader, is_needed_leader,
                                       is_behind};
    int64_t grace_ms = host->peers ? GRACE_MS : OTHERS_MS;
    char ranks[160];
    train_error_t err;

    comm_ranks (has_stopped, host, host->size, ranks, sizeof (ranks));
    if (!any (ranks) && host->nodes > 1 && over_ms < grace_ms)
        return false;
    for (size_t i = 0; !any (ranks) && i < sizeof (blame) / sizeof (*blame);
         i++)
        comm_ranks (blame[i], host, host->size, ranks, sizeof (ranks));
    if (!any (ranks))
        snprintf (ranks, sizeof (ranks), "rank %d",
                  host->leader_of[host->node]); /* it speaks for us */
    err_set (&err, TRAIN_ETIMEDOUT, "%s did not go on with %s, for %.1f s",
             ranks, call, (double)host->timeout_ms / 1000);
    record (host, &err);
    return true;
}

/* A rank of this node that waits in an earlier call will say whom for. */
static bool is_late (const void *arg, int rank)
{
    const struct host *host = arg;
    int i = host->local_of[rank];

    return is_missing (arg, rank)
           && (i < 0
               || clock_ms () - atomic_load (&host->seg.ranks[i].beat_ms)
                      > STOPPED_MS);
}

static bool is_late_here (const void *arg, int rank)
{
    const struct host *host = arg;

    return host->local_of[rank] >= 0 && is_late (arg, rank);
}

/* Why ranks of other nodes are missing is known there. Returns whether the wait
 * is over. */
static bool say_missing (struct host *host, int64_t over_ms, const char *call)
{
    char ranks[160], doubt[160], text[220];
    int64_t grace_ms = host->peers ? GRACE_MS : OTHERS_MS;
    train_error_t err;
    bool unknown = false;

    comm_ranks (has_stopped, host, host->size, ranks, sizeof (ranks));
    comm_ranks (is_missing, host, host->size, text, sizeof (text));
    if (any (ranks) || !any (text))
        return say_behind (host, over_ms, call);
    comm_ranks (is_late_here, host, host->size, ranks, sizeof (ranks));
    comm_ranks (is_doubtful, host, host->size, doubt, sizeof (doubt));
    if ((!any (ranks) || any (doubt)) && over_ms < grace_ms)
        return false;
    comm_ranks (is_late, host, host->size, ranks, sizeof (ranks));
    if (!any (ranks))
        snprintf (ranks, sizeof (ranks), "%.150s", text);
    text[0] = '\0';
    if (any (doubt))
        snprintf (text, sizeof (text), ", or %s, which speaks for it, stopped",
                  doubt);
    for (int r = 0; r < host->size && !unknown; r++)
        unknown = is_unknown (host, r);
    err_set (&err, TRAIN_ETIMEDOUT, "%s did not come to %s, within %.1f s%s%s",
             ranks, call, (double)host->timeout_ms / 1000, text,
             unknown ? " (nor is there word of the ranks behind it)" : "");
    record (host, &err);
    return true;
}

/* To other leaders: this one runs, and waits too. No progress of anybody. */
static void say_here (struct host *host, uint64_t seq)
{
    struct frame f = {.type = FRAME_HERE, .a = seq};

    if (!host->peers || host->here >= seq)
        return;
    host->here = seq;
    for (int n = 0; n < host->nodes; n++)
        net_put (&host->peers[n], host, f, NULL);
    net_move (host);
}

bool watch_is_sound (struct host *host, enum watch_phase phase)
{
    int64_t now = clock_ms (), over_ms;
    char call[200];

    if (host->progress)
        host->progress (host->progress_arg);
    if (host->peers && !peers_are_sound (host, phase))
        return false;
    if (now - host->watched_ms < HOST_SLICE_MS)
        return true;
    host->watched_ms = now;
    watch_beat (host, now);
    if (!local_is_sound (host))
        return false;
    over_ms = now - host->run.moved_ms - host->timeout_ms;
    if (over_ms < 0)
        return true;
    say_here (host, host->run.call.seq);
    name_call (host, call, sizeof (call));
    return phase == WATCH_DATA ? !say_behind (host, over_ms, call)
                               : !say_missing (host, over_ms, call);
}

/* Data elsewhere. The ranks have agreed, and each waits for what it gets; who
 * waits says so: to the ranks of its node by a moment in the segment, to other
 * leaders by one frame when the time is over. */
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
    if (!any (ranks))
        return false;
    name_one (look->host, look->call, call, sizeof (call));
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
    say_here (host, look->call->seq);
    if ((!last && host->nodes > 1)
        || say_of (look, is_silent, TRAIN_ETIMEDOUT, "did not go on with"))
        return;
    name_one (host, look->call, call, sizeof (call));
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
