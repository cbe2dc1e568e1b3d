/* SPDX-License-Identifier: Apache-2.0
 * refserver_queue.c - one thread asks the model what requests wait for, first
 * come first served; small ones of one temperature together */
#include "config.h"

#include "refserver.h"

#include <pthread.h>
#include <stdlib.h>
#include <string.h>

#include "libtrain/err.h"
#include "libtrain/sock.h"

struct refserver_queue {
    train_reference_t *reference;
    struct refserver_queue_options o;
    pthread_t thread;
    pthread_mutex_t lock; /* of all below */
    pthread_cond_t some;
    struct refserver_job *first, **last;
    struct refserver_count count;
    double seconds; /* of a request, lately */
    bool stop;
};

static size_t most_of (size_t a, size_t b)
{
    return a > b ? a : b;
}

static struct refserver_job *pop (struct refserver_queue *q,
                                  struct refserver_job **at)
{
    struct refserver_job *job = *at;

    *at = job->next;
    if (q->last == &job->next)
        q->last = at;
    job->next = NULL;
    q->count.waiting--;
    return job;
}

/* Those that may go with [list], in the order of their coming. */
static void take_more (struct refserver_queue *q, struct refserver_job *list)
{
    struct refserver_job **at = &q->first, **end = &list->next;
    size_t rows = (size_t)list->ask.B, T = (size_t)list->ask.T;

    while (*at) {
        const struct logps_ask *a = &(*at)->ask;
        size_t all = rows + (size_t)a->B, longest = most_of (T, (size_t)a->T);

        if (a->temperature == list->ask.temperature
            && (!q->o.same_t || a->T == list->ask.T)
            && all * longest <= q->o.merge) {
            *end = pop (q, at);
            end = &(*end)->next;
            rows = all;
            T = longest;
        } else {
            at = &(*at)->next;
        }
    }
}

/* The next batch; NULL: stop. */
static struct refserver_job *take (struct refserver_queue *q)
{
    struct refserver_job *list = NULL;

    pthread_mutex_lock (&q->lock);
    while (!q->first && !q->stop)
        pthread_cond_wait (&q->some, &q->lock);
    if (!q->stop) {
        list = pop (q, &q->first);
        if (q->o.merge > 0)
            take_more (q, list);
    }
    pthread_mutex_unlock (&q->lock);
    return list;
}

/* Rows of a batch, side by side: ids, lengths, and what comes out. */
struct rows {
    int32_t *ids, *prompt, *total; /* one block begins with [ids] */
    float *logps;
    size_t n, T, passes;
};

static bool make_rows (struct rows *r, const struct refserver_job *list)
{
    for (const struct refserver_job *j = list; j; j = j->next) {
        r->n += (size_t)j->ask.B;
        r->T = most_of (r->T, (size_t)j->ask.T);
    }
    r->ids = calloc (r->n * (r->T + 2), sizeof (*r->ids));
    r->logps = calloc (r->n * r->T, sizeof (*r->logps));
    if (!r->ids || !r->logps)
        return false;
    r->prompt = r->ids + r->n * r->T;
    r->total = r->prompt + r->n;
    return true;
}

/* To the rows, or [back] from them. */
static void move_rows (struct rows *r, struct refserver_job *list, bool back)
{
    size_t row = 0;

    for (struct refserver_job *j = list; j; j = j->next)
        for (size_t b = 0; b < (size_t)j->ask.B; b++, row++) {
            size_t T = (size_t)j->ask.T;

            if (back) {
                memcpy (j->logps + b * T, r->logps + row * r->T,
                        T * sizeof (*j->logps));
                continue;
            }
            memcpy (r->ids + row * r->T, j->ask.ids + b * T,
                    T * sizeof (*r->ids));
            r->prompt[row] = j->ask.prompt_len[b];
            r->total[row] = j->ask.total_len[b];
        }
}

/* As many rows at a time as may be at once, one at least. */
static train_status_t pass_rows (struct refserver_queue *q, struct rows *r,
                                 double temperature, train_error_t *err)
{
    size_t most = q->o.merge > 0 ? q->o.merge / r->T : r->n;

    most = most_of (most, 1);
    for (size_t at = 0; at < r->n; at += most) {
        size_t n = r->n - at < most ? r->n - at : most;

        r->passes++;
        TRY (train_reference_logps (
            q->reference, r->ids + at * r->T, r->prompt + at, r->total + at,
            (int)n, (int)r->T, temperature, r->logps + at * r->T, err));
    }
    return TRAIN_OK;
}

