/* SPDX-License-Identifier: Apache-2.0
 * copier.c - what copies need, made once: ring, streams, thread, trace */
#include "copy_impl.h"

#include <train/trace.h>

#include <errno.h>
#include <stdarg.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>
#include <unistd.h>

#include "err.h"
#include "opts.h"
#include "probe.h"

#define DEFAULT_RING  ((size_t)64 << 20)
#define DEFAULT_CHUNK ((size_t)4 << 20)
#define LEAST_RING    ((size_t)2 << 20)

#define PIECES_BYTES  (COPY_PIECES * sizeof (struct kern_piece))
#define GATES_BYTES   (COPY_JOBS * sizeof (uint32_t))
#define FETCHED_BYTES (COPY_N_SUMS * sizeof (uint64_t))
#define TABLE_BYTES                                                            \
    (2 * COPY_TABLES * PIECES_BYTES + 2 * FETCHED_BYTES + GATES_BYTES)

struct kern_piece *copier_pieces (train_copier_t *copier, int table, bool dst)
{
    return (struct kern_piece *)(copier->table
                                 + (size_t)(2 * table + dst) * PIECES_BYTES);
}

uint64_t *copier_fetched (train_copier_t *copier, bool dst)
{
    return (uint64_t *)(copier->table + 2 * COPY_TABLES * PIECES_BYTES
                        + (size_t)dst * FETCHED_BYTES);
}

volatile uint32_t *copier_gate (train_copier_t *copier, int job)
{
    return (uint32_t *)(copier->table + 2 * COPY_TABLES * PIECES_BYTES
                        + 2 * FETCHED_BYTES)
           + job;
}

void copier_log (train_copier_t *copier, const char *fmt, ...)
{
    char text[512];
    va_list ap;

    if (!copier->log)
        return;
    va_start (ap, fmt);
    error_vformat (text, sizeof (text), fmt, ap);
    va_end (ap);
    copier->log (copier->log_arg, text);
}

int64_t copy_now_us (void)
{
    struct timespec t;

    clock_gettime (CLOCK_MONOTONIC, &t);
    return (int64_t)t.tv_sec * 1000000 + t.tv_nsec / 1000;
}

void copy_trace (struct train_copy *job, int64_t begin_us, int64_t end_us)
{
    static const char *const way[] = {"copy local", "copy peer", "copy staged"};
    const train_copy_report_t *r = &job->report;

    if (!job->copier->trace)
        return;
    /* A list without its end, which readers of the format take too: what a
     * crash leaves is whole up to the last copy. */
    fprintf (job->copier->trace,
             "%s{\"name\":\"%s\",\"cat\":\"copy\",\"ph\":\"X\","
             "\"ts\":%lld,\"dur\":%lld,\"pid\":%d,\"tid\":%d,\"args\":{"
             "\"src\":%d,\"dst\":%d,\"bytes\":%llu,\"chunks\":%llu,"
             "\"verified\":%s,\"repeated\":%d,\"status\":\"%s\"}}",
             ftell (job->copier->trace) > 2 ? ",\n" : "",
             job->run ? "load" : way[r->path], (long long)begin_us,
             (long long)(end_us - begin_us), (int)getpid (), job->dst.device,
             job->src.device, job->dst.device, (unsigned long long)r->bytes,
             (unsigned long long)r->chunks, r->verified ? "true" : "false",
             r->repeated, train_status_name (job->status));
    fflush (job->copier->trace);
}

train_status_t copier_meet (train_copier_t *copier, int device,
                            train_error_t *err)
{
    const struct backend_ops *g = copier->gpu;
    struct lane *l = &copier->lane[device];

    if (l->met)
        return TRAIN_OK;
    /* What an attempt before this made is kept: NULL is not made yet. */
    if (!l->out)
        TRY (g->stream_create (device, &l->out, err));
    if (!l->in)
        TRY (g->stream_create (device, &l->in, err));
    if (!l->sum)
        TRY (g->stream_create (device, &l->sum, err));
    for (int i = 0; i < copier->slots; i++) {
        if (!l->full[i])
            TRY (g->event_create (device, &l->full[i], err));
        if (!l->freed[i])
            TRY (g->event_create (device, &l->freed[i], err));
    }
    for (int i = 0; i < COPY_JOBS; i++) {
        if (!l->ready[i])
            TRY (g->event_create (device, &l->ready[i], err));
    }
    if (!l->sums)
        TRY (g->alloc (device, COPY_N_SUMS * sizeof (*l->sums),
                       (void **)&l->sums, err));
    if (!l->scratch)
        TRY (g->alloc (device, (size_t)copier->slots * copier->chunk,
                       (void **)&l->scratch, err));
    l->met = true;
    return TRAIN_OK;
}

