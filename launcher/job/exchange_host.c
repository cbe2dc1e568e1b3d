/* SPDX-License-Identifier: Apache-2.0
 * exchange_host.c - rank 0's side: listen, gather all blobs, hand them out */
#include "config.h"

#include <arpa/inet.h>
#include <errno.h>
#include <fcntl.h>
#include <netinet/in.h>
#include <netinet/tcp.h>
#include <poll.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/socket.h>
#include <unistd.h>

#include "job/exchange.h"

#define STRAYS_MAX 128 /* connections that have not said who they are */
#define DEAF_MS    100 /* without a file descriptor for who knocks */

static int listen_on (uint16_t port, bool local, int family)
{
    struct sockaddr_in6 v6 = {.sin6_family = AF_INET6,
                              .sin6_addr = IN6ADDR_ANY_INIT,
                              .sin6_port = htons (port)};
    struct sockaddr_in v4 = {.sin_family = AF_INET, .sin_port = htons (port)};
    const struct sockaddr *sa =
        family == AF_INET6 ? (struct sockaddr *)&v6 : (struct sockaddr *)&v4;
    int fd = socket (family, SOCK_STREAM | SOCK_CLOEXEC | SOCK_NONBLOCK, 0);
    int on = 1, off = 0;

    if (fd < 0)
        return -1;
    v4.sin_addr.s_addr = htonl (local ? INADDR_LOOPBACK : INADDR_ANY);
    if (setsockopt (fd, SOL_SOCKET, SO_REUSEADDR, &on, sizeof (on))
        || (family == AF_INET6
            && setsockopt (fd, IPPROTO_IPV6, IPV6_V6ONLY, &off, sizeof (off)))
        || bind (fd, sa, family == AF_INET6 ? sizeof (v6) : sizeof (v4))
        || listen (fd, SOMAXCONN)) {
        close (fd);
        return -1;
    }
    return fd;
}

static rv_job_status_t open_listener (struct exchange *x, rv_job_error_t *err)
{
    for (size_t i = 0; i < EXCHANGE_PORTS && x->listen_fd < 0; i++) {
        if (!x->o.local)
            x->listen_fd = listen_on (x->o.port[i], false, AF_INET6);
        if (x->listen_fd < 0)
            x->listen_fd = listen_on (x->o.port[i], x->o.local, AF_INET);
    }
    if (x->listen_fd < 0)
        return job_error (err, RV_JOB_EIO,
                          "none of %d ports from %u on is free: %s; --mpi=pmix "
                          "needs none",
                          EXCHANGE_PORTS, x->o.port[0], strerror (errno));
    return RV_JOB_OK;
}

static void drop (struct exchange *x, size_t i)
{
    close (x->peer[i].fd);
    free (x->peer[i].buf);
    x->peer[i] = x->peer[--x->n_peers];
}

static size_t n_known (const struct exchange *x)
{
    size_t n = 0;

    for (size_t i = 0; i < x->n_peers; i++)
        n += x->peer[i].known;
    return n;
}

static void take_connection (struct exchange *x)
{
    int fd = accept4 (x->listen_fd, NULL, NULL, SOCK_CLOEXEC | SOCK_NONBLOCK);
    struct exchange_peer *grown;
    int on = 1;

    if (fd < 0) {
        /* They wait in the kernel's queue; poll would find the listener ready
         * at once, and each time. */
        if (errno == EMFILE || errno == ENFILE || errno == ENOBUFS
            || errno == ENOMEM) {
            x->deaf_errno = errno;
            x->deaf_until_ms = job_now_ms () + DEAF_MS;
        }
        return;
    }
    x->deaf_errno = 0;
    grown = x->n_peers < n_known (x) + STRAYS_MAX
                ? realloc (x->peer, (x->n_peers + 1) * sizeof (*grown))
                : NULL;
    if (!grown) {
        close (fd);
        return;
    }
    setsockopt (fd, IPPROTO_TCP, TCP_NODELAY, &on, sizeof (on));
    x->peer = grown;
    x->peer[x->n_peers++] = (struct exchange_peer){.fd = fd};
}

static bool came (const struct exchange *x, uint32_t rank)
{
    for (size_t i = 0; i < x->n_peers; i++)
        if (x->peer[i].done && x->peer[i].rank == rank)
            return true;
    return false;
}

/* A good hello makes the connection that rank's; an older one of the same rank
 * gave up waiting and is dropped (by serve). */
static bool take_hello (struct exchange *x, struct exchange_peer *p)
{
    unsigned char answer[EXCHANGE_WELCOME] = "rvx1";
    uint32_t rank = exchange_get32 (p->buf + 12);

    if (memcmp (p->buf, "rvx1", 4) || exchange_get64 (p->buf + 4) != x->o.token
        || rank == 0 || rank >= x->o.size
        || exchange_get32 (p->buf + 16) != x->o.size || came (x, rank))
        return false;
    exchange_put64 (answer + 4, ~x->o.token);
    if (send (p->fd, answer, sizeof (answer), MSG_NOSIGNAL)
        != (ssize_t)sizeof (answer))
        return false;
    p->known = true;
    p->rank = rank;
    p->have = 0;
    return true;
}