static train_status_t compute (struct refserver_queue *q,
                               struct refserver_job *list, size_t *ret_passes,
                               train_error_t *err)
{
    struct rows r = {0};
    train_status_t status;

    if (!make_rows (&r, list)) {
        status = err_set (err, TRAIN_ENOMEM, "no memory for %zu rows of %zu",
                          r.n, r.T);
    } else {
        move_rows (&r, list, false);
        status = pass_rows (q, &r, list->ask.temperature, err);
    }
    if (status == TRAIN_OK)
        move_rows (&r, list, true);
    *ret_passes = r.passes;
    free (r.ids);
    free (r.logps);
    return status;
}

static void give_back (struct refserver_job *list, train_status_t status,
                       const train_error_t *err)
{
    while (list) {
        struct refserver_job *next = list->next;

        list->status = status;
        list->err = *err;
        list->done (list);
        list = next;
    }
}

static void note (struct refserver_queue *q, const struct refserver_job *list,
                  size_t passes, double seconds)
{
    unsigned n = 0;

    for (; list; list = list->next)
        n++;
    pthread_mutex_lock (&q->lock);
    q->count.answered += n;
    q->count.passes += passes;
    q->seconds += (seconds / n - q->seconds) / 8;
    pthread_mutex_unlock (&q->lock);
}

/* What fails together is tried one by one: the bad request alone is to fail. */
static void answer (struct refserver_queue *q, struct refserver_job *list)
{
    train_error_t err = {0};
    size_t passes = 0;
    double begin = clock_s ();
    train_status_t status = compute (q, list, &passes, &err);

    if (status == TRAIN_OK || !list->next) {
        note (q, list, passes, clock_s () - begin);
        give_back (list, status, &err);
        return;
    }
    while (list) {
        struct refserver_job *next = list->next;

        list->next = NULL;
        answer (q, list);
        list = next;
    }
}

static void *work (void *arg)
{
    struct refserver_queue *q = arg;
    struct refserver_job *list;

    while ((list = take (q)))
        answer (q, list);
    return NULL;
}

train_status_t refserver_queue_start (
    train_reference_t *reference, const struct refserver_queue_options *opts,
    struct refserver_queue **ret, train_error_t *err)
{
    struct refserver_queue *q = calloc (1, sizeof (*q));

    if (!q)
        return err_set (err, TRAIN_ENOMEM, "no memory for a queue");
    q->reference = reference;
    q->o = *opts;
    q->last = &q->first;
    pthread_mutex_init (&q->lock, NULL);
    pthread_cond_init (&q->some, NULL);
    if (pthread_create (&q->thread, NULL, work, q) != 0) {
        free (q);
        return err_set (err, TRAIN_ENOMEM, "no thread for the model");
    }
    *ret = q;
    return TRAIN_OK;
}

bool refserver_queue_full (struct refserver_queue *q)
{
    bool full;

    pthread_mutex_lock (&q->lock);
    full = q->count.waiting >= q->o.most;
    q->count.refused += full;
    pthread_mutex_unlock (&q->lock);
    return full;
}

void refserver_queue_put (struct refserver_queue *q, struct refserver_job *job)
{
    pthread_mutex_lock (&q->lock);
    job->next = NULL;
    *q->last = job;
    q->last = &job->next;
    q->count.waiting++;
    pthread_cond_signal (&q->some);
    pthread_mutex_unlock (&q->lock);
}

int refserver_queue_retry (struct refserver_queue *q)
{
    double seconds;

    pthread_mutex_lock (&q->lock);
    seconds = q->seconds * (1 + q->count.waiting) / 2;
    pthread_mutex_unlock (&q->lock);
    return seconds < 1 ? 1 : seconds > 60 ? 60 : (int)(seconds + 0.5);
}

void refserver_queue_count (struct refserver_queue *q,
                            struct refserver_count *ret)
{
    pthread_mutex_lock (&q->lock);
    *ret = q->count;
    pthread_mutex_unlock (&q->lock);
}

void refserver_queue_stop (struct refserver_queue *q)
{
    train_error_t err = {0};

    if (!q)
        return;
    pthread_mutex_lock (&q->lock);
    q->stop = true;
    pthread_cond_signal (&q->some);
    pthread_mutex_unlock (&q->lock);
    pthread_join (q->thread, NULL);
    err_set (&err, TRAIN_EABORTED, "the server ends");
    give_back (q->first, TRAIN_EABORTED, &err);
    pthread_mutex_destroy (&q->lock);
    pthread_cond_destroy (&q->some);
    free (q);
}
