/* SPDX-License-Identifier: Apache-2.0
 * host_watch.c - find out who is gone, late or of another opinion */
#include "host_watch.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "err.h"
#include "host_blame.h"
#include "sock.h"

/* After the deadline of a call, for those who know better who is to blame:
 * the leader of the node where a rank has stopped. All is said within 2 s. */
#define GRACE_MS  800
#define OTHERS_MS 1600

/* "all_reduce (sum of 8 F32), call 3 of group 'world'" */
void watch_name (const struct host *host, const struct comm_call *call,
                 char *text, size_t size)
{
    char what[96];

    if (call->kind == COMM_BEGIN) {
        snprintf (text, size, "the beginning of group '%s'", host->name);
        return;
    }
    comm_describe (call, what, sizeof (what));
    snprintf (text, size, "%s, call %llu of group '%s'", what,
              (unsigned long long)comm_number (call), host->name);
}

static void name_call (const struct host *host, char *text, size_t size)
{
    watch_name (host, &host->run.call, text, size);
}

static void record (struct host *host, const train_error_t *err)
{
    seg_fail (&host->seg, host->run.call.seq, err->code, err->text);
}

static bool peers_are_sound (struct host *host, enum watch_phase phase)
{
    for (int n = 0; n < host->nodes; n++) {
        const struct peer *peer = &host->peers[n];
        train_error_t err;
        char call[200];

        if (!peer->gone || !blame_needs (host, n, phase))
            continue;
        name_call (host, call, sizeof (call));
        err_set (&err, TRAIN_EPEER, "rank %d %s during %s", host->leader_of[n],
                 peer->left ? "left the group" : "ended", call);
        record (host, &err);
        return false;
    }
    return true;
}

static bool local_is_sound (struct host *host)
{
    char ranks[160], call[200];
    train_error_t err;
    bool left = true;
    int n = 0;

    for (int i = 0; i < host->local_size; i++) {
        if (!blame_gone (host, host->local[i]))
            continue;
        n++;
        left &= blame_left (host, host->local[i]);
    }
    if (n == 0)
        return true;
    comm_ranks (blame_gone, host, host->size, ranks, sizeof (ranks));
    name_call (host, call, sizeof (call));
    err_set (&err, TRAIN_EPEER, "%s %s during %s", ranks,
             left ? "left the group" : "ended", call);
    record (host, &err);
    return false;
}

void watch_beat (struct host *host, int64_t now_ms)
{
    atomic_store_explicit (&host->seg.ranks[host->local_rank].beat_ms, now_ms,
                           memory_order_relaxed);
}

bool watch_any (const char *ranks)
{
    return strncmp (ranks, "no ", 3) != 0;
}

/* Who has stopped is known on its own node alone. Elsewhere its leader is the
 * one that is waited for, so others give that one a moment to say who it is.
 * Returns whether the wait is over. */
static bool say_behind (struct host *host, int64_t over_ms, const char *call)
{
    static const comm_has_f blame[] = {blame_stopped, blame_needed_silent,
                                       blame_silent, blame_needed,
                                       blame_behind};
    int64_t grace_ms = host->peers ? GRACE_MS : OTHERS_MS;
    char ranks[160];
    train_error_t err;

    comm_ranks (blame_stopped, host, host->size, ranks, sizeof (ranks));
    if (!watch_any (ranks) && host->nodes > 1 && over_ms < grace_ms)
        return false;
    for (size_t i = 0;
         !watch_any (ranks) && i < sizeof (blame) / sizeof (*blame); i++)
        comm_ranks (blame[i], host, host->size, ranks, sizeof (ranks));
    if (!watch_any (ranks))
        snprintf (ranks, sizeof (ranks), "rank %d",
                  host->leader_of[host->node]); /* it speaks for us */
    err_set (&err, TRAIN_ETIMEDOUT, "%s did not go on with %s, for %.1f s",
             ranks, call, (double)host->timeout_ms / 1000);
    record (host, &err);
    return true;
}

/* Why ranks of other nodes are missing is known there. Returns whether the wait
 * is over. */
static bool say_missing (struct host *host, int64_t over_ms, const char *call)
{
    char ranks[160], doubt[160], text[220];
    int64_t grace_ms = host->peers ? GRACE_MS : OTHERS_MS;
    train_error_t err;
    bool unknown = false;

    comm_ranks (blame_stopped, host, host->size, ranks, sizeof (ranks));
    comm_ranks (blame_missing, host, host->size, text, sizeof (text));
    if (watch_any (ranks) || !watch_any (text))
        return say_behind (host, over_ms, call);
    comm_ranks (blame_late_here, host, host->size, ranks, sizeof (ranks));
    comm_ranks (blame_doubtful, host, host->size, doubt, sizeof (doubt));
    if ((!watch_any (ranks) || watch_any (doubt)) && over_ms < grace_ms)
        return false;
    comm_ranks (blame_late, host, host->size, ranks, sizeof (ranks));
    if (!watch_any (ranks))
        snprintf (ranks, sizeof (ranks), "%.150s", text);
    text[0] = '\0';
    if (watch_any (doubt))
        snprintf (text, sizeof (text), ", or %s, which speaks for it, stopped",
                  doubt);
    for (int r = 0; r < host->size && !unknown; r++)
        unknown = blame_unknown (host, r);
    err_set (&err, TRAIN_ETIMEDOUT, "%s did not come to %s, within %.1f s%s%s",
             ranks, call, (double)host->timeout_ms / 1000, text,
             unknown ? " (nor is there word of the ranks behind it)" : "");
    record (host, &err);
    return true;
}

/* No progress of anybody. */
void watch_say_here (struct host *host, uint64_t seq)
{
    struct frame f = {.type = FRAME_HERE, .a = seq};
    int rank = host->rank;

    if (!host->peers || host->here >= seq)
        return;
    host->here = seq;
    f.hop = elsewhere_least_mark (host, seq, &rank);
    f.rank = (uint32_t)rank;
    for (int n = 0; n < host->nodes; n++) {
        struct peer *peer = &host->peers[n];

        /* one that takes nothing keeps room for failure and goodbye */
        if (peer->tail - peer->head + 2 < host->queue_max)
            net_put (peer, host, f, NULL);
    }
    net_move (host);
}

void watch_answer (struct host *host, uint64_t seq)
{
    uint64_t asked = host->here;

    for (int n = 0; host->peers && n < host->nodes; n++) {
        if (host->peers[n].here > asked && host->peers[n].here <= seq)
            asked = host->peers[n].here;
    }
    watch_say_here (host, asked);
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
    watch_answer (host, host->run.call.seq);
    if (!local_is_sound (host))
        return false;
    over_ms = now - host->run.moved_ms - host->timeout_ms;
    if (over_ms < 0)
        return true;
    watch_say_here (host, host->run.call.seq);
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
                        host->name,
                        (unsigned long long)comm_number (&host->run.call));
    for (int r = 0; r < host->size; r++)
        list[r] = calls[r].call;
    status = comm_compare (list, host->size, host->name, &why);
    free (list);
    record (host, &why);
    return err_set (err, status, "%s", why.text);
}
