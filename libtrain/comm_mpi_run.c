/* SPDX-License-Identifier: Apache-2.0
 * comm_mpi_run.c - one call of the backend mpi, part by part
 *
 * A part goes into the group's memory, through MPI, and out of it. How large
 * parts are depends on what all ranks know, so all have the same. */
#include "config.h"

#include "comm_mpi.h"

#include <sched.h>
#include <stdio.h>
#include <string.h>
#include <time.h>

#include "err.h"
#include "host.h"
#include "reduce.h"
#include "sock.h"

#define SLICE_MS    100
#define SMALL_BYTES ((size_t)16 << 10) /* all of all ranks: at once to all */

/* The next part of a call. */
struct part {
    struct mpi *mpi;
    const struct comm_call *call;
    size_t elem;  /* bytes */
    size_t at, n; /* elements, of [count] */
    const char *from;
    char *to;
};

/* [why] is recorded, or what was first; the text says what became of data. */
static train_status_t fail (struct mpi *mpi, const train_error_t *why,
                            train_error_t *err)
{
    train_error_t first = *why;
    train_status_t status = why->code;
    size_t at;

    if (status != TRAIN_EABORTED) /* others hear it by the end */
        status = host_fail (mpi->host, &mpi->now, why, &first);
    mpi->broken = mpi->left = true;
    at = strlen (first.text);
    if (!strstr (first.text, "undefined"))
        snprintf (first.text + at, sizeof (first.text) - at,
                  "; what it was to write is undefined");
    return err_set (err, status, "%s", first.text);
}

static train_status_t fail_rc (struct mpi *mpi, int rc, train_error_t *err)
{
    char text[160], what[96];
    train_error_t why;

    mpi->api->error_text (rc, text, sizeof (text));
    comm_describe (&mpi->now, what, sizeof (what));
    err_set (&why, TRAIN_EDEVICE, "group '%s': rank %d: MPI failed in %s: %s",
             mpi->name, mpi->rank, what, text);
    return fail (mpi, &why, err);
}

/* Soon, MPI is asked without sleep; a wait that lasts leaves the processor to
 * others. */
static void rest (int64_t waits_ms)
{
    struct timespec t = {0, waits_ms < 100 ? 50000 : 1000000};

    if (waits_ms < 10)
        sched_yield ();
    else
        nanosleep (&t, NULL);
}

/* What MPI has begun, with [rc], to its end. */
static train_status_t finish (struct mpi *mpi, int rc, mpi_handle_t req,
                              train_error_t *err)
{
    bool done = false;
    train_error_t why;

    mpi->since_ms = mpi->looked_ms = clock_ms ();
    while (rc == 0 && (rc = mpi->api->test (&req, &done)) == 0 && !done) {
        int64_t now = clock_ms ();

        rest (now - mpi->since_ms);
        if (now - mpi->looked_ms < SLICE_MS)
            continue;
        mpi->looked_ms = now;
        if (host_look (mpi->host, &mpi->now, mpi->since_ms, &why) != TRAIN_OK)
            return fail (mpi, &why, err);
    }
    return rc == 0 ? TRAIN_OK : fail_rc (mpi, rc, err);
}

void mpi_progress (void *arg)
{
    struct mpi *mpi = arg;

    if (mpi->made && !mpi->broken)
        mpi->api->progress (mpi->comm);
}

/* [n] elements as shares of the ranks: how many bytes, and from where. */
static void cut (const struct mpi *mpi, size_t n, size_t elem, int *counts,
                 int *places)
{
    size_t size = (size_t)mpi->size;

    for (size_t r = 0; r < size; r++) {
        size_t from = n * r / size, to = n * (r + 1) / size;

        counts[r] = (int)((to - from) * elem);
        places[r] = (int)(from * elem);
    }
}

/* Blocks of [n] elements, one a rank. */
static void lay (const struct mpi *mpi, size_t n, size_t elem, int *counts,
                 int *places)
{
    for (int r = 0; r < mpi->size; r++) {
        counts[r] = (int)(n * elem);
        places[r] = r * counts[r];
    }
}

/* [n] elements of every rank lie behind each other in out: combine them. */
static void combine (const struct part *p, size_t n, void *to)
{
    struct mpi *mpi = p->mpi;
    struct reduce_step step = {
        .dtype = (train_dtype_t)p->call->dtype,
        .op = (train_op_t)p->call->op,
        .size = mpi->size,
        .out = to,
        .in = mpi->pieces,
        .n_in = mpi->size,
        .first = 1,
    };

    for (int r = 0; r < mpi->size; r++)
        mpi->pieces[r] = mpi->out + (size_t)r * n * p->elem;
    reduce_run (&step, 0, n);
}

/* Every rank gets its share from all, and combines it. What it gets is in
 * mixed; counts and places are those of the shares. */
