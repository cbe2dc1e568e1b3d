/* SPDX-License-Identifier: Apache-2.0
 * ref_tool.c - what a trainer asks of rv-train refserver, for tests and figures
 *
 *   ref_tool same MODEL URL TOKEN_FILE N DEADLINE
 *       N batches asked there and of the model here: the same bits, or how far
 *       apart; a line for each
 *   ref_tool load URL TOKEN_FILE CLIENTS REQUESTS TOKENS
 *       REQUESTS of one row by CLIENTS threads; one line of JSON: seconds
 *   ref_tool ask URL TOKEN_FILE VOCAB DEADLINE
 *       one batch; the status and its text
 * TOKEN_FILE "-": none. Exit status: 0, 1 when something differs,
 * 2 when it fails. */
#include "config.h"

#include <math.h>
#include <pthread.h>
#include <stdatomic.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>

#include <train/decoder.h>
#include <train/reference.h>

#include "libtrain/err.h"
#include "libtrain/rv-train/generate_cmd.h"

enum { ROWS = 3, LONG = 24, VOCAB = 256 };
enum { DIFFER = 1, FAILED = 2 }; /* and exit statuses */

static double now (void)
{
    struct timespec t;

    clock_gettime (CLOCK_MONOTONIC, &t);
    return (double)t.tv_sec + 1e-9 * (double)t.tv_nsec;
}

static int failed (train_status_t status, const train_error_t *err)
{
    printf ("%s %s\n", train_status_name (status), err->text);
    return FAILED;
}

static train_status_t open_url (const char *url, const char *token, int vocab,
                                double deadline, train_reference_t **ret,
                                train_error_t *err)
{
    const train_reference_http_options_t o = {
        .size = sizeof (o),
        .token_file = strcmp (token, "-") == 0 ? NULL : token,
        .vocab = vocab,
        .deadline = deadline,
    };

    return train_reference_open_http (url, &o, ret, err);
}

/* Another batch for each [i]. */
static void draw (int i, int32_t *ids, int32_t *prompt, int32_t *total)
{
    uint32_t x = 2654435761U * (uint32_t)(i + 1);

    for (int b = 0; b < ROWS; b++) {
        total[b] = 2 + (i + 5 * b) % (LONG - 1);
        prompt[b] = 1 + (i + b) % total[b];
        for (int t = 0; t < LONG; t++) {
            x = x * 1664525U + 1013904223U;
            ids[b * LONG + t] = (int32_t)(x >> 24) % VOCAB;
        }
    }
}

static int compare (int i, train_reference_t *here, train_reference_t *there)
{
    int32_t ids[ROWS * LONG], prompt[ROWS], total[ROWS];
    float mine[ROWS * LONG], theirs[ROWS * LONG];
    double temperature = i % 2 ? 0.7 : 1, far = 0;
    train_error_t err = {0};
    train_status_t status;

    draw (i, ids, prompt, total);
    status = train_reference_logps (here, ids, prompt, total, ROWS, LONG,
                                    temperature, mine, &err);
    if (status == TRAIN_OK)
        status = train_reference_logps (there, ids, prompt, total, ROWS, LONG,
                                        temperature, theirs, &err);
    if (status != TRAIN_OK)
        return failed (status, &err);
    for (int k = 0; k < ROWS * LONG; k++)
        far = fmax (far, fabs ((double)mine[k] - (double)theirs[k]));
    printf ("batch %d: %s, apart %g\n", i,
            memcmp (mine, theirs, sizeof (mine)) ? "differ" : "same", far);
    fflush (stdout);
    return memcmp (mine, theirs, sizeof (mine)) ? DIFFER : 0;
}

static int same (char **arg)
{
    train_decoder_t *m = NULL;
    train_reference_t *here = NULL, *there = NULL;
    train_error_t err = {0};
    char *dir = NULL;
    int bad = 0, n = (int)strtol (arg[3], NULL, 10);
    train_status_t status =
        generate_model (arg[0], TRAIN_N_DTYPES, false, &m, &dir, &err);

    if (status == TRAIN_OK)
        status = train_reference_open_decoder (m, &here, &err);
    if (status == TRAIN_OK)
        status = open_url (arg[1], arg[2], train_decoder_config (m)->vocab,
                           strtod (arg[4], NULL), &there, &err);
    if (status != TRAIN_OK)
        bad = failed (status, &err);
    for (int i = 0; i < n && status == TRAIN_OK && bad < FAILED; i++)
        bad |= compare (i, here, there);
    train_reference_close (there);
    train_reference_close (here);
    train_decoder_destroy (m);
    free (dir);
    return bad;
}

