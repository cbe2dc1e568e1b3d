/* SPDX-License-Identifier: Apache-2.0
 * host_net.c - what the leaders of the nodes send each other
 *
 * One connection a pair, non-blocking, with a queue of frames whose data lies
 * in the segment. A connection that ends is remembered, not an error: it is
 * one only for who still needs something from there (comm_host.c). */
#include "config.h"

#include "host.h"

#include <assert.h>
#include <errno.h>
#include <poll.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/uio.h>
#include <unistd.h>

#include "err.h"
#include "sock.h"

#define FAIL_MS   1000 /* to say that it failed */
#define LINGER_MS 500  /* for others to hear it */
#define MAX_READS 64   /* from one peer in a row */
#define MAX_IOV   16

void net_put (struct peer *peer, const struct host *host, struct frame head,
              const void *data)
{
    struct out_frame *f = &peer->queue[peer->tail % host->queue_max];

    if (peer->fd < 0)
        return;
    assert (peer->tail - peer->head < host->queue_max);
    f->head = head;
    f->data = data;
    peer->tail++;
}

static void lose (struct peer *peer)
{
    sock_close (&peer->fd);
    peer->gone = true;
}

/* What is left of the queue, as pieces for one call of the kernel. */
static int gather (const struct host *host, const struct peer *peer,
                   struct iovec *iov)
{
    size_t skip = peer->sent;
    int n = 0;

    for (unsigned i = peer->head; i != peer->tail && n + 2 <= MAX_IOV; i++) {
        struct out_frame *f = &peer->queue[i % host->queue_max];
        size_t head = sizeof (f->head);

        if (skip < head)
            iov[n++] = (struct iovec){(char *)&f->head + skip, head - skip};
        skip = skip > head ? skip - head : 0;
        if (f->head.len > skip)
            iov[n++] =
                (struct iovec){(char *)f->data + skip, f->head.len - skip};
        skip = 0;
    }
    return n;
}

static void count_sent (const struct host *host, struct peer *peer, size_t n)
{
    n += peer->sent;
    while (peer->head != peer->tail) {
        const struct out_frame *f = &peer->queue[peer->head % host->queue_max];
        size_t whole = sizeof (f->head) + f->head.len;

        if (n < whole)
            break;
        n -= whole;
        peer->head++;
    }
    peer->sent = n;
}

/* Whether something went; [ret_heard]: does it take what it is sent? */
static bool send_some (const struct host *host, struct peer *peer,
                       bool *ret_heard)
{
    bool moved = false;

    *ret_heard = true;
    while (peer->fd >= 0 && peer->head != peer->tail) {
        const struct out_frame *f = &peer->queue[peer->head % host->queue_max];
        bool here = f->head.type == FRAME_HERE;
        struct iovec iov[MAX_IOV];
        struct msghdr msg = {.msg_iov = iov};
        ssize_t n;

        msg.msg_iovlen = (size_t)gather (host, peer, iov);
        n = sendmsg (peer->fd, &msg, MSG_NOSIGNAL);
        if (n < 0 && errno == EINTR)
            continue;
        if (n < 0) {
            *ret_heard = errno == EAGAIN;
            break;
        }
        count_sent (host, peer, (size_t)n);
        moved |= !here;
    }
    return moved;
}

/* Failures and goodbyes are understood here, the rest by comm_host.c. */
static bool place (struct host *host, int node, struct peer *peer)
{
    if (!net_is_word (peer->in.type))
        return host_place (host, node, &peer->in, &peer->to);
    peer->to = peer->text;
    return peer->in.len < sizeof (peer->text);
}

bool net_take_word (struct host *host, int node, const struct frame *f,
                    const char *text)
{
    struct peer *peer = &host->peers[node];
    char why[sizeof (peer->text)];

    switch (f->type) {
    case FRAME_FAIL:
        snprintf (why, sizeof (why), "%.*s", (int)f->len, text);
        peer->told = true; /* it knows */
        seg_fail (&host->seg, f->a, (train_status_t)f->hop, why);
        return true;
    case FRAME_LEAVE:
        peer->left = true;
        peer->left_seq = f->a;
        return true;
    case FRAME_HERE:
        peer->here = f->a;
        peer->mark = f->hop;
        peer->mark_rank = (int)f->rank;
        return f->rank < (uint32_t)host->size;
    case FRAME_TAKEN:
        return true;
    default:
        return host_arrived (host, node, f, text);
    }
}

