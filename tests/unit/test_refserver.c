/* SPDX-License-Identifier: Apache-2.0
 * test_refserver.c - the queue of rv-train refserver before a made reference */
#include <pthread.h>
#include <sched.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include <cmocka.h>

#include "libtrain/err.h"
#include "libtrain/reference.h"
#include "libtrain/rv-train/refserver.h"

enum { MOST = 16, LONG = 8 };

/* A reference whose log-prob of a token is -id, and which can be held. */
struct made {
    pthread_mutex_t lock;
    pthread_cond_t change;
    bool hold, inside;
    int passes, rows[MOST], places[MOST];
    int32_t bad; /* this id makes a pass fail; 0: none does */
    train_status_t status;
};

static train_status_t made_logps (void *self, const int32_t *ids,
                                  const int32_t *prompt_len,
                                  const int32_t *total_len, int B, int T,
                                  double temperature, float *ret,
                                  train_error_t *err)
{
    struct made *m = self;
    train_status_t status;

    (void)prompt_len, (void)total_len;
    pthread_mutex_lock (&m->lock);
    m->rows[m->passes % MOST] = B;
    m->places[m->passes++ % MOST] = T;
    m->inside = true;
    pthread_cond_broadcast (&m->change);
    while (m->hold)
        pthread_cond_wait (&m->change, &m->lock);
    m->inside = false;
    status = m->status;
    pthread_mutex_unlock (&m->lock);
    for (int i = 0; i < B * T; i++) {
        if (m->bad && ids[i] == m->bad)
            status = TRAIN_EINVAL;
        ret[i] = -(float)((double)ids[i] / temperature);
    }
    return status == TRAIN_OK ? TRAIN_OK
                              : err_set (err, status, "made to fail");
}

static void made_close (void *self)
{
    (void)self;
}

static const struct reference_ops made_ops = {
    .name = "made", .logps = made_logps, .close = made_close};

struct desk {
    struct made made;
    train_reference_t *reference;
    struct refserver_queue *queue;
    pthread_mutex_t lock;
    pthread_cond_t more;
    int done, order[MOST];
};

static void set_hold (struct made *m, bool hold)
{
    pthread_mutex_lock (&m->lock);
    m->hold = hold;
    pthread_cond_broadcast (&m->change);
    pthread_mutex_unlock (&m->lock);
}

static void until_inside (struct made *m)
{
    pthread_mutex_lock (&m->lock);
    while (!m->inside)
        pthread_cond_wait (&m->change, &m->lock);
    pthread_mutex_unlock (&m->lock);
}

static void open_desk (struct desk *d, int most, size_t merge, bool same_t)
{
    const struct refserver_queue_options o = {
        .most = most, .merge = merge, .same_t = same_t};

    *d = (struct desk){.lock = PTHREAD_MUTEX_INITIALIZER,
                       .more = PTHREAD_COND_INITIALIZER,
                       .made = {.lock = PTHREAD_MUTEX_INITIALIZER,
                                .change = PTHREAD_COND_INITIALIZER}};
    assert_int_equal (
        reference_new (&made_ops, &d->made, 0, &d->reference, NULL), TRAIN_OK);
    assert_int_equal (refserver_queue_start (d->reference, &o, &d->queue, NULL),
                      TRAIN_OK);
}

static void close_desk (struct desk *d)
{
    refserver_queue_stop (d->queue);
    train_reference_close (d->reference);
}

struct asked {
    struct refserver_job job;
    struct desk *desk;
    int number;
    int32_t room[MOST * LONG + 2 * MOST];
    float logps[MOST * LONG];
};

static void on_done (struct refserver_job *job)
{
    struct asked *a = job->arg;
    struct desk *d = a->desk;

    pthread_mutex_lock (&d->lock);
    d->order[d->done++] = a->number;
    pthread_cond_signal (&d->more);
    pthread_mutex_unlock (&d->lock);
}

