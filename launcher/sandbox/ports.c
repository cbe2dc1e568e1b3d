/* SPDX-License-Identifier: Apache-2.0
 * ports.c - free TCP ports on loopback, kept until a daemon has them */
#ifdef HAVE_CONFIG_H
#include "config.h"
#endif
#include "sandbox/ports.h"

#include <arpa/inet.h>
#include <errno.h>
#include <netinet/in.h>
#include <string.h>
#include <sys/random.h>
#include <sys/socket.h>
#include <unistd.h>

static struct sockaddr_in address (int port, in_addr_t addr)
{
    return (struct sockaddr_in){.sin_family = AF_INET,
                                .sin_port = htons ((unsigned short)port),
                                .sin_addr.s_addr = htonl (addr)};
}

/* Bind first and set SO_REUSEADDR afterwards: the bind then fails where
 * anybody has the port, another reservation too, and the daemon's own bind
 * still succeeds, since this socket never listens. */
static int reserve_one (int port)
{
    struct sockaddr_in any = address (port, INADDR_ANY);
    int fd = socket (AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0), on = 1;

    if (fd < 0)
        return -1;
    if (bind (fd, (struct sockaddr *)&any, sizeof (any))
        || setsockopt (fd, SOL_SOCKET, SO_REUSEADDR, &on, sizeof (on))) {
        close (fd);
        return -1;
    }
    return fd;
}

int ports_reserve (int n, int *fd, int *port, struct rv_error *err)
{
    const int range = PORTS_LAST - PORTS_FIRST + 1;
    unsigned start = 0;
    int got = 0;

    /* A random start keeps sandboxes of one moment out of each other's way. */
    if (getrandom (&start, sizeof (start), 0) != sizeof (start))
        start = (unsigned)getpid ();
    for (int i = 0; got < n && i < range; i++) {
        int p = PORTS_FIRST + (int)((start + (unsigned)i) % (unsigned)range);

        if ((fd[got] = reserve_one (p)) >= 0)
            port[got++] = p;
    }
    if (got == n)
        return RV_OK;
    while (got > 0)
        close (fd[--got]);
    return error_set (err, RV_EIO, "no %d free ports between %d and %d", n,
                      PORTS_FIRST, PORTS_LAST);
}

bool ports_listening (int port)
{
    struct sockaddr_in lo = address (port, INADDR_LOOPBACK);
    int fd = socket (AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0);
    bool ok = fd >= 0 && !connect (fd, (struct sockaddr *)&lo, sizeof (lo));

    if (fd >= 0)
        close (fd);
    return ok;
}
