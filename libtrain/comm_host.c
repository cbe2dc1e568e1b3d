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
#include "host_watch.h"
#include "sock.h"

static uint64_t load (const _Atomic uint64_t *counter)
{
    return atomic_load_explicit (counter, memory_order_acquire);
}

static void publish (struct host *host, _Atomic uint64_t *counter,
                     uint64_t value)
{
    atomic_store_explicit (counter, value, memory_order_release);
    seg_signal (&host->seg);
}

static struct seg_rank *me (struct host *host)
{
    return &host->seg.ranks[host->local_rank];
}

static size_t chunk_bytes (const struct host_run *run, uint64_t k)
{
    return host_chunk_elems (run, k) * run->elem_bytes;
}

static void *res_slot (struct host *host, uint64_t chunk)
{
    return seg_slot (&host->seg, host->seg.res, 0, chunk);
}

/* Has the slot of the result ring that chunk [k] of this call takes been left
 * by the ranks of this node, and by the leader? */
static bool res_is_free (const struct host *host, uint64_t k)
{
    uint64_t chunk = host->run.base + k;

    if (chunk < HOST_DEPTH)
        return true;
    chunk -= HOST_DEPTH;
    for (int i = 0; i < host->local_size; i++) {
        if (load (&host->seg.ranks[i].out_done) <= chunk)
            return false;
    }
    return !host->peers || load (&host->seg.head->res_sent) > chunk;
}

/* The same question for the root, which may not be the leader. */
static bool root_may_write (const struct host *host, uint64_t k)
{
    uint64_t chunk = host->run.base + k;

    return res_is_free (host, k)
           && (host->nodes == 1 || chunk < HOST_DEPTH
               || load (&host->seg.head->res_sent) > chunk - HOST_DEPTH);
}

static bool give_chunk (struct host *host)
{
    struct host_run *run = &host->run;
    uint64_t k = run->in;

    if (k >= run->n || k - run->out >= HOST_DEPTH)
        return false;
    memcpy (
        seg_slot (&host->seg, host->seg.in, host->local_rank, run->base + k),
        run->from + k * run->elems * run->elem_bytes, chunk_bytes (run, k));
    run->in++;
    publish (host, &me (host)->in_done, run->base + run->in);
    return true;
}

static bool run_has_given (const struct host *host,
                           const struct layout_run *stretch, uint64_t chunk)
{
    int first = host->local_of[stretch->first];

    for (int i = first; i < first + stretch->count; i++) {
        if (load (&host->seg.ranks[i].in_done) <= chunk)
            return false;
    }
    return true;
}

/* This rank's share of a chunk: whole cache lines of every type. */
static void share (const struct host *host, size_t elems, size_t *from,
                   size_t *to)
{
    size_t n = (size_t)host->local_size, i = (size_t)host->local_rank;
    size_t part = ((elems + n - 1) / n + 63) / 64 * 64;

    *from = i * part < elems ? i * part : elems;
    *to = (i + 1) * part < elems ? (i + 1) * part : elems;
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
        .out = last ? res_slot (host, chunk) : NULL,
        .in = host->in_ptr,
        .n_in = stretch->count,
        .first = host->hop_run[hop] == 0,
    };
    size_t from, to;

    for (int i = 0; i < stretch->count; i++)
        host->in_ptr[i] =
            seg_slot (seg, seg->in, host->local_of[stretch->first + i], chunk);
    share (host, host_chunk_elems (run, k), &from, &to);
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
        || (!first && load (&seg->acc_ready[hop]) <= chunk))
        return false;
    reduce_share (host, hop, k);
    run->part[hop]++;
    publish (host, &seg->part_done[hop * host->local_size + host->local_rank],
             chunk + 1);
    return true;
}

static bool parts_are_done (const struct host *host, int hop, uint64_t chunk)
{
    const _Atomic uint64_t *done = &host->seg.part_done[hop * host->local_size];

    for (int i = 0; i < host->local_size; i++) {
        if (load (&done[i]) <= chunk)
            return false;
    }
    return true;
}

bool host_is_here (const struct host *host, uint64_t k)
{
    const struct host_run *run = &host->run;

    if (plan_reduces (run) && plan_source (host, k) == host->node)
        return parts_are_done (host, host->hops - 1, run->base + k);
    return load (&host->seg.head->res_ready) > run->base + k;
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
        memcpy (to, (char *)res_slot (host, run->base + k) + skip, bytes);
    run->out++;
    publish (host, &me (host)->out_done, run->base + run->out);
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
    memcpy (res_slot (host, run->base + k), from, chunk_bytes (run, k));
    if ((to = plan_to (host, k, &skip, &bytes)) && to != from)
        memcpy (to, from, bytes);
    run->in = ++run->out;
    atomic_store (&me (host)->out_done, run->base + run->out);
    publish (host, &host->seg.head->res_ready, run->base + run->out);
    return true;
}

