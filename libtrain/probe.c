/* SPDX-License-Identifier: Apache-2.0
 * probe.c - patterned copies between each pair of GPUs, and what they show */
#include "probe.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>

#include "err.h"

#define TIMES 3
#define SIZES 3
#define STALE 0xa5

/* 64 MiB, and an odd tail. */
const struct probe_options probe_default = {
    .most_bytes = ((uint64_t)64 << 20) + 12,
    .least_gb_s = 2,
};

/* One direction: what it needs on both GPUs and on the host. */
struct lane {
    int dst, src;
    void *from, *to;        /* on src, on dst */
    void *out, *in;         /* streams of src and of dst */
    uint32_t *want, *found; /* pinned */
    uint64_t *sum;          /* on dst */
    struct probe_pair *pair;
};

struct probe {
    const struct backend_ops *ops;
    const struct probe_options *opts;
    uint64_t room; /* of a buffer */
    struct lane lane[2];
    train_error_t *err;
};

/* The finalizer of MurmurHash3 (Appleby, public domain) over pair and place. */
uint32_t probe_word (int dst, int src, uint64_t index)
{
    uint64_t x = index * 2654435761u + (uint64_t)(dst + 1) * 0x9e3779b97f4a7c15u
                 + (uint64_t)(src + 1) * 0xc2b2ae3d27d4eb4fu;

    x = (x ^ (x >> 33)) * 0xff51afd7ed558ccdu;
    x = (x ^ (x >> 33)) * 0xc4ceb9fe1a85ec53u;
    return (uint32_t)(x ^ (x >> 33));
}

static double now_s (void)
{
    struct timespec t;

    clock_gettime (CLOCK_MONOTONIC, &t);
    return (double)t.tv_sec + 1e-9 * (double)t.tv_nsec;
}

static train_status_t lane_open (struct probe *p, struct lane *l, int dst,
                                 int src)
{
    const struct backend_ops *ops = p->ops;

    l->dst = dst;
    l->src = src;
    TRY (ops->stream_create (src, &l->out, p->err));
    TRY (ops->stream_create (dst, &l->in, p->err));
    TRY (ops->alloc (src, p->room, &l->from, p->err));
    TRY (ops->alloc (dst, p->room, &l->to, p->err));
    TRY (ops->alloc (dst, sizeof (*l->sum), (void **)&l->sum, p->err));
    TRY (ops->pin (src, p->room, (void **)&l->want, p->err));
    TRY (ops->pin (dst, p->room, (void **)&l->found, p->err));
    for (uint64_t i = 0; i < p->room / sizeof (*l->want); i++)
        l->want[i] = probe_word (dst, src, i);
    TRY (ops->copy (l->from, l->want, p->room, l->out, p->err));
    return ops->sync (l->out, p->err);
}

static void lane_close (struct probe *p, struct lane *l)
{
    const struct backend_ops *ops = p->ops;

    if (l->found)
        ops->unpin (l->found, p->room);
    if (l->want)
        ops->unpin (l->want, p->room);
    ops->free (l->sum);
    ops->free (l->to);
    ops->free (l->from);
    if (l->in)
        ops->stream_destroy (l->in);
    if (l->out)
        ops->stream_destroy (l->out);
}

static struct kern_view words (void *data, uint64_t bytes)
{
    return (struct kern_view){.data = data,
                              .ndim = 1,
                              .compact = 1,
                              .in_size = 4,
                              .wire_size = 4,
                              .n = bytes / 4,
                              .shape = {(int64_t)(bytes / 4)},
                              .strides = {1}};
}

/* On the stream that the way needs. */
static train_status_t send (struct probe *p, struct lane *l, enum probe_way way,
                            uint64_t bytes)
{
    const struct kern_view to = words (l->to, bytes);
    const struct kern_view from = words (l->from, bytes);
    int before;

    if (way != PROBE_KERNEL)
        return p->ops->peer (l->to, l->dst, l->from, l->src, bytes, l->out,
                             p->err);
    before = p->ops->enter (l->dst);
    p->ops->view->move (&to, &from, l->in);
    p->ops->leave (before);
    return TRAIN_OK;
}

static train_status_t settle (struct probe *p)
{
    for (int i = 0; i < 2; i++) {
        TRY (p->ops->sync (p->lane[i].out, p->err));
        TRY (p->ops->sync (p->lane[i].in, p->err));
    }
    return TRAIN_OK;
}

/* What the GPU itself reads there, as a sum, and what the host fetches. */
static train_status_t look (struct probe *p, struct lane *l, enum probe_way way,
                            uint64_t bytes)
{
    const struct kern_view got = words (l->to, bytes);
    const struct kern_view want = words (l->want, bytes);
    uint64_t there = 0, here = 0, i = 0;
    int before;

    TRY (p->ops->fill (l->dst, l->sum, 0, sizeof (there), l->in, p->err));
    before = p->ops->enter (l->dst);
    p->ops->view->sum (l->sum, &got, 0, (bytes + 7) / 8, 1, l->in);
    p->ops->leave (before);
    TRY (p->ops->copy (l->found, l->to, bytes, l->in, p->err));
    TRY (p->ops->copy (&there, l->sum, sizeof (there), l->in, p->err));
    TRY (p->ops->sync (l->in, p->err));
    view_host.sum (&here, &want, 0, (bytes + 7) / 8, 1, NULL);
    while (i < bytes / 4 && l->found[i] == l->want[i])
        i++;
    if (i == bytes / 4 && here == there)
        return TRAIN_OK;
    *l->pair = (struct probe_pair){
        .verdict = PROBE_WRONG,
        .way = way,
        .bytes = bytes,
        .offset = i < bytes / 4 ? i * 4 : bytes,
        .expected = i < bytes / 4 ? l->want[i] : (uint32_t)here,
        .got = i < bytes / 4 ? l->found[i] : (uint32_t)there,
    };
    return TRAIN_OK;
}

