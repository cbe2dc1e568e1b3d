/* SPDX-License-Identifier: Apache-2.0
 * reference_http.c - a reference behind rv-train refserver
 *
 * Asking again costs the server the work once more and changes nothing, so
 * whatever may pass (a server that is restarted, a full queue) is tried again
 * until the deadline, later each time and never at the same moment as other
 * ranks. */
#include "config.h"

#include <train/reference.h>

#include "err.h"

#if HAVE_CURL

#include <ctype.h>
#include <math.h>
#include <stdbool.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>
#include <unistd.h>

#include <jansson.h>

#include "curl_api.h"
#include "logps_wire.h"
#include "opts.h"
#include "philox.h"
#include "reference.h"
#include "sock.h"
#include "token_file.h"

#define WAIT_LEAST 0.05 /* seconds before the second try */
#define WAIT_MOST  5.0
#define CONNECT_MS 5000L
#define SLICE      0.1 /* seconds of a pause in which nobody is asked */

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
    bool (*ends) (void *arg);
    void *ends_arg;
};

static bool is_over (const struct http *h)
{
    return h->ends && h->ends (h->ends_arg);
}

/* Until then, or [ends]; a signal cuts a slice short. */
static void pause_for (const struct http *h, double seconds)
{
    double end = clock_s () + seconds, left;

    while (!is_over (h) && (left = end - clock_s ()) > 0) {
        struct timespec t = {0};

        t.tv_nsec = (long)(1e9 * (left < SLICE ? left : SLICE));
        (void)nanosleep (&t, NULL);
    }
}

/* Of libcurl, which waits for a second at most, and not on after a signal. */
static int on_progress (void *arg, curl_off_t to_get, curl_off_t got,
                        curl_off_t to_give, curl_off_t given)
{
    (void)to_get, (void)got, (void)to_give, (void)given;
    return is_over (arg);
}

static size_t on_body (char *data, size_t size, size_t n, void *arg)
{
    struct reply *r = arg;
    char *more;

    n *= size;
    if (n > r->most - r->n)
        return 0; /* more than any answer has: curl ends with a write error */
    if (!(more = realloc (r->body, r->n + n + 1))) {
        r->no_memory = true;
        return 0;
    }
    r->body = more;
    memcpy (r->body + r->n, data, n);
    r->n += n;
    r->body[r->n] = '\0';
    return n;
}

static size_t on_header (char *data, size_t size, size_t n, void *arg)
{
    static const char name[] = "retry-after:";
    struct reply *r = arg;
    char text[64];

    n *= size;
    snprintf (text, sizeof (text), "%.*s", (int)n, data);
    for (char *c = text; *c && *c != ':'; c++)
        *c = (char)tolower ((unsigned char)*c);
    if (strncmp (text, name, sizeof (name) - 1) == 0)
        r->retry_after = (double)strtoul (text + sizeof (name) - 1, NULL, 10);
    return n;
}

static void close_http (void *self)
{
    struct http *h = self;

    if (h->curl)
        h->api->cleanup (h->curl);
    if (h->headers)
        h->api->slist_free_all (h->headers);
    free (h->base);
    free (h);
}

/* The server's "error" of a JSON body, or its first line. */
static void note_body (struct http *h, long code, const struct reply *r)
{
    json_t *root = r->n > 0 ? json_loadb (r->body, r->n, 0, NULL) : NULL;
    const char *text = json_string_value (json_object_get (root, "error"));

    if (!text)
        text = r->n > 0 ? r->body : "nothing";
    snprintf (h->said, sizeof (h->said), "HTTP %ld: %.*s", code,
              (int)strcspn (text, "\r\n"), text);
    json_decref (root);
}

/* May the same be asked again? */
static bool passes (CURLcode rc, long code)
{
    switch (rc) {
    case CURLE_OK:
        return code == 429 || code == 502 || code == 503 || code == 504;
    case CURLE_COULDNT_RESOLVE_HOST:
    case CURLE_COULDNT_CONNECT:
    case CURLE_OPERATION_TIMEDOUT:
    case CURLE_SEND_ERROR:
    case CURLE_RECV_ERROR:
    case CURLE_GOT_NOTHING:
    case CURLE_PARTIAL_FILE:
        return true;
    default:
        return false;
    }
}