static void ask (struct desk *d, struct asked *a, int number, int B, int T,
                 double temperature)
{
    struct logps_ask *k = &a->job.ask;

    memset (a, 0, sizeof (*a));
    *k = (struct logps_ask){.B = B, .T = T, .temperature = temperature};
    k->ids = a->room;
    k->prompt_len = a->room + B * T;
    k->total_len = k->prompt_len + B;
    for (int b = 0; b < B; b++) {
        k->total_len[b] = T;
        for (int t = 0; t < T; t++)
            k->ids[b * T + t] = 100 * number + 10 * b + t;
    }
    a->desk = d;
    a->number = number;
    a->job.logps = a->logps;
    a->job.done = on_done;
    a->job.arg = a;
    refserver_queue_put (d->queue, &a->job);
}

static void until_done (struct desk *d, int n)
{
    pthread_mutex_lock (&d->lock);
    while (d->done < n)
        pthread_cond_wait (&d->more, &d->lock);
    pthread_mutex_unlock (&d->lock);
}

static void expect (const struct asked *a)
{
    const struct logps_ask *k = &a->job.ask;

    assert_int_equal (a->job.status, TRAIN_OK);
    for (int i = 0; i < k->B * k->T; i++) {
        float want = -(float)((double)k->ids[i] / k->temperature);

        assert_true (a->logps[i] == (i % k->T == 0 ? 0 : want));
    }
}

/* One by one, in the order of their coming, whatever their shape. */
static void test_alone (void **state)
{
    struct desk d;
    struct asked a[4];
    struct refserver_count count;

    (void)state;
    open_desk (&d, 8, 0, false);
    for (int i = 0; i < 4; i++)
        ask (&d, &a[i], i, 1 + i, 2 + i, 1);
    until_done (&d, 4);
    for (int i = 0; i < 4; i++) {
        expect (&a[i]);
        assert_int_equal (d.order[i], i);
        assert_int_equal (d.made.rows[i], 1 + i);
        assert_int_equal (d.made.places[i], 2 + i);
    }
    refserver_queue_count (d.queue, &count);
    assert_int_equal (count.passes, 4);
    assert_int_equal (count.waiting, 0);
    close_desk (&d);
}

/* While the first is at work, others wait; of these go together those of one
 * temperature that fit. */
static void test_together (void **state)
{
    struct desk d;
    struct asked a[6];

    (void)state;
    open_desk (&d, 8, 24, false);
    set_hold (&d.made, true);
    ask (&d, &a[0], 0, 1, 2, 1);
    until_inside (&d.made);
    ask (&d, &a[1], 1, 2, 4, 1);
    ask (&d, &a[2], 2, 1, 3, 2); /* another temperature */
    ask (&d, &a[3], 3, 2, 6, 1); /* 4 rows of 6 are 24 */
    ask (&d, &a[4], 4, 1, 2, 1); /* does not fit */
    ask (&d, &a[5], 5, 2, 2, 2);
    set_hold (&d.made, false);
    until_done (&d, 6);
    for (int i = 0; i < 6; i++)
        expect (&a[i]);
    assert_int_equal (d.made.passes, 4);
    assert_int_equal (d.made.rows[1], 4);
    assert_int_equal (d.made.places[1], 6);
    assert_int_equal (d.made.rows[2], 3);
    assert_int_equal (d.made.rows[3], 1);
    close_desk (&d);
}

static void test_same_t (void **state)
{
    struct desk d;
    struct asked a[3];

    (void)state;
    open_desk (&d, 8, 100, true);
    set_hold (&d.made, true);
    ask (&d, &a[0], 0, 1, 2, 1);
    until_inside (&d.made);
    ask (&d, &a[1], 1, 1, 4, 1);
    ask (&d, &a[2], 2, 1, 5, 1);
    set_hold (&d.made, false);
    until_done (&d, 3);
    assert_int_equal (d.made.passes, 3);
    close_desk (&d);
}

/* A request that is larger goes through in parts, of one row at least. */
static void test_parts (void **state)
{
    struct desk d;
    struct asked a;

    (void)state;
    open_desk (&d, 8, 10, false);
    ask (&d, &a, 1, 5, 4, 1);
    until_done (&d, 1);
    expect (&a);
    assert_int_equal (d.made.passes, 3);
    assert_int_equal (d.made.rows[0], 2);
    assert_int_equal (d.made.rows[2], 1);
    d.done = 0;
    ask (&d, &a, 2, 1, LONG, 1);
    until_done (&d, 1);
    expect (&a);
    close_desk (&d);
}