static train_status_t mix_shares (struct part *p, train_error_t *err)
{
    struct mpi *mpi = p->mpi;
    mpi_handle_t req = 0;
    int rc, mine;

    cut (mpi, p->n, p->elem, mpi->counts, mpi->places);
    mine = mpi->counts[mpi->rank];
    lay (mpi, (size_t)mine, 1, mpi->counts2, mpi->places2);
    memcpy (mpi->in, p->from + p->at * p->elem, p->n * p->elem);
    rc = mpi->api->all_to_all (mpi->in, mpi->counts, mpi->places, mpi->out,
                               mpi->counts2, mpi->places2, mpi->comm, &req);
    TRY (finish (mpi, rc, req, err));
    combine (p, (size_t)mine / p->elem, mpi->mixed);
    return TRAIN_OK;
}

static train_status_t all_reduce_small (struct part *p, train_error_t *err)
{
    struct mpi *mpi = p->mpi;
    mpi_handle_t req = 0;
    int rc;

    lay (mpi, p->n, p->elem, mpi->counts, mpi->places);
    memcpy (mpi->in, p->from + p->at * p->elem, p->n * p->elem);
    rc = mpi->api->all_gather (mpi->in, mpi->counts[0], mpi->out, mpi->counts,
                               mpi->places, mpi->comm, &req);
    TRY (finish (mpi, rc, req, err));
    combine (p, p->n, p->to + p->at * p->elem);
    return TRAIN_OK;
}

static train_status_t all_reduce (struct part *p, train_error_t *err)
{
    struct mpi *mpi = p->mpi;
    mpi_handle_t req = 0;
    int rc;

    if (p->call->count * p->elem * (size_t)mpi->size <= SMALL_BYTES)
        return all_reduce_small (p, err);
    TRY (mix_shares (p, err));
    rc = mpi->api->all_gather (mpi->mixed, mpi->counts[mpi->rank], mpi->out,
                               mpi->counts, mpi->places, mpi->comm, &req);
    TRY (finish (mpi, rc, req, err));
    memcpy (p->to + p->at * p->elem, mpi->out, p->n * p->elem);
    return TRAIN_OK;
}

static train_status_t reduce (struct part *p, train_error_t *err)
{
    struct mpi *mpi = p->mpi;
    mpi_handle_t req = 0;
    int rc;

    TRY (mix_shares (p, err));
    rc = mpi->api->gather (mpi->mixed, mpi->counts[mpi->rank], mpi->out,
                           mpi->counts, mpi->places, p->call->root, mpi->comm,
                           &req);
    TRY (finish (mpi, rc, req, err));
    if (p->to)
        memcpy (p->to + p->at * p->elem, mpi->out, p->n * p->elem);
    return TRAIN_OK;
}

/* This part of each rank's block, between the blocks and [near]. */
static void blocks_in (const struct part *p, char *near)
{
    size_t bytes = p->n * p->elem;

    for (size_t r = 0; r < (size_t)p->mpi->size; r++)
        memcpy (near + r * bytes,
                p->from + (r * p->call->count + p->at) * p->elem, bytes);
}

static void blocks_out (const struct part *p, const char *near)
{
    size_t bytes = p->n * p->elem;

    for (size_t r = 0; r < (size_t)p->mpi->size; r++)
        memcpy (p->to + (r * p->call->count + p->at) * p->elem,
                near + r * bytes, bytes);
}

static train_status_t swap_blocks (struct part *p, train_error_t *err)
{
    struct mpi *mpi = p->mpi;
    mpi_handle_t req = 0;
    int rc;

    lay (mpi, p->n, p->elem, mpi->counts, mpi->places);
    blocks_in (p, mpi->in);
    rc = mpi->api->all_to_all (mpi->in, mpi->counts, mpi->places, mpi->out,
                               mpi->counts, mpi->places, mpi->comm, &req);
    return finish (mpi, rc, req, err);
}

static train_status_t all_to_all (struct part *p, train_error_t *err)
{
    TRY (swap_blocks (p, err));
    blocks_out (p, p->mpi->out);
    return TRAIN_OK;
}

static train_status_t reduce_scatter (struct part *p, train_error_t *err)
{
    TRY (swap_blocks (p, err));
    combine (p, p->n, p->to + p->at * p->elem);
    return TRAIN_OK;
}

/* To all, or to the root. */
static train_status_t gather (struct part *p, train_error_t *err)
{
    struct mpi *mpi = p->mpi;
    mpi_handle_t req = 0;
    int rc;

    lay (mpi, p->n, p->elem, mpi->counts, mpi->places);
    memcpy (mpi->in, p->from + p->at * p->elem, p->n * p->elem);
    if (p->call->kind == COMM_GATHER)
        rc = mpi->api->gather (mpi->in, mpi->counts[0], mpi->out, mpi->counts,
                               mpi->places, p->call->root, mpi->comm, &req);
    else
        rc = mpi->api->all_gather (mpi->in, mpi->counts[0], mpi->out,
                                   mpi->counts, mpi->places, mpi->comm, &req);
    TRY (finish (mpi, rc, req, err));
    if (p->to)
        blocks_out (p, mpi->out);
    return TRAIN_OK;
}