static train_status_t refusal (const struct http *h, long code,
                               train_error_t *err)
{
    train_status_t status = code == 400 || code == 413   ? TRAIN_EINVAL
                            : code == 401 || code == 403 ? TRAIN_EIO
                            : code == 404 || code == 405 ? TRAIN_EMISMATCH
                                                         : TRAIN_EIO;

    return err_set (err, status, "reference %s: %s", h->base, h->said);
}

static train_status_t aborted (const struct http *h, train_error_t *err)
{
    return err_set (err, TRAIN_EABORTED,
                    "reference %s: the wait for it was ended on request",
                    h->base);
}

/* One try. [ret_again]: it may pass. */
static train_status_t try_once (struct http *h, double left,
                                struct reply *reply, bool *ret_again,
                                train_error_t *err)
{
    const struct curl_api *api = h->api;
    char text[CURL_ERROR_SIZE] = "";
    long code = 0, ms = left > 1e6 ? 1000000000L : (long)(1000 * left) + 1;
    CURLcode rc;

    reply->n = 0;
    reply->retry_after = 0;
    api->setopt (h->curl, CURLOPT_WRITEDATA, (void *)reply);
    api->setopt (h->curl, CURLOPT_HEADERDATA, (void *)reply);
    api->setopt (h->curl, CURLOPT_TIMEOUT_MS, ms);
    api->setopt (h->curl, CURLOPT_ERRORBUFFER, text);
    rc = api->perform (h->curl);
    api->setopt (h->curl, CURLOPT_ERRORBUFFER, (char *)NULL);
    api->getinfo (h->curl, CURLINFO_RESPONSE_CODE, &code);
    if (reply->no_memory)
        return err_set (err, TRAIN_ENOMEM, "no memory for an answer");
    if (rc == CURLE_OK && code == 200)
        return TRAIN_OK;
    if (rc == CURLE_ABORTED_BY_CALLBACK)
        return aborted (h, err);
    if (rc == CURLE_OK)
        note_body (h, code, reply);
    else
        snprintf (h->said, sizeof (h->said), "%s",
                  text[0] ? text : api->strerror (rc));
    *ret_again = passes (rc, code);
    return refusal (h, code, err);
}

/* What the server asks for, and up to half of it; where it asks for nothing,
 * twofold each time, from half to one and a half of that. */
static double wait_for (struct http *h, int tries, double asked)
{
    const uint32_t key[2] = {(uint32_t)h->draw, (uint32_t)(h->draw >> 32)};
    uint32_t draw[4] = {(uint32_t)tries};
    double wait = WAIT_LEAST * (double)(1 << (tries < 7 ? tries : 7));

    philox4x32 (draw, key, draw);
    if (asked > 0)
        return asked * (1 + (double)draw[0] / 8589934592.0);
    wait = wait > WAIT_MOST ? WAIT_MOST : wait;
    return wait * (0.5 + (double)draw[0] / 4294967296.0);
}

/* Until it is answered, or the deadline has passed. */
static train_status_t ask (struct http *h, struct reply *reply,
                           train_error_t *err)
{
    double end = clock_s () + h->deadline;

    h->said[0] = '\0';
    for (int tries = 0;; tries++) {
        bool again = false;
        double left = end - clock_s (), wait;
        train_status_t status;

        if (left > 0) {
            status = try_once (h, left, reply, &again, err);
            if (status == TRAIN_OK || !again)
                return status;
        }
        wait = wait_for (h, tries, reply->retry_after);
        if (left <= 0 || clock_s () + wait >= end)
            return err_set (err, TRAIN_ETIMEDOUT,
                            "reference %s: no answer within %g s and %d tries: "
                            "%s",
                            h->base, h->deadline, tries + 1, h->said);
        pause_for (h, wait);
        if (is_over (h))
            return aborted (h, err);
    }
}

static train_status_t set_url (struct http *h, const char *path,
                               train_error_t *err)
{
    char url[1024];
    int n = snprintf (url, sizeof (url), "%s%s", h->base, path);

    if (n < 0 || (size_t)n >= sizeof (url)
        || h->api->setopt (h->curl, CURLOPT_URL, url) != CURLE_OK)
        return err_set (err, TRAIN_EINVAL, "reference: URL %s is too long",
                        h->base);
    return TRAIN_OK;
}

