/* SPDX-License-Identifier: Apache-2.0
 * deadline.c - foreign calls that know no deadline, under ours
 *
 * Each call gets a detached thread. When the deadline passes the waiter leaves
 * and the thread stays in the foreign call; should that return after all, undo
 * takes its effect back (a PMIx client that connected late and then ends
 * without finalize would take the step down). */
#include "config.h"

#include <pthread.h>
#include <signal.h>
#include <stdbool.h>
#include <stdlib.h>
#include <time.h>

#include "job/job_impl.h"

struct call {
    pthread_mutex_t lock;
    pthread_cond_t done_cond;
    deadline_f fn;
    deadline_undo_f undo;
    void *arg;
    int result;
    bool done;      /* fn returned */
    bool abandoned; /* nobody waits: the thread frees the call */
};

int64_t job_now_ms (void)
{
    struct timespec t;

    clock_gettime (CLOCK_MONOTONIC, &t);
    return (int64_t)t.tv_sec * 1000 + t.tv_nsec / 1000000;
}

static void call_destroy (struct call *c)
{
    pthread_cond_destroy (&c->done_cond);
    pthread_mutex_destroy (&c->lock);
    free (c);
}

static void *run (void *p)
{
    struct call *c = p;
    int result = c->fn (c->arg);
    bool abandoned;

    pthread_mutex_lock (&c->lock);
    c->result = result;
    c->done = true;
    abandoned = c->abandoned;
    pthread_cond_signal (&c->done_cond);
    pthread_mutex_unlock (&c->lock);
    if (abandoned) {
        if (c->undo)
            c->undo (c->arg, result);
        call_destroy (c);
    }
    return NULL;
}

static struct call *call_create (deadline_f fn, deadline_undo_f undo, void *arg)
{
    struct call *c = calloc (1, sizeof (*c));
    pthread_condattr_t attr;

    if (!c)
        return NULL;
    c->fn = fn;
    c->undo = undo;
    c->arg = arg;
    pthread_mutex_init (&c->lock, NULL);
    pthread_condattr_init (&attr);
    pthread_condattr_setclock (&attr, CLOCK_MONOTONIC);
    pthread_cond_init (&c->done_cond, &attr);
    pthread_condattr_destroy (&attr);
    return c;
}

/* The thread, and those that the foreign library makes from it, take no
 * signal: they are the program's own. */
static int start (struct call *c)
{
    pthread_attr_t attr;
    pthread_t thread;
    sigset_t all, old;
    int rc;

    pthread_attr_init (&attr);
    pthread_attr_setdetachstate (&attr, PTHREAD_CREATE_DETACHED);
    sigfillset (&all);
    pthread_sigmask (SIG_SETMASK, &all, &old);
    rc = pthread_create (&thread, &attr, run, c);
    pthread_sigmask (SIG_SETMASK, &old, NULL);
    pthread_attr_destroy (&attr);
    return rc;
}

rv_job_status_t deadline_call (deadline_f fn, deadline_undo_f undo, void *arg,
                               int64_t end_ms, int *ret)
{
    struct timespec until = {.tv_sec = end_ms / 1000,
                             .tv_nsec = end_ms % 1000 * 1000000};
    struct call *c = call_create (fn, undo, arg);
    bool done;

    if (!c)
        return RV_JOB_ENOMEM;
    if (start (c)) {
        call_destroy (c);
        return RV_JOB_ENOMEM;
    }
    pthread_mutex_lock (&c->lock);
    while (!c->done)
        if (pthread_cond_timedwait (&c->done_cond, &c->lock, &until))
            break;
    done = c->done;
    c->abandoned = !done;
    pthread_mutex_unlock (&c->lock);
    if (!done)
        return RV_JOB_ETIMEDOUT;
    *ret = c->result;
    call_destroy (c);
    return RV_JOB_OK;
}
