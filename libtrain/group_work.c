/* SPDX-License-Identifier: Apache-2.0
 * group_work.c - calls that go on while their caller does something else
 *
 * One thread a group, made by its first asynchronous call, runs what is queued
 * in the order of issue. A call that waits for its end first lets the queue run
 * empty, so the backend has one user at a time, and all that belongs to the
 * group passes from thread to thread under the queue's lock.
 *
 * An asynchronous call is its blocking twin with group->issued set: that one
 * checks the arguments, and group_run puts the work into the queue. */
#include <errno.h>
#include <pthread.h>
#include <stdlib.h>
#include <time.h>

#include "err.h"
#include "group_impl.h"
#include "thread.h"

struct train_work {
    struct work_queue *queue;
    struct train_work *next;
    struct comm_call call;
    const void *from;
    void *to;
    bool host;                /* as group_run_host */
    struct group_hooks hooks; /* or zeros */
    train_status_t status;    /* under the lock, as what follows */
    train_error_t err;
};

struct work_queue {
    pthread_mutex_t lock;
    pthread_cond_t changed;
    pthread_t thread;
    train_group_t *group;
    struct train_work *first, **last;
    bool running, stops;
    int users; /* the group, and each handle */
};

/* A handle may outlive the group. Takes the lock, and lets it go. */
static void let_go (struct work_queue *queue)
{
    bool last = --queue->users == 0;

    pthread_mutex_unlock (&queue->lock);
    if (!last)
        return;
    pthread_cond_destroy (&queue->changed);
    pthread_mutex_destroy (&queue->lock);
    free (queue);
}

static void run (struct work_queue *queue, struct train_work *work, bool stops)
{
    train_group_t *group = queue->group;
    train_status_t status = TRAIN_EABORTED;
    char what[96];

    comm_describe (&work->call, what, sizeof (what));
    if (stops)
        status =
            err_set (&work->err, TRAIN_EABORTED,
                     "group '%s' was destroyed before %s", group->name, what);
    else if (work->hooks.before)
        work->hooks.before (work->hooks.arg);
    if (!stops)
        status = group_run_now (group, &work->call, work->from, work->to,
                                work->host, work->hooks.pieces, &work->err);
    if (work->hooks.after)
        work->hooks.after (work->hooks.arg, status);
    pthread_mutex_lock (&queue->lock);
    work->status = status;
    queue->running = false;
    pthread_cond_broadcast (&queue->changed);
}

static void *serve (void *arg)
{
    struct work_queue *queue = arg;
    const train_group_t *group = queue->group;

    if (group->ops->thread)
        group->ops->thread (group->state);
    pthread_mutex_lock (&queue->lock);
    for (;;) {
        struct train_work *work = queue->first;

        if (!work && queue->stops)
            break;
        if (!work) {
            pthread_cond_wait (&queue->changed, &queue->lock);
            continue;
        }
        if (!(queue->first = work->next))
            queue->last = &queue->first;
        queue->running = true;
        bool stops = queue->stops;
        pthread_mutex_unlock (&queue->lock);
        run (queue, work, stops); /* returns with the lock */
    }
    pthread_mutex_unlock (&queue->lock);
    return NULL;
}

static train_status_t make_queue (train_group_t *group, train_error_t *err)
{
    struct work_queue *queue = calloc (1, sizeof (*queue));
    pthread_condattr_t attr;

    if (!queue)
        return err_set (err, TRAIN_ENOMEM, "group: no memory");
    queue->group = group;
    queue->last = &queue->first;
    queue->users = 1;
    pthread_mutex_init (&queue->lock, NULL);
    pthread_condattr_init (&attr);
    pthread_condattr_setclock (&attr, CLOCK_MONOTONIC);
    pthread_cond_init (&queue->changed, &attr);
    pthread_condattr_destroy (&attr);
    if (thread_start (&queue->thread, serve, queue) != 0) {
        pthread_mutex_lock (&queue->lock);
        let_go (queue);
        return err_set (err, TRAIN_ENOMEM,
                        "group '%s': no thread for asynchronous calls",
                        group->name);
    }
    group->queue = queue;
    return TRAIN_OK;
}