static int ask (char **arg)
{
    int32_t ids[ROWS * LONG], prompt[ROWS], total[ROWS];
    float ret[ROWS * LONG];
    train_reference_t *r = NULL;
    train_error_t err = {0};
    train_status_t status =
        open_url (arg[0], arg[1], (int)strtol (arg[2], NULL, 10),
                  strtod (arg[3], NULL), &r, &err);

    draw (0, ids, prompt, total);
    if (status == TRAIN_OK)
        status = train_reference_logps (r, ids, prompt, total, ROWS, LONG, 1,
                                        ret, &err);
    train_reference_close (r);
    if (status != TRAIN_OK)
        return failed (status, &err);
    puts ("OK");
    return 0;
}

struct load {
    char **arg; /* URL, TOKEN_FILE */
    int requests, tokens;
    atomic_int next, errors;
    double *seconds; /* (requests) */
};

static train_status_t one (struct load *l, train_reference_t *r, int i,
                           int32_t *ids, float *ret, train_error_t *err)
{
    int32_t total = l->tokens;
    double begin = now ();

    for (int t = 0; t < l->tokens; t++)
        ids[t] = (i * 31 + t * 7) % VOCAB;
    TRY (train_reference_logps (r, ids, NULL, &total, 1, l->tokens, 1, ret,
                                err));
    l->seconds[i] = now () - begin;
    return TRAIN_OK;
}

static void *client (void *arg)
{
    struct load *l = arg;
    int32_t *ids = calloc ((size_t)l->tokens, sizeof (*ids));
    float *ret = calloc ((size_t)l->tokens, sizeof (*ret));
    train_reference_t *r = NULL;
    train_error_t err = {0};
    int i;

    if (!ids || !ret
        || open_url (l->arg[0], l->arg[1], VOCAB, 600, &r, &err) != TRAIN_OK)
        atomic_fetch_add (&l->errors, 1);
    while (r && (i = atomic_fetch_add (&l->next, 1)) < l->requests)
        if (one (l, r, i, ids, ret, &err) != TRAIN_OK) {
            atomic_fetch_add (&l->errors, 1);
            fprintf (stderr, "%s\n", err.text);
            break;
        }
    train_reference_close (r);
    free (ids);
    free (ret);
    return NULL;
}

static int by_value (const void *a, const void *b)
{
    double x = *(const double *)a, y = *(const double *)b;

    return x < y ? -1 : x > y;
}

static int load (char **arg)
{
    struct load l = {.arg = arg,
                     .requests = (int)strtol (arg[3], NULL, 10),
                     .tokens = (int)strtol (arg[4], NULL, 10)};
    int n = (int)strtol (arg[2], NULL, 10), started = 0;
    pthread_t *threads = calloc ((size_t)n, sizeof (*threads));
    double begin = now (), all;

    l.seconds = calloc ((size_t)l.requests, sizeof (double));
    if (!threads || !l.seconds || l.requests < 1)
        return 1;
    while (started < n
           && pthread_create (&threads[started], NULL, client, &l) == 0)
        started++;
    for (int i = 0; i < started; i++)
        pthread_join (threads[i], NULL);
    all = now () - begin;
    qsort (l.seconds, (size_t)l.requests, sizeof (double), by_value);
    printf ("{\"clients\":%d,\"requests\":%d,\"tokens\":%d,\"errors\":%d,"
            "\"seconds\":%.3f,\"median\":%.4f,\"p99\":%.4f,\"most\":%.4f}\n",
            n, l.requests, l.tokens, (int)l.errors, all,
            l.seconds[l.requests / 2],
            l.seconds[(int)ceil (0.99 * l.requests) - 1],
            l.seconds[l.requests - 1]);
    free (threads);
    free (l.seconds);
    return l.errors > 0 || started < n;
}

int main (int argc, char **argv)
{
    static const struct {
        const char *name;
        int args;
        int (*run) (char **arg);
    } verbs[] = {{"same", 5, same}, {"load", 5, load}, {"ask", 4, ask}};

    for (size_t i = 0; i < sizeof (verbs) / sizeof (*verbs); i++)
        if (argc == 2 + verbs[i].args && strcmp (argv[1], verbs[i].name) == 0)
            return verbs[i].run (argv + 2);
    fprintf (stderr, "ref_tool: its head says how\n");
    return 2;
}
