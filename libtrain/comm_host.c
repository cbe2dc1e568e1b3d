/* SPDX-License-Identifier: Apache-2.0
 * comm_host.c - one collective of the backend host, from the first word to the
 * last chunk
 *
 * Every rank runs the same loop: do whatever can be done now (each step below
 * returns whether it did something), else sleep until something changes, and
 * every slice of that sleep look whether somebody is gone or late. */
#include "config.h"

#include "host.h"

#include <string.h>

#include "err.h"
#include "host_idle.h"
#include "host_watch.h"
#include "sock.h"

static struct seg_rank *me (struct host *host)
{
    return &host->seg.ranks[host->local_rank];
}

bool host_res_is_free (const struct host *host, uint64_t k)
{
    uint64_t chunk = host->run.base + k;

    if (chunk < HOST_DEPTH)
        return true;
    chunk -= HOST_DEPTH;
    for (int i = 0; i < host->local_size; i++) {
        if (host_load (&host->seg.ranks[i].out_done) <= chunk)
            return false;
    }
    return !host->peers || host_load (&host->seg.head->res_sent) > chunk;
}

/* The same question for the root, which may not be the leader. */
static bool root_may_write (const struct host *host, uint64_t k)
{
    uint64_t chunk = host->run.base + k;

    return host_res_is_free (host, k)
           && (host->nodes == 1 || chunk < HOST_DEPTH
               || host_load (&host->seg.head->res_sent) > chunk - HOST_DEPTH);
}

static bool give_chunk (struct host *host)
{
    struct host_run *run = &host->run;
    uint64_t k = run->in;

    if (k >= run->n || k - run->out >= HOST_DEPTH)
        return false;
    memcpy (
        seg_slot (&host->seg, host->seg.in, host->local_rank, run->base + k),
        run->from + k * run->elems * run->elem_bytes,
        host_chunk_bytes (run, k));
    run->in++;
    host_publish (host, &me (host)->in_done, run->base + run->in);
    return true;
}

static bool run_has_given (const struct host *host,
                           const struct layout_run *stretch, uint64_t chunk)
{
    int first = host->local_of[stretch->first];

    for (int i = first; i < first + stretch->count; i++) {
        if (host_load (&host->seg.ranks[i].in_done) <= chunk)
            return false;
    }
    return true;
}

static void reduce_share (struct host *host, int hop, uint64_t k)
{
    struct host_run *run = &host->run;
    struct seg *seg = &host->seg;
    const struct layout_run *stretch = &host->runs[host->hop_run[hop]];
    bool last = host->hop_run[hop] == host->n_runs - 1;
    uint64_t chunk = run->base + k;
    struct reduce_step step = {
        .dtype = (train_dtype_t)run->call.dtype,
        .op = (train_op_t)run->call.op,
        .size = host->size,
        .acc = seg_slot (seg, seg->acc, hop, chunk),
        .out = last ? host_res_slot (host, chunk) : NULL,
        .in = host->in_ptr,
        .n_in = stretch->count,
        .first = host->hop_run[hop] == 0,
    };
    size_t from, to;

    for (int i = 0; i < stretch->count; i++)
        host->in_ptr[i] =
            seg_slot (seg, seg->in, host->local_of[stretch->first + i], chunk);
    plan_share (host, host_chunk_elems (run, k), &from, &to);
    reduce_run (&step, from, to);
}

static bool reduce_hop (struct host *host, int hop)
{
    struct host_run *run = &host->run;
    struct seg *seg = &host->seg;
    uint64_t k = run->part[hop], chunk = run->base + k;
    bool first = host->hop_run[hop] == 0;

    if (k >= run->n
        || !run_has_given (host, &host->runs[host->hop_run[hop]], chunk)
        || (!first && host_load (&seg->acc_ready[hop]) <= chunk))
        return false;
    reduce_share (host, hop, k);
    run->part[hop]++;
    host_publish (host,
                  &seg->part_done[hop * host->local_size + host->local_rank],
                  chunk + 1);
    return true;
}