/* Leader: calls of this node's ranks that other leaders have not seen. */
static bool pass_calls (struct host *host)
{
    struct host_run *run = &host->run;
    struct seg_call *calls = host->seg.calls[run->call.seq & 1];
    bool moved = false;

    for (int i = 0; i < host->local_size; i++) {
        struct seg_call *c = &calls[host->local[i]];
        struct frame f = {.type = FRAME_CALL,
                          .len = sizeof (c->call),
                          .a = (uint64_t)host->local[i]};

        if (run->passed[i] || load (&c->seq) != run->call.seq)
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
    f.len = (uint32_t)chunk_bytes (run, k);
    if (host->node > 0 && host->node <= source)
        net_put (&host->peers[host->node - 1], host, f,
                 res_slot (host, run->base + k));
    if (host->node < host->nodes - 1 && host->node >= source)
        net_put (&host->peers[host->node + 1], host, f,
                 res_slot (host, run->base + k));
    run->res_queued++;
    return true;
}

static bool note_sent (struct host *host)
{
    uint64_t sent =
        net_results_sent (host, host->run.base + host->run.res_queued);

    if (load (&host->seg.head->res_sent) == sent)
        return false;
    publish (host, &host->seg.head->res_sent, sent);
    return true;
}

static bool lead (struct host *host)
{
    bool moved = pass_calls (host);

    for (int h = 0; plan_reduces (&host->run) && h < host->hops; h++)
        moved |= pass_sum (host, h);
    moved |= pass_result (host);
    moved |= net_move (host);
    moved |= note_sent (host);
    return moved;
}

static bool is_run_of (const struct host *host, uint32_t run, int *ret_hop)
{
    for (int h = 0; h < host->hops; h++) {
        if (host->hop_run[h] == (int)run) {
            *ret_hop = h;
            return true;
        }
    }
    return false;
}

bool host_place (struct host *host, int node, const struct frame *f,
                 char **ret_to)
{
    struct host_run *run = &host->run;
    uint64_t k = f->a - run->base;
    int hop, from = node, source;

    if (f->a < run->base || k >= run->n)
        return false;
    if (f->type == FRAME_ACC) {
        if (!plan_reduces (run) || !is_run_of (host, f->hop, &hop)
            || f->hop == 0 || host->runs[f->hop - 1].node != from
            || k != run->acc_got[hop]
            || f->len != host_chunk_elems (run, k) * run->acc_bytes)
            return false;
        *ret_to = seg_slot (&host->seg, host->seg.acc, hop, f->a);
        return true;
    }
    source = plan_source (host, k);
    if (f->type != FRAME_RES || load (&host->seg.head->res_ready) > f->a
        || f->len != chunk_bytes (run, k)
        || from != host->node + (source > host->node ? 1 : -1)
        || source == host->node)
        return false;
    /* the one before may come from the other side, or from this node */
    *ret_to = res_is_free (host, k) && (k == 0 || host_is_here (host, k - 1))
                  ? res_slot (host, f->a)
                  : NULL;
    return true;
}

/* A call may be one ahead: its rank has ended the call that we are in. */
static bool call_arrived (struct host *host, int node, const struct frame *f,
                          const char *data)
{
    struct comm_call call;
    struct seg_call *c;

    if (f->len != sizeof (call) || f->a >= (uint64_t)host->size
        || host->node_of[f->a] != node)
        return false;
    memcpy (&call, data, sizeof (call));
    if (call.seq != host->run.call.seq && call.seq != host->run.call.seq + 1)
        return false;
    c = &host->seg.calls[call.seq & 1][f->a];
    c->call = call;
    publish (host, &c->seq, call.seq);
    return true;
}

bool host_arrived (struct host *host, int node, const struct frame *f,
                   const char *data)
{
    struct host_run *run = &host->run;
    int hop;

    if (f->type == FRAME_CALL)
        return call_arrived (host, node, f, data);
    if (f->type == FRAME_ACC && is_run_of (host, f->hop, &hop)) {
        run->acc_got[hop]++;
        publish (host, &host->seg.acc_ready[hop], f->a + 1);
        return true;
    }
    publish (host, &host->seg.head->res_ready, f->a + 1);
    return true;
}

/* What the loop waits for. */
static bool calls_are_there (const struct host *host)
{
    const struct seg_call *calls = host->seg.calls[host->run.call.seq & 1];

    for (int r = 0; r < host->size; r++) {
        if (load (&calls[r].seq) != host->run.call.seq)
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
               && load (&host->seg.head->res_sent) == run->base + run->n);
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

    host->run.moved_ms = clock_ms ();
    for (;;) {
        uint32_t event = atomic_load (&seg->head->event);
        bool moved = move (host);

        if (host->peers)
            moved |= lead (host);
        status = seg_failure (seg, host->run.call.seq, err);
        if (status != TRAIN_OK)
            return status;
        if (done (host))
            return TRAIN_OK;
        if (moved) {
            host->run.moved_ms = clock_ms ();
            continue;
        }
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
    memset (run->passed, 0, (size_t)host->local_size * sizeof (*run->passed));
}

static void say_call (struct host *host)
{
    struct seg_call *c = &host->seg.calls[host->run.call.seq & 1][host->rank];

    c->call = host->run.call;
    publish (host, &c->seq, host->run.call.seq);
}

/* All calls, in rank order, as comm_compare wants them. */
static train_status_t compare (struct host *host, train_error_t *err)
{
    const struct seg_call *calls = host->seg.calls[host->run.call.seq & 1];
    int n = host->size;

    for (int r = 0; r < n; r++) {
        if (memcmp (&calls[r].call, &host->run.call, sizeof (calls[r].call))
            != 0)
            return watch_mismatch (host, calls, err);
    }
    return TRAIN_OK;
}

train_status_t host_run_call (void *state, const struct comm_call *call,
                              const void *from, void *to, train_error_t *err)
{
    struct host *host = state;
    train_status_t status;

    begin (host, call, from, to);
    say_call (host);
    status = drive (host, move_nothing, calls_are_there, WATCH_CALLS, err);
    if (status == TRAIN_OK)
        status = compare (host, err);
    if (status == TRAIN_OK && host->run.n > 0)
        status =
            drive (host, plan_reduces (&host->run) ? move_reduce : move_spread,
                   data_is_done, WATCH_DATA, err);
    if (status != TRAIN_OK) {
        if (host->peers)
            net_tell_failure (host);
        return status;
    }
    host->chunks += host->run.n;
    atomic_store (&me (host)->done_seq, call->seq);
    return TRAIN_OK;
}
