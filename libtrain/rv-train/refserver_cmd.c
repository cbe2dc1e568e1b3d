/* SPDX-License-Identifier: Apache-2.0
 * refserver_cmd.c - rv-train refserver: options, the model, and from the first
 * request to the signal that ends it */
#include "config.h"

#include "refserver.h"

#include <inttypes.h>
#include <limits.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>

#include "cmd_options.h"
#include "generate_cmd.h"

#include "libtrain/decoder_hash.h"
#include "libtrain/decoder_impl.h"
#include "libtrain/err.h"
#include "libtrain/token_file.h"

struct server {
    const char *model, *token_file;
    train_dtype_t dtype;
    int device; /* -1 automatic, 0 host, 1 GPU */
    long merge; /* -1: as the device has it */
    struct refserver_queue_options q;
    struct refserver_http_options h;

    train_decoder_t *decoder;
    train_reference_t *reference;
    struct refserver_queue *queue;
    struct refserver_http *http;
    char sum[LOGPS_MODEL], token[TOKEN_MOST + 1];
    char *dir, *url;
};

static const struct option options[] = {
    {"port", required_argument, NULL, 'p'},
    {"address", required_argument, NULL, 'a'},
    {"token-file", required_argument, NULL, 't'},
    {"max-tokens", required_argument, NULL, 'm'},
    {"queue", required_argument, NULL, 'q'},
    {"batch-tokens", required_argument, NULL, 'b'},
    {"connections", required_argument, NULL, 'c'},
    {"timeout", required_argument, NULL, 's'},
    {"dtype", required_argument, NULL, 'd'},
    {"device", required_argument, NULL, 'D'},
    {NULL, 0, NULL, 0},
};

static train_status_t take_word (struct server *s, int which, const char *arg,
                                 train_error_t *err)
{
    switch (which) {
    case 'a':
        s->h.address = arg;
        return TRAIN_OK;
    case 't':
        s->token_file = arg;
        return TRAIN_OK;
    case 'd':
        return cmd_dtype (arg, &s->dtype, err);
    default:
        return cmd_device (arg, &s->device, err);
    }
}

static train_status_t take_option (void *self, int which, const char *arg,
                                   train_error_t *err)
{
    struct server *s = self;
    long v = 0;

    switch (which) {
    case 'p':
        TRY (cmd_whole ("port", arg, 0, 65535, &v, err));
        s->h.port = (int)v;
        return TRAIN_OK;
    case 'm':
        TRY (cmd_whole ("max-tokens", arg, 1, 1L << 26, &v, err));
        s->h.max_tokens = (size_t)v;
        return TRAIN_OK;
    case 'q':
        TRY (cmd_whole ("queue", arg, 1, 1 << 20, &v, err));
        s->q.most = (int)v;
        return TRAIN_OK;
    case 'b':
        return cmd_whole ("batch-tokens", arg, 0, 1L << 26, &s->merge, err);
    case 'c':
        TRY (cmd_whole ("connections", arg, 1, 1 << 16, &v, err));
        s->h.connections = (int)v;
        return TRAIN_OK;
    case 's':
        TRY (cmd_whole ("timeout", arg, 1, 86400, &v, err));
        s->h.timeout = (int)v;
        return TRAIN_OK;
    default:
        return take_word (s, which, arg, err);
    }
}

static train_status_t read_options (struct server *s, int argc, char **argv,
                                    train_error_t *err)
{
    TRY (cmd_options (argc, argv, options, take_option, s, err));
    if (optind + 1 != argc)
        return err_set (err, TRAIN_EINVAL,
                        "expected one model: a directory or a checkpoint");
    s->model = argv[optind];
    return TRAIN_OK;
}

static train_status_t sum_weights (struct server *s, train_error_t *err)
{
    uint64_t sum;

    TRY (decoder_hash (s->decoder, NULL, true, &sum, err));
    snprintf (s->sum, sizeof (s->sum), "%016" PRIx64, sum);
    return TRAIN_OK;
}

static train_status_t open_model (struct server *s, train_error_t *err)
{
    bool gpu = cmd_on_gpu (s->device);

    TRY (generate_model (s->model, s->dtype, gpu, &s->decoder, &s->dir, err));
    TRY (sum_weights (s, err));
    /* On the host the rows of a product hang, in their last bits, on how many
     * there are; there an answer is to be the same whoever else asks. */
    s->q.merge = s->merge >= 0 ? (size_t)s->merge : gpu ? 16384 : 0;
    s->q.same_t = s->decoder->config.rope.kind == TRAIN_ROPE_DYNAMIC;
    s->h.vocab = s->decoder->config.vocab;
    s->h.model = s->sum;
    /* A copy has no gradients, and activations of one block alone. */
    TRY (train_reference_open_copy (s->decoder, &s->reference, err));
    train_decoder_destroy (s->decoder);
    s->decoder = NULL;
    return TRAIN_OK;
}

static train_status_t serve (struct server *s, train_error_t *err)
{
    const struct timespec second = {.tv_sec = 1};
    sigset_t ends;

    /* Before there are threads, which inherit it. */
    sigemptyset (&ends);
    sigaddset (&ends, SIGTERM);
    sigaddset (&ends, SIGINT);
    sigaddset (&ends, SIGUSR1);
    pthread_sigmask (SIG_BLOCK, &ends, NULL);
    signal (SIGPIPE, SIG_IGN);
    TRY (open_model (s, err));
    TRY (refserver_queue_start (s->reference, &s->q, &s->queue, err));
    TRY (refserver_http_start (s->queue, &s->h, &s->http, &s->url, err));
    printf ("refserver: %s serves %s, sum %s, vocabulary %d\n", s->url,
            s->model, s->sum, s->h.vocab);
    fflush (stdout);
    while (sigtimedwait (&ends, NULL, &second) < 0)
        refserver_http_sweep (s->http);
    return TRAIN_OK;
}

/* What the model is at is ended and answered; who waits hears 503. */
static void end (struct server *s)
{
    refserver_http_quiet (s->http);
    refserver_queue_stop (s->queue);
    refserver_http_stop (s->http);
    train_reference_close (s->reference);
    train_decoder_destroy (s->decoder);
    explicit_bzero (s->token, sizeof (s->token));
    free (s->dir);
    free (s->url);
}

train_status_t refserver_cmd (int argc, char **argv, train_error_t *err)
{
    struct server s = {
        .dtype = TRAIN_N_DTYPES,
        .device = -1,
        .merge = -1,
        .q = {.most = 256},
        .h = {.port = 8077,
              .max_tokens = 1 << 17,
              .connections = 256,
              .timeout = 30},
    };
    train_status_t status;

    TRY (read_options (&s, argc, argv, err));
    if (s.token_file) {
        TRY (token_file_read (s.token_file, s.token, err));
        s.h.token = s.token;
    }
    status = serve (&s, err);
    end (&s);
    return status;
}