static void leave_lane (const struct backend_ops *g, struct lane *l)
{
    void *streams[] = {l->out, l->in, l->sum};

    for (int i = 0; i < COPY_SLOTS; i++) {
        if (l->full[i])
            g->event_destroy (l->full[i]);
        if (l->freed[i])
            g->event_destroy (l->freed[i]);
    }
    for (int i = 0; i < COPY_JOBS; i++) {
        if (l->ready[i])
            g->event_destroy (l->ready[i]);
    }
    for (int i = 0; i < 3; i++) {
        if (streams[i])
            g->stream_destroy (streams[i]);
    }
    g->free (l->sums);
    g->free (l->scratch);
}

/* Pinned, smaller, pageable: each step down is said once. */
static train_status_t make_ring (train_copier_t *c, size_t bytes,
                                 train_error_t *err)
{
    size_t asked = bytes, least = 2 * c->chunk;
    train_error_t why = {0};
    void *ring = NULL;

    least = least > LEAST_RING ? least : LEAST_RING;
    while (c->gpu->pin (0, bytes, &ring, &why) != TRAIN_OK && bytes > least)
        bytes = bytes / 2 > least ? bytes / 2 : least;
    if (ring) {
        c->ring_pinned = bytes;
    } else {
        bytes = asked;
        TRY (backend_host.alloc (0, bytes, &ring, err));
    }
    if (!c->ring_pinned)
        copier_log (c,
                    "no pinned memory for copies (%s): they go through "
                    "pageable memory, which is slower; raise the limit of "
                    "locked memory",
                    why.text);
    else if (bytes < asked)
        copier_log (c,
                    "%zu MiB of pinned memory for copies instead of %zu (%s)",
                    bytes >> 20, asked >> 20, why.text);
    c->ring = ring;
    c->slots =
        (int)(bytes / c->chunk < COPY_SLOTS ? bytes / c->chunk : COPY_SLOTS);
    return TRAIN_OK;
}

static train_status_t make_table (train_copier_t *c, train_error_t *err)
{
    void *table = NULL;

    TRY (c->gpu->pin (0, TABLE_BYTES, &table, err));
    memset (table, 0, TABLE_BYTES);
    c->table = table;
    c->table_pinned = TABLE_BYTES;
    return TRAIN_OK;
}

static train_status_t set_transfer (train_copier_t *c, const char *word,
                                    train_error_t *err)
{
    const char *from = "transfer";

    if (!word) {
        word = getenv ("RV_TRANSFER");
        from = "RV_TRANSFER";
    }
    if (!word || strcmp (word, "auto") == 0)
        c->transfer = TRANSFER_AUTO;
    else if (strcmp (word, "p2p") == 0)
        c->transfer = TRANSFER_P2P;
    else if (strcmp (word, "staged") == 0)
        c->transfer = TRANSFER_STAGED;
    else
        return err_set (err, TRAIN_EINVAL,
                        "%s: '%s' is not one of auto, p2p, staged", from, word);
    c->insist = c->transfer == TRANSFER_P2P;
    return TRAIN_OK;
}

static train_status_t set_sizes (train_copier_t *c,
                                 const train_copier_options_t *o,
                                 size_t *ret_ring, train_error_t *err)
{
    *ret_ring = o->ring_bytes ? o->ring_bytes : DEFAULT_RING;
    c->chunk = o->chunk_bytes ? o->chunk_bytes : DEFAULT_CHUNK;
    if (c->chunk % 4096 != 0 || c->chunk > *ret_ring / 2)
        return err_set (err, TRAIN_EINVAL,
                        "chunk_bytes %zu must be a multiple of 4096 and at "
                        "most half of the ring's %zu",
                        c->chunk, *ret_ring);
    return TRAIN_OK;
}

/* What a probe found of the pairs; those that it trusts are opened when they
 * are needed. */
static train_status_t ask_probe (train_copier_t *c, const char *program,
                                 train_error_t *err)
{
    int n = c->n_gpus;
    struct probe_pair *pair;
    train_error_t why = {0};
    char text[512];

    if (n < 2 || c->transfer != TRANSFER_AUTO || (program && !program[0]))
        return TRAIN_OK;
    if (!(pair = calloc ((size_t)n * (size_t)n, sizeof (*pair))))
        return err_set (err, TRAIN_ENOMEM, "no memory for a copier");
    if (probe_load (c->gpu, n, program, NULL, pair, text, sizeof (text), &why)
        != TRAIN_OK)
        copier_log (c,
                    "peer copies are not tried: %s; copies between GPUs go "
                    "through the host",
                    why.text);
    if (text[0])
        copier_log (c, "%s", text);
    for (int i = 0; i < n * n; i++) {
        unsigned char *state = &c->pair[i / n][i % n];

        if (pair[i].verdict == PROBE_WRONG)
            *state = PAIR_BAD;
        else if (pair[i].verdict != PROBE_GOOD)
            *state = PAIR_NONE;
        probe_text (&pair[i], i / n, i % n, text, sizeof (text));
        if (pair[i].verdict == PROBE_WRONG || pair[i].verdict == PROBE_SLOW)
            copier_log (c, "%s", text);
    }
    free (pair);
    return TRAIN_OK;
}