/* One read into head or data. 1 progress, 0 nothing now, -1 wrong frame. */
static int receive_once (struct host *host, int node, struct peer *peer)
{
    size_t head = sizeof (peer->in), want;
    ssize_t n;
    char *at;

    if (peer->got >= head && !peer->to) {
        if (!place (host, node, peer))
            return -1;
        if (!peer->to)
            return 0;
    }
    want =
        peer->got < head ? head - peer->got : head + peer->in.len - peer->got;
    at = peer->got < head ? (char *)&peer->in + peer->got
                          : peer->to + (peer->got - head);
    n = want ? ahead_recv (peer, at, want) : 0;
    if (want && n <= 0) {
        if (n == 0 || (errno != EAGAIN && errno != EINTR))
            lose (peer);
        return 0;
    }
    peer->got += (size_t)n;
    if (peer->got < head || peer->got < head + peer->in.len || !peer->to)
        return 1;
    if (!net_take_word (host, node, &peer->in, peer->to))
        return -1;
    peer->got = 0;
    peer->to = NULL;
    return 1;
}

static void say_wrong (struct host *host, int node)
{
    train_error_t err;

    err_set (&err, TRAIN_EFORMAT,
             "group '%s': rank %d sent something that is not understood",
             host->name, host->leader_of[node]);
    seg_fail (&host->seg, host->run.call.seq, err.code, err.text);
    lose (&host->peers[node]);
}

static bool receive_some (struct host *host, int node)
{
    struct peer *peer = &host->peers[node];
    bool moved = false;
    int rc = 1;

    for (int i = 0; peer->fd >= 0 && rc > 0 && i < MAX_READS; i++) {
        rc = receive_once (host, node, peer);
        moved |= rc > 0 && peer->in.type != FRAME_HERE;
    }
    if (rc < 0)
        say_wrong (host, node);
    return moved;
}

/* A leader that takes nothing any more has gone; what it said before, maybe
 * that it leaves, lies here still. */
static void hear_out (struct host *host, int node)
{
    struct peer *peer = &host->peers[node];
    int rc = 1;

    while (peer->fd >= 0 && rc > 0)
        rc = receive_once (host, node, peer);
    if (rc < 0)
        say_wrong (host, node);
    else if (peer->fd >= 0)
        lose (peer);
}

bool net_move (struct host *host)
{
    bool moved = false;

    for (int n = 0; n < host->nodes; n++) {
        bool heard;

        if (host->peers[n].fd < 0)
            continue;
        moved |= send_some (host, &host->peers[n], &heard);
        if (heard)
            moved |= receive_some (host, n);
        else
            hear_out (host, n);
    }
    return moved;
}

bool net_idle (const struct host *host)
{
    for (int n = 0; n < host->nodes; n++) {
        if (host->peers[n].head != host->peers[n].tail)
            return false;
    }
    return true;
}

uint64_t net_results_sent (const struct host *host, uint64_t queued)
{
    for (int n = 0; n < host->nodes; n++) {
        const struct peer *peer = &host->peers[n];

        for (unsigned i = peer->head; i != peer->tail; i++) {
            const struct out_frame *f = &peer->queue[i % host->queue_max];

            if (f->head.type == FRAME_RES && f->head.a < queued)
                queued = f->head.a;
        }
    }
    return queued;
}

/* A frame without a place is not read, so its connection must not wake us. */
static short events_of (const struct peer *peer)
{
    bool stuck = peer->got >= sizeof (peer->in) && !peer->to;

    return (short)((stuck ? 0 : POLLIN)
                   | (peer->head != peer->tail ? POLLOUT : 0));
}

void net_wait (struct host *host, uint32_t event)
{
    struct seg_head *head = host->seg.head;
    char drain[64];

    for (int n = 0; n < host->nodes; n++)
        host->polls[n] =
            (struct pollfd){host->peers[n].fd, events_of (&host->peers[n]), 0};
    host->polls[host->nodes] = (struct pollfd){host->seg.bell, POLLIN, 0};
    atomic_store (&head->leader_polls, 1);
    if (atomic_load (&head->event) == event)
        poll (host->polls, (nfds_t)host->nodes + 1, HOST_SLICE_MS);
    atomic_store (&head->leader_polls, 0);
    while (read (host->seg.bell, drain, sizeof (drain))
           == (ssize_t)sizeof (drain))
        ;
}

