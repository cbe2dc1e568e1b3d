/* SPDX-License-Identifier: Apache-2.0
 * copy_impl.h - what the files of copies share. Inside libtrain only. */
#ifndef TRAIN_COPY_IMPL_H
#define TRAIN_COPY_IMPL_H

#include <pthread.h>
#include <stdio.h>

#include <train/copy.h>

#include "backend.h"
#include "err.h"

#define COPY_JOBS   64 /* under way at once */
#define COPY_SLOTS  64 /* of the ring, at most */
#define COPY_GPUS   16
#define COPY_TABLES 4    /* batches under way at once */
#define COPY_PIECES 8192 /* of a batch */
#define COPY_SUMS   64   /* a copy's sums: of each 64th of its chunks */
#define COPY_BATCH  4096
#define COPY_SAMPLE 16
/* Sums of a device: source's, destination's, then NaN and Inf. */
#define COPY_N_SUMS (2 * COPY_SUMS + 2)

enum pair_state {
    PAIR_NEW = 0, /* not opened yet */
    PAIR_PEER,
    PAIR_NONE, /* the devices have no way */
    PAIR_BAD,  /* it gave wrong bytes */
};

enum transfer { TRANSFER_AUTO, TRANSFER_P2P, TRANSFER_STAGED };

/* What a copier has on a GPU that it has met. The stream [out] carries what
 * leaves the device, [in] what arrives, [sum] the sums. */
struct lane {
    bool met;
    void *out, *in, *sum;
    void *full[COPY_SLOTS];  /* recorded on out: the chunk has left */
    void *freed[COPY_SLOTS]; /* recorded on in: its room may be used again */
    void *ready[COPY_JOBS];  /* recorded on streams of the caller */
    uint64_t *sums;          /* (COPY_N_SUMS) */
    char *scratch;           /* a ring like the host's, for strided ends */
};

/* One end of a copy. */
struct side {
    const struct backend_ops *ops;
    struct lane *lane; /* NULL: host */
    int device;        /* -1: host */
    bool pinned;       /* host memory that needs no ring */
    bool direct;       /* compact, as the wire has it */
    bool waits;        /* lane->ready[job] was recorded */
    struct kern_view view;
    const struct kern_piece *pieces; /* a batch: instead of view */
};

enum job_state { JOB_FREE = 0, JOB_QUEUED, JOB_DONE };

struct train_copy {
    train_copier_t *copier;
    _Atomic enum job_state state; /* written with the lock held */
    int index;                    /* in copier->job */
    int table;                    /* of a batch; -1 else */
    /* Instead of copy_run: what the ring is lent to; writes the report, and
     * frees [run_arg]. Called once. */
    train_status_t (*run) (struct train_copy *job, train_error_t *err);
    void *run_arg;
    struct side dst, src;
    size_t n_pieces;
    uint64_t bytes;       /* of the wire */
    uint64_t every;       /* blocks summed; 0 = none */
    int elem;             /* kern_elem whose NaN are counted; KERN_RAW: none */
    uint32_t gate;        /* what lets the caller's streams go on */
    train_status_t gated; /* did the source's stream take it? */
    train_copy_report_t report;
    train_status_t status;
    train_error_t err;
};

struct train_copier {
    const struct backend_ops *gpu; /* backend_host: none */
    int n_gpus;
    enum transfer transfer;
    bool insist; /* p2p was asked for */
    size_t chunk;
    int slots;
    char *ring;
    size_t ring_pinned; /* 0: pageable */
    char *table;        /* pinned: pieces, gates, fetched sums */
    size_t table_pinned;
    uint64_t host_sums[COPY_N_SUMS];
    struct lane lane[COPY_GPUS];
    unsigned char pair[COPY_GPUS][COPY_GPUS]; /* [dst][src]; pair_state */
    void (*log) (void *arg, const char *text);
    void *log_arg;
    FILE *trace;
    pthread_mutex_t lock; /* of all below, lane[].met and pair[][] too */
    pthread_cond_t changed;
    pthread_t thread;
    bool stop, busy;
    bool table_used[COPY_TABLES];
    int queue[COPY_JOBS], first, queued;
    struct train_copy job[COPY_JOBS];
};

