/* SPDX-License-Identifier: Apache-2.0
 * fake_event.c - events of made-up streams, with a clock and without */
#include "fake_impl.h"

#include <assert.h>
#include <stdlib.h>
#include <string.h>

#include "err.h"

#define LOOK_S 1e-4 /* between two looks, if nothing takes long */

/* No clock of the machine, which may be busy. */
static double clock_now_s;

void fake_last (double s)
{
    clock_now_s += s;
}

train_status_t fake_event_create (int device, void **ret, train_error_t *err)
{
    (void)err;
    fake_visit (device);
    *ret = calloc (1, sizeof (struct event));
    return TRAIN_OK;
}

train_status_t fake_timer_create (int device, void **ret, train_error_t *err)
{
    struct event *e;

    TRY (fake_event_create (device, ret, err));
    e = *ret;
    e->timed = true;
    return TRAIN_OK;
}

train_status_t fake_timer_between (void *from, void *to, double *ret_s,
                                   train_error_t *err)
{
    const struct event *a = from, *b = to;

    (void)err;
    pthread_mutex_lock (&lock);
    assert (a->at_s > 0 && b->at_s >= a->at_s); /* both have come */
    *ret_s = b->at_s - a->at_s;
    pthread_mutex_unlock (&lock);
    return TRAIN_OK;
}

static void look_at_clock (const void *args)
{
    struct event *e;

    memcpy (&e, args, sizeof (e));
    fake_last (LOOK_S);
    e->at_s = clock_now_s;
}

train_status_t fake_event_record (void *event, int device, void *stream,
                                  train_error_t *err)
{
    struct event *e = event;

    (void)err;
    fake_visit (device);
    if (e->timed)
        fake_call (stream, look_at_clock, &e, sizeof (e));
    pthread_mutex_lock (&lock);
    e->stream = stream;
    e->until = e->stream ? e->stream->tail : 0;
    pthread_mutex_unlock (&lock);
    return TRAIN_OK;
}

train_status_t fake_event_wait (void *stream, int device, void *event,
                                train_error_t *err)
{
    const struct event *e = event;
    struct op o = {.kind = OP_WAIT, .other = e->stream, .until = e->until};

    (void)err;
    fake_visit (device);
    pthread_mutex_lock (&lock);
    if (e->stream && !recorded) /* one order is recorded for all streams */
        push (stream, &o);
    pthread_mutex_unlock (&lock);
    return TRAIN_OK;
}

train_status_t fake_event_done (void *event, bool *ret_done, train_error_t *err)
{
    const struct event *e = event;

    (void)err;
    pthread_mutex_lock (&lock);
    go_far (e->stream);
    *ret_done = e->stream->head >= e->until;
    pthread_mutex_unlock (&lock);
    return TRAIN_OK;
}
