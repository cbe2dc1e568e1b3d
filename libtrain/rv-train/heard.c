/* SPDX-License-Identifier: Apache-2.0
 * heard.c - the ranks' thread that asks all whether to stop
 *
 * The calls are asynchronous, for a group may be destroyed while one of those is
 * under way, as it is where another rank has stopped for good. */
#include "heard.h"

#include <pthread.h>
#include <stdatomic.h>
#include <stdlib.h>
#include <time.h>

#include "libtrain/err.h"
#include "libtrain/thread.h"

#define EVERY_MS 250

struct heard {
    train_group_t *group;
    const volatile sig_atomic_t *stop;
    atomic_bool told;
    pthread_t thread;
    pthread_mutex_t lock; /* a call begins, or [closes] is set */
    pthread_cond_t wake;
    bool closes;
};

/* One question to all. [flag] is its data; false: no more of them. */
static bool ask (struct heard *h, int32_t *flag)
{
    const int64_t one = 1;
    train_work_t *work = NULL;
    train_tensor_t view;
    train_status_t status = TRAIN_EABORTED;

    *flag = *h->stop != 0;
    pthread_mutex_lock (&h->lock);
    if (!h->closes)
        status = train_tensor_view (&view, flag, TRAIN_I32, 1, &one, NULL);
    if (status == TRAIN_OK)
        status =
            train_all_reduce_async (h->group, &view.t, TRAIN_MAX, &work, NULL);
    pthread_mutex_unlock (&h->lock);
    return status == TRAIN_OK && train_work_wait (work, -1, NULL) == TRAIN_OK;
}

static void nap (struct heard *h)
{
    struct timespec until;

    clock_gettime (CLOCK_REALTIME, &until);
    until.tv_nsec += EVERY_MS * 1000000L;
    until.tv_sec += until.tv_nsec / 1000000000;
    until.tv_nsec %= 1000000000;
    pthread_mutex_lock (&h->lock);
    if (!h->closes)
        pthread_cond_timedwait (&h->wake, &h->lock, &until);
    pthread_mutex_unlock (&h->lock);
}

static void *run (void *arg)
{
    struct heard *h = arg;
    int32_t flag;

    while (ask (h, &flag)) {
        if (flag)
            atomic_store (&h->told, true);
        nap (h);
    }
    return NULL;
}

train_status_t heard_open (struct heard **ret, train_group_t *ranks,
                           const volatile sig_atomic_t *stop,
                           train_error_t *err)
{
    train_group_t *group = NULL;
    struct heard *h;

    *ret = NULL;
    if (train_group_size (ranks) == 1)
        return TRAIN_OK;
    TRY (train_group_split (ranks, 0, train_group_rank (ranks), "stops", &group,
                            err));
    if ((h = calloc (1, sizeof (*h)))) {
        h->group = group;
        h->stop = stop;
        pthread_mutex_init (&h->lock, NULL);
        pthread_cond_init (&h->wake, NULL);
        if (thread_start (&h->thread, run, h) == 0) {
            *ret = h;
            return TRAIN_OK;
        }
    }
    free (h);
    train_group_destroy (group);
    return err_set (err, TRAIN_ENOMEM, "no thread to hear of a stop by");
}

bool heard_stop (const struct heard *heard)
{
    return heard && atomic_load (&heard->told);
}

void heard_close (struct heard *h)
{
    if (!h)
        return;
    pthread_mutex_lock (&h->lock);
    h->closes = true;
    pthread_cond_signal (&h->wake);
    pthread_mutex_unlock (&h->lock);
    train_group_destroy (h->group);
    pthread_join (h->thread, NULL);
    pthread_cond_destroy (&h->wake);
    pthread_mutex_destroy (&h->lock);
    free (h);
}
