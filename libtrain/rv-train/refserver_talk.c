/* SPDX-License-Identifier: Apache-2.0
 * refserver_talk.c - requests of rv-train refserver and their answers
 *
 * All run in the one thread of libmicrohttpd. A body is read to its end even
 * where the answer is known before, so that the client hears it; one that is
 * much too long is answered before, and read for a while. While the model is at work the connection rests, and
 * the queue's thread wakes it. */
#include "config.h"

#if HAVE_MICROHTTPD

#include "refserver_talk.h"

#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <strings.h>
#include <time.h>

#include <jansson.h>

#include <train/version.h>

#include "libtrain/err.h"
#include "libtrain/token_file.h"

#define LINGER 5 /* seconds that a body is read behind its refusal */

struct talk {
    struct refserver_http *http;
    struct MHD_Connection *connection;
    bool health;      /* else log-probs */
    unsigned refused; /* HTTP status; 0: not yet */
    char why[200];
    int retry; /* seconds, with 429 and 503 */
    bool asked;
    bool told; /* the refusal, while the body came */
    char *body;
    size_t n, has, passed; /* bytes; those that came and were not kept */
    time_t begin;          /* of the request, or since it was told */
    struct refserver_job job;
};

static time_t seconds_now (void)
{
    struct timespec t;

    clock_gettime (CLOCK_MONOTONIC_COARSE, &t);
    return t.tv_sec;
}

static void refuse (struct talk *t, unsigned code, const char *fmt, ...)
    __attribute__ ((format (printf, 3, 4)));

/* The first reason stays. What a client sent may stand in it, cut within a
 * character, and JSON must be UTF-8. */
static void refuse (struct talk *t, unsigned code, const char *fmt, ...)
{
    va_list ap;

    if (t->refused)
        return;
    t->refused = code;
    va_start (ap, fmt);
    vsnprintf (t->why, sizeof (t->why), fmt, ap);
    va_end (ap);
    for (char *c = t->why; *c; c++)
        if (*c < ' ' || *c > '~')
            *c = '?';
}

static const char *header (const struct talk *t, const char *name)
{
    const char *text = t->http->api->lookup_connection_value (
        t->connection, MHD_HEADER_KIND, name);

    return text ? text : "";
}

static void check_token (struct talk *t)
{
    static const char scheme[] = "Bearer ";
    const char *given = header (t, "Authorization");

    if (!t->http->o.token)
        return;
    if (strncasecmp (given, scheme, sizeof (scheme) - 1) != 0)
        refuse (t, MHD_HTTP_UNAUTHORIZED, "this server asks for a token");
    else if (!token_same (t->http->o.token, given + sizeof (scheme) - 1))
        refuse (t, MHD_HTTP_UNAUTHORIZED, "this is not the server's token");
}

static void check_line (struct talk *t, const char *url, const char *method)
{
    bool get = strcmp (method, "GET") == 0 || strcmp (method, "HEAD") == 0;

    t->health = strcmp (url, HEALTH_PATH) == 0;
    if (!t->health && strcmp (url, LOGPS_PATH) != 0)
        refuse (t, MHD_HTTP_NOT_FOUND,
                "there is POST " LOGPS_PATH " and GET " HEALTH_PATH
                "; this is version %s",
                train_version ());
    else if (t->health ? !get : strcmp (method, "POST") != 0)
        refuse (t, MHD_HTTP_METHOD_NOT_ALLOWED, "%s takes %s",
                t->health ? HEALTH_PATH : LOGPS_PATH,
                t->health ? "GET" : "POST");
}

/* What says how long the body is. */
static void check_length (struct talk *t)
{
    const char *coding = header (t, "Transfer-Encoding");

    if (*coding && strcasecmp (coding, "chunked") != 0)
        refuse (t, MHD_HTTP_NOT_IMPLEMENTED,
                "Transfer-Encoding may be chunked alone");
    else if (!t->health && !*coding && !*header (t, "Content-Length"))
        refuse (t, MHD_HTTP_LENGTH_REQUIRED,
                LOGPS_PATH " takes a body with its Content-Length, or chunked");
}

static void too_large (struct talk *t)
{
    refuse (t, MHD_HTTP_CONTENT_TOO_LARGE,
            "a body may have %zu bytes, for %zu tokens", t->http->body_most,
            t->http->o.max_tokens);
}

