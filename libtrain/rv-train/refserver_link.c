/* SPDX-License-Identifier: Apache-2.0
 * refserver_link.c - connections of rv-train refserver, and those on which no
 * request, or not all of one, comes in its time
 *
 * libmicrohttpd ends a connection that is silent. One that sends a byte of a
 * head now and then is not, before any token is seen; of such as many as there
 * may be connections would keep all others out. Nor does it say why it ends one:
 * a body that does not come is refused here. */
#include "config.h"

#if HAVE_MICROHTTPD

#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/socket.h>
#include <time.h>

#include <jansson.h>

#include "refserver_talk.h"

struct refserver_link {
    int fd;
    bool busy;    /* with a request, whose head was read */
    bool reads;   /* and whose body comes */
    time_t since; /* it was not busy, or some of a body came */
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

/* NULL: none. */
static struct refserver_link *link_of (const struct refserver_http *http,
                                       struct MHD_Connection *connection)
{
    const union MHD_ConnectionInfo *info = http->api->get_connection_info (
        connection, MHD_CONNECTION_INFO_SOCKET_CONTEXT);

    return info ? info->socket_context : NULL;
}

void refserver_link_busy (struct refserver_http *http,
                          struct MHD_Connection *connection, bool busy)
{
    struct refserver_link *l = link_of (http, connection);

    if (!l)
        return;
    pthread_mutex_lock (&http->lock);
    l->busy = l->reads = busy;
    l->since = seconds_now ();
    pthread_mutex_unlock (&http->lock);
}

void refserver_link_heard (struct refserver_http *http,
                           struct MHD_Connection *connection)
{
    struct refserver_link *l = link_of (http, connection);

    if (!l)
        return;
    pthread_mutex_lock (&http->lock);
    l->since = seconds_now ();
    pthread_mutex_unlock (&http->lock);
}

bool refserver_link_read (struct refserver_http *http,
                          struct MHD_Connection *connection)
{
    struct refserver_link *l = link_of (http, connection);
    bool was;

    if (!l)
        return true;
    pthread_mutex_lock (&http->lock);
    was = l->reads;
    l->reads = false;
    pthread_mutex_unlock (&http->lock);
    return was;
}

/* A socket that nothing was sent to has room for it. With the lock. */
static void send_refusal (const struct refserver_http *http,
                          struct refserver_link *l, unsigned code,
                          const char *header, const char *why)
{
    json_t *root = json_pack ("{s:s}", "error", why);
    char *body = root ? json_dumps (root, JSON_COMPACT) : NULL;
    char *text = NULL;
    int n = body ? asprintf (&text,
                             "HTTP/1.1 %u %s\r\nConnection: close\r\n"
                             "Content-Type: application/json\r\n"
                             "Content-Length: %zu\r\n%s\r\n%s",
                             code, http->api->get_reason_phrase_for (code),
                             strlen (body), header, body)
                 : -1;

    if (n > 0)
        (void)!send (l->fd, text, (size_t)n, MSG_DONTWAIT | MSG_NOSIGNAL);
    if (n >= 0)
        free (text);
    free (body);
    json_decref (root);
    shutdown (l->fd, SHUT_WR);
    l->reads = false;
}

bool refserver_link_refuse (struct refserver_http *http,
                            struct MHD_Connection *connection, unsigned code,
                            const char *header, const char *why)
{
    struct refserver_link *l = link_of (http, connection);
    bool reads;

    pthread_mutex_lock (&http->lock);
    if ((reads = l && l->reads))
        send_refusal (http, l, code, header, why);
    pthread_mutex_unlock (&http->lock);
    return reads;
}

void refserver_http_sweep (struct refserver_http *http)
{
    time_t late = seconds_now () - http->o.timeout;

    pthread_mutex_lock (&http->lock);
    for (struct refserver_link *l = http->links; l; l = l->next) {
        if ((l->busy && !l->reads) || l->since >= late)
            continue;
        if (l->reads)
            send_refusal (http, l, MHD_HTTP_REQUEST_TIMEOUT, "",
                          "no more of the body came");
        shutdown (l->fd, SHUT_RDWR); /* its own thread closes it */
    }
    pthread_mutex_unlock (&http->lock);
}

#endif
