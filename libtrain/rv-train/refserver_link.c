/* SPDX-License-Identifier: Apache-2.0
 * refserver_link.c - connections of rv-train refserver, and those on which no
 * request comes in its time
 *
 * libmicrohttpd ends a connection that is silent. One that sends a byte of a
 * head now and then is not, before any token is seen; of such as many as there
 * may be connections would keep all others out. */
#include "config.h"

#if HAVE_MICROHTTPD

#include <stdlib.h>
#include <sys/socket.h>
#include <time.h>

#include "refserver_talk.h"

struct refserver_link {
    int fd;
    bool busy;    /* with a request, whose head was read */
    time_t since; /* it was not */
    struct refserver_link *next, **at;
};

static time_t seconds_now (void)
{
    struct timespec t;

    clock_gettime (CLOCK_MONOTONIC_COARSE, &t);
    return t.tv_sec;
}

static struct refserver_link *begin (struct refserver_http *http, int fd)
{
    struct refserver_link *l = calloc (1, sizeof (*l));

    if (!l) {
        shutdown (fd, SHUT_RDWR);
        return NULL;
    }
    l->fd = fd;
    l->since = seconds_now ();
    pthread_mutex_lock (&http->lock);
    l->next = http->links;
    l->at = &http->links;
    if (l->next)
        l->next->at = &l->next;
    http->links = l;
    pthread_mutex_unlock (&http->lock);
    return l;
}

/* Before its socket is closed. */
static void end (struct refserver_http *http, struct refserver_link *l)
{
    if (!l)
        return;
    pthread_mutex_lock (&http->lock);
    *l->at = l->next;
    if (l->next)
        l->next->at = l->at;
    pthread_mutex_unlock (&http->lock);
    free (l);
}

void refserver_link (void *cls, struct MHD_Connection *connection, void **state,
                     enum MHD_ConnectionNotificationCode how)
{
    struct refserver_http *http = cls;
    const union MHD_ConnectionInfo *info;

    if (how == MHD_CONNECTION_NOTIFY_CLOSED) {
        end (http, *state);
        *state = NULL;
        return;
    }
    info = http->api->get_connection_info (connection,
                                           MHD_CONNECTION_INFO_CONNECTION_FD);
    *state = info ? begin (http, info->connect_fd) : NULL;
}

void refserver_link_busy (struct refserver_http *http,
                          struct MHD_Connection *connection, bool busy)
{
    const union MHD_ConnectionInfo *info = http->api->get_connection_info (
        connection, MHD_CONNECTION_INFO_SOCKET_CONTEXT);
    struct refserver_link *l = info ? info->socket_context : NULL;

    if (!l)
        return;
    pthread_mutex_lock (&http->lock);
    l->busy = busy;
    l->since = seconds_now ();
    pthread_mutex_unlock (&http->lock);
}

void refserver_http_sweep (struct refserver_http *http)
{
    time_t late = seconds_now () - http->o.timeout;

    pthread_mutex_lock (&http->lock);
    for (struct refserver_link *l = http->links; l; l = l->next)
        if (!l->busy && l->since < late)
            shutdown (l->fd, SHUT_RDWR); /* its own thread closes it */
    pthread_mutex_unlock (&http->lock);
}

#endif
