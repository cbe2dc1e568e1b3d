/* SPDX-License-Identifier: Apache-2.0
 * comm.h - what a process group asks of its backend. Inside libtrain only.
 *
 * group.c checks arguments, counts the calls and remembers the first failure;
 * a backend (comm_self, comm_host, comm_nccl, comm_mpi) moves the data of one
 * call at a time. */
#ifndef TRAIN_COMM_H
#define TRAIN_COMM_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include <train/group.h>

struct join;

/* Of a backend that moves memory of a GPU. */
struct comm_where {
    int device;   /* -1: one of the GPUs visible, by the local rank */
    void *stream; /* whose work a call comes after */
};

enum comm_kind {
    COMM_BARRIER = 1,
    COMM_BROADCAST = 2,
    COMM_ALL_REDUCE = 3,
    COMM_REDUCE = 4,
    COMM_ALL_GATHER = 5,
    COMM_REDUCE_SCATTER = 6,
    COMM_ALL_TO_ALL = 7,
    COMM_GATHER = 8,
    COMM_SCATTER = 9,
    COMM_SEND = 10,
    COMM_OBJECT = 11,  /* how long an object is that is broadcast */
    COMM_OBJECTS = 12, /* and those that are gathered; root -1: by all */
    COMM_SPLIT = 13,   /* an all-gather by which a subgroup is made */
    COMM_ALL_REDUCE_LIST = 14, /* several tensors in a row */
    COMM_STEP_END = 15,        /* the calls of a step are agreed on: as a
                                  barrier, without data; dtype = how many,
                                  root and op = their hash */
    COMM_BEGIN = 16,           /* no call of the program: the group begins */
    COMM_GRAPH = 17,           /* recorded calls; count = how many, dtype = the
                                  how manieth graph, root and op = their hash */
};
/* COMM_OBJECT, COMM_OBJECTS and COMM_SPLIT move host memory on every backend. */

/* One call, as its ranks must agree on it: also the fingerprint that they
 * exchange, so it has no padding and is sent as it stands (all nodes of a job
 * have one byte order; a greeting checks it). */
struct comm_call {
    uint64_t seq;   /* COMM_BEGIN_SEQ, then one higher each call */
    uint64_t count; /* elements that a rank gives another, of one block where
                       each rank has its own; 0 for a barrier */
    int32_t kind;   /* enum comm_kind */
    int32_t dtype;  /* train_dtype_t; 0 for a barrier */
    int32_t root;   /* where there is one, or the sender; of a list that is
                       reduced a hash of its counts, not 0; else 0 */
    int32_t op;     /* train_op_t of a reduction; receiver; of another list
                       the hash; else 0 */
};

#define COMM_BEGIN_SEQ 1

/* comm_number - of a call as programs count: 1 for the first of a group. */
static inline uint64_t comm_number (const struct comm_call *call)
{
    return call->seq - COMM_BEGIN_SEQ;
}

/* comm_describe - "all_reduce (sum of 100 F32)", for messages. */
void comm_describe (const struct comm_call *call, char *text, size_t size);

/* comm_compare - do all ranks make the same call?
 *   calls   (n) of rank 0..n-1
 *   name    of the group, for the message
 * TRAIN_EMISMATCH with the ranks of each different call; the text depends on
 * the arguments alone, so it is the same on every rank. */
train_status_t comm_compare (const struct comm_call *calls, int n,
                             const char *name, train_error_t *err);

/* comm_ranks - "rank 5" or "ranks 0-2,5": those of 0..n-1 that [has] picks.
 *   text   (size) written; ends in ",..." when they do not fit; "no rank" */
typedef bool (*comm_has_f) (const void *arg, int rank);
void comm_ranks (comm_has_f has, const void *arg, int n, char *text,
                 size_t size);

/* What a call moves that is not one tensor as it stands: a list, or an F32
 * tensor that travels as the call's type of 16 bits (then n is 1). */
struct comm_piece {
    const void *in; /* may be [out], or the place of this rank in it, or it in
                       this; of a wire call NULL where this rank gives nothing */
    void *out;      /* NULL where it gets nothing */
    size_t n;       /* elements of a block */
};

struct comm_pieces {
    size_t n;
    bool wire;
    struct comm_piece piece[];
};

/* Events of the GPU between which it makes a call. */
struct comm_flow {
    void *before, *after;
};

/* A backend. One thread at a time calls it, but for abort. */
struct comm_ops {
    const char *name;
    bool gpu; /* tensors are on a GPU, not in host memory */

