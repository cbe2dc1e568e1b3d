/* SPDX-License-Identifier: Apache-2.0
 * refserver_http.c - where rv-train refserver listens, and how that ends */
#include "config.h"

#include "refserver.h"

#include "libtrain/err.h"

#if HAVE_MICROHTTPD

#include <arpa/inet.h>
#include <errno.h>
#include <netdb.h>
#include <netinet/in.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/socket.h>
#include <time.h>
#include <unistd.h>

#include "refserver_talk.h"

#define BACKLOG  512
#define FAREWELL 5 /* seconds */
#define LATE     3 /* later than here libmicrohttpd ends a silent connection */

static bool is_loopback (const struct sockaddr *a)
{
    const struct sockaddr_in *v4 = (const void *)a;
    const struct sockaddr_in6 *v6 = (const void *)a;

    if (a->sa_family == AF_INET)
        return ntohl (v4->sin_addr.s_addr) >> 24 == 127;
    return IN6_IS_ADDR_LOOPBACK (&v6->sin6_addr);
}

static train_status_t resolve (const struct refserver_http_options *o,
                               struct addrinfo **ret, train_error_t *err)
{
    const struct addrinfo hints = {.ai_flags = AI_NUMERICHOST | AI_NUMERICSERV,
                                   .ai_socktype = SOCK_STREAM};
    const char *address = o->address ? o->address : "127.0.0.1";
    char port[16];
    int rc;

    snprintf (port, sizeof (port), "%d", o->port);
    if ((rc = getaddrinfo (address, port, &hints, ret)) != 0)
        return err_set (err, TRAIN_EINVAL,
                        "--address '%s': %s; it must be a number as 127.0.0.1 "
                        "or ::1",
                        address, gai_strerror (rc));
    if (is_loopback ((*ret)->ai_addr) || o->token)
        return TRAIN_OK;
    freeaddrinfo (*ret);
    return err_set (err, TRAIN_EINVAL,
                    "--address %s can be reached from other machines: it needs "
                    "--token-file",
                    address);
}

static int listen_at (const struct addrinfo *a)
{
    int fd =
        socket (a->ai_family, SOCK_STREAM | SOCK_CLOEXEC | SOCK_NONBLOCK, 0);
    int on = 1, saved;

    if (fd < 0)
        return -1;
    if (setsockopt (fd, SOL_SOCKET, SO_REUSEADDR, &on, sizeof (on)) == 0
        && bind (fd, a->ai_addr, a->ai_addrlen) == 0
        && listen (fd, BACKLOG) == 0)
        return fd;
    saved = errno;
    close (fd);
    errno = saved;
    return -1;
}

static train_status_t name_it (int fd, char **ret_url, train_error_t *err)
{
    struct sockaddr_storage a;
    socklen_t n = sizeof (a);
    char host[INET6_ADDRSTRLEN + 8], port[16];

    if (getsockname (fd, (struct sockaddr *)&a, &n) < 0
        || getnameinfo ((struct sockaddr *)&a, n, host, sizeof (host), port,
                        sizeof (port), NI_NUMERICHOST | NI_NUMERICSERV)
               != 0
        || asprintf (ret_url,
                     a.ss_family == AF_INET6 ? "http://[%s]:%s"
                                             : "http://%s:%s",
                     host, port)
               < 0)
        return err_set (err, TRAIN_EIO, "cannot tell the address");
    return TRAIN_OK;
}

static train_status_t open_socket (struct refserver_http *h, char **ret_url,
                                   train_error_t *err)
{
    struct addrinfo *at = NULL;
    train_status_t status = TRAIN_OK;

    TRY (resolve (&h->o, &at, err));
    if ((h->listens = listen_at (at)) < 0)
        status = err_set (err, TRAIN_EIO, "cannot listen at %s port %d: %s",
                          h->o.address ? h->o.address : "127.0.0.1", h->o.port,
                          strerror (errno));
    freeaddrinfo (at);
    return status == TRAIN_OK ? name_it (h->listens, ret_url, err) : status;
}

