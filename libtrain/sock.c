/* SPDX-License-Identifier: Apache-2.0
 * sock.c - TCP with deadlines */
#include "config.h"

#include "sock.h"

#include <errno.h>
#include <netdb.h>
#include <netinet/in.h>
#include <netinet/tcp.h>
#include <poll.h>
#include <stdio.h>
#include <string.h>
#include <time.h>
#include <unistd.h>

#include "err.h"

#define SHORT_MS 50

int64_t clock_ms (void)
{
    struct timespec now;

    clock_gettime (CLOCK_MONOTONIC, &now);
    return (int64_t)now.tv_sec * 1000 + now.tv_nsec / 1000000;
}

double clock_s (void)
{
    struct timespec now;

    clock_gettime (CLOCK_MONOTONIC, &now);
    return (double)now.tv_sec + (double)now.tv_nsec * 1e-9;
}

int clock_left (int64_t deadline_ms, int max)
{
    int64_t left = deadline_ms - clock_ms ();

    if (left < 0)
        left = 0;
    return left < max ? (int)left : max;
}

static int resolve (const char *host, uint16_t port, int flags,
                    struct addrinfo **ret)
{
    struct addrinfo hints = {
        .ai_flags = flags | AI_NUMERICSERV,
        .ai_family = host ? AF_UNSPEC : AF_INET,
        .ai_socktype = SOCK_STREAM,
    };
    char service[8];

    snprintf (service, sizeof (service), "%u", port);
    return getaddrinfo (host, service, &hints, ret);
}

static void set_options (int fd)
{
    int on = 1;

    setsockopt (fd, IPPROTO_TCP, TCP_NODELAY, &on, sizeof (on));
    setsockopt (fd, SOL_SOCKET, SO_KEEPALIVE, &on, sizeof (on));
}

static uint16_t port_of (int fd)
{
    struct sockaddr_storage addr = {0};
    socklen_t len = sizeof (addr);

    if (getsockname (fd, (struct sockaddr *)&addr, &len) < 0)
        return 0;
    if (addr.ss_family == AF_INET6)
        return ntohs (((struct sockaddr_in6 *)&addr)->sin6_port);
    return ntohs (((struct sockaddr_in *)&addr)->sin_port);
}

static int listen_at (const struct addrinfo *ai)
{
    int on = 1, saved;
    int fd =
        socket (ai->ai_family, SOCK_STREAM | SOCK_CLOEXEC | SOCK_NONBLOCK, 0);

    if (fd < 0)
        return -1;
    if (setsockopt (fd, SOL_SOCKET, SO_REUSEADDR, &on, sizeof (on)) == 0
        && bind (fd, ai->ai_addr, ai->ai_addrlen) == 0
        && listen (fd, SOMAXCONN) == 0)
        return fd;
    saved = errno;
    close (fd);
    errno = saved;
    return -1;
}

train_status_t sock_listen (const char *host, uint16_t port, int *ret_fd,
                            uint16_t *ret_port, train_error_t *err)
{
    struct addrinfo *list = NULL;
    int fd, rc = resolve (host, port, AI_PASSIVE | AI_NUMERICHOST, &list);

    if (rc != 0) {
        errno = EINVAL;
        return err_set (err, TRAIN_EINVAL, "'%s' is not a numeric address: %s",
                        host ? host : "*", gai_strerror (rc));
    }
    fd = listen_at (list);
    rc = errno;
    freeaddrinfo (list);
    errno = rc;
    if (fd < 0)
        return err_set (err, TRAIN_EIO, "cannot listen at %s port %u: %s",
                        host ? host : "*", port, strerror (errno));
    if (ret_port)
        *ret_port = port_of (fd);
    *ret_fd = fd;
    return TRAIN_OK;
}

int sock_accept (int listener)
{
    int fd = accept4 (listener, NULL, NULL, SOCK_CLOEXEC | SOCK_NONBLOCK);

    if (fd >= 0)
        set_options (fd);
    else if (sock_is_short (errno)) {
        int saved = errno;

        poll (NULL, 0, SHORT_MS);
        errno = saved;
    }
    return fd;
}

