/* SPDX-License-Identifier: Apache-2.0
 * ckpt_saver.c - checkpoints by a thread: copy now, write later
 *
 * Collectives run on the caller's thread alone; the writing threads meet in
 * the folder (ckpt_job.h). */
#include <pthread.h>
#include <stdatomic.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>

#include "ckpt_dir.h"
#include "ckpt_job.h"
#include "err.h"
#include "opts.h"
#include "thread.h"
#include "trainer.h"

struct train_ckpt_saver {
    train_group_t *group; /* NULL: alone */
    struct ckpt_job job;
    pthread_t thread;
    bool running; /* the thread is to be joined */
    atomic_bool ended;
    train_status_t status; /* of the job that was joined last, until told */
    train_error_t err;
    struct ckpt_room room;
};

static int rank_of (const train_ckpt_saver_t *s)
{
    return s->group ? train_group_rank (s->group) : 0;
}

train_status_t ckpt_saver_agree (train_ckpt_saver_t *s, train_status_t status,
                                 train_error_t *err)
{
    return s->group ? trainer_agree (s->group, status, err) : status;
}

train_status_t train_ckpt_saver_create (train_group_t *group,
                                        train_ckpt_saver_t **ret_saver,
                                        train_error_t *err)
{
    train_ckpt_saver_t *s;

    if (!ret_saver)
        return err_set (err, TRAIN_EINVAL, "checkpoint: ret_saver is NULL");
    if (!(s = calloc (1, sizeof (*s))))
        return err_set (err, TRAIN_ENOMEM, "no memory for a saver");
    s->group = group;
    atomic_init (&s->ended, true);
    *ret_saver = s;
    return TRAIN_OK;
}

static void join (train_ckpt_saver_t *s)
{
    if (!s->running)
        return;
    pthread_join (s->thread, NULL);
    s->running = false;
    ckpt_job_fini (&s->job);
}

void train_ckpt_saver_destroy (train_ckpt_saver_t *s)
{
    if (!s)
        return;
    if (s->running)
        atomic_store (&s->job.hurry, true);
    join (s);
    ckpt_room_fini (&s->room);
    free (s);
}

static void *run (void *arg)
{
    train_ckpt_saver_t *s = arg;

    s->status = ckpt_job_run (&s->job, &s->err);
    atomic_store (&s->ended, true);
    return NULL;
}

static train_status_t start_thread (train_ckpt_saver_t *s, train_error_t *err)
{
    int rc;

    atomic_store (&s->ended, false);
    if ((rc = thread_start (&s->thread, run, s)) != 0) {
        atomic_store (&s->ended, true);
        return err_set (err, TRAIN_ENOMEM, "checkpoint: no thread: %s",
                        strerror (rc));
    }
    s->running = true;
    return TRAIN_OK;
}

/* The folder that all ranks write into: rank 0's. */
static train_status_t give_folder (train_ckpt_saver_t *s, train_status_t status,
                                   train_error_t *err)
{
    size_t n = s->job.temp ? strlen (s->job.temp) + 1 : 0;
    void *got = NULL;

    if (!s->group)
        return status;
    if ((status = ckpt_saver_agree (s, status, err)) != TRAIN_OK)
        return status;
    TRY (train_broadcast_object (s->group, s->job.temp, n, 0, &got, &n, err));
    if (rank_of (s) > 0)
        s->job.temp = got;
    else
        free (got);
    return TRAIN_OK;
}

static train_status_t begin (train_ckpt_saver_t *s, train_error_t *err)
{
    train_status_t status = TRAIN_OK;

    if (rank_of (s) == 0)
        status = ckpt_dir_begin (s->job.dir, s->job.step, &s->job.temp, err);
    TRY (give_folder (s, status, err));
    return start_thread (s, err);
}

/* Until the threads of all ranks have ended. Rank 0's waits for what another rank
 * writes: that one may have ended itself, which the group finds out. */
static train_status_t await_all (train_ckpt_saver_t *s, train_error_t *err)
{
    struct timespec nap = {0, 1000000};
    int64_t shape[1] = {1};
    train_tensor_t view;
    int32_t all = 0;

    while (s->group) {
        train_status_t status;

        all = atomic_load (&s->ended);
        TRY (train_tensor_view (&view, &all, TRAIN_I32, 1, shape, err));
        status = train_all_reduce (s->group, &view.t, TRAIN_MIN, err);
        if (status != TRAIN_OK) {
            atomic_store (&s->job.hurry, true);
            return status;
        }
        if (all)
            break;
        nanosleep (&nap, NULL);
        if (nap.tv_nsec < 50000000)
            nap.tv_nsec *= 2;
    }
    return TRAIN_OK;
}

/* What the last save was, told once. */
static train_status_t told (train_ckpt_saver_t *s, train_error_t *err)
{
    train_status_t status = await_all (s, err);

    join (s);
    if (status != TRAIN_OK)
        return status;
    if ((status = s->status) != TRAIN_OK && err)
        *err = s->err;
    s->status = TRAIN_OK;
    return status;
}

train_status_t train_ckpt_start (train_ckpt_saver_t *s,
                                 const train_ckpt_piece_t *pieces, size_t n,
                                 const train_ckpt_options_t *opts,
                                 train_error_t *err)
{
    train_ckpt_options_t o;
    train_status_t status;

    if (!s || !opts)
        return err_set (err, TRAIN_EINVAL,
                        "checkpoint: saver or options are missing");
    if ((status = told (s, err)) == TRAIN_OK)
        status = opts_read (&o, sizeof (o), opts, "checkpoint", err);
    if (status == TRAIN_OK)
        status =
            ckpt_job_init (&s->job, pieces, n, &o, rank_of (s),
                           s->group ? train_group_size (s->group) : 1, err);
    if (status == TRAIN_OK
        && (status = ckpt_job_copy (&s->job, &s->room, err)) != TRAIN_OK)
        err_prefix (err, status, "cannot save to %s", o.dir);
    if ((status = ckpt_saver_agree (s, status, err)) == TRAIN_OK)
        status = begin (s, err);
    if (status != TRAIN_OK)
        ckpt_job_fini (&s->job);
    return status;
}

bool train_ckpt_done (const train_ckpt_saver_t *s)
{
    return atomic_load (&s->ended);
}

train_status_t train_ckpt_wait (train_ckpt_saver_t *s, train_error_t *err)
{
    if (!s)
        return err_set (err, TRAIN_EINVAL, "checkpoint: no saver");
    return ckpt_saver_agree (s, told (s, err), err);
}
