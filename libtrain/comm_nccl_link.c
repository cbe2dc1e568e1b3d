/* SPDX-License-Identifier: Apache-2.0
 * comm_nccl_link.c - the helper thread that makes those calls into NCCL that
 * may wait for other ranks */
#include "config.h"

#include "comm_nccl.h"

#include <pthread.h>
#include <stdatomic.h>
#include <stdio.h>
#include <stdlib.h>
#include <time.h>
#include <unistd.h>

#include "err.h"
#include "sock.h"
#include "thread.h"

#define SLICE_MS 50

struct link {
    pthread_mutex_t lock;
    pthread_cond_t changed;
    pthread_t thread;
    int refs;          /* sides that hold it; the rest is under [lock] too */
    enum link_job job; /* 0: none; it is the helper's from set to cleared */
    bool over, given_up;
    struct nccl_plan *plan;
    int rc;
    const struct nccl_api *api;
    const struct backend_ops *gpu;
    int device, rank, size;
    struct nccl_id id;
    void *comm, *stream; /* the helper's while it has a job */
};

/* Helpers that nobody waits for any more and that NCCL still holds. */
static _Atomic int lost;

/* Exit handlers take CUDA and NCCL apart, in which a lost helper then faults, and
 * the program's own status is gone. What was registered before is left out. */
static void end_without (int status, void *arg)
{
    (void)arg;
    if (atomic_load (&lost) == 0)
        return;
    fflush (NULL);
    _exit (status);
}

static void register_end (void)
{
    on_exit (end_without, NULL);
}

static void give_up (struct link *link)
{
    static pthread_once_t once = PTHREAD_ONCE_INIT;

    link->given_up = true;
    atomic_fetch_add (&lost, 1);
    pthread_once (&once, register_end);
}

static void free_plan (struct nccl_plan *plan)
{
    if (plan)
        free ((void *)(uintptr_t)plan->pieces);
    free (plan);
}

static void let_go (struct link *link)
{
    int left;

    pthread_mutex_lock (&link->lock);
    left = --link->refs;
    pthread_mutex_unlock (&link->lock);
    if (left > 0)
        return;
    pthread_cond_destroy (&link->changed);
    pthread_mutex_destroy (&link->lock);
    free_plan (link->plan);
    free (link);
}

static int do_job (struct link *link, enum link_job job)
{
    const struct nccl_api *api = link->api;
    void *comm = link->comm;

    switch (job) {
    case LINK_BEGIN:
        return api->init (&link->comm, link->size, link->id, link->rank);
    case LINK_CALL:
        return nccl_enqueue (api, link->plan, link->rank, link->size,
                             link->comm, link->stream);
    case LINK_ABORT:
        link->comm = NULL;
        return comm ? api->abort (comm) : NCCL_RC_SUCCESS;
    case LINK_END:
        link->comm = NULL;
        return comm ? api->destroy (comm) : NCCL_RC_SUCCESS;
    }
    return NCCL_RC_SUCCESS;
}

static void *help (void *arg)
{
    struct link *link = arg;

    (void)link->gpu->enter (link->device);
    pthread_mutex_lock (&link->lock);
    for (;;) {
        int rc;

        while (!link->job && !link->over)
            pthread_cond_wait (&link->changed, &link->lock);
        if (!link->job)
            break;
        pthread_mutex_unlock (&link->lock);
        rc = do_job (link, link->job);
        pthread_mutex_lock (&link->lock);
        link->rc = rc;
        link->job = (enum link_job)0;
        pthread_cond_broadcast (&link->changed);
        if (link->given_up)
            break;
    }
    pthread_mutex_unlock (&link->lock);
    (void)do_job (link, LINK_ABORT);
    if (link->stream)
        link->gpu->stream_destroy (link->stream);
    if (link->given_up) /* written before this helper's last look */
        atomic_fetch_sub (&lost, 1);
    let_go (link);
    return NULL;
}

train_status_t link_create (const struct nccl_api *api,
                            const struct backend_ops *gpu, int device, int rank,
                            int size, const struct nccl_id *id,
                            struct link **ret, train_error_t *err)
{
    struct link *link = calloc (1, sizeof (*link));
    pthread_condattr_t attr;
    train_status_t status;

    if (!link)
        return err_set (err, TRAIN_ENOMEM, "group: no memory");
    *link = (struct link){.refs = 1,
                          .api = api,
                          .gpu = gpu,
                          .device = device,
                          .rank = rank,
                          .size = size,
                          .id = *id};
    pthread_mutex_init (&link->lock, NULL);
    pthread_condattr_init (&attr);
    pthread_condattr_setclock (&attr, CLOCK_MONOTONIC);
    pthread_cond_init (&link->changed, &attr);
    pthread_condattr_destroy (&attr);
    status = gpu->stream_create (device, &link->stream, err);
    if (status == TRAIN_OK) {
        link->refs = 2;
        if (thread_start (&link->thread, help, link) != 0) {
            gpu->stream_destroy (link->stream);
            link->refs = 1;
            status = err_set (err, TRAIN_ENOMEM, "group: no thread for NCCL");
        }
    }
    if (status == TRAIN_OK)
        *ret = link;
    else
        let_go (link);
    return status;
}

/* Until the helper is done, or a slice is over. */
static void wait_slice (struct link *link)
{
    int64_t until_ms = clock_ms () + SLICE_MS;
    struct timespec t = {until_ms / 1000, until_ms % 1000 * 1000000};

    while (link->job && clock_ms () < until_ms)
        pthread_cond_timedwait (&link->changed, &link->lock, &t);
}

bool link_run (struct link *link, enum link_job job, struct nccl_plan *plan,
               int64_t deadline_ms, bool (*look) (void *arg), void *arg,
               int *ret_rc)
{
    bool sound = true;

    pthread_mutex_lock (&link->lock);
    link->plan = plan;
    link->job = job;
    pthread_cond_broadcast (&link->changed);
    wait_slice (link);
    while (link->job && sound && clock_ms () < deadline_ms) {
        pthread_mutex_unlock (&link->lock);
        sound = !look || look (arg);
        pthread_mutex_lock (&link->lock);
        if (sound)
            wait_slice (link);
    }
    sound = !link->job;
    if (!sound && !link->given_up)
        give_up (link);
    *ret_rc = link->rc;
    if (sound) {
        free_plan (link->plan);
        link->plan = NULL;
    }
    pthread_mutex_unlock (&link->lock);
    return sound;
}

void *link_comm (const struct link *link)
{
    return link ? link->comm : NULL;
}

void *link_stream (const struct link *link)
{
    return link ? link->stream : NULL;
}

void link_release (struct link *link)
{
    bool given_up;

    if (!link)
        return;
    pthread_mutex_lock (&link->lock);
    link->over = true;
    given_up = link->given_up;
    pthread_cond_broadcast (&link->changed);
    pthread_mutex_unlock (&link->lock);
    if (given_up)
        pthread_detach (link->thread);
    else
        pthread_join (link->thread, NULL);
    let_go (link);
}