static bool parts_are_done (const struct host *host, int hop, uint64_t chunk)
{
    const _Atomic uint64_t *done = &host->seg.part_done[hop * host->local_size];

    for (int i = 0; i < host->local_size; i++) {
        if (host_load (&done[i]) <= chunk)
            return false;
    }
    return true;
}

bool host_is_here (const struct host *host, uint64_t k)
{
    const struct host_run *run = &host->run;

    if (plan_reduces (run) && plan_source (host, k) == host->node)
        return parts_are_done (host, host->hops - 1, run->base + k);
    return host_load (&host->seg.head->res_ready) > run->base + k;
}

static bool take_chunk (struct host *host)
{
    struct host_run *run = &host->run;
    uint64_t k = run->out;
    size_t skip, bytes;
    char *to;

    if (k >= run->n || !host_is_here (host, k))
        return false;
    if ((to = plan_to (host, k, &skip, &bytes)))
        memcpy (to, (char *)host_res_slot (host, run->base + k) + skip, bytes);
    run->out++;
    host_publish (host, &me (host)->out_done, run->base + run->out);
    return true;
}

/* The giver of a chunk puts it where the others find results. */
static bool root_chunk (struct host *host)
{
    struct host_run *run = &host->run;
    uint64_t k = run->out;
    size_t skip, bytes;
    const char *from;
    char *to;

    if (!root_may_write (host, k))
        return false;
    from = plan_from (host, k);
    memcpy (host_res_slot (host, run->base + k), from,
            host_chunk_bytes (run, k));
    if ((to = plan_to (host, k, &skip, &bytes)) && to != from)
        memcpy (to, from, bytes);
    run->in = ++run->out;
    atomic_store (&me (host)->out_done, run->base + run->out);
    host_publish (host, &host->seg.head->res_ready, run->base + run->out);
    return true;
}

/* One that will not follow a learnt step may be ahead of us. */
bool host_pass_calls (struct host *host)
{
    struct host_run *run = &host->run;
    struct seg_call *calls = host_calls (host);
    bool moved = false;

    for (int i = 0; i < host->local_size; i++) {
        struct seg_call *c = &calls[host->local[i]];
        struct frame f = {.type = FRAME_CALL,
                          .len = sizeof (c->call),
                          .hop = host->agreed & 1,
                          .a = (uint64_t)host->local[i]};

        if (run->passed[i] || host_load (&c->seq) <= host->agreed_seq)
            continue;
        run->passed[i] = moved = true;
        for (int n = 0; n < host->nodes; n++)
            net_put (&host->peers[n], host, f, &c->call);
    }
    return moved;
}

/* Leader: the sum so far of a chunk, to the node of the next run. */
static bool pass_sum (struct host *host, int hop)
{
    struct host_run *run = &host->run;
    int next = host->hop_run[hop] + 1;
    uint64_t k = run->acc_sent[hop], chunk = run->base + k;
    struct frame f = {.type = FRAME_ACC, .hop = (uint32_t)next, .a = chunk};

    if (next == host->n_runs || k >= run->n
        || !parts_are_done (host, hop, chunk))
        return false;
    f.len = (uint32_t)(host_chunk_elems (run, k) * run->acc_bytes);
    net_put (&host->peers[host->runs[next].node], host, f,
             seg_slot (&host->seg, host->seg.acc, hop, chunk));
    run->acc_sent[hop]++;
    return true;
}

/* Leader: a result, to the neighbours that are farther from its source. */
static bool pass_result (struct host *host)
{
    struct host_run *run = &host->run;
    uint64_t k = run->res_queued;
    struct frame f = {.type = FRAME_RES, .a = run->base + k};
    int source;

    if (k >= run->n || !host_is_here (host, k))
        return false;
    source = plan_source (host, k);
    f.len = (uint32_t)host_chunk_bytes (run, k);
    if (host->node > 0 && host->node <= source)
        net_put (&host->peers[host->node - 1], host, f,
                 host_res_slot (host, run->base + k));
    if (host->node < host->nodes - 1 && host->node >= source)
        net_put (&host->peers[host->node + 1], host, f,
                 host_res_slot (host, run->base + k));
    run->res_queued++;
    return true;
}