/* The parts of [table]. */
struct kern_piece *copier_pieces (train_copier_t *copier, int table, bool dst);
volatile uint32_t *copier_gate (train_copier_t *copier, int job);
uint64_t *copier_fetched (train_copier_t *copier, bool dst); /* COPY_N_SUMS */

/* copier_create_with - train_copier_create on a backend for GPUs. */
train_status_t copier_create_with (const struct backend_ops *gpu,
                                   const train_copier_options_t *opts,
                                   train_copier_t **ret_copier,
                                   train_error_t *err);

/* copy_view - a view in the type of memory, shape and strides copied.
 * copy_own_places - no two elements of a destination are one. */
train_status_t copy_view (const DLTensor *t, const char *what,
                          struct kern_view *v, train_dtype_t *ret_dtype,
                          train_error_t *err);
train_status_t copy_own_places (const struct kern_view *dst,
                                train_error_t *err);

/* For the files of the calls: with the lock held. copy_take finds a job that
 * is free and resets it, NULL and TRAIN_ESTATE if none is; copy_device resolves an end's device;
 * copy_options reads [opts] after that; copy_submit lets it begin, in the
 * caller's thread if [here] and nothing is before it. */
struct train_copy *copy_take (train_copier_t *copier, train_error_t *err);
train_status_t copy_device (train_copier_t *copier, const DLTensor *t,
                            const char *what, struct side *s,
                            train_error_t *err);
train_status_t copy_options (struct train_copy *job,
                             const train_copy_options_t *opts,
                             train_error_t *err);
train_status_t copy_submit (struct train_copy *job, train_stream_t dst_stream,
                            train_stream_t src_stream, bool here,
                            train_error_t *err);

/* copier_meet - streams, events and memory on GPU [device], once. */
train_status_t copier_meet (train_copier_t *copier, int device,
                            train_error_t *err);

void copier_log (train_copier_t *copier, const char *fmt, ...)
    __attribute__ ((format (printf, 2, 3)));

/* side_fetch - wire bytes [off, off + n) of an end, n at most a chunk, to host
 * memory; no other work may be in its lane.
 * copy_differs - do [n] bytes differ? The first such word goes to the report.
 * copy_poison - ones everywhere in the destination: NaN in floating types. */
train_status_t side_fetch (const struct side *s, uint64_t off, uint64_t n,
                           char *to, train_error_t *err);
bool copy_differs (struct train_copy *job, uint64_t off, uint64_t n,
                   const char *want, const char *got);
void copy_poison (struct train_copy *job);
/* side_drain - after a failure nothing of the copy may go on by itself. */
void side_drain (const struct side *s);

/* copy_run - the whole of a copy: bytes, sums, repair. Writes the report. */
train_status_t copy_run (struct train_copy *job, train_error_t *err);

/* copy_ways_run - the bytes once, by [path], and the sums of both ends into
 * copier_fetched. */
train_status_t copy_ways_run (struct train_copy *job, train_copy_path_t path,
                              train_error_t *err);

/* copy_next - run the first copy of the queue; with the lock held, which it
 * gives away meanwhile. */
void copy_next (train_copier_t *copier);

/* copy_slot - which sum chunk [c] of [n] belongs to. */
static inline int copy_slot (uint64_t c, uint64_t n)
{
    return (int)(n <= COPY_SUMS ? c : c * COPY_SUMS / n);
}

/* copy_trace - one line of the trace, if there is one. Times from copy_now_us. */
void copy_trace (struct train_copy *job, int64_t begin_us, int64_t end_us);
int64_t copy_now_us (void);

/* side - stream order of the device; [at] is a stream of its lane. */
void side_pack (const struct side *s, void *out, uint64_t off, uint64_t n,
                size_t p0, size_t p1, void *at);
void side_unpack (const struct side *s, const void *in, uint64_t off,
                  uint64_t n, size_t p0, size_t p1, void *at);
void side_sum (const struct side *s, uint64_t *sum, uint64_t off, uint64_t n,
               uint64_t every, size_t p0, size_t p1, void *at);

#endif
