/* SPDX-License-Identifier: Apache-2.0
 * deadline.c - foreign calls that know no deadline, under ours
 *
 * A call runs on a worker thread, which then waits for the next one. When the
 * deadline passes the waiter leaves and the worker stays in the foreign call;
 * should that return after all, undo takes its effect back (a PMIx client that
 * connected late and then ends without finalize would take the step down), and
 * the worker ends.
 *
 * One lock guards who is idle and what it is given. At most one worker is
 * idle: calls that overlap get one each, and those too many end. */
#include "config.h"

#include <pthread.h>
#include <signal.h>
#include <stdbool.h>
#include <stdlib.h>
#include <time.h>
#include <unistd.h>

#include "job/job_impl.h"

struct call {
    pthread_mutex_t lock;
    pthread_cond_t done_cond;
    deadline_f fn;
    deadline_undo_f undo;
    void *arg;
    int result;
    bool done;      /* fn returned */
    bool abandoned; /* nobody waits: the worker frees the call */
};

struct worker {
    pthread_cond_t wake;
    struct call *call; /* the next one */
    bool quit;
    pid_t pid; /* whose thread it is: a fork leaves it behind */
};

static pthread_mutex_t pool = PTHREAD_MUTEX_INITIALIZER;
static struct worker *idle;

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

/* Returns whether somebody waited for it. */
static bool serve (struct call *c)
{
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
    return !abandoned;
}

static void *run (void *p)
{
    struct worker *w = p;

    for (bool waited = true; waited;) {
        struct call *c;

        pthread_mutex_lock (&pool);
        while (!w->call && !w->quit)
            pthread_cond_wait (&w->wake, &pool);
        c = w->call;
        w->call = NULL;
        pthread_mutex_unlock (&pool);
        waited = c && serve (c);
    }
    pthread_cond_destroy (&w->wake);
    free (w);
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
static struct worker *hire (void)
{
    struct worker *w = calloc (1, sizeof (*w));
    pthread_attr_t attr;
    pthread_t thread;
    sigset_t all, old;
    int rc;

    if (!w)
        return NULL;
    w->pid = getpid ();
    pthread_cond_init (&w->wake, NULL);
    pthread_attr_init (&attr);
    pthread_attr_setdetachstate (&attr, PTHREAD_CREATE_DETACHED);
    sigfillset (&all);
    pthread_sigmask (SIG_SETMASK, &all, &old);
    rc = pthread_create (&thread, &attr, run, w);
    pthread_sigmask (SIG_SETMASK, &old, NULL);
    pthread_attr_destroy (&attr);
    if (!rc)
        return w;
    pthread_cond_destroy (&w->wake);
    free (w);
    return NULL;
}

/* The worker that is to do [c]; NULL when none can be had. */
static struct worker *start (struct call *c)
{
    struct worker *w;

    pthread_mutex_lock (&pool);
    w = idle && idle->pid == getpid () ? idle : NULL;
    idle = NULL;
    pthread_mutex_unlock (&pool);
    if (!w && !(w = hire ()))
        return NULL;
    pthread_mutex_lock (&pool);
    w->call = c;
    pthread_cond_signal (&w->wake);
    pthread_mutex_unlock (&pool);
    return w;
}

/* w has served, and waits: keep it, or let it go. */
static void rest (struct worker *w, bool keep)
{
    pthread_mutex_lock (&pool);
    if (keep && !idle)
        idle = w;
    else {
        w->quit = true;
        pthread_cond_signal (&w->wake);
    }
    pthread_mutex_unlock (&pool);
}

void deadline_end (void)
{
    struct worker *w;

    pthread_mutex_lock (&pool);
    w = idle && idle->pid == getpid () ? idle : NULL;
    idle = NULL;
    pthread_mutex_unlock (&pool);
    if (w)
        rest (w, false);
}

rv_job_status_t deadline_call (deadline_f fn, deadline_undo_f undo, void *arg,
                               int64_t end_ms, int *ret)
{
    struct timespec until = {.tv_sec = end_ms / 1000,
                             .tv_nsec = end_ms % 1000 * 1000000};
    struct call *c = call_create (fn, undo, arg);
    struct worker *w;
    bool done;

    if (!c)
        return RV_JOB_ENOMEM;
    if (!(w = start (c))) {
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
    if (!done) /* w may be gone already */
        return RV_JOB_ETIMEDOUT;
    rest (w, true);
    *ret = c->result;
    call_destroy (c);
    return RV_JOB_OK;
}
