/* SPDX-License-Identifier: Apache-2.0
 * host_frames.c - what leaders send each other: where it goes, and what it means
 * once it is there */
#include "config.h"

#include "host.h"

#include <string.h>

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

    if (f->a < run->base)
        return false;
    if (!step_may_send (host, host->leader_of[node])) {
        *ret_to = NULL;
        return host->step.n > 0;
    }
    if (k >= run->n) { /* of a later call, which is learnt: its turn comes */
        *ret_to = NULL;
        return true;
    }
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
    if (f->type != FRAME_RES || host_load (&host->seg.head->res_ready) > f->a
        || f->len != host_chunk_bytes (run, k)
        || from != host->node + (source > host->node ? 1 : -1)
        || source == host->node)
        return false;
    /* the one before may come from the other side, or from this node */
    *ret_to =
        host_res_is_free (host, k) && (k == 0 || host_is_here (host, k - 1))
            ? host_res_slot (host, f->a)
            : NULL;
    return true;
}

void host_say (struct host *host, struct seg_call *c,
               const struct comm_call *call)
{
    c->call = *call;
    atomic_store (&c->seq, call->seq);
    atomic_fetch_add (&host->seg.head->said, 1);
    seg_signal (&host->seg);
}

/* It may be for the agreement after ours: its rank has ended the call that we
 * are in. */
static bool call_arrived (struct host *host, int node, const struct frame *f,
                          const char *data)
{
    struct comm_call call;
    struct seg_call *c;

    if (f->len != sizeof (call) || f->a >= (uint64_t)host->size || f->hop > 1
        || host->node_of[f->a] != node)
        return false;
    memcpy (&call, data, sizeof (call));
    c = &host->seg.calls[f->hop][f->a];
    if (call.seq <= host_load (&c->seq))
        return false;
    host_say (host, c, &call);
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
        host_publish (host, &host->seg.acc_ready[hop], f->a + 1);
        return true;
    }
    host_publish (host, &host->seg.head->res_ready, f->a + 1);
    return true;
}