static bool grow (struct exchange_peer *p, size_t cap)
{
    unsigned char *grown;

    if (p->cap >= cap)
        return true;
    if (!(grown = realloc (p->buf, cap)))
        return false;
    p->buf = grown;
    p->cap = cap;
    return true;
}

/* How many bytes the message that is being read has, as far as is known;
 * 0 when it is malformed. */
static size_t wanted (const struct exchange_peer *p, uint32_t epoch)
{
    if (!p->known)
        return EXCHANGE_HELLO;
    if (p->have < EXCHANGE_HEAD)
        return EXCHANGE_HEAD;
    if (memcmp (p->buf, "rvxf", 4) || exchange_get32 (p->buf + 8) != epoch
        || exchange_get32 (p->buf + 12) > JOB_BLOB_MAX)
        return 0;
    return EXCHANGE_HEAD + exchange_get32 (p->buf + 12);
}

/* Read what is there. False when the connection is to be dropped. */
static bool take_bytes (struct exchange *x, struct exchange_peer *p,
                        uint32_t epoch)
{
    for (;;) {
        size_t want = wanted (p, epoch);
        ssize_t n;

        if (!want || !grow (p, want))
            return false;
        if (p->have == want) {
            if (p->known) {
                p->done = true;
                return true;
            }
            if (!take_hello (x, p))
                return false;
            continue;
        }
        n = recv (p->fd, p->buf + p->have, want - p->have, 0);
        if (n < 0 && (errno == EAGAIN || errno == EINTR))
            return true;
        if (n <= 0)
            return false;
        p->have += (size_t)n;
    }
}

static size_t n_done (const struct exchange *x)
{
    size_t n = 0;

    for (size_t i = 0; i < x->n_peers; i++)
        n += x->peer[i].done;
    return n;
}

static rv_job_status_t late (const struct exchange *x, rv_job_error_t *err)
{
    char names[96] = "";
    size_t at = 0, n = 0;

    for (uint32_t r = 1; r < x->o.size; r++)
        if (!came (x, r) && n++ < 8)
            at += (size_t)snprintf (names + at, sizeof (names) - at, "%s%u",
                                    at ? ", " : "", r);
    if (x->deaf_errno)
        return job_error (err, RV_JOB_ETIMEDOUT,
                          "rank 0 could not take the connections of %zu of %u "
                          "ranks: %s; it needs a limit of open files (ulimit "
                          "-n) above the number of ranks, --mpi=pmix does not",
                          n, x->o.size, strerror (x->deaf_errno));
    return job_error (err, RV_JOB_ETIMEDOUT,
                      "%zu of %u ranks did not come in time: %s%s", n,
                      x->o.size, names, n > 8 ? ", ..." : "");
}

/* Returns how long to wait at most. */
static int poll_fill (const struct exchange *x, struct pollfd *p,
                      int64_t left_ms)
{
    int64_t deaf_ms = x->deaf_until_ms - job_now_ms ();
    bool deaf = x->listen_fd >= 0 && deaf_ms > 0;

    p[0] = (struct pollfd){.fd = deaf ? -1 : x->listen_fd, .events = POLLIN};
    for (size_t i = 0; i < x->n_peers; i++)
        p[i + 1] = (struct pollfd){.fd = x->peer[i].fd, .events = POLLIN};
    if (deaf && deaf_ms < left_ms)
        return (int)deaf_ms;
    return left_ms > 1000 ? 1000 : (int)left_ms;
}

/* A connection spoke or closed. From the end backwards: drop moves the last
 * one, which was looked at already. */
static rv_job_status_t serve (struct exchange *x, const struct pollfd *p,
                              size_t n, uint32_t epoch, rv_job_error_t *err)
{
    for (size_t i = n; i-- > 0;) {
        struct exchange_peer *q = &x->peer[i];
        bool was_known = q->known, left = q->done || (q->known && epoch > 0);
        uint32_t rank = q->rank;

        if (!p[i + 1].revents)
            continue;
        /* A rank is silent between its frame and the answer: it left. */
        if (!q->done && take_bytes (x, q, epoch)) {
            if (q->known && !was_known)
                for (size_t k = x->n_peers; k-- > 0;)
                    if (k != i && x->peer[k].known
                        && x->peer[k].rank == q->rank) {
                        drop (x, k);
                        return RV_JOB_OK; /* indices moved: poll again */
                    }
            continue;
        }
        drop (x, i);
        /* Before its first frame a rank may give this connection up and come
         * again. */
        if (left)
            return job_error (err, RV_JOB_EPEER,
                              "rank %u left during the exchange", rank);
    }
    return RV_JOB_OK;
}

