/* SPDX-License-Identifier: Apache-2.0
 * trainer_slow.c - which rank makes the others wait */
#include "trainer_slow.h"

#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include <train/watch.h>

#include "err.h"
#include "sock.h"
#include "trainer.h"

#define LOST_S 0.1 /* less is not worth a line */

static train_status_t before (void *arg, size_t unit, bool backward,
                              train_error_t *err)
{
    struct trainer_slow *slow = arg;
    double begin = slow->clock ();

    TRY (slow_gpu_mark (slow->gpu, err));
    TRY (slow->inner.before (slow->inner.arg, unit, backward, err));
    slow->waited_s += slow->clock () - begin;
    return slow_gpu_mark (slow->gpu, err);
}

static train_status_t after (void *arg, size_t unit, bool backward,
                             train_error_t *err)
{
    struct trainer_slow *slow = arg;
    double begin = slow->clock ();

    TRY (slow_gpu_mark (slow->gpu, err));
    TRY (slow->inner.after (slow->inner.arg, unit, backward, err));
    slow->waited_s += slow->clock () - begin;
    return slow_gpu_mark (slow->gpu, err);
}

train_status_t trainer_slow_begin (struct trainer_slow *slow,
                                   train_decoder_t *m, train_error_t *err)
{
    struct decoder_hooks hooks = {before, after, slow};

    *slow = (struct trainer_slow){.inner = m->hooks, .clock = clock_s};
    if (!slow->inner.before || !slow->inner.after)
        return TRAIN_OK;
    decoder_set_hooks (m, &hooks);
    return slow_gpu_create (m, &slow->gpu, err);
}

void trainer_slow_fini (struct trainer_slow *slow)
{
    slow_gpu_destroy (slow->gpu);
    slow->gpu = NULL;
}

void trainer_slow_add (struct trainer_slow *slow, double s, double waited_s)
{
    slow->own_s += s - waited_s;
    slow->work += slow->now;
    slow->timed++;
    trainer_slow_skip (slow);
}

void trainer_slow_skip (struct trainer_slow *slow)
{
    slow->steps++;
    slow->now = 0;
}

static int by_value (const void *a, const void *b)
{
    double x = *(const double *)a, y = *(const double *)b;

    return (x > y) - (x < y);
}

/* Of those that have rows, [but] left out; 0: there is none. */
static double median (const double *s, int n, int but)
{
    double *v = malloc ((size_t)n * sizeof (*v)), ret = 0;
    size_t k = 0;

    if (!v)
        return 0;
    for (int i = 0; i < n; i++)
        if (i != but && s[i] > 0)
            v[k++] = s[i];
    qsort (v, k, sizeof (*v), by_value);
    if (k > 0)
        ret = (v[(k - 1) / 2] + v[k / 2]) / 2;
    free (v);
    return ret;
}

int trainer_slow_find (const double *s, int n, double factor,
                       double *ret_median)
{
    int worst = 0;
    double m;

    for (int i = 1; i < n; i++)
        if (s[i] > s[worst])
            worst = i;
    m = median (s, n, worst);
    if (m <= 0)
        return -1;
    *ret_median = m;
    return s[worst] > factor * m ? worst : -1;
}

/* Rows, or of a source, whose rows are not alike, tokens. */
static double own_work (const train_trainer_t *t)
{
    return t->data ? (double)t->slow.timed * t->rows : (double)t->slow.work;
}

/* Every rank's seconds a row or token, on every rank; behind them the work of
 * all. */
static train_status_t exchange (train_trainer_t *t, double *s,
                                train_error_t *err)
{
    int n = train_group_size (t->group);
    int64_t shape[1] = {n + 1};
    train_tensor_t view;

    s[n] = own_work (t);
    if (s[n] > 0)
        s[train_group_rank (t->group)] = t->slow.own_s / s[n];
    TRY (train_tensor_view (&view, s, TRAIN_F64, 1, shape, err));
    return train_all_reduce (t->group, &view.t, TRAIN_SUM, err);
}

static train_status_t name (train_trainer_t *t, int rank, const double *s,
                            double others, char *text, size_t size,
                            train_error_t *err)
{
    char host[65] = "?";
    void *got = NULL;
    size_t n;

    gethostname (host, sizeof (host) - 1);
    TRY (train_broadcast_object (t->group, host, strlen (host) + 1, rank, &got,
                                 &n, err));
    snprintf (text, size,
              "rank %d on %s is slow: %.3g ms of its own for a %s of the "
              "batch, the median of the others is %.3g ms (%lld steps)",
              rank, (const char *)got, s[rank] * 1e3, t->data ? "row" : "token",
              others * 1e3, (long long)t->slow.steps);
    free (got);
    return TRAIN_OK;
}

train_status_t train_trainer_slow (train_trainer_t *t, double factor,
                                   int *ret_rank, char *text, size_t size,
                                   train_error_t *err)
{
    int n = train_group_size (t->group), rank;
    double *s, others = 0, lost;
    train_status_t status;

    *ret_rank = -1;
    if (!(factor > 1))
        return err_set (err, TRAIN_EINVAL, "factor %g is not above 1", factor);
    if (!(s = calloc ((size_t)n + 1, sizeof (*s))))
        return err_set (err, TRAIN_ENOMEM, "no memory for %d times", n);
    status = exchange (t, s, err);
    rank = status == TRAIN_OK ? trainer_slow_find (s, n, factor, &others) : -1;
    lost = rank < 0 ? 0
                    : (s[rank] - others) * s[n] / n * (double)t->slow.steps
                          / (double)t->slow.timed;
    if (rank >= 0 && lost >= LOST_S) {
        status = name (t, rank, s, others, text, size, err);
        *ret_rank = rank;
    }
    t->slow.own_s = 0;
    t->slow.steps = t->slow.timed = t->slow.work = 0;
    free (s);
    return status;
}