static enum MHD_Result send_text (struct talk *t, unsigned code, void *body,
                                  size_t n, const char *type)
{
    const struct mhd_api *api = t->http->api;
    struct MHD_Response *r =
        api->create_response_from_buffer (n, body, MHD_RESPMEM_MUST_FREE);
    enum MHD_Result result;
    char retry[16];

    if (!r) {
        free (body);
        return MHD_NO;
    }
    snprintf (retry, sizeof (retry), "%d", t->retry > 0 ? t->retry : 1);
    if (code == MHD_HTTP_LENGTH_REQUIRED || code == MHD_HTTP_NOT_IMPLEMENTED)
        api->add_response_header (r, "Connection", "close");
    api->add_response_header (r, "Content-Type", type);
    if (code == MHD_HTTP_UNAUTHORIZED)
        api->add_response_header (r, "WWW-Authenticate", "Bearer");
    if (code == MHD_HTTP_METHOD_NOT_ALLOWED)
        api->add_response_header (r, "Allow", t->health ? "GET, HEAD" : "POST");
    if (code == MHD_HTTP_TOO_MANY_REQUESTS
        || code == MHD_HTTP_SERVICE_UNAVAILABLE)
        api->add_response_header (r, "Retry-After", retry);
    result = api->queue_response (t->connection, code, r);
    api->destroy_response (r);
    return result;
}

static enum MHD_Result send_json (struct talk *t, unsigned code, json_t *root)
{
    char *text = root ? json_dumps (root, JSON_COMPACT) : NULL;

    json_decref (root);
    return text ? send_text (t, code, text, strlen (text), "application/json")
                : MHD_NO;
}

static enum MHD_Result send_refusal (struct talk *t)
{
    return send_json (t, t->refused, json_pack ("{s:s}", "error", t->why));
}

/* While the body comes. */
static enum MHD_Result hang_up (struct talk *t)
{
    const char *header = t->refused == MHD_HTTP_UNAUTHORIZED
                             ? "WWW-Authenticate: Bearer\r\n"
                         : t->refused != MHD_HTTP_METHOD_NOT_ALLOWED ? ""
                         : t->health ? "Allow: GET, HEAD\r\n"
                                     : "Allow: POST\r\n";

    if (!refserver_link_refuse (t->http, t->connection, t->refused, header,
                                t->why))
        return MHD_NO;
    t->told = true;
    t->begin = seconds_now ();
    return MHD_YES;
}

/* Before any of the body. */
static enum MHD_Result turn_away (struct talk *t)
{
    refserver_link_read (t->http, t->connection);
    return send_refusal (t);
}

static enum MHD_Result begin (struct refserver_http *http,
                              struct MHD_Connection *connection,
                              const char *url, const char *method, void **state)
{
    struct talk *t = calloc (1, sizeof (*t));
    unsigned long long length;

    if (!t)
        return MHD_NO;
    pthread_mutex_lock (&http->lock);
    http->talks++;
    pthread_mutex_unlock (&http->lock);
    refserver_link_busy (http, connection, true);
    *state = t;
    t->http = http;
    t->connection = connection;
    t->begin = seconds_now ();
    check_token (t);
    check_line (t, url, method);
    check_length (t);
    length = strtoull (header (t, "Content-Length"), NULL, 10);
    if (length > http->body_most)
        too_large (t);
    return length > 2 * http->body_most
                   || t->refused == MHD_HTTP_NOT_IMPLEMENTED
               ? turn_away (t)
               : MHD_YES;
}

static bool make_room (struct talk *t, size_t n)
{
    size_t has = 2 * (t->n + n);
    char *more;

    if (t->n + n <= t->has)
        return true;
    if (!(more = realloc (t->body, has)))
        return false;
    t->body = more;
    t->has = has;
    return true;
}

/* Some of the body. MHD_NO closes the connection. */
static enum MHD_Result take (struct talk *t, const char *data, size_t *size)
{
    time_t age = seconds_now () - t->begin;
    size_t n = *size;

    *size = 0;
    if (t->told)
        return age > LINGER ? MHD_NO : MHD_YES;
    refserver_link_heard (t->http, t->connection);
    if (age > t->http->o.timeout) {
        refuse (t, MHD_HTTP_REQUEST_TIMEOUT, "the body took above %d s",
                t->http->o.timeout);
        return hang_up (t);
    }
    if (n > t->http->body_most - t->n)
        too_large (t);
    if (t->refused) {
        t->passed += n;
        return t->passed > 2 * t->http->body_most ? hang_up (t) : MHD_YES;
    }
    if (!make_room (t, n)) {
        refuse (t, MHD_HTTP_INTERNAL_SERVER_ERROR, "no memory");
        return hang_up (t);
    }
    memcpy (t->body + t->n, data, n);
    t->n += n;
    return MHD_YES;
}

/* The queue's thread: the last that it does with a job. */
static void wake (struct refserver_job *job)
{
    struct talk *t = job->arg;

    t->http->api->resume_connection (t->connection);
}