static train_status_t start (struct refserver_http *h, char **ret_url,
                             train_error_t *err)
{
    TRY (mhd_find (&h->api, err));
    TRY (open_socket (h, ret_url, err));
    h->daemon = h->api->start_daemon (
        MHD_USE_AUTO_INTERNAL_THREAD | MHD_ALLOW_SUSPEND_RESUME, 0, NULL, NULL,
        refserver_talk, h, MHD_OPTION_LISTEN_SOCKET, h->listens,
        MHD_OPTION_CONNECTION_LIMIT, (unsigned)h->o.connections,
        MHD_OPTION_CONNECTION_TIMEOUT, (unsigned)h->o.timeout + LATE,
        MHD_OPTION_NOTIFY_COMPLETED, refserver_talk_end, (void *)h,
        MHD_OPTION_NOTIFY_CONNECTION, refserver_link, (void *)h,
        MHD_OPTION_END);
    if (!h->daemon)
        return err_set (err, TRAIN_EIO,
                        "libmicrohttpd does not start with %d connections",
                        h->o.connections);
    return TRAIN_OK;
}

train_status_t refserver_http_start (struct refserver_queue *queue,
                                     const struct refserver_http_options *opts,
                                     struct refserver_http **ret,
                                     char **ret_url, train_error_t *err)
{
    struct refserver_http *h = calloc (1, sizeof (*h));
    char *url = NULL;
    train_status_t status;

    if (!h)
        return err_set (err, TRAIN_ENOMEM, "no memory for a server");
    h->o = *opts;
    h->body_most = logps_body_most (opts->max_tokens);
    h->queue = queue;
    h->listens = -1;
    pthread_mutex_init (&h->lock, NULL);
    pthread_cond_init (&h->fewer, NULL);
    if ((status = start (h, &url, err)) != TRAIN_OK) {
        free (url);
        refserver_http_stop (h);
        return status;
    }
    *ret = h;
    *ret_url = url;
    return TRAIN_OK;
}

void refserver_http_quiet (struct refserver_http *h)
{
    if (!h)
        return;
    if (h->daemon)
        h->api->quiesce_daemon (h->daemon);
    pthread_mutex_lock (&h->lock);
    h->queue = NULL;
    pthread_mutex_unlock (&h->lock);
}

/* Until no request is left, or for some seconds. */
static void wait_for_talks (struct refserver_http *h)
{
    struct timespec end;

    clock_gettime (CLOCK_REALTIME, &end);
    end.tv_sec += FAREWELL;
    pthread_mutex_lock (&h->lock);
    while (h->talks > 0
           && pthread_cond_timedwait (&h->fewer, &h->lock, &end) == 0)
        ;
    pthread_mutex_unlock (&h->lock);
}

void refserver_http_stop (struct refserver_http *h)
{
    if (!h)
        return;
    refserver_http_quiet (h);
    if (h->daemon) {
        wait_for_talks (h);
        h->api->stop_daemon (h->daemon);
    }
    if (h->listens >= 0)
        close (h->listens);
    pthread_mutex_destroy (&h->lock);
    pthread_cond_destroy (&h->fewer);
    free (h);
}

#else

train_status_t refserver_http_start (struct refserver_queue *queue,
                                     const struct refserver_http_options *opts,
                                     struct refserver_http **ret,
                                     char **ret_url, train_error_t *err)
{
    (void)queue, (void)opts, (void)ret, (void)ret_url;
    return err_set (err, TRAIN_ENOTSUP,
                    "this rv-train was built without libmicrohttpd; "
                    "./configure --with-microhttpd where its header is "
                    "(Debian: libmicrohttpd-dev) builds it in");
}

void refserver_http_sweep (struct refserver_http *http)
{
    (void)http;
}

void refserver_http_quiet (struct refserver_http *http)
{
    (void)http;
}

void refserver_http_stop (struct refserver_http *http)
{
    (void)http;
}

#endif
