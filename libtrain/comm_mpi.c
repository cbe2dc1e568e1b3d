/* SPDX-License-Identifier: Apache-2.0
 * comm_mpi.c - the backend mpi: its begin and end
 *
 * Begin: a host group; then every rank says whether it can use MPI, so that all
 * begin it or none; then who it is there; then all make a communicator, by a
 * helper thread that may be given up; then every rank says how that went. */
#include "config.h"

#include "comm_mpi.h"

#include <pthread.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>
#include <xxhash.h>

#include "err.h"
#include "host.h"
#include "join.h"
#include "sock.h"
#include "thread.h"

#define SLICE_MS 50
#define TAG_MASK 0x7fff /* the least that every MPI allows */

/* What a rank tells the others. Sent as it stands. */
struct card {
    struct join_word word;
    int32_t rank, world; /* in MPI */
};

static train_status_t make_memory (struct mpi *mpi, train_error_t *err)
{
    size_t size = (size_t)mpi->size;
    /* shares are rounded up, and there is one element a rank at least */
    size_t bytes = MPI_PART_BYTES + size * sizeof (int64_t);

    mpi->in = malloc (bytes);
    mpi->out = malloc (bytes);
    mpi->mixed = malloc (bytes);
    mpi->counts = calloc (size, sizeof (int));
    mpi->places = calloc (size, sizeof (int));
    mpi->counts2 = calloc (size, sizeof (int));
    mpi->places2 = calloc (size, sizeof (int));
    mpi->pieces = calloc (size, sizeof (void *));
    if (!mpi->in || !mpi->out || !mpi->mixed || !mpi->counts || !mpi->places
        || !mpi->counts2 || !mpi->places2 || !mpi->pieces)
        return err_set (err, TRAIN_ENOMEM, "no memory for a group of %d ranks",
                        mpi->size);
    return TRAIN_OK;
}

/* Two ranks of one place in MPI are in worlds of their own. The same verdict
 * on every rank. */
static train_status_t judge (const struct card *cards, int size,
                             train_error_t *err)
{
    for (int r = 0; r < size; r++) {
        for (int q = 0; q < r; q++) {
            if (cards[q].rank != cards[r].rank
                && cards[q].world == cards[r].world)
                continue;
            return err_set (
                err, TRAIN_ENOTSUP,
                "MPI did not start these ranks together: rank %d is %d of %d "
                "there, rank %d is %d of %d; start them with one mpirun or "
                "srun --mpi=pmix, or use backend host",
                q, cards[q].rank, cards[q].world, r, cards[r].rank,
                cards[r].world);
        }
    }
    return TRAIN_OK;
}

/* The making of a communicator; lives until both sides have let it go. */
struct maker {
    pthread_mutex_t lock;
    pthread_cond_t changed;
    int refs;
    bool done; /* the rest is under [lock] too */
    const struct mpi_api *api;
    int n, tag, rc;
    mpi_handle_t comm;
    int ranks[]; /* (n) */
};

static void let_go (struct maker *maker)
{
    int left;

    pthread_mutex_lock (&maker->lock);
    left = --maker->refs;
    pthread_mutex_unlock (&maker->lock);
    if (left > 0)
        return;
    pthread_cond_destroy (&maker->changed);
    pthread_mutex_destroy (&maker->lock);
    free (maker);
}

static void *make (void *arg)
{
    struct maker *maker = arg;
    mpi_handle_t comm = 0;
    int rc = maker->api->make (maker->ranks, maker->n, maker->tag, &comm);

    pthread_mutex_lock (&maker->lock);
    maker->rc = rc;
    maker->comm = comm;
    maker->done = true;
    pthread_cond_signal (&maker->changed);
    pthread_mutex_unlock (&maker->lock);
    let_go (maker);
    return NULL;
}

static int start (struct maker *maker)
{
    pthread_t thread;
    int rc = thread_start (&thread, make, maker);

    if (rc == 0)
        pthread_detach (thread);
    return rc;
}

static struct maker *new_maker (const struct mpi *mpi, const struct card *cards)
{
    size_t n = (size_t)mpi->size;
    struct maker *maker = calloc (1, sizeof (*maker) + n * sizeof (int));

    if (!maker)
        return NULL;
    pthread_mutex_init (&maker->lock, NULL);
    pthread_cond_init (&maker->changed, NULL);
    maker->refs = 2;
    maker->api = mpi->api;
    maker->n = mpi->size;
    maker->tag = (int)(XXH3_64bits (mpi->name, strlen (mpi->name)) & TAG_MASK);
    for (size_t r = 0; r < n; r++)
        maker->ranks[r] = cards[r].rank;
    return maker;
}

/* Returns whether the helper came to its end. */
static bool wait_made (struct maker *maker, struct mpi *mpi,
                       int64_t deadline_ms)
{
    bool done;

    pthread_mutex_lock (&maker->lock);
    while (!maker->done && clock_ms () < deadline_ms) {
        struct timespec until;

        clock_gettime (CLOCK_REALTIME, &until);
        until.tv_nsec += SLICE_MS * 1000000;
        until.tv_sec += until.tv_nsec / 1000000000;
        until.tv_nsec %= 1000000000;
        pthread_cond_timedwait (&maker->changed, &maker->lock, &until);
        if (!maker->done
            && host_look (mpi->host, &mpi->now, mpi->since_ms, NULL)
                   != TRAIN_OK)
            break;
    }
    done = maker->done;
    pthread_mutex_unlock (&maker->lock);
    return done;
}

