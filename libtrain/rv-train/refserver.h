/* SPDX-License-Identifier: Apache-2.0
 * refserver.h - the parts of rv-train refserver: a queue of requests before one
 * model, and HTTP before the queue */
#ifndef RV_TRAIN_REFSERVER_H
#define RV_TRAIN_REFSERVER_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include <train/reference.h>

#include "libtrain/logps_wire.h"

/* One request. */
struct refserver_job {
    struct logps_ask ask;
    float *logps; /* (B,T) of the caller; written */
    /* Called by the queue's thread, or by refserver_queue_stop: the last thing
     * that the queue does with a job. */
    void (*done) (struct refserver_job *job);
    void *arg;
    train_status_t status; /* TRAIN_EABORTED: the queue was stopped before */
    train_error_t err;
    struct refserver_job *next;
};

struct refserver_queue;

struct refserver_queue_options {
    int most;     /* requests that may wait */
    size_t merge; /* tokens that go through the model at once, of several
                     requests and of parts of one; 0: each request by itself */
    bool same_t;  /* of one T alone */
};

struct refserver_count {
    uint64_t answered, passes; /* requests; calls of the model */
    uint64_t refused;          /* because the queue was full */
    int waiting;
};

/* refserver_queue_start - a thread that asks [reference], borrowed.
 * refserver_queue_full - no more may wait, which is counted. Who puts alone may
 *   rely on it.
 * refserver_queue_put - the job is the queue's until its done is called.
 * refserver_queue_retry - seconds until there may be room, 1 to 60.
 * refserver_queue_stop - the pass that is made is ended, what waits is given
 * back; then frees. NULL is fine. */
train_status_t refserver_queue_start (
    train_reference_t *reference, const struct refserver_queue_options *opts,
    struct refserver_queue **ret_queue, train_error_t *err);
bool refserver_queue_full (struct refserver_queue *queue);
void refserver_queue_put (struct refserver_queue *queue,
                          struct refserver_job *job);
int refserver_queue_retry (struct refserver_queue *queue);
void refserver_queue_count (struct refserver_queue *queue,
                            struct refserver_count *ret);
void refserver_queue_stop (struct refserver_queue *queue);

struct refserver_http;

struct refserver_http_options {
    const char *address; /* numeric; NULL: 127.0.0.1 */
    int port;            /* 0: any that is free */
    const char *token;   /* NULL: none is asked for */
    size_t max_tokens;   /* of one request */
    int connections;     /* at once */
    int timeout;         /* seconds without a byte, for a head, for a body */
    const char *model;   /* its sum; lives as long as the server */
    int vocab;
};

/* refserver_http_start - listen and serve. TRAIN_EINVAL: the address, or one
 * that is not loopback without a token; TRAIN_EIO: it cannot be listened at;
 * TRAIN_ENOTSUP: no libmicrohttpd.
 *   queue    borrowed
 *   ret_url  free with free(): "http://127.0.0.1:8077"
 * refserver_http_sweep - end connections on which no request came in its time;
 * to be called every second or so.
 * refserver_http_quiet - take no more connections; requests end with 503.
 * refserver_http_stop - when the queue has been stopped: send what is left, for
 * some seconds, and free. NULL is fine for both. */
train_status_t refserver_http_start (struct refserver_queue *queue,
                                     const struct refserver_http_options *opts,
                                     struct refserver_http **ret_http,
                                     char **ret_url, train_error_t *err);
void refserver_http_sweep (struct refserver_http *http);
void refserver_http_quiet (struct refserver_http *http);
void refserver_http_stop (struct refserver_http *http);

/* refserver_cmd - argv[0] is "refserver". Returns when it is told to end by
 * SIGTERM, SIGINT or SIGUSR1. TRAIN_EINVAL also for its options. */
train_status_t refserver_cmd (int argc, char **argv, train_error_t *err);

#endif