static void *work (void *arg);

static train_status_t build (train_copier_t *c, const train_copier_options_t *o,
                             train_error_t *err)
{
    size_t ring;
    int rc;

    c->log = o->log;
    c->log_arg = o->log_arg;
    TRY (set_transfer (c, o->transfer, err));
    TRY (set_sizes (c, o, &ring, err));
    if (c->gpu != &backend_host)
        TRY (c->gpu->probe (&c->n_gpus, err));
    if (c->n_gpus > COPY_GPUS)
        c->n_gpus = COPY_GPUS;
    TRY (ask_probe (c, o->probe, err));
    TRY (make_ring (c, ring, err));
    TRY (make_table (c, err));
    if (o->trace && !(c->trace = fopen (o->trace, "we")))
        return err_set (err, TRAIN_EIO, "trace %s: %s", o->trace,
                        strerror (errno));
    if (c->trace)
        fputs ("[\n", c->trace);
    TRY (train_trace_open (NULL, 0, 0, err));
    rc = pthread_create (&c->thread, NULL, work, c);
    if (rc != 0)
        return err_set (err, TRAIN_ENOMEM, "no thread for copies: %s",
                        strerror (rc));
    return TRAIN_OK;
}

static void unmake (train_copier_t *c)
{
    if (c->trace) {
        fputs ("\n]\n", c->trace);
        fclose (c->trace);
    }
    for (int i = 0; i < c->n_gpus; i++)
        leave_lane (c->gpu, &c->lane[i]);
    if (c->table)
        c->gpu->unpin (c->table, c->table_pinned);
    if (c->ring_pinned)
        c->gpu->unpin (c->ring, c->ring_pinned);
    else
        backend_host.free (c->ring);
    pthread_cond_destroy (&c->changed);
    pthread_mutex_destroy (&c->lock);
    free (c);
}

train_status_t copier_create_with (const struct backend_ops *gpu,
                                   const train_copier_options_t *opts,
                                   train_copier_t **ret_copier,
                                   train_error_t *err)
{
    train_copier_options_t all;
    pthread_condattr_t attr;
    train_copier_t *c;
    train_status_t status;

    if (!ret_copier)
        return err_set (err, TRAIN_EINVAL, "copier: no place for it");
    TRY (opts_read (&all, sizeof (all), opts, "copier", err));
    c = calloc (1, sizeof (*c));
    if (!c)
        return err_set (err, TRAIN_ENOMEM, "no memory for a copier");
    c->gpu = gpu;
    for (int i = 0; i < COPY_JOBS; i++) {
        c->job[i].copier = c;
        c->job[i].index = i;
    }
    pthread_mutex_init (&c->lock, NULL);
    pthread_condattr_init (&attr);
    pthread_condattr_setclock (&attr, CLOCK_MONOTONIC);
    pthread_cond_init (&c->changed, &attr);
    pthread_condattr_destroy (&attr);
    status = build (c, &all, err);
    if (status == TRAIN_OK)
        *ret_copier = c;
    else
        unmake (c);
    return status;
}

train_status_t train_copier_create (const train_copier_options_t *opts,
                                    train_copier_t **ret_copier,
                                    train_error_t *err)
{
    const struct backend_ops *gpu = NULL;
    train_copier_options_t all;

    TRY (opts_read (&all, sizeof (all), opts, "copier", err));
    TRY (backend_find (all.device, &gpu, err));
    return copier_create_with (gpu, &all, ret_copier, err);
}

void train_copier_destroy (train_copier_t *copier)
{
    if (!copier)
        return;
    pthread_mutex_lock (&copier->lock);
    copier->stop = true;
    pthread_cond_broadcast (&copier->changed);
    pthread_mutex_unlock (&copier->lock);
    pthread_join (copier->thread, NULL);
    unmake (copier);
}

/* The thread: copies in the order of the calls, until told to stop and none is
 * left. */
static void *work (void *arg)
{
    train_copier_t *c = arg;

    pthread_mutex_lock (&c->lock);
    for (;;) {
        while ((c->queued == 0 && !c->stop) || c->busy)
            pthread_cond_wait (&c->changed, &c->lock);
        if (c->queued == 0)
            break;
        copy_next (c);
    }
    pthread_mutex_unlock (&c->lock);
    return NULL;
}