static void test_full (void **state)
{
    struct desk d;
    struct asked a[3];
    struct refserver_count count;

    (void)state;
    open_desk (&d, 2, 0, false);
    set_hold (&d.made, true);
    ask (&d, &a[0], 0, 1, 2, 1);
    until_inside (&d.made);
    assert_false (refserver_queue_full (d.queue));
    ask (&d, &a[1], 1, 1, 2, 1);
    assert_false (refserver_queue_full (d.queue));
    ask (&d, &a[2], 2, 1, 2, 1);
    assert_true (refserver_queue_full (d.queue));
    assert_in_range (refserver_queue_retry (d.queue), 1, 60);
    refserver_queue_count (d.queue, &count);
    assert_int_equal (count.refused, 1);
    assert_int_equal (count.waiting, 2);
    set_hold (&d.made, false);
    until_done (&d, 3);
    close_desk (&d);
}

static void test_failure (void **state)
{
    struct desk d;
    struct asked a;

    (void)state;
    open_desk (&d, 8, 0, false);
    d.made.status = TRAIN_EDEVICE;
    ask (&d, &a, 0, 1, 2, 1);
    until_done (&d, 1);
    assert_int_equal (a.job.status, TRAIN_EDEVICE);
    assert_string_equal (a.job.err.text, "made to fail");
    d.made.status = TRAIN_OK;
    ask (&d, &a, 1, 1, 2, 1);
    until_done (&d, 2);
    expect (&a);
    close_desk (&d);
}

/* Of those that go together the one that is wrong fails alone. */
static void test_one_fails (void **state)
{
    struct refserver_count count;
    struct desk d;
    struct asked a[4];

    (void)state;
    open_desk (&d, 8, 24, false);
    set_hold (&d.made, true);
    ask (&d, &a[0], 0, 1, 2, 1);
    until_inside (&d.made);
    d.made.bad = 201;
    for (int i = 1; i < 4; i++)
        ask (&d, &a[i], i, 1, 2, 1);
    set_hold (&d.made, false);
    until_done (&d, 4);
    expect (&a[0]);
    expect (&a[1]);
    expect (&a[3]);
    assert_int_equal (a[2].job.status, TRAIN_EINVAL);
    assert_string_equal (a[2].job.err.text, "made to fail");
    refserver_queue_count (d.queue, &count);
    assert_int_equal (count.answered, 4);
    assert_int_equal (d.made.passes,
                      5); /* one, three together, each of these */
    close_desk (&d);
}

/* Until the first thread sleeps, as it does in pthread_join alone. */
static void until_main_waits (void)
{
    char path[64], line[200] = "";

    snprintf (path, sizeof (path), "/proc/self/task/%d/stat", (int)getpid ());
    do {
        FILE *f = fopen (path, "re");

        assert_non_null (f);
        assert_non_null (fgets (line, sizeof (line), f));
        fclose (f);
        sched_yield ();
    } while (strncmp (strrchr (line, ')'), ") S", 3) != 0);
}

static void *let_go (void *arg)
{
    until_main_waits (); /* the stop is asked for */
    set_hold (arg, false);
    return NULL;
}

/* What is being computed is answered, what waits is given back. */
static void test_stop (void **state)
{
    struct desk d;
    struct asked a[3];
    pthread_t other;

    (void)state;
    open_desk (&d, 8, 0, false);
    set_hold (&d.made, true);
    for (int i = 0; i < 3; i++)
        ask (&d, &a[i], i, 1, 2, 1);
    until_inside (&d.made);
    assert_int_equal (pthread_create (&other, NULL, let_go, &d.made), 0);
    close_desk (&d);
    pthread_join (other, NULL);
    assert_int_equal (d.done, 3);
    expect (&a[0]);
    assert_int_equal (a[1].job.status, TRAIN_EABORTED);
    assert_int_equal (a[2].job.status, TRAIN_EABORTED);
    assert_int_equal (d.made.passes, 1);
    refserver_queue_stop (NULL);
}

int main (void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test (test_alone),     cmocka_unit_test (test_together),
        cmocka_unit_test (test_same_t),    cmocka_unit_test (test_parts),
        cmocka_unit_test (test_full),      cmocka_unit_test (test_failure),
        cmocka_unit_test (test_one_fails), cmocka_unit_test (test_stop),
    };

    return cmocka_run_group_tests (tests, NULL, NULL);
}