static bool note_sent (struct host *host)
{
    uint64_t sent =
        net_results_sent (host, host->run.base + host->run.res_queued);

    if (host_load (&host->seg.head->res_sent) == sent)
        return false;
    host_publish (host, &host->seg.head->res_sent, sent);
    return true;
}

static bool lead (struct host *host)
{
    bool moved = host_pass_calls (host);

    for (int h = 0; plan_reduces (&host->run) && h < host->hops; h++)
        moved |= pass_sum (host, h);
    moved |= pass_result (host);
    moved |= net_move (host);
    moved |= note_sent (host);
    return moved;
}

/* What the loop waits for. */
static bool calls_are_there (const struct host *host)
{
    const struct seg_call *calls = host_calls (host);

    for (int r = 0; r < host->size; r++) {
        if (host_load (&calls[r].seq) != host->run.call.seq)
            return false;
    }
    for (int i = 0; host->peers && i < host->local_size; i++) {
        if (!host->run.passed[i])
            return false;
    }
    return !host->peers || net_idle (host);
}

static bool data_is_done (const struct host *host)
{
    const struct host_run *run = &host->run;

    if (run->out < run->n)
        return false;
    for (int h = 0; plan_reduces (run) && h < host->hops; h++) {
        if (run->part[h] < run->n
            || (host->peers && host->hop_run[h] + 1 < host->n_runs
                && run->acc_sent[h] < run->n))
            return false;
    }
    return !host->peers
           || (run->res_queued == run->n && net_idle (host)
               && host_load (&host->seg.head->res_sent) == run->base + run->n);
}

static bool move_nothing (struct host *host)
{
    (void)host;
    return false;
}

static bool move_reduce (struct host *host)
{
    bool moved = take_chunk (host);

    moved |= give_chunk (host);
    for (int h = 0; h < host->hops; h++)
        moved |= reduce_hop (host, h);
    return moved;
}

static bool move_spread (struct host *host)
{
    const struct host_run *run = &host->run;

    return run->out < run->n && plan_giver (host, run->out) == host->rank
               ? root_chunk (host)
               : take_chunk (host);
}

/* The one loop: until [done], or a failure. */
static train_status_t drive (struct host *host, bool (*move) (struct host *),
                             bool (*done) (const struct host *),
                             enum watch_phase phase, train_error_t *err)
{
    struct seg *seg = &host->seg;
    train_status_t status;

    watch_beat (host, host->run.moved_ms = clock_ms ());
    for (bool spun = !host->spins;;) {
        uint32_t event = atomic_load (&seg->head->event);
        bool moved = move (host);

        if (host->peers)
            moved |= lead (host);
        step_watch (host);
        status = seg_failure (seg, host->run.call.seq, err);
        if (status != TRAIN_OK)
            return status;
        if (done (host))
            return TRAIN_OK;
        if (atomic_load (&host->aborted))
            return err_set (err, TRAIN_EABORTED,
                            "group '%s' was destroyed during its call %llu",
                            host->name,
                            (unsigned long long)comm_number (&host->run.call));
        if (moved) {
            watch_beat (host, host->run.moved_ms = clock_ms ());
            continue;
        }
        if (!spun && !(spun = !seg_spin (seg, event)))
            continue;
        if (!watch_is_sound (host, phase))
            return seg_failure (seg, UINT64_MAX, err);
        if (host->peers)
            net_wait (host, event);
        else
            seg_wait (seg, event);
    }
}

static void begin (struct host *host, const struct comm_call *call,
                   const void *from, void *to)
{
    struct host_run *run = &host->run;
    size_t hops = (size_t)host->hops;

    run->call = *call;
    run->from = from;
    run->to = to;
    run->base = host->chunks;
    run->elem_bytes = train_dtype_size ((train_dtype_t)call->dtype);
    run->acc_bytes = reduce_acc_size ((train_dtype_t)call->dtype);
    plan_begin (host);
    run->in = run->out = run->res_queued = 0;
    memset (run->part, 0, hops * sizeof (*run->part));
    memset (run->acc_sent, 0, hops * sizeof (*run->acc_sent));
    memset (run->acc_got, 0, hops * sizeof (*run->acc_got));
    run->follows = false;
}