bool sock_is_short (int error)
{
    return error == EMFILE || error == ENFILE || error == ENOBUFS
           || error == ENOMEM;
}

/* 0, or -1 with errno (ETIMEDOUT after the deadline). */
static int wait_for (int fd, short events, int64_t deadline_ms)
{
    struct pollfd p = {.fd = fd, .events = events};

    for (;;) {
        int left = clock_left (deadline_ms, 1000);
        int rc = poll (&p, 1, left);

        if (rc > 0)
            return 0;
        if (rc < 0 && errno != EINTR)
            return -1;
        if (rc == 0 && left < 1000 && clock_left (deadline_ms, 1) == 0) {
            errno = ETIMEDOUT;
            return -1;
        }
    }
}

static int connect_at (const struct addrinfo *ai, int64_t deadline_ms)
{
    int why = 0, fd = socket (ai->ai_family,
                              SOCK_STREAM | SOCK_CLOEXEC | SOCK_NONBLOCK, 0);
    socklen_t len = sizeof (why);

    if (fd < 0)
        return -1;
    if (connect (fd, ai->ai_addr, ai->ai_addrlen) < 0) {
        if (errno != EINPROGRESS)
            why = errno;
        else if (wait_for (fd, POLLOUT, deadline_ms) < 0)
            why = errno;
        else if (getsockopt (fd, SOL_SOCKET, SO_ERROR, &why, &len) < 0)
            why = errno;
    }
    if (why == 0) {
        set_options (fd);
        return fd;
    }
    close (fd);
    errno = why;
    return -1;
}

train_status_t sock_connect (const char *host, uint16_t port,
                             int64_t deadline_ms, int *ret_fd,
                             train_error_t *err)
{
    struct addrinfo *list = NULL;
    int fd = -1, rc = resolve (host, port, 0, &list);

    if (rc != 0)
        return err_set (err, rc == EAI_AGAIN ? TRAIN_EPEER : TRAIN_EINVAL,
                        "host '%s': %s", host, gai_strerror (rc));
    for (struct addrinfo *ai = list; ai && fd < 0; ai = ai->ai_next)
        fd = connect_at (ai, deadline_ms);
    rc = errno;
    freeaddrinfo (list);
    if (fd < 0)
        return err_set (err, rc == ETIMEDOUT ? TRAIN_ETIMEDOUT : TRAIN_EPEER,
                        "cannot connect to %s port %u: %s", host, port,
                        strerror (rc));
    *ret_fd = fd;
    return TRAIN_OK;
}

int sock_send (int fd, const void *buf, size_t n, int64_t deadline_ms)
{
    const char *at = buf;

    while (n > 0) {
        ssize_t done = send (fd, at, n, MSG_NOSIGNAL);

        if (done >= 0) {
            at += done;
            n -= (size_t)done;
        } else if (errno == EAGAIN) {
            if (wait_for (fd, POLLOUT, deadline_ms) < 0)
                return -1;
        } else if (errno != EINTR) {
            return -1;
        }
    }
    return 0;
}

int sock_recv (int fd, void *buf, size_t n, int64_t deadline_ms)
{
    char *at = buf;

    while (n > 0) {
        ssize_t done = recv (fd, at, n, 0);

        if (done > 0) {
            at += done;
            n -= (size_t)done;
        } else if (done == 0) {
            errno = ECONNRESET;
            return -1;
        } else if (errno == EAGAIN) {
            if (wait_for (fd, POLLIN, deadline_ms) < 0)
                return -1;
        } else if (errno != EINTR) {
            return -1;
        }
    }
    return 0;
}

void sock_local_host (int fd, char *text, size_t size)
{
    struct sockaddr_storage addr;
    socklen_t len = sizeof (addr);

    if (getsockname (fd, (struct sockaddr *)&addr, &len) < 0
        || getnameinfo ((struct sockaddr *)&addr, len, text, (socklen_t)size,
                        NULL, 0, NI_NUMERICHOST)
               != 0)
        text[0] = '\0';
}

void sock_close (int *fd)
{
    int saved = errno;

    if (*fd >= 0)
        close (*fd);
    *fd = -1;
    errno = saved;
}