static train_status_t http_logps (void *self, const int32_t *ids,
                                  const int32_t *prompt_len,
                                  const int32_t *total_len, int B, int T,
                                  double temperature, float *ret,
                                  train_error_t *err)
{
    struct http *h = self;
    struct logps_ask a = {.B = B,
                          .T = T,
                          .temperature = temperature,
                          .ids = (int32_t *)(uintptr_t)ids,
                          .prompt_len = (int32_t *)(uintptr_t)prompt_len,
                          .total_len = (int32_t *)(uintptr_t)total_len};
    struct reply reply = {.most = logps_body_most ((size_t)B * (size_t)T)};
    char *body = NULL, model[LOGPS_MODEL] = "";
    size_t n = 0;
    train_status_t status;

    TRY (logps_write_ask (&a, &body, &n, err));
    h->api->setopt (h->curl, CURLOPT_POST, 1L);
    h->api->setopt (h->curl, CURLOPT_POSTFIELDSIZE_LARGE, (curl_off_t)n);
    h->api->setopt (h->curl, CURLOPT_POSTFIELDS, body);
    status = ask (h, &reply, err);
    free (body);
    if (status == TRAIN_OK
        && (status =
                logps_read_answer (reply.body, reply.n, B, T, ret, model, err))
               != TRAIN_OK)
        err_prefix (err, status, "reference %s", h->base);
    else if (status == TRAIN_OK && strcmp (model, h->model) != 0)
        status = err_set (err, TRAIN_EMISMATCH,
                          "reference %s: its model was %s and is %s now",
                          h->base, h->model, model);
    free (reply.body);
    return status;
}

static const struct reference_ops http_ops = {
    .name = "http", .logps = http_logps, .close = close_http};

static train_status_t check_health (struct http *h, const struct reply *r,
                                    int vocab, int *ret_vocab,
                                    train_error_t *err)
{
    json_t *root = json_loadb (r->body, r->n, 0, NULL);
    const char *model = json_string_value (json_object_get (root, "model"));
    json_int_t api = json_integer_value (json_object_get (root, "api"));
    json_int_t has = json_integer_value (json_object_get (root, "vocabulary"));
    train_status_t status = TRAIN_OK;

    if (!model || strlen (model) >= LOGPS_MODEL || has < 1 || has > INT32_MAX)
        status = err_set (err, TRAIN_EMISMATCH,
                          "reference %s: what answers there is no rv-train "
                          "refserver",
                          h->base);
    else if (api != 1)
        status = err_set (err, TRAIN_EMISMATCH,
                          "reference %s: it speaks version %lld, this is 1",
                          h->base, (long long)api);
    else if (vocab > 0 && has != vocab)
        status = err_set (err, TRAIN_EMISMATCH,
                          "reference %s: its model has %lld tokens, the one "
                          "that is trained %d",
                          h->base, (long long)has, vocab);
    else
        snprintf (h->model, sizeof (h->model), "%s", model);
    *ret_vocab = (int)has;
    json_decref (root);
    return status;
}

static train_status_t look (struct http *h, int vocab, int *ret_vocab,
                            train_error_t *err)
{
    struct reply reply = {.most = LOGPS_HEADER};
    train_status_t status = set_url (h, HEALTH_PATH, err);

    if (status == TRAIN_OK)
        status = ask (h, &reply, err);
    if (status == TRAIN_OK)
        status = check_health (h, &reply, vocab, ret_vocab, err);
    free (reply.body);
    if (status == TRAIN_OK)
        status = set_url (h, LOGPS_PATH, err);
    return status;
}

/* "http://HOST:PORT", and nothing that a URL may have besides. */
static train_status_t take_url (struct http *h, const char *url,
                                train_error_t *err)
{
    static const char scheme[] = "http://";
    size_t n = url ? strlen (url) : 0, at = sizeof (scheme) - 1;

    if (n > at && url[n - 1] == '/')
        n--;
    if (n <= at || n > 900 || strncmp (url, scheme, at) != 0
        || at + strcspn (url + at, "/?#@ \t\r\n") < n)
        return err_set (err, TRAIN_EINVAL,
                        "reference '%.200s': expected http://HOST:PORT",
                        url ? url : "");
    if (!(h->base = strndup (url, n)))
        return err_set (err, TRAIN_ENOMEM, "no memory for a URL");
    return TRAIN_OK;
}