static bool still_good (const struct probe *p)
{
    return p->lane[0].pair->verdict == PROBE_GOOD
           && p->lane[1].pair->verdict == PROBE_GOOD;
}

static train_status_t try_size (struct probe *p, enum probe_way way,
                                uint64_t bytes)
{
    for (int i = 0; i < 2; i++) {
        struct lane *l = &p->lane[i];

        TRY (p->ops->fill (l->dst, l->to, STALE, bytes, l->in, p->err));
        TRY (p->ops->sync (l->in, p->err));
    }
    for (int i = 0; i < 2; i++)
        TRY (send (p, &p->lane[i], way, bytes));
    TRY (settle (p));
    for (int i = 0; i < 2; i++)
        TRY (look (p, &p->lane[i], way, bytes));
    return TRAIN_OK;
}

static train_status_t try_way (struct probe *p, enum probe_way way)
{
    const uint64_t sizes[SIZES] = {4, 65536 + 4, p->opts->most_bytes};

    for (int s = 0; s < SIZES; s++)
        for (int i = 0; i < TIMES && still_good (p); i++)
            if (sizes[s] <= p->opts->most_bytes)
                TRY (try_size (p, way, sizes[s]));
    return TRAIN_OK;
}

/* By both ways, with both directions at once; the better of some rounds. */
static train_status_t race (struct probe *p)
{
    uint64_t bytes = p->opts->most_bytes;
    double peer = 1e9, staged = 1e9, begin;

    for (int i = 0; i < TIMES; i++) {
        begin = now_s ();
        for (int k = 0; k < 2; k++)
            TRY (send (p, &p->lane[k], PROBE_PEER, bytes));
        TRY (settle (p));
        peer = now_s () - begin < peer ? now_s () - begin : peer;
        begin = now_s ();
        for (int k = 0; k < 2; k++) {
            struct lane *l = &p->lane[k];

            TRY (p->ops->copy (l->found, l->from, bytes, l->out, p->err));
            TRY (p->ops->copy (l->to, l->want, bytes, l->in, p->err));
        }
        TRY (settle (p));
        staged = now_s () - begin < staged ? now_s () - begin : staged;
    }
    for (int k = 0; k < 2; k++) {
        struct probe_pair *pair = p->lane[k].pair;

        pair->peer_gb_s = 1e-9 * (double)bytes / peer;
        pair->staged_gb_s = 1e-9 * (double)bytes / staged;
        if (pair->peer_gb_s < p->opts->least_gb_s
            || pair->peer_gb_s < pair->staged_gb_s)
            pair->verdict = PROBE_SLOW;
    }
    return TRAIN_OK;
}

static train_status_t try_pair (struct probe *p, int a, int b)
{
    TRY (lane_open (p, &p->lane[0], a, b));
    TRY (lane_open (p, &p->lane[1], b, a));
    TRY (try_way (p, PROBE_DRIVER));
    if (!p->ops->peer_open || !p->ops->peer_open (a, b)
        || !p->ops->peer_open (b, a)) {
        for (int i = 0; i < 2; i++)
            if (p->lane[i].pair->verdict == PROBE_GOOD)
                p->lane[i].pair->verdict = PROBE_NO_WAY;
        return TRAIN_OK;
    }
    TRY (try_way (p, PROBE_PEER));
    if (still_good (p))
        TRY (try_way (p, PROBE_KERNEL));
    return still_good (p) && p->opts->least_gb_s > 0 ? race (p) : TRAIN_OK;
}

train_status_t probe_pairs (const struct backend_ops *ops, int n,
                            const struct probe_options *opts,
                            struct probe_pair *ret, train_error_t *err)
{
    train_status_t status = TRAIN_OK;

    for (int i = 0; i < n * n; i++)
        ret[i] = (struct probe_pair){.verdict = PROBE_GOOD};
    for (int a = 0; a < n; a++)
        for (int b = 0; b < a && status == TRAIN_OK; b++) {
            struct probe p = {.ops = ops,
                              .opts = opts,
                              .room = (opts->most_bytes + 7) / 8 * 8,
                              .err = err};

            p.lane[0].pair = &ret[a * n + b];
            p.lane[1].pair = &ret[b * n + a];
            status = try_pair (&p, a, b);
            lane_close (&p, &p.lane[0]);
            lane_close (&p, &p.lane[1]);
        }
    return status;
}

void probe_text (const struct probe_pair *pair, int dst, int src, char *text,
                 size_t size)
{
    static const char *const way[PROBE_WAYS] = {
        "the driver's own way", "peer access", "a kernel that reads the other"};

    text[0] = '\0';
    if (pair->verdict == PROBE_WRONG)
        snprintf (text, size,
                  "GPU %d to GPU %d, %s: %llu bytes were wrong at offset %llu: "
                  "expected %08x, got %08x; copies go through the host",
                  src, dst, way[pair->way], (unsigned long long)pair->bytes,
                  (unsigned long long)pair->offset, pair->expected, pair->got);
    else if (pair->verdict == PROBE_SLOW)
        snprintf (text, size,
                  "GPU %d to GPU %d: peer copies give %.1f GB/s, through the "
                  "host %.1f; copies go through the host",
                  src, dst, pair->peer_gb_s, pair->staged_gb_s);
    else if (pair->verdict == PROBE_NO_WAY)
        snprintf (text, size,
                  "GPU %d to GPU %d: no peer access; copies go through the "
                  "host",
                  src, dst);
    else if (pair->verdict == PROBE_UNKNOWN)
        snprintf (text, size, "GPU %d to GPU %d: not tried", src, dst);
}
