/* SPDX-License-Identifier: Apache-2.0
 * exchange_join.c - the other ranks' side: find rank 0, send, receive */
#include "config.h"

#include <arpa/inet.h>
#include <errno.h>
#include <netdb.h>
#include <netinet/in.h>
#include <netinet/tcp.h>
#include <poll.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/socket.h>
#include <unistd.h>

#include "job/exchange.h"

#define LOOKUP_MS    5000
#define TRY_MS       300  /* the first round; doubled up to TRY_MAX_MS */
#define TRY_MAX_MS   3000 /* a busy rank 0 answers late, a squatter never */
#define PAUSE_MAX_MS 400
#define VERDICT_MS   1000 /* past the deadline: rank 0 alone knows who is late */

/* Wait for [events] until [end_ms]; false at the deadline. */
static bool ready (int fd, short events, int64_t end_ms)
{
    struct pollfd p = {.fd = fd, .events = events};

    for (;;) {
        int64_t left = end_ms - job_now_ms ();
        int rc;

        if (left <= 0)
            return false;
        rc = poll (&p, 1, left > 1000 ? 1000 : (int)left);
        if (rc > 0)
            return true;
        if (rc < 0 && errno != EINTR)
            return false;
    }
}

/* RV_JOB_EPEER when the other side closed, RV_JOB_ETIMEDOUT. */
static rv_job_status_t read_all (int fd, void *buf, size_t len, int64_t end_ms)
{
    for (size_t at = 0; at < len;) {
        ssize_t n;

        if (!ready (fd, POLLIN, end_ms))
            return RV_JOB_ETIMEDOUT;
        n = recv (fd, (char *)buf + at, len - at, MSG_DONTWAIT);
        if (n == 0 || (n < 0 && errno != EAGAIN && errno != EINTR))
            return RV_JOB_EPEER;
        if (n > 0)
            at += (size_t)n;
    }
    return RV_JOB_OK;
}

static rv_job_status_t write_all (int fd, const void *buf, size_t len,
                                  int64_t end_ms)
{
    for (size_t at = 0; at < len;) {
        ssize_t n = send (fd, (const char *)buf + at, len - at,
                          MSG_NOSIGNAL | MSG_DONTWAIT);

        if (n < 0 && errno != EAGAIN && errno != EINTR)
            return RV_JOB_EPEER;
        if (n > 0)
            at += (size_t)n;
        else if (!ready (fd, POLLOUT, end_ms))
            return RV_JOB_ETIMEDOUT;
    }
    return RV_JOB_OK;
}

/* Connect and agree on the token; -1 when this is not our rank 0. */
static int try_address (const struct exchange *x, const struct addrinfo *ai,
                        int64_t end_ms)
{
    unsigned char hello[EXCHANGE_HELLO] = "rvx1", answer[EXCHANGE_WELCOME];
    int fd =
        socket (ai->ai_family, SOCK_STREAM | SOCK_CLOEXEC | SOCK_NONBLOCK, 0);
    int failed = 0, on = 1;
    socklen_t len = sizeof (failed);

    if (fd < 0)
        return -1;
    setsockopt (fd, IPPROTO_TCP, TCP_NODELAY, &on, sizeof (on));
    if (connect (fd, ai->ai_addr, ai->ai_addrlen)
        && (errno != EINPROGRESS || !ready (fd, POLLOUT, end_ms)
            || getsockopt (fd, SOL_SOCKET, SO_ERROR, &failed, &len) || failed))
        goto fail;
    exchange_put64 (hello + 4, x->o.token);
    exchange_put32 (hello + 12, x->o.rank);
    exchange_put32 (hello + 16, x->o.size);
    if (write_all (fd, hello, sizeof (hello), end_ms)
        || read_all (fd, answer, sizeof (answer), end_ms)
        || memcmp (answer, "rvx1", 4)
        || exchange_get64 (answer + 4) != ~x->o.token)
        goto fail;
    return fd;
fail:
    close (fd);
    return -1;
}

static void set_port (struct addrinfo *ai, uint16_t port)
{
    if (ai->ai_family == AF_INET6)
        ((struct sockaddr_in6 *)(void *)ai->ai_addr)->sin6_port = htons (port);
    else
        ((struct sockaddr_in *)(void *)ai->ai_addr)->sin_port = htons (port);
}

/* All addresses of one name on all ports. */
static int try_name (const struct exchange *x, struct addrinfo *all, int try_ms,
                     int64_t end_ms)
{
    for (size_t i = 0; i < EXCHANGE_PORTS; i++)
        for (struct addrinfo *ai = all; ai; ai = ai->ai_next) {
            int64_t until = job_now_ms () + try_ms;
            int fd;

            if (ai->ai_family != AF_INET && ai->ai_family != AF_INET6)
                continue;
            set_port (ai, x->o.port[i]);
            fd = try_address (x, ai, until < end_ms ? until : end_ms);
            if (fd >= 0)
                return fd;
        }
    return -1;
}

struct lookup {
    char *name;
    struct addrinfo *ai;
};

static int do_lookup (void *arg)
{
    struct lookup *l = arg;
    struct addrinfo hints = {.ai_socktype = SOCK_STREAM,
                             .ai_flags = AI_NUMERICSERV};

    return getaddrinfo (l->name, "1", &hints, &l->ai);
}

