/* SPDX-License-Identifier: Apache-2.0
 * host_step.c - who does not follow a learnt step
 *
 * A rank that follows compares nothing: it moves its data at once. One that
 * will not says its call, as in an agreement, before it touches data, and
 * waits for the others to say theirs. Those see it wherever they wait: a call
 * that was said with a number that they took for learnt is a disagreement,
 * which whoever sees it first records for all. A rank that has not come so far
 * may still say the same call: when all do, they have agreed as ever. */
#include "config.h"

#include "host.h"

#include <stdio.h>
#include <string.h>

#include "err.h"
#include "host_idle.h"

void host_step (void *state, const struct comm_call *learnt, size_t n,
                uint64_t seq)
{
    struct host *host = state;

    idle_enter (host);
    host->step.learnt = learnt;
    host->step.n = n;
    host->step.seq = seq;
    idle_leave (host);
}

void step_agreed (struct host *host)
{
    host->agreed++;
    host->agreed_seq = host->run.call.seq;
    host->step.look = true;
    memset (host->run.passed, 0,
            (size_t)host->local_size * sizeof (*host->run.passed));
}

/* What the ranks said since the last agreement. */
static void look (struct host *host)
{
    const struct seg_call *calls = host_calls (host);
    struct host_step *step = &host->step;

    step->first = UINT64_MAX;
    step->last = 0;
    for (int r = 0; r < host->size; r++) {
        uint64_t seq = atomic_load (&calls[r].seq);

        if (seq <= host->agreed_seq)
            continue;
        step->first = seq < step->first ? seq : step->first;
        step->last = seq > step->last ? seq : step->last;
    }
}

/* Call [seq] as the learnt step has it; the step may be the one before. */
static bool find_learnt (const struct host *host, uint64_t seq,
                         struct comm_call *ret)
{
    const struct host_step *step = &host->step;
    uint64_t at;

    if (step->n == 0)
        return false;
    at = seq >= step->seq ? (seq - step->seq) % step->n
                          : step->n - 1 - (step->seq - seq - 1) % step->n;
    *ret = step->learnt[at];
    ret->seq = seq;
    return true;
}

/* Ranks of one opinion on call [seq]. */
struct side {
    const struct host *host;
    uint64_t seq;
    const struct comm_call *call; /* said; NULL: took it for learnt */
    int rank;                     /* has sent data of it; -1: none */
};

static bool is_of (const void *arg, int rank)
{
    const struct side *side = arg;
    const struct host *host = side->host;
    const struct seg_call *said = &host_calls (host)[rank];
    uint64_t seq = atomic_load (&said->seq);

    if (side->call)
        return seq == side->seq
               && memcmp (&said->call, side->call, sizeof (said->call)) == 0;
    return seq > side->seq || rank == side->rank
           || (rank == host->rank && seq != side->seq
               && host->run.call.seq >= side->seq);
}

/* Any of the ranks that said call [seq]; there is one. */
static struct comm_call said_call (const struct host *host, uint64_t seq)
{
    const struct seg_call *calls = host_calls (host);
    int r = 0;

    while (r + 1 < host->size && atomic_load (&calls[r].seq) != seq)
        r++;
    return calls[r].call;
}

/* [rank] is known to have taken call [seq] for learnt; -1: nobody is. */
static void disagree (struct host *host, uint64_t seq, int rank)
{
    struct comm_call said = said_call (host, seq), learnt;
    struct side one = {host, seq, &said, -1}, other = {host, seq, NULL, rank};
    char who[160], others[160], what[96], want[96] = "nothing";
    bool same = false;
    train_error_t err;

    if (find_learnt (host, seq, &learnt)) {
        comm_describe (&learnt, want, sizeof (want));
        same = memcmp (&said, &learnt, sizeof (said)) == 0;
    }
    comm_describe (&said, what, sizeof (what));
    comm_ranks (is_of, &one, host->size, who, sizeof (who));
    comm_ranks (is_of, &other, host->size, others, sizeof (others));
    err_set (&err, TRAIN_EMISMATCH,
             "the ranks of group '%s' disagree at its call %llu: %s called "
             "%s%s; %s called %s, as the learnt step has it; what the calls of "
             "this step wrote is undefined",
             host->name, (unsigned long long)comm_number (&said), who, what,
             same ? " outside that step" : "", others, want);
    seg_fail (&host->seg, seq, err.code, err.text);
}

void step_watch (struct host *host)
{
    struct host_step *step = &host->step;
    uint32_t said = atomic_load (&host->seg.head->said);
    uint64_t seq = host->run.call.seq;
    bool waits = !host->run.follows && host->agreed_seq != seq;

    if (step->look || said != step->said) {
        step->said = said;
        step->look = false;
        look (host);
    }
    if (step->first < seq || (host->run.follows && step->first == seq))
        disagree (host, step->first, -1);
    else if (waits && step->last > seq)
        disagree (host, seq, -1);
}

bool step_may_send (struct host *host, int rank)
{
    uint64_t seq = host->run.call.seq;

    if (host->run.follows || host->agreed_seq == seq
        || atomic_load (&host_calls (host)[rank].seq) == seq)
        return true;
    if (host->step.n > 0)
        disagree (host, seq, rank);
    return false;
}