/* Send what is queued, for a short while: the group ends anyway. */
static void flush (struct host *host)
{
    int64_t until_ms = clock_ms () + FAIL_MS;

    while (clock_left (until_ms, 1) > 0) {
        bool waits = false;

        for (int n = 0; n < host->nodes; n++) {
            struct peer *peer = &host->peers[n];
            bool heard;

            send_some (host, peer, &heard);
            if (!heard)
                lose (peer);
            waits |= peer->fd >= 0 && peer->head != peer->tail;
            host->polls[n] = (struct pollfd){
                peer->head != peer->tail ? peer->fd : -1, POLLOUT, 0};
        }
        if (!waits)
            return;
        poll (host->polls, (nfds_t)host->nodes, clock_left (until_ms, 100));
    }
}

/* Data that waits behind a failure helps nobody: keep the frame that is half
 * out, drop the rest. */
static void drop_queue (const struct host *host, struct peer *peer)
{
    const struct out_frame *f = &peer->queue[peer->head % host->queue_max];

    if (peer->head != peer->tail && f->head.type != FRAME_CALL)
        peer->tail = peer->head + (peer->sent > 0);
}

void net_tell_failure (struct host *host)
{
    struct frame f = {.type = FRAME_FAIL};
    train_error_t *why = &host->telling;
    bool any = false;

    /* Another rank may have been first, and not have written all of it yet. What
     * is queued keeps its text. */
    if (why->code == TRAIN_OK
        && seg_failure (&host->seg, UINT64_MAX, why) == TRAIN_OK)
        return;
    f.len = (uint32_t)strlen (why->text);
    f.hop = (uint32_t)why->code;
    f.a = host->seg.head->failed_seq;
    for (int n = 0; n < host->nodes; n++) {
        struct peer *peer = &host->peers[n];

        if (peer->fd < 0 || peer->told)
            continue;
        peer->told = true;
        drop_queue (host, peer);
        net_put (peer, host, f, why->text);
        any = true;
    }
    if (any)
        flush (host);
}

/* Take what still comes: closing a connection with bytes that nobody has read
 * also takes back those that the other side has not (RFC 2525, 2.17), here the
 * failure or the goodbye. Who is told of a failure closes soon, others go on:
 * nothing is waited for then. */
static void linger (struct host *host, int wait_ms)
{
    int64_t until_ms = clock_ms () + wait_ms;
    char drain[4096];
    int open;

    for (int n = 0; n < host->nodes; n++) {
        if (host->peers[n].fd >= 0)
            shutdown (host->peers[n].fd, SHUT_WR);
    }
    do {
        open = 0;
        for (int n = 0; n < host->nodes; n++) {
            struct peer *peer = &host->peers[n];
            ssize_t got = 1;

            while (peer->fd >= 0 && got > 0)
                got = recv (peer->fd, drain, sizeof (drain), 0);
            if (peer->fd >= 0 && (got == 0 || errno != EAGAIN))
                lose (peer);
            open += peer->fd >= 0;
            host->polls[n] = (struct pollfd){peer->fd, POLLIN, 0};
        }
        if (open > 0 && clock_left (until_ms, 1) > 0)
            poll (host->polls, (nfds_t)host->nodes, clock_left (until_ms, 50));
    } while (open > 0 && clock_left (until_ms, 1) > 0);
}

void net_fini (struct host *host, uint64_t done_seq)
{
    bool failed = host->seg.head
                  && seg_failure (&host->seg, UINT64_MAX, NULL) != TRAIN_OK;
    struct frame f = {.type = FRAME_LEAVE, .a = done_seq};

    if (!host->peers)
        return;
    if (failed)
        net_tell_failure (host);
    for (int n = 0; n < host->nodes && host->seg.head; n++)
        net_put (&host->peers[n], host, f, NULL);
    if (host->polls && host->seg.head)
        flush (host);
    if (host->polls && host->seg.head)
        linger (host, failed ? LINGER_MS : 0);
    for (int n = 0; n < host->nodes; n++) {
        sock_close (&host->peers[n].fd);
        free (host->peers[n].queue);
        free (host->peers[n].ahead);
    }
    free (host->peers);
    free (host->polls);
}