static void say_call (struct host *host)
{
    host_say (host, &host_calls (host)[host->rank], &host->run.call);
}

/* All calls, in rank order, as comm_compare wants them. */
static train_status_t compare (struct host *host, train_error_t *err)
{
    const struct seg_call *calls = host_calls (host);
    int n = host->size;

    for (int r = 0; r < n; r++) {
        if (memcmp (&calls[r].call, &host->run.call, sizeof (calls[r].call))
            != 0)
            return watch_mismatch (host, calls, err);
    }
    step_agreed (host);
    return TRAIN_OK;
}

static train_status_t move_data (struct host *host, train_error_t *err)
{
    return drive (host, plan_reduces (&host->run) ? move_reduce : move_spread,
                  data_is_done, WATCH_DATA, err);
}

/* What is left to do when a call has ended, well or not. */
static train_status_t finish (struct host *host, train_status_t status)
{
    if (status == TRAIN_OK) {
        host->chunks += host->run.n;
        atomic_store (&me (host)->done_seq, host->run.call.seq);
    } else if (host->peers && status != TRAIN_EABORTED) {
        net_tell_failure (host);
    }
    return status;
}

static train_status_t run_call (struct host *host, const struct comm_call *call,
                                const void *from, void *to, train_error_t *err)
{
    train_status_t status;

    begin (host, call, from, to);
    watch_beat (host, clock_ms ()); /* before others can see the call */
    say_call (host);
    status = drive (host, move_nothing, calls_are_there, WATCH_CALLS, err);
    if (status == TRAIN_OK)
        status = compare (host, err);
    if (status == TRAIN_OK && host->run.n > 0)
        status = move_data (host, err);
    return finish (host, status);
}

static train_status_t follow_call (struct host *host,
                                   const struct comm_call *call,
                                   const void *from, void *to,
                                   train_error_t *err)
{
    train_status_t status;

    begin (host, call, from, to);
    host->run.follows = true;
    step_watch (host); /* before data is touched, if it can be */
    status = seg_failure (&host->seg, call->seq, err);
    if (status == TRAIN_OK)
        status = move_data (host, err);
    return finish (host, status);
}

static train_status_t agree (struct host *host, const struct comm_call *call,
                             bool follow, train_error_t *err)
{
    train_status_t status;

    begin (host, call, NULL, NULL);
    host->run.n = 0;
    host->run.follows = follow;
    watch_beat (host, clock_ms ());
    if (!follow)
        say_call (host);
    else if (host->peers)
        net_move (host); /* what a rank that departs has said */
    step_watch (host);
    status =
        follow ? seg_failure (&host->seg, call->seq, err)
               : drive (host, move_nothing, calls_are_there, WATCH_CALLS, err);
    if (status == TRAIN_OK && !follow)
        status = compare (host, err);
    if (status != TRAIN_OK && host->peers)
        net_tell_failure (host);
    return status;
}

train_status_t host_run_call (void *state, const struct comm_call *call,
                              const void *from, void *to, train_error_t *err)
{
    struct host *host = state;
    train_status_t status;

    idle_enter (host);
    status = run_call (host, call, from, to, err);
    idle_leave (host);
    return status;
}

train_status_t host_follow (void *state, const struct comm_call *call,
                            const void *from, void *to, train_error_t *err)
{
    struct host *host = state;
    train_status_t status;

    idle_enter (host);
    status = follow_call (host, call, from, to, err);
    idle_leave (host);
    return status;
}

train_status_t host_agree (void *state, const struct comm_call *call,
                           bool follow, train_error_t *err)
{
    struct host *host = state;
    train_status_t status;

    idle_enter (host);
    status = agree (host, call, follow, err);
    idle_leave (host);
    return status;
}