static train_status_t add_header (struct http *h, const char *text,
                                  train_error_t *err)
{
    struct curl_slist *more = h->api->slist_append (h->headers, text);

    if (!more)
        return err_set (err, TRAIN_ENOMEM, "no memory for a header");
    h->headers = more;
    return TRAIN_OK;
}

static train_status_t take_token (struct http *h, const char *path,
                                  train_error_t *err)
{
    char token[TOKEN_MOST + 1], header[TOKEN_MOST + 32];
    train_status_t status;

    TRY (token_file_read (path, token, err));
    snprintf (header, sizeof (header), "Authorization: Bearer %s", token);
    status = add_header (h, header, err);
    explicit_bzero (token, sizeof (token));
    explicit_bzero (header, sizeof (header));
    return status;
}

static train_status_t set_up (struct http *h, train_error_t *err)
{
    const struct curl_api *api = h->api;

    if (!(h->curl = api->init ()))
        return err_set (err, TRAIN_ENOMEM, "no memory for libcurl");
    /* Expect: would wait a second for a leave that is not needed. */
    TRY (add_header (h, "Expect:", err));
    TRY (add_header (h, "Content-Type: application/octet-stream", err));
    api->setopt (h->curl, CURLOPT_HTTPHEADER, h->headers);
    api->setopt (h->curl, CURLOPT_NOSIGNAL, 1L);
    api->setopt (h->curl, CURLOPT_PROXY, "");
    api->setopt (h->curl, CURLOPT_CONNECTTIMEOUT_MS, CONNECT_MS);
    api->setopt (h->curl, CURLOPT_TCP_KEEPALIVE, 1L);
    api->setopt (h->curl, CURLOPT_NOPROGRESS, 0L);
    api->setopt (h->curl, CURLOPT_XFERINFOFUNCTION, on_progress);
    api->setopt (h->curl, CURLOPT_XFERINFODATA, (void *)h);
    api->setopt (h->curl, CURLOPT_WRITEFUNCTION, on_body);
    api->setopt (h->curl, CURLOPT_HEADERFUNCTION, on_header);
    return TRAIN_OK;
}

static train_status_t open_all (struct http *h, const char *url,
                                const train_reference_http_options_t *o,
                                int *ret_vocab, train_error_t *err)
{
    struct timespec t;

    if (!(o->deadline >= 0) || !isfinite (o->deadline) || o->vocab < 0)
        return err_set (err, TRAIN_EINVAL,
                        "reference: deadline is %g and vocab %d: must be 0 or "
                        "above",
                        o->deadline, o->vocab);
    clock_gettime (CLOCK_REALTIME, &t);
    h->draw = (uint64_t)t.tv_nsec << 20 ^ (uint64_t)getpid ();
    h->deadline = o->deadline > 0 ? o->deadline : 600;
    h->ends = o->ends;
    h->ends_arg = o->ends_arg;
    TRY (take_url (h, url, err));
    TRY (curl_find (&h->api, err));
    if (o->token_file)
        TRY (take_token (h, o->token_file, err));
    TRY (set_up (h, err));
    return look (h, o->vocab, ret_vocab, err);
}

train_status_t train_reference_open_http (
    const char *url, const train_reference_http_options_t *opts,
    train_reference_t **ret, train_error_t *err)
{
    train_reference_http_options_t o;
    struct http *h;
    int vocab = 0;
    train_status_t status;

    TRY (opts_read (&o, sizeof (o), opts, "reference", err));
    if (!(h = calloc (1, sizeof (*h))))
        return err_set (err, TRAIN_ENOMEM, "no memory for a reference");
    status = open_all (h, url, &o, &vocab, err);
    if (status != TRAIN_OK) {
        close_http (h);
        return status;
    }
    return reference_new (&http_ops, h, vocab, ret, err);
}

#else

train_status_t train_reference_open_http (
    const char *url, const train_reference_http_options_t *opts,
    train_reference_t **ret, train_error_t *err)
{
    (void)url, (void)opts, (void)ret;
    return err_set (err, TRAIN_ENOTSUP,
                    "reference: this libtrain was built without libcurl; "
                    "./configure --with-curl where its header is (Debian: "
                    "libcurl4-openssl-dev) builds it in");
}

#endif
