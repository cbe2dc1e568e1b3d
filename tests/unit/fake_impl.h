/* SPDX-License-Identifier: Apache-2.0
 * fake_impl.h - what fake_gpu.c and fake_nccl.c share. For tests alone. */
#ifndef TESTS_UNIT_FAKE_IMPL_H
#define TESTS_UNIT_FAKE_IMPL_H

#include <pthread.h>
#include <stdatomic.h>
#include <stdint.h>

#include "fake_nccl.h"

#define COMMS 8
#define SLOT  65536
#define OPS   4096

/* One communicator, as all its ranks see it. */
struct meeting {
    _Atomic int here;
    _Atomic uint64_t posted[FAKE_RANKS]; /* collectives that have begun */
    _Atomic uint64_t ended[FAKE_RANKS];  /* and ended; of two there is data */
    _Atomic uint64_t sent[FAKE_RANKS][FAKE_RANKS];
    _Atomic uint64_t taken[FAKE_RANKS][FAKE_RANKS];
    _Atomic int wants[FAKE_RANKS][FAKE_RANKS]; /* connections */
    _Alignas(64) char data[FAKE_RANKS][2][SLOT];
    _Alignas(64) char mail[FAKE_RANKS][FAKE_RANKS][SLOT];
};

struct world {
    struct fake_orders orders;
    _Atomic int ids, graphs;
    struct fake_seen seen[FAKE_RANKS];
    struct meeting meetings[COMMS];
};

extern struct world *world;

struct comm {
    struct meeting *meeting;
    int rank, size;
    uint64_t seq; /* collectives given */
    bool aborted, fails;
};

enum op_kind {
    OP_COPY,
    OP_WAIT,
    OP_STORE,
    OP_MOVE,
    OP_LOCK,
    OP_REDUCE,
    OP_SHARE,
    OP_SEND,
    OP_RECV,
    OP_CALL
};

struct stream;

struct op {
    enum op_kind kind;
    struct comm *comm;
    const char *in;
    char *out;
    size_t bytes, n;
    int dtype, op; /* NCCL's */
    int peer;      /* or root; -1: all */
    size_t skip;   /* bytes of the result before what [out] gets */
    bool all;      /* the inputs of all, one after the other */
    bool posted;
    uint64_t seq;
    const struct stream *other;
    uint64_t until; /* of [other] */
    int value;
    struct kern_view dst, src;
    void (*call) (const void *args);
    _Alignas(8) char args[160];
};

struct stream {
    struct op ops[OPS];
    uint64_t head, tail;
    int64_t free_ms;     /* stands still until then */
    bool busy;           /* others are asked for it */
    struct stream *next; /* of those that the backend has made */
};

struct event {
    struct stream *stream;
    uint64_t until;
    bool timed;
    double at_s; /* of those, when the stream came to it */
};

/* What streams were given while a graph was recorded, in that order. One at a
 * time. */
struct graph {
    struct op ops[OPS];
    size_t n;
};

extern struct graph *recorded; /* or NULL */
extern _Atomic int graphs;     /* of this process */

/* Of all streams of the process. */
extern pthread_mutex_t lock;

/* push - give work to a stream. go_on - let it run as far as it can; go_far - as
 * far as the streams go that it waits for. All under the lock. */
void push (struct stream *s, const struct op *o);
void go_on (struct stream *s);
void go_far (struct stream *s);

/* fake_queue - [stream], or where what GPU [device] is given without one waits;
 * NULL: it does not wait. fake_present - the thread's GPU. fake_visit - as a call
 * does that is of GPU [device]: there, and back to the present one. */
void *fake_queue (void *stream, int device);
int fake_present (void);
void fake_visit (int device);

/* Of struct backend_ops. */
train_status_t fake_event_create (int device, void **ret, train_error_t *err);
train_status_t fake_event_record (void *event, int device, void *stream,
                                  train_error_t *err);
train_status_t fake_event_wait (void *stream, int device, void *event,
                                train_error_t *err);
train_status_t fake_event_done (void *event, bool *ret_done,
                                train_error_t *err);
train_status_t fake_timer_create (int device, void **ret, train_error_t *err);
train_status_t fake_timer_between (void *from, void *to, double *ret_s,
                                   train_error_t *err);

/* fake_last - for a fake_call: what it stands for lasts [s] seconds of the GPU, as
 * timers tell; no time passes. */
void fake_last (double s);

/* fake_call - [call] in its turn, with a copy of [args]; at once where there is
 * no stream. */
void fake_call (void *stream, void (*call) (const void *args), const void *args,
                size_t bytes);

train_status_t fake_fill (int device, void *memory, int value, size_t bytes,
                          void *stream, train_error_t *err);

extern const struct flat_ops fake_flat;
extern const struct backend_graph fake_graph;

size_t size_of (int dtype); /* NCCL's */

/* order_of - [fault] if it is this rank's. suffer - it. */
enum fake_fault order_of (int rank, enum fake_fault fault);
void suffer (enum fake_fault fault);

#endif
