/* SPDX-License-Identifier: Apache-2.0
 * reference_ask.c - ask rv-train refserver until it answers
 *
 * Asking again costs the server the work once more and changes nothing, so
 * whatever may pass (a server that is restarted, a full queue) is tried again
 * until the deadline, later each time and never at the same moment as other
 * ranks. */
#include "config.h"

#if HAVE_CURL

#include "reference_ask.h"

#include <ctype.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>

#include <jansson.h>

#include "err.h"
#include "philox.h"
#include "sock.h"

#define WAIT_LEAST 0.05 /* seconds before the second try */
#define WAIT_MOST  5.0
#define SLICE      0.1 /* seconds of a pause in which nobody is asked */

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
int reference_http_progress (void *arg, curl_off_t to_get, curl_off_t got,
                             curl_off_t to_give, curl_off_t given)
{
    (void)to_get, (void)got, (void)to_give, (void)given;
    return is_over (arg);
}

size_t reference_http_body (char *data, size_t size, size_t n, void *arg)
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

size_t reference_http_header (char *data, size_t size, size_t n, void *arg)
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
        return code == 408 || code == 429 || code == 502 || code == 503
               || code == 504;
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
    h->code = code;
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

/* A server that is there and has no time is no news. */
static void tell (const struct http *h, double since, bool *told)
{
    if (!h->waits || h->code != 0 || *told)
        return;
    h->waits (h->waits_arg, h->said, since + h->deadline - clock_s ());
    *told = true;
}

/* Until it is answered, or the deadline has passed. */
train_status_t reference_http_ask (struct http *h, struct reply *reply,
                                   train_error_t *err)
{
    double since = clock_s (), end = since + h->deadline;
    bool told = false;

    h->said[0] = '\0';
    for (int tries = 0;; tries++) {
        bool again = false;
        double left = end - clock_s (), wait;
        train_status_t status;

        if (left > 0) {
            status = try_once (h, left, reply, &again, err);
            if (status == TRAIN_OK && told)
                h->waits (h->waits_arg, NULL, clock_s () - since);
            if (status == TRAIN_OK || !again)
                return status;
            tell (h, since, &told);
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

train_status_t reference_http_url (struct http *h, const char *path,
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

#endif