/* With time left to tell each other that it failed. */
static train_status_t connect_all (struct mpi *mpi, const struct join *join,
                                   const struct card *cards, train_error_t *err)
{
    int64_t now = clock_ms (), left_ms = (join->deadline_ms - now) / 4 * 3;
    struct maker *maker = new_maker (mpi, cards);
    train_status_t status = TRAIN_OK;
    char text[160];

    if (!maker || start (maker) != 0) {
        free (maker);
        return err_set (err, TRAIN_ENOMEM, "no memory, or no thread");
    }
    mpi->now = (struct comm_call){.kind = COMM_BEGIN, .seq = COMM_BEGIN_SEQ};
    mpi->since_ms = now;
    if (!wait_made (maker, mpi, now + left_ms)) {
        mpi->broken = true;
        if (host_look (mpi->host, &mpi->now, now, err) == TRAIN_OK)
            status = err_set (err, TRAIN_ETIMEDOUT,
                              "MPI did not connect the ranks within %.1f s",
                              (double)left_ms / 1000);
        else
            status = TRAIN_EPEER;
    } else if (maker->rc != 0) {
        mpi->api->error_text (maker->rc, text, sizeof (text));
        status = err_set (err, TRAIN_EDEVICE,
                          "MPI cannot connect the ranks: %s", text);
    } else {
        mpi->comm = maker->comm;
        mpi->made = true;
    }
    let_go (maker);
    return status;
}

/* What MPI may still use stays. A process that exits after a failure does not
 * end MPI, which would wait for the others. */
static void op_fini (void *state)
{
    struct mpi *mpi = state;

    if (mpi->host)
        comm_host.fini (mpi->host);
    if (mpi->broken)
        mpi_keep ();
    else if (mpi->made)
        mpi->api->drop (mpi->comm);
    if (!mpi->left) {
        free (mpi->in);
        free (mpi->out);
        free (mpi->mixed);
        free (mpi->counts);
        free (mpi->places);
        free (mpi->counts2);
        free (mpi->places2);
    }
    free (mpi->pieces);
    free (mpi);
}

static train_status_t begin (struct mpi *mpi, struct join *join,
                             struct card *cards, struct card *mine,
                             train_error_t *err)
{
    train_error_t why = {0};
    train_status_t status;

    TRY (comm_host.init (join, mpi->name, mpi->timeout_ms, NULL, &mpi->host,
                         err));
    status = make_memory (mpi, &why);
    if (status == TRAIN_OK)
        status = mpi_find (&mpi->api, &why);
    TRY (join_tell (join, cards, &mine->word, sizeof (*mine), status, &why,
                    err));
    status = mpi_begin (&why);
    if (status == TRAIN_OK && mpi->api->where (&mine->rank, &mine->world) != 0)
        status = err_set (&why, TRAIN_EDEVICE, "MPI does not know this rank");
    TRY (join_tell (join, cards, &mine->word, sizeof (*mine), status, &why,
                    err));
    TRY (judge (cards, join->size, err));
    status = connect_all (mpi, join, cards, &why);
    if (status == TRAIN_EPEER) /* who ended cannot say how it went */
        return err_set (err, status, "%s", why.text);
    return join_tell (join, cards, &mine->word, sizeof (*mine), status, &why,
                      err);
}

static train_status_t op_init (struct join *join, const char *name,
                               int64_t timeout_ms, struct comm_where *where,
                               void **ret_state, train_error_t *err)
{
    struct mpi *mpi = calloc (1, sizeof (*mpi));
    struct card *cards = calloc ((size_t)join->size, sizeof (*cards));
    struct card mine = {0};
    train_status_t status = TRAIN_OK;

    (void)where;
    if (!mpi || !cards) {
        free (mpi);
        free (cards);
        return err_set (err, TRAIN_ENOMEM, "no memory for a group of %d ranks",
                        join->size);
    }
    mpi->name = name;
    mpi->timeout_ms = timeout_ms;
    mpi->rank = join->rank;
    mpi->size = join->size;
    if (join->size > 1)
        status = begin (mpi, join, cards, &mine, err);
    else /* there is nobody to send to, but the answer is the same */
        status = mpi_find (&mpi->api, err);
    free (cards);
    if (status != TRAIN_OK) {
        op_fini (mpi);
        return err_prefix (err, status, "group '%s'", name);
    }
    if (mpi->host) {
        struct host *host = mpi->host;

        host->progress = mpi_progress;
        host->progress_arg = mpi;
        host_hint (host, "MPI's own messages may say more");
    }
    *ret_state = mpi;
    return TRAIN_OK;
}

static train_status_t op_run_host (void *state, const struct comm_call *call,
                                   const void *from, void *to, bool follow,
                                   train_error_t *err)
{
    struct mpi *mpi = state;

    if (!mpi->host)
        return comm_self.run (NULL, call, from, to, err);
    return (follow ? comm_host.follow : comm_host.run) (mpi->host, call, from,
                                                        to, err);
}

static void op_step (void *state, const struct comm_call *learnt, size_t n,
                     uint64_t seq)
{
    struct mpi *mpi = state;

    if (mpi->host)
        comm_host.step (mpi->host, learnt, n, seq);
}

static void op_abort (void *state)
{
    struct mpi *mpi = state;

    if (mpi->host)
        comm_host.abort (mpi->host);
}

const struct comm_ops comm_mpi = {
    .name = "mpi",
    .init = op_init,
    .run = mpi_run,
    .run_host = op_run_host,
    .step = op_step,
    .follow = mpi_follow,
    .abort = op_abort,
    .fini = op_fini,
};