static train_status_t scatter (struct part *p, train_error_t *err)
{
    struct mpi *mpi = p->mpi;
    mpi_handle_t req = 0;
    int rc;

    if (mpi->rank == p->call->root)
        blocks_in (p, mpi->in);
    rc = mpi->api->scatter (mpi->in, mpi->out, (int)(p->n * p->elem),
                            p->call->root, mpi->comm, &req);
    TRY (finish (mpi, rc, req, err));
    memcpy (p->to + p->at * p->elem, mpi->out, p->n * p->elem);
    return TRAIN_OK;
}

static train_status_t broadcast (struct part *p, train_error_t *err)
{
    struct mpi *mpi = p->mpi;
    size_t at = p->at * p->elem, bytes = p->n * p->elem;
    bool gives = mpi->rank == p->call->root;
    mpi_handle_t req = 0;
    int rc;

    if (gives)
        memcpy (mpi->in, p->from + at, bytes);
    rc = mpi->api->broadcast (mpi->in, (int)bytes, p->call->root, mpi->comm,
                              &req);
    TRY (finish (mpi, rc, req, err));
    if (p->to && (!gives || p->to != p->from))
        memcpy (p->to + at, mpi->in, bytes);
    return TRAIN_OK;
}

static train_status_t send_recv (struct part *p, train_error_t *err)
{
    struct mpi *mpi = p->mpi;
    size_t at = p->at * p->elem, bytes = p->n * p->elem;
    int from = p->call->root, to = p->call->op, rc;
    mpi_handle_t req = 0;

    if (from == to || (mpi->rank != from && mpi->rank != to))
        return TRAIN_OK;
    if (mpi->rank == from)
        memcpy (mpi->in, p->from + at, bytes);
    rc = mpi->rank == from
             ? mpi->api->send (mpi->in, (int)bytes, to, mpi->comm, &req)
             : mpi->api->recv (mpi->in, (int)bytes, from, mpi->comm, &req);
    TRY (finish (mpi, rc, req, err));
    if (mpi->rank == to)
        memcpy (p->to + at, mpi->in, bytes);
    return TRAIN_OK;
}

typedef train_status_t (*move_f) (struct part *part, train_error_t *err);

/* How a call moves, and whether a part holds one block a rank. */
static move_f find_move (const struct comm_call *call, bool *ret_blocks)
{
    *ret_blocks = true;
    switch (call->kind) {
    case COMM_ALL_GATHER:
    case COMM_GATHER:
        return gather;
    case COMM_SCATTER:
        return scatter;
    case COMM_ALL_TO_ALL:
        return all_to_all;
    case COMM_REDUCE_SCATTER:
        return reduce_scatter;
    }
    *ret_blocks = false;
    switch (call->kind) {
    case COMM_ALL_REDUCE:
    case COMM_ALL_REDUCE_LIST:
        return all_reduce;
    case COMM_REDUCE:
        return reduce;
    case COMM_BROADCAST:
        return broadcast;
    case COMM_SEND:
        return send_recv;
    }
    return NULL;
}

static train_status_t move (struct mpi *mpi, const struct comm_call *call,
                            const void *from, void *to, train_error_t *err)
{
    size_t elem = train_dtype_size ((train_dtype_t)call->dtype), most;
    struct part part = {
        .mpi = mpi, .call = call, .elem = elem, .from = from, .to = to};
    bool blocks;
    move_f f = find_move (call, &blocks);

    most = MPI_PART_BYTES / elem / (blocks ? (size_t)mpi->size : 1);
    most = most ? most : 1;
    for (; f && part.at < call->count; part.at += part.n) {
        size_t left = (size_t)call->count - part.at;

        part.n = left < most ? left : most;
        TRY (f (&part, err));
    }
    return TRAIN_OK;
}

static train_status_t run (struct mpi *mpi, const struct comm_call *call,
                           const void *from, void *to, bool follow,
                           train_error_t *err)
{
    train_status_t status;

    if (!mpi->host)
        return comm_self.run (NULL, call, from, to, err);
    mpi->now = *call;
    status = host_agree (mpi->host, call, follow, err);
    if (status == TRAIN_OK)
        status = move (mpi, call, from, to, err);
    if (status == TRAIN_OK)
        host_end (mpi->host, call);
    else
        mpi->broken = true;
    return status;
}

train_status_t mpi_run (void *state, const struct comm_call *call,
                        const void *from, void *to, train_error_t *err)
{
    return run (state, call, from, to, false, err);
}

train_status_t mpi_follow (void *state, const struct comm_call *call,
                           const void *from, void *to, train_error_t *err)
{
    return run (state, call, from, to, true, err);
}