    /* init (required) - make the state of one group.
     *   join         who takes part, and a way to exchange addresses; not
     *                needed after the call
     *   name         of the group, lives as long as the state
     *   timeout_ms   of every wait, > 0
     *   where        in and out: the device is written; of GPUs alone
     * Collective, may block up to the deadline. */
    train_status_t (*init) (struct join *join, const char *name,
                            int64_t timeout_ms, struct comm_where *where,
                            void **ret_state, train_error_t *err);

    /* run (required) - one collective, to its end.
     *   call   with seq one higher than the last; or, before the first, one of
     *          COMM_BEGIN with COMM_BEGIN_SEQ, which all ranks make or none
     *   from   what this rank gives; NULL if nothing
     *   to     where its result goes; NULL if it gets none. May be what
     *          [from] is, or the block of one of them that is the same place
     *          of the other's; untouched when the ranks disagree or one of
     *          them has not come
     * May block up to the deadline. After an error only fini is legal. */
    train_status_t (*run) (void *state, const struct comm_call *call,
                           const void *from, void *to, train_error_t *err);

    /* step (optional) - from now on [follow] may be called.
     *   learnt   (n) calls that all ranks have agreed on, seq 0; stay until
     *            the next [step], or fini
     *   seq      of the call that the first of them will be; those before it
     *            and after the last are the same calls again, as far as they
     *            are followed
     * follow (optional, default: run) - the same as run for a call that is as
     * the learnt sequence has it: nothing is compared. Who will not follow says
     * so by [run], on which all who did, or do, fail with TRAIN_EMISMATCH
     * within a second while they wait, their buffers undefined. */
    void (*step) (void *state, const struct comm_call *learnt, size_t n,
                  uint64_t seq);
    train_status_t (*follow) (void *state, const struct comm_call *call,
                              const void *from, void *to, train_error_t *err);

    /* run_host (optional, default: run) - the same for host memory: objects,
     * what a split says, and the barrier.
     *   follow   as the slot follow does it */
    train_status_t (*run_host) (void *state, const struct comm_call *call,
                                const void *from, void *to, bool follow,
                                train_error_t *err);

    /* run_pieces (optional; without: run, with all in a row or cast) - a list of
     * COMM_ALL_REDUCE_LIST, COMM_BROADCAST, COMM_ALL_GATHER or
     * COMM_REDUCE_SCATTER, or a wire call of COMM_BROADCAST or COMM_REDUCE.
     *   pieces   not needed after the call */
    train_status_t (*run_pieces) (void *state, const struct comm_call *call,
                                  const struct comm_pieces *pieces, bool follow,
                                  train_error_t *err);

    /* graph_begin (optional, with the other two) - from now on run and
     * run_pieces record a call that the ranks have agreed on, and return.
     * graph_end - after that, unless a call has failed meanwhile.
     *   ret_launch   the call that runs it: by run, whose [from] is *ret_graph;
     *                also NULL, with ret_graph, for a record that nobody wants
     * graph_free - before fini. */
    train_status_t (*graph_begin) (void *state, train_error_t *err);
    train_status_t (*graph_end) (void *state, struct comm_call *ret_launch,
                                 void **ret_graph, train_error_t *err);
    void (*graph_free) (void *state, void *graph);

    /* flow (optional, with settle) - as run or follow, but the GPU makes the call
   * between the events of [flow] and nothing is waited for; calls come in
   * their order. A call without elements records no event.
   * settle - until [event], behind the calls that flow, has come: with the
   * deadline, and as run finds out who has ended. */
    train_status_t (*flow) (void *state, const struct comm_call *call,
                            const void *from, void *to, bool follow,
                            const struct comm_flow *flow, train_error_t *err);
    train_status_t (*settle) (void *state, void *event, train_error_t *err);

    /* check (optional) - may a call use memory that says to be where this
     * backend's tensors are? TRAIN_EINVAL. */
    train_status_t (*check) (void *state, const void *memory,
                             train_error_t *err);

    /* thread (optional) - this thread, libtrain's own, calls from now on too. */
    void (*thread) (void *state);

    /* abort (optional) - end a run that is under way, by TRAIN_EABORTED; from
     * another thread, once. Only fini is legal then. */
    void (*abort) (void *state);

    /* fini (required) - leave and free; takes what init made, after errors
     * too. Does not wait for others. */
    void (*fini) (void *state);
};

extern const struct comm_ops comm_self;
extern const struct comm_ops comm_host;
extern const struct comm_ops comm_nccl;
extern const struct comm_ops comm_mpi;

#endif
