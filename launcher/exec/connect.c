/* SPDX-License-Identifier: Apache-2.0
 * connect.c - rv-exec --connect: a port of this node on standard input and
 * output */
#include "config.h"

#include <arpa/inet.h>
#include <errno.h>
#include <netinet/in.h>
#include <poll.h>
#include <signal.h>
#include <stdlib.h>
#include <string.h>
#include <sys/socket.h>
#include <unistd.h>

#include "exec/exec.h"
#include "exec/log.h"

/* The loopback of either kind: servers listen on one of them, or on all. */
static int connect_to (uint16_t port)
{
    struct sockaddr_in in = {.sin_family = AF_INET, .sin_port = htons (port)};
    struct sockaddr_in6 in6 = {.sin6_family = AF_INET6,
                               .sin6_port = htons (port),
                               .sin6_addr = IN6ADDR_LOOPBACK_INIT};
    int fd = socket (AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0), why;

    in.sin_addr.s_addr = htonl (INADDR_LOOPBACK);
    if (fd >= 0 && connect (fd, (struct sockaddr *)&in, sizeof (in)) == 0)
        return fd;
    why = errno;
    if (fd >= 0)
        close (fd);
    fd = socket (AF_INET6, SOCK_STREAM | SOCK_CLOEXEC, 0);
    if (fd >= 0 && connect (fd, (struct sockaddr *)&in6, sizeof (in6)) == 0)
        return fd;
    if (fd >= 0)
        close (fd);
    errno = why;
    return -1;
}

/* Pass on what there is. 1 went on, 0 the end of the input, -1 a failure. */
static int pass (int from, int to)
{
    char buf[65536], *at = buf;
    ssize_t n = read (from, buf, sizeof (buf));

    if (n <= 0)
        return n < 0 && errno == EINTR ? 1 : (int)n;
    while (n > 0) {
        ssize_t done = write (to, at, (size_t)n);

        if (done < 0 && errno != EINTR)
            return -1;
        if (done > 0) {
            at += done;
            n -= done;
        }
    }
    return 1;
}

/* Until the port has no more to say: a client that has only finished asking
 * still waits for its answer. */
static void relay (int fd)
{
    struct pollfd p[] = {{.fd = STDIN_FILENO, .events = POLLIN},
                         {.fd = fd, .events = POLLIN}};

    for (;;) {
        if (poll (p, 2, -1) < 0 && errno != EINTR)
            return;
        if (p[0].fd >= 0 && p[0].revents && pass (STDIN_FILENO, fd) <= 0) {
            shutdown (fd, SHUT_WR);
            p[0].fd = -1;
        }
        if (p[1].revents && pass (fd, STDOUT_FILENO) <= 0)
            return;
    }
}

int exec_connect (const char *text)
{
    char *end;
    unsigned long port = strtoul (text, &end, 10);
    int fd;

    if (end == text || *end || port < 1 || port > 65535) {
        log_line (LOG_ERROR, "cannot connect: '%.32s' is no port", text);
        return EXEC_FAILED;
    }
    signal (SIGPIPE, SIG_IGN);
    if ((fd = connect_to ((uint16_t)port)) < 0) {
        log_line (LOG_ERROR, "cannot connect to port %lu: %s", port,
                  strerror (errno));
        return EXEC_FAILED;
    }
    relay (fd);
    close (fd);
    return 0;
}
