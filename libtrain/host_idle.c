/* SPDX-License-Identifier: Apache-2.0
 * host_idle.c - a leader that is in no call: its thread that passes on what
 * others say
 *
 * Without it a rank would hear that another departs, on another node, only when
 * the leader of its own node calls again. A leader that is in a call looks
 * itself; the thread finds the lock taken then, and sleeps on. */
#include "config.h"

#include "host_idle.h"

#include <pthread.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>

#include "err.h"
#include "host_watch.h"
#include "thread.h"

struct host_idle {
    pthread_mutex_t lock; /* of all of struct host that changes */
    pthread_mutex_t nap;  /* of [stop] */
    pthread_cond_t wake;
    bool stop;
    pthread_t thread;
};

/* A slice; false: it is over. */
static bool nap (struct host_idle *idle)
{
    struct timespec until;
    int rc = 0;
    bool stop;

    clock_gettime (CLOCK_MONOTONIC, &until);
    until.tv_nsec += HOST_SLICE_MS * 1000000L;
    until.tv_sec += until.tv_nsec / 1000000000L;
    until.tv_nsec %= 1000000000L;
    pthread_mutex_lock (&idle->nap);
    while (!idle->stop && rc == 0)
        rc = pthread_cond_timedwait (&idle->wake, &idle->nap, &until);
    stop = idle->stop;
    pthread_mutex_unlock (&idle->nap);
    return !stop;
}

static void look (struct host *host)
{
    net_move (host);
    net_look_ahead (host);
    if (host_pass_calls (host))
        net_move (host);
    if (seg_failure (&host->seg, UINT64_MAX, NULL) == TRAIN_OK) {
        step_watch (host);
        elsewhere_idle (host);
    }
    net_tell_failure (host); /* if there is one */
}

static void *serve (void *arg)
{
    struct host *host = arg;

    while (nap (host->idle)) {
        if (pthread_mutex_trylock (&host->idle->lock) != 0)
            continue;
        look (host);
        pthread_mutex_unlock (&host->idle->lock);
    }
    return NULL;
}

static void free_idle (struct host_idle *idle)
{
    pthread_cond_destroy (&idle->wake);
    pthread_mutex_destroy (&idle->nap);
    pthread_mutex_destroy (&idle->lock);
    free (idle);
}

train_status_t idle_start (struct host *host, train_error_t *err)
{
    pthread_condattr_t attr;
    int rc;

    if (!host->peers)
        return TRAIN_OK;
    host->idle = calloc (1, sizeof (*host->idle));
    if (!host->idle)
        return err_set (err, TRAIN_ENOMEM, "no memory for a thread");
    pthread_mutex_init (&host->idle->lock, NULL);
    pthread_mutex_init (&host->idle->nap, NULL);
    pthread_condattr_init (&attr);
    pthread_condattr_setclock (&attr, CLOCK_MONOTONIC);
    pthread_cond_init (&host->idle->wake, &attr);
    pthread_condattr_destroy (&attr);
    if ((rc = thread_start (&host->idle->thread, serve, host)) == 0)
        return TRAIN_OK;
    free_idle (host->idle);
    host->idle = NULL;
    return err_set (err, TRAIN_ENOMEM, "no thread to look after rank %d: %s",
                    host->rank, strerror (rc));
}

void idle_stop (struct host *host)
{
    struct host_idle *idle = host->idle;

    if (!idle)
        return;
    pthread_mutex_lock (&idle->nap);
    idle->stop = true;
    pthread_cond_signal (&idle->wake);
    pthread_mutex_unlock (&idle->nap);
    pthread_join (idle->thread, NULL);
    free_idle (idle);
    host->idle = NULL;
}

void idle_enter (struct host *host)
{
    if (host->idle)
        pthread_mutex_lock (&host->idle->lock);
}

void idle_leave (struct host *host)
{
    if (host->idle)
        pthread_mutex_unlock (&host->idle->lock);
}
