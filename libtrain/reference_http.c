/* SPDX-License-Identifier: Apache-2.0
 * reference_http.c - a reference behind rv-train refserver */
#include "config.h"

#include <train/reference.h>

#include "err.h"

#if HAVE_CURL

#include <math.h>
#include <stdbool.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>
#include <unistd.h>

#include <jansson.h>

#include <xxhash.h>

#include "logps_wire.h"
#include "opts.h"
#include "reference.h"
#include "reference_ask.h"
#include "reference_parts.h"
#include "token_file.h"

#define CONNECT_MS 5000L

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

/* An answer is of the model that the first one was of. */
static train_status_t read_answer (const struct http *h, const struct reply *r,
                                   const struct reference_rows *rows,
                                   train_error_t *err)
{
    char model[LOGPS_MODEL] = "";
    train_status_t status = logps_read_answer (r->body, r->n, rows->B, rows->T,
                                               rows->ret, model, err);

    if (status != TRAIN_OK)
        return err_prefix (err, status, "reference %s", h->base);
    if (strcmp (model, h->model) == 0)
        return TRAIN_OK;
    return err_set (err, TRAIN_EMISMATCH,
                    "reference %s: its model was %s and is %s now", h->base,
                    h->model, model);
}

static train_status_t too_long (const struct http *h, int tokens,
                                train_error_t *err)
{
    return err_set (err, TRAIN_EINVAL,
                    "reference %s: %s; one text has %d, and rv-train refserver "
                    "--max-tokens %d or more takes it",
                    h->base, h->said, tokens, tokens);
}

static train_status_t ask_rows (void *self, const struct reference_rows *rows,
                                bool *ret_large, train_error_t *err)
{
    struct http *h = self;
    const struct logps_ask a = {
        .B = rows->B,
        .T = rows->T,
        .temperature = h->temperature,
        .ids = (int32_t *)(uintptr_t)rows->ids,
        .prompt_len = (int32_t *)(uintptr_t)rows->prompt_len,
        .total_len = (int32_t *)(uintptr_t)rows->total_len};
    struct reply reply = {
        .most = logps_body_most ((size_t)rows->B * (size_t)rows->T)};
    char *body = NULL;
    size_t n = 0;
    train_status_t status;

    TRY (logps_write_ask (&a, &body, &n, err));
    h->api->setopt (h->curl, CURLOPT_POST, 1L);
    h->api->setopt (h->curl, CURLOPT_POSTFIELDSIZE_LARGE, (curl_off_t)n);
    h->api->setopt (h->curl, CURLOPT_POSTFIELDS, body);
    status = reference_http_ask (h, &reply, err);
    free (body);
    *ret_large = status == TRAIN_EINVAL && h->code == 413;
    if (status == TRAIN_OK)
        status = read_answer (h, &reply, rows, err);
    else if (*ret_large && rows->B == 1)
        status = too_long (h, rows->T, err);
    free (reply.body);
    return status;
}

static train_status_t http_logps (void *self, const int32_t *ids,
                                  const int32_t *prompt_len,
                                  const int32_t *total_len, int B, int T,
                                  double temperature, float *ret,
                                  train_error_t *err)
{
    struct http *h = self;
    const struct reference_rows rows = {ids, prompt_len, total_len, B, T, ret};

    h->temperature = temperature;
    return reference_in_parts (&rows, &h->most, ask_rows, h, err);
}

static bool http_hash (void *self, uint64_t *ret)
{
    const struct http *h = self;

    *ret = XXH3_64bits (h->model, strlen (h->model));
    return true;
}

static const struct reference_ops http_ops = {.name = "http",
                                              .logps = http_logps,
                                              .close = close_http,
                                              .hash = http_hash};

static train_status_t check_health (struct http *h, const struct reply *r,
                                    int vocab, int *ret_vocab,
                                    train_error_t *err)
{
    json_t *root = json_loadb (r->body, r->n, 0, NULL);
    const char *model = json_string_value (json_object_get (root, "model"));
    json_int_t api = json_integer_value (json_object_get (root, "api"));
    json_int_t has = json_integer_value (json_object_get (root, "vocabulary"));
    json_int_t most = json_integer_value (json_object_get (root, "max_tokens"));
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
    h->most = most > 0 ? (size_t)most : 0;
    json_decref (root);
    return status;
}

static train_status_t look (struct http *h, int vocab, int *ret_vocab,
                            train_error_t *err)
{
    struct reply reply = {.most = LOGPS_HEADER};
    train_status_t status = reference_http_url (h, HEALTH_PATH, err);

    if (status == TRAIN_OK)
        status = reference_http_ask (h, &reply, err);
    if (status == TRAIN_OK)
        status = check_health (h, &reply, vocab, ret_vocab, err);
    free (reply.body);
    if (status == TRAIN_OK)
        status = reference_http_url (h, LOGPS_PATH, err);
    return status;
}

static train_status_t take_url (struct http *h, const char *url,
                                train_error_t *err)
{
    size_t n = url ? reference_url (url) : 0;

    if (n == 0)
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
    api->setopt (h->curl, CURLOPT_XFERINFOFUNCTION, reference_http_progress);
    api->setopt (h->curl, CURLOPT_XFERINFODATA, (void *)h);
    api->setopt (h->curl, CURLOPT_WRITEFUNCTION, reference_http_body);
    api->setopt (h->curl, CURLOPT_HEADERFUNCTION, reference_http_header);
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
    h->waits = o->waits;
    h->waits_arg = o->waits_arg;
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