static void lookup_undo (void *arg, int result)
{
    struct lookup *l = arg;

    if (!result)
        freeaddrinfo (l->ai);
    free (l->name);
    free (l);
}

/* A resolver may wait for dead servers far longer than we do. */
static struct addrinfo *look_up (const char *name, int64_t end_ms)
{
    struct lookup *l = calloc (1, sizeof (*l));
    struct addrinfo *ai = NULL;
    int64_t until = job_now_ms () + LOOKUP_MS;
    int rc = 0;

    if (!l || !(l->name = strdup (name))) {
        free (l);
        return NULL;
    }
    switch (deadline_call (do_lookup, lookup_undo, l,
                           until < end_ms ? until : end_ms, &rc)) {
    case RV_JOB_OK:
        if (!rc)
            ai = l->ai;
        break;
    case RV_JOB_ETIMEDOUT:
        return NULL; /* the thread owns l */
    default:
        break;
    }
    free (l->name);
    free (l);
    return ai;
}

static struct addrinfo *numeric (const char *text)
{
    struct addrinfo hints = {.ai_socktype = SOCK_STREAM,
                             .ai_flags = AI_NUMERICHOST | AI_NUMERICSERV};
    struct addrinfo *ai = NULL;

    return getaddrinfo (text, "1", &hints, &ai) ? NULL : ai;
}

static int find_rank0 (const struct exchange *x, int64_t end_ms)
{
    struct addrinfo *name[sizeof (x->quick) / sizeof (x->quick[0])] = {NULL};
    const size_t max = sizeof (name) / sizeof (name[0]);
    int fd = -1, try_ms = TRY_MS, pause_ms = 10;
    size_t n = 0;

    for (size_t i = 0; i + 1 < max && x->quick[i]; i++)
        if ((name[n] = numeric (x->quick[i])))
            n++;
    for (unsigned round = 0; fd < 0 && job_now_ms () < end_ms; round++) {
        for (size_t i = 0; i < n && fd < 0; i++)
            fd = try_name (x, name[i], try_ms, end_ms);
        if (fd >= 0)
            break;
        if (round == 0 && x->lookup && (name[n] = look_up (x->lookup, end_ms)))
            n++;
        poll (NULL, 0, pause_ms);
        pause_ms = pause_ms * 2 < PAUSE_MAX_MS ? pause_ms * 2 : PAUSE_MAX_MS;
        try_ms = try_ms * 2 < TRY_MAX_MS ? try_ms * 2 : TRY_MAX_MS;
    }
    for (size_t i = 0; i < n; i++)
        freeaddrinfo (name[i]);
    return fd;
}

/* One frame; its payload is malloc'ed. */
static rv_job_status_t read_frame (int fd, uint32_t epoch, int64_t end_ms,
                                   uint32_t *ret_status, unsigned char **ret,
                                   size_t *ret_len)
{
    unsigned char head[EXCHANGE_HEAD], *payload;
    rv_job_status_t status = read_all (fd, head, sizeof (head), end_ms);
    uint32_t len;

    if (status)
        return status;
    len = exchange_get32 (head + 12);
    if (memcmp (head, "rvxf", 4) || exchange_get32 (head + 8) != epoch
        || len > EXCHANGE_TOTAL)
        return RV_JOB_EFORMAT;
    if (!(payload = malloc ((size_t)len + 1)))
        return RV_JOB_ENOMEM;
    if ((status = read_all (fd, payload, len, end_ms))) {
        free (payload);
        return status;
    }
    payload[len] = '\0';
    *ret_status = exchange_get32 (head + 4);
    *ret = payload;
    *ret_len = len;
    return RV_JOB_OK;
}

static rv_job_status_t join_error (rv_job_status_t status, rv_job_error_t *err)
{
    const char *what = status == RV_JOB_ETIMEDOUT ? "rank 0 did not answer in "
                                                    "time"
                       : status == RV_JOB_EPEER   ? "rank 0 left during the "
                                                    "exchange"
                       : status == RV_JOB_ENOMEM  ? "out of memory"
                                                  : "rank 0 sent nonsense";

    return job_error (err, status, "%s", what);
}

rv_job_status_t exchange_join (struct exchange *x, uint32_t epoch,
                               const void *blob, size_t len, int64_t end_ms,
                               unsigned char **ret_all, size_t *ret_len,
                               rv_job_error_t *err)
{
    unsigned char head[EXCHANGE_HEAD];
    uint32_t said = 0;
    rv_job_status_t status;

    if (x->fd < 0 && (x->fd = find_rank0 (x, end_ms)) < 0)
        return job_error (err, RV_JOB_ETIMEDOUT,
                          "rank 0 was not found on ports from %u on",
                          x->o.port[0]);
    exchange_head (head, 0, epoch, (uint32_t)len);
    if ((status = write_all (x->fd, head, sizeof (head), end_ms))
        || (status = write_all (x->fd, blob, len, end_ms))
        || (status = read_frame (x->fd, epoch, end_ms + VERDICT_MS, &said,
                                 ret_all, ret_len)))
        return join_error (status, err);
    if (said) {
        status =
            job_error (err, said < 64 ? (rv_job_status_t)said : RV_JOB_EPEER,
                       "rank 0 says: %s", (char *)*ret_all);
        free (*ret_all);
        return status;
    }
    return RV_JOB_OK;
}
