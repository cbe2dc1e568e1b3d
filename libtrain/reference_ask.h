/* SPDX-License-Identifier: Apache-2.0
 * reference_ask.h - ask rv-train refserver until it answers. Inside libtrain
 * only, and of builds with libcurl. */
#ifndef TRAIN_REFERENCE_ASK_H
#define TRAIN_REFERENCE_ASK_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include <train/status.h>

#include "curl_api.h"
#include "logps_wire.h"

/* What came back. */
struct reply {
    char *body;
    size_t n, most;
    double retry_after; /* seconds; 0: it said nothing */
    bool no_memory;
};

struct http {
    const struct curl_api *api;
    CURL *curl;
    struct curl_slist *headers;
    char *base; /* "http://HOST:PORT" */
    double deadline;
    uint64_t draw; /* of the jitter */
    char model[LOGPS_MODEL];
    char said[300]; /* why the last try was none; one line */
    long code;      /* of it; 0: no answer */
    size_t most;    /* tokens of a request; 0: not known */
    double temperature;
    bool (*ends) (void *arg);
    void *ends_arg;
    void (*waits) (void *arg, const char *why, double seconds);
    void *waits_arg;
};

/* reference_http_url - what is asked from now on is at [path] of the server. */
train_status_t reference_http_url (struct http *h, const char *path,
                                   train_error_t *err);

/* reference_http_ask - until it is answered by 200, or the deadline has passed.
 * What was set up in h->curl is sent each time; h->code and h->said tell of the
 * last try.
 *   reply   [most] set; its body is to be freed, after a failure, too
 * TRAIN_ETIMEDOUT, TRAIN_EABORTED: h->ends said so; TRAIN_EINVAL for 400 and 413,
 * TRAIN_EMISMATCH, TRAIN_EIO: it refused; TRAIN_ENOMEM. */
train_status_t reference_http_ask (struct http *h, struct reply *reply,
                                   train_error_t *err);

/* What libcurl calls, with an http, a reply and a reply. */
int reference_http_progress (void *arg, curl_off_t to_get, curl_off_t got,
                             curl_off_t to_give, curl_off_t given);
size_t reference_http_body (char *data, size_t size, size_t n, void *arg);
size_t reference_http_header (char *data, size_t size, size_t n, void *arg);

#endif