static bool parse (struct talk *t)
{
    struct logps_ask *a = &t->job.ask;
    train_error_t err = {0};
    train_status_t status =
        logps_read_ask (t->body, t->n, t->http->o.vocab, a, &err);
    size_t n = (size_t)a->B * (size_t)a->T;

    free (t->body);
    t->body = NULL;
    if (status == TRAIN_OK && n > t->http->o.max_tokens)
        refuse (t, MHD_HTTP_CONTENT_TOO_LARGE,
                "%d rows of %d are %zu tokens; a request may have %zu", a->B,
                a->T, n, t->http->o.max_tokens);
    else if (status == TRAIN_OK
             && !(t->job.logps = malloc (n * sizeof (float))))
        refuse (t, MHD_HTTP_INTERNAL_SERVER_ERROR, "no memory");
    else if (status == TRAIN_ENOMEM)
        refuse (t, MHD_HTTP_INTERNAL_SERVER_ERROR, "%s", err.text);
    else if (status != TRAIN_OK)
        refuse (t, MHD_HTTP_BAD_REQUEST, "%s", err.text);
    return !t->refused;
}

/* To the queue; false: refused. */
static bool ask (struct talk *t)
{
    struct refserver_http *http = t->http;

    if (!parse (t))
        return false;
    t->job.done = wake;
    t->job.arg = t;
    pthread_mutex_lock (&http->lock);
    if (!http->queue) {
        refuse (t, MHD_HTTP_SERVICE_UNAVAILABLE, "the server ends");
    } else if (refserver_queue_full (http->queue)) {
        t->retry = refserver_queue_retry (http->queue);
        refuse (t, MHD_HTTP_TOO_MANY_REQUESTS, "the queue is full");
    } else {
        /* Before the queue's thread may wake it. */
        http->api->suspend_connection (t->connection);
        t->asked = true;
        refserver_queue_put (http->queue, &t->job);
    }
    pthread_mutex_unlock (&http->lock);
    return t->asked;
}

static enum MHD_Result answer (struct talk *t)
{
    const struct logps_ask *a = &t->job.ask;
    train_error_t err = {0};
    char *body = NULL;
    size_t n = 0;

    if (t->job.status == TRAIN_EABORTED)
        refuse (t, MHD_HTTP_SERVICE_UNAVAILABLE, "%s", t->job.err.text);
    else if (t->job.status != TRAIN_OK)
        refuse (t, MHD_HTTP_INTERNAL_SERVER_ERROR, "%s", t->job.err.text);
    else if (logps_write_answer (t->job.logps, a->B, a->T, t->http->o.model,
                                 &body, &n, &err)
             != TRAIN_OK)
        refuse (t, MHD_HTTP_INTERNAL_SERVER_ERROR, "%s", err.text);
    if (t->refused)
        return send_refusal (t);
    return send_text (t, MHD_HTTP_OK, body, n, "application/octet-stream");
}

static enum MHD_Result send_health (struct talk *t)
{
    struct refserver_http *http = t->http;
    struct refserver_count count = {0};
    bool quiet;

    pthread_mutex_lock (&http->lock);
    if (!(quiet = !http->queue))
        refserver_queue_count (http->queue, &count);
    pthread_mutex_unlock (&http->lock);
    if (quiet) {
        refuse (t, MHD_HTTP_SERVICE_UNAVAILABLE, "the server ends");
        return send_refusal (t);
    }
    return send_json (
        t, MHD_HTTP_OK,
        json_pack ("{s:s, s:i, s:s, s:s, s:i, s:I, s:i, s:I, s:I, s:I}",
                   "status", "ok", "api", 1, "version", train_version (),
                   "model", http->o.model, "vocabulary", http->o.vocab,
                   "max_tokens", (json_int_t)http->o.max_tokens, "waiting",
                   count.waiting, "answered", (json_int_t)count.answered,
                   "passes", (json_int_t)count.passes, "refused",
                   (json_int_t)count.refused));
}

enum MHD_Result refserver_talk (void *cls, struct MHD_Connection *connection,
                                const char *url, const char *method,
                                const char *version, const char *data,
                                size_t *size, void **state)
{
    struct talk *t = *state;

    (void)version;
    if (!t)
        return begin (cls, connection, url, method, state);
    if (*size > 0)
        return take (t, data, size);
    if (t->asked)
        return answer (t);
    if (!refserver_link_read (t->http, t->connection))
        return MHD_NO;
    if (!t->refused && t->health)
        return send_health (t);
    if (!t->refused && ask (t))
        return MHD_YES;
    return send_refusal (t);
}

void refserver_talk_end (void *cls, struct MHD_Connection *connection,
                         void **state, enum MHD_RequestTerminationCode how)
{
    struct refserver_http *http = cls;
    struct talk *t = *state;

    (void)how;
    if (!t)
        return;
    refserver_link_busy (http, connection, false);
    logps_free_ask (&t->job.ask);
    free (t->job.logps);
    free (t->body);
    free (t);
    *state = NULL;
    pthread_mutex_lock (&http->lock);
    http->talks--;
    pthread_cond_signal (&http->fewer);
    pthread_mutex_unlock (&http->lock);
}

#endif