static rv_job_status_t gather (struct exchange *x, uint32_t epoch,
                               int64_t end_ms, rv_job_error_t *err)
{
    struct pollfd *p = NULL, *grown;
    rv_job_status_t status = RV_JOB_OK;

    while (!status && n_done (x) + 1 < x->o.size) {
        int64_t left = end_ms - job_now_ms ();
        size_t n = x->n_peers;
        int rc;

        if (left <= 0) {
            status = late (x, err);
            break;
        }
        if (!(grown = realloc (p, (n + 1) * sizeof (*p)))) {
            status = job_error (err, RV_JOB_ENOMEM, "out of memory");
            break;
        }
        p = grown;
        rc = poll (p, n + 1, poll_fill (x, p, left));
        if (rc > 0 && n)
            status = serve (x, p, n, epoch, err);
        if (rc > 0 && !status && p[0].revents && x->listen_fd >= 0)
            take_connection (x);
    }
    free (p);
    return status;
}

/* All blobs in rank order behind a frame head. */
static unsigned char *assemble (const struct exchange *x, uint32_t epoch,
                                const void *blob, size_t len, size_t *ret_len)
{
    const unsigned char **of = calloc (x->o.size, sizeof (*of));
    size_t total = EXCHANGE_HEAD + 4 + len;
    unsigned char *all = NULL, *to;

    for (size_t i = 0; of && i < x->n_peers; i++)
        if (x->peer[i].done) {
            of[x->peer[i].rank] = x->peer[i].buf + 12;
            total += x->peer[i].have - 12;
        }
    if (of && total < EXCHANGE_TOTAL && (all = malloc (total))) {
        exchange_head (all, 0, epoch, (uint32_t)(total - EXCHANGE_HEAD));
        exchange_put32 (all + EXCHANGE_HEAD, (uint32_t)len);
        to = all + EXCHANGE_HEAD + 4;
        if (len)
            memcpy (to, blob, len);
        to += len;
        for (uint32_t r = 1; r < x->o.size; r++) {
            size_t n = 4 + exchange_get32 (of[r]);

            memcpy (to, of[r], n);
            to += n;
        }
        *ret_len = total;
    }
    free (of);
    return all;
}

static rv_job_status_t hand_out (struct exchange *x, const unsigned char *all,
                                 size_t len, int64_t end_ms,
                                 rv_job_error_t *err)
{
    for (size_t i = 0; i < x->n_peers; i++) {
        struct exchange_peer *p = &x->peer[i];

        while (p->known && p->sent < len) {
            ssize_t n = send (p->fd, all + p->sent, len - p->sent,
                              MSG_NOSIGNAL | MSG_DONTWAIT);
            int64_t left = end_ms - job_now_ms ();

            if (n > 0)
                p->sent += (size_t)n;
            else if (n < 0 && errno == EAGAIN && left > 0)
                poll (&(struct pollfd){.fd = p->fd, .events = POLLOUT}, 1,
                      left > 1000 ? 1000 : (int)left);
            else if (n < 0 && errno != EINTR)
                return job_error (err,
                                  left > 0 ? RV_JOB_EPEER : RV_JOB_ETIMEDOUT,
                                  "rank %u does not take the values: %s",
                                  p->rank, strerror (errno));
        }
        p->sent = p->have = 0;
        p->done = false;
    }
    return RV_JOB_OK;
}

/* The others shall know why: rank 0 alone sees who is missing. */
static void hand_out_error (struct exchange *x, uint32_t epoch,
                            const rv_job_error_t *why)
{
    unsigned char frame[EXCHANGE_HEAD + sizeof (why->text)];
    size_t n = strlen (why->text);

    exchange_head (frame, (uint32_t)why->code, epoch, (uint32_t)n);
    memcpy (frame + EXCHANGE_HEAD, why->text, n);
    for (size_t i = 0; i < x->n_peers; i++)
        if (x->peer[i].known
            && send (x->peer[i].fd, frame, EXCHANGE_HEAD + n,
                     MSG_NOSIGNAL | MSG_DONTWAIT)
                   < 0)
            continue;
}

rv_job_status_t exchange_host (struct exchange *x, uint32_t epoch,
                               const void *blob, size_t len, int64_t end_ms,
                               unsigned char **ret_all, size_t *ret_len,
                               rv_job_error_t *err)
{
    rv_job_error_t why = {0};
    unsigned char *all = NULL;
    size_t all_len = 0;
    rv_job_status_t status = RV_JOB_OK;

    if (epoch == 0)
        status = open_listener (x, &why);
    if (!status)
        status = gather (x, epoch, end_ms, &why);
    if (!status && x->listen_fd >= 0) {
        close (x->listen_fd);
        x->listen_fd = -1;
    }
    if (!status && !(all = assemble (x, epoch, blob, len, &all_len)))
        status = job_error (&why, RV_JOB_ENOMEM,
                            "no memory for the values of %u ranks", x->o.size);
    if (!status)
        status = hand_out (x, all, all_len, end_ms, &why);
    if (status) {
        hand_out_error (x, epoch, &why);
        free (all);
        return job_error (err, status, "%s", why.text);
    }
    memmove (all, all + EXCHANGE_HEAD, all_len - EXCHANGE_HEAD);
    *ret_all = all;
    *ret_len = all_len - EXCHANGE_HEAD;
    return RV_JOB_OK;
}