train_status_t work_put (train_group_t *group, const struct comm_call *call,
                         const void *from, void *to, bool host,
                         const struct group_hooks *hooks)
{
    struct work_queue *queue = group->queue;
    struct train_work *work = group->issued;

    *work = (struct train_work){
        .queue = queue,
        .call = *call,
        .from = from,
        .to = to,
        .host = host,
        .status = TRAIN_PENDING,
    };
    if (hooks)
        work->hooks = *hooks;
    pthread_mutex_lock (&queue->lock);
    queue->users++;
    *queue->last = work;
    queue->last = &work->next;
    pthread_cond_broadcast (&queue->changed);
    pthread_mutex_unlock (&queue->lock);
    return TRAIN_OK;
}

void work_drain (train_group_t *group)
{
    struct work_queue *queue = group->queue;

    if (!queue)
        return;
    pthread_mutex_lock (&queue->lock);
    while (queue->first || queue->running)
        pthread_cond_wait (&queue->changed, &queue->lock);
    pthread_mutex_unlock (&queue->lock);
}

void work_fini (train_group_t *group)
{
    struct work_queue *queue = group->queue;
    bool busy;

    if (!queue)
        return;
    pthread_mutex_lock (&queue->lock);
    queue->stops = true;
    busy = queue->running;
    pthread_cond_broadcast (&queue->changed);
    pthread_mutex_unlock (&queue->lock);
    if (busy && group->ops->abort)
        group->ops->abort (group->state);
    pthread_join (queue->thread, NULL);
    pthread_mutex_lock (&queue->lock);
    let_go (queue);
    group->queue = NULL;
}

static struct timespec moment (int64_t timeout_ms)
{
    struct timespec t;

    clock_gettime (CLOCK_MONOTONIC, &t);
    t.tv_sec += (time_t)(timeout_ms / 1000);
    t.tv_nsec += (long)(timeout_ms % 1000) * 1000000;
    if (t.tv_nsec >= 1000000000) {
        t.tv_sec++;
        t.tv_nsec -= 1000000000;
    }
    return t;
}

train_status_t train_work_wait (train_work_t *work, int64_t timeout_ms,
                                train_error_t *err)
{
    struct timespec until = moment (timeout_ms < 0 ? 0 : timeout_ms);
    struct work_queue *queue;
    train_status_t status;
    int rc = 0;

    if (!work)
        return err_set (err, TRAIN_EINVAL, "work_wait: no work");
    queue = work->queue;
    pthread_mutex_lock (&queue->lock);
    while (work->status == TRAIN_PENDING && rc != ETIMEDOUT) {
        if (timeout_ms < 0)
            pthread_cond_wait (&queue->changed, &queue->lock);
        else
            rc = pthread_cond_timedwait (&queue->changed, &queue->lock, &until);
    }
    status = work->status;
    if (status == TRAIN_PENDING) {
        pthread_mutex_unlock (&queue->lock);
        return err_set (err, TRAIN_PENDING, "work_wait: not within %lld ms",
                        (long long)timeout_ms);
    }
    let_go (queue);
    if (status != TRAIN_OK)
        err_set (err, status, "%s", work->err.text);
    free (work);
    return status;
}

train_status_t train_work_test (train_work_t *work)
{
    train_status_t status;

    if (!work)
        return TRAIN_EINVAL;
    pthread_mutex_lock (&work->queue->lock);
    status = work->status;
    pthread_mutex_unlock (&work->queue->lock);
    return status;
}

train_status_t work_issue (train_group_t *group, train_work_t **ret_work,
                           train_error_t *err)
{
    train_status_t status = TRAIN_OK;

    if (!group || !ret_work)
        return err_set (err, TRAIN_EINVAL, "group: no group or no result");
    if (!group->queue)
        status = make_queue (group, err);
    if (status == TRAIN_OK
        && !(group->issued = calloc (1, sizeof (*group->issued))))
        status = err_set (err, TRAIN_ENOMEM, "group: no memory");
    return status;
}

train_status_t work_issued (train_group_t *group, train_status_t status,
                            train_work_t **ret_work)
{
    if (status == TRAIN_OK)
        *ret_work = group->issued;
    else
        free (group->issued);
    group->issued = NULL;
    return status;
}
