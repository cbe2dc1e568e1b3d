/* SPDX-License-Identifier: Apache-2.0
 * refserver_talk.h - one request of rv-train refserver, from its first header to
 * its answer; needs config.h, and HAVE_MICROHTTPD */
#ifndef RV_TRAIN_REFSERVER_TALK_H
#define RV_TRAIN_REFSERVER_TALK_H

#include <pthread.h>

#include "mhd_api.h"
#include "refserver.h"

struct refserver_link; /* a connection */

struct refserver_http {
    const struct mhd_api *api;
    struct MHD_Daemon *daemon;
    struct refserver_http_options o;
    size_t body_most; /* bytes */
    int listens;      /* the socket that was listened at; -1 */
    pthread_mutex_t lock;
    pthread_cond_t fewer;
    int talks;                     /* requests that are being answered */
    struct refserver_queue *queue; /* NULL: quiet, what comes ends with 503 */
    struct refserver_link *links;
};

/* refserver_talk - MHD_AccessHandlerCallback; refserver_talk_end -
 * MHD_RequestCompletedCallback. [cls] is the refserver_http. */
enum MHD_Result refserver_talk (void *cls, struct MHD_Connection *connection,
                                const char *url, const char *method,
                                const char *version, const char *data,
                                size_t *size, void **state);
void refserver_talk_end (void *cls, struct MHD_Connection *connection,
                         void **state, enum MHD_RequestTerminationCode how);

/* refserver_link - MHD_NotifyConnectionCallback.
 * refserver_link_busy - a request's head was read; not busy: it is done.
 * refserver_link_heard - some of its body came.
 * refserver_link_read - all of it; false: it was refused meanwhile.
 * refserver_link_refuse - the answer to a body that still comes, for which
 * libmicrohttpd takes none: nothing can be sent behind it, and what comes is to be
 * read for a while, or the client may not see it. False: it was refused before.
 *   header   "Name: value\r\n", or "" */
void refserver_link (void *cls, struct MHD_Connection *connection, void **state,
                     enum MHD_ConnectionNotificationCode how);
void refserver_link_busy (struct refserver_http *http,
                          struct MHD_Connection *connection, bool busy);
void refserver_link_heard (struct refserver_http *http,
                           struct MHD_Connection *connection);
bool refserver_link_read (struct refserver_http *http,
                          struct MHD_Connection *connection);
bool refserver_link_refuse (struct refserver_http *http,
                            struct MHD_Connection *connection, unsigned code,
                            const char *header, const char *why);

#endif
