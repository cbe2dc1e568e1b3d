/* SPDX-License-Identifier: Apache-2.0
 * host.h - the parts of the backend host. Inside libtrain only.
 *
 * The ranks of a node share a segment of memory (host_seg.c). The first rank of
 * each node, its leader, talks to the other leaders by TCP (host_net.c).
 *
 * Calls. Each rank writes its call into the segment; leaders pass the calls of
 * their ranks on; when all calls are there, every rank compares them itself.
 *
 * Data moves in chunks through rings of DEPTH slots: in[rank] (what a rank
 * gives), acc[hop] (the sum so far, when it comes from another node), res (the
 * result). A rank gives chunk k only after it has taken the result of chunk
 * k - DEPTH. A result exists only after every rank of the group has given its
 * chunk, so wherever chunk k arrives, chunk k - DEPTH has left that slot
 * everywhere: no ring needs credits, no connection can be blocked by another
 * kind of data, and nothing can deadlock. A broadcast has no such loop; there
 * the giver waits for its node, and a leader stops reading until its node has
 * taken a slot.
 *
 * The sum passes from run to run of consecutive ranks (layout.h), so it is the
 * left fold in rank order wherever the ranks are. The result spreads along the
 * line of nodes from where it was made.
 *
 * Counters count chunks since the group began; they only grow, have one
 * writer, and are all that the ranks synchronise by. */
#ifndef TRAIN_HOST_H
#define TRAIN_HOST_H

#include <stdatomic.h>
#include <stdbool.h>
#include <stdint.h>
#include <sys/types.h>

#include "comm.h"
#include "layout.h"
#include "reduce.h"

#define HOST_DEPTH    4
#define HOST_SLICE_MS 100 /* how often a waiting rank looks for the dead */
#define HOST_NAME_MAX 48

enum host_state {
    HOST_ABSENT = 0,
    HOST_JOINED = 1,
    HOST_LEFT = 2,
};

/* Of one rank of this node. */
struct seg_rank {
    _Alignas(64) _Atomic uint32_t state; /* enum host_state */
    _Atomic int32_t pid;
    _Atomic uint64_t done_seq; /* last call that it has ended */
    _Atomic int64_t beat_ms;   /* when it last ran in a call (clock_ms) */
    _Atomic uint64_t in_done;  /* chunks given */
    _Atomic uint64_t out_done; /* chunks taken */
    _Atomic uint32_t mark; /* how far a graph has come (comm_nccl_graph.c) */
    /* of a call whose data moves elsewhere: the last it waited in, since when */
    _Atomic uint64_t look_seq;
    _Atomic int64_t since_ms;
};

/* The call of one rank; valid for the call whose seq it shows. */
struct seg_call {
    _Atomic uint64_t seq;
    struct comm_call call;
};

enum failure_state {
    FAILURE_NONE = 0,
    FAILURE_CLAIMED = 1,
    FAILURE_TOLD = 2,
};

/* Begin of the segment. */
struct seg_head {
    uint64_t nonce; /* of the group: the file is the right one */
    uint64_t bytes;
    _Alignas(64) _Atomic uint32_t event;     /* grows when anything changes */
    _Atomic uint32_t waiters;                /* ranks in futex_wait on it */
    _Atomic uint32_t leader_polls;           /* ring the bell too */
    _Atomic uint32_t said;                   /* grows with every seg_call */
    _Alignas(64) _Atomic uint64_t res_ready; /* results that have come */
    _Atomic uint64_t res_sent;               /* and have been passed on */
    _Alignas(64) _Atomic uint32_t failure;   /* enum failure_state */
    int32_t code;
    uint64_t failed_seq;
    char text[512];
};

/* The segment, as one process sees it. */
struct seg {
    struct seg_head *head;
    struct seg_rank *ranks;      /* (local_size) */
    struct seg_call *calls[2];   /* (size) each: of odd and even agreements */
    _Atomic uint64_t *part_done; /* (hops, local_size) */
    _Atomic uint64_t *acc_ready; /* (hops) */
    char *in, *acc, *res;
    size_t slot_bytes, bytes;
    int size, local_size, hops;
    int local_rank;
    int fd;   /* holds the lock that shows this rank lives */
    int bell; /* FIFO: wakes the leader from poll; -1 on one node */
    char name[HOST_NAME_MAX]; /* "" once nobody needs it any more */
};

/* seg_create - the leader's side: make file and bell, map, lock.
 * seg_open - the other ranks of the node: open what the leader made, by name.
 *   seg    written; seg_close also after a failure
 *   name   of the files in /dev/shm
 *   nonce  proves the file
 *   bell   make or open the FIFO */
train_status_t seg_create (struct seg *seg, int size, int local_size, int hops,
                           bool bell, uint64_t nonce, train_error_t *err);
train_status_t seg_open (struct seg *seg, int size, int local_size, int hops,
                         int local_rank, bool bell, const char *name,
                         uint64_t nonce, train_error_t *err);
/* seg_unlink - everybody has opened it: from now on a crash leaves nothing. */
void seg_unlink (struct seg *seg);
void seg_close (struct seg *seg);

/* seg_signal - something that others may wait for has changed. */
void seg_signal (struct seg *seg);
/* seg_spin - wait for at most some 50 us, without sleep: others that are
 * microseconds away are heard sooner. Returns whether the event has changed. */
bool seg_spin (const struct seg *seg, uint32_t event);
/* seg_wait - sleep while the event still is [event]; at most a slice. */
void seg_wait (struct seg *seg, uint32_t event);

/* seg_is_gone - has a rank ended, or left, without ending call [seq]? */
bool seg_is_gone (const struct seg *seg, int local_rank, uint64_t seq);

/* seg_fail - record the first failure of the node, in call [seq], and wake
 * everybody. Another's may be first. */
void seg_fail (struct seg *seg, uint64_t seq, train_status_t code,
               const char *text);
/* seg_failure - the failure that was recorded in call [seq] or before, or
 * TRAIN_OK. A rank that is slow to end a call is not disturbed by a failure in
 * the next: it has all it needs, or its own watch finds what is missing. */
train_status_t seg_failure (struct seg *seg, uint64_t seq, train_error_t *err);

static inline void *seg_slot (const struct seg *seg, char *ring, int index,
                              uint64_t chunk)
{
    return ring
           + ((size_t)index * HOST_DEPTH + chunk % HOST_DEPTH)
                 * seg->slot_bytes;
}

/* What leaders say to each other. */
enum frame_type {
    FRAME_CALL = 1,  /* a = rank, hop = agreement, odd or even; a struct
                        comm_call */
    FRAME_ACC = 2,   /* a = chunk, hop = run it goes to; sum so far */
    FRAME_RES = 3,   /* a = chunk; result */
    FRAME_FAIL = 4,  /* a = call, hop = code; text */
    FRAME_LEAVE = 5, /* a = last call ended; nothing */
    FRAME_HERE = 6,  /* a = call that is past its deadline; hop = least mark of
                        the sender's node, and whose; nothing */
    FRAME_TAKEN = 7, /* was another, and has been heard; never sent */
};

struct frame {
    uint32_t type;
    uint32_t len; /* bytes that follow */
    uint32_t hop;
    uint32_t rank; /* of a FRAME_HERE; else 0 */
    uint64_t a;
};

struct out_frame {
    struct frame head;
    const void *data; /* in the segment: it stays until all have it */
};

/* The leader of another node. */
struct peer {
    int fd; /* -1: this node itself, or gone */
    bool gone, left;
    uint64_t left_seq;
    struct out_frame *queue; /* (queue_max) ring */
    unsigned head, tail;     /* frames taken, frames put */
    size_t sent;             /* bytes of the frame at [head] */
    struct frame in;
    size_t got;      /* bytes of [in], then of its data */
    char *to;        /* where the data goes; NULL while it has no place yet */
    char text[512];  /* place for short data */
    bool told;       /* a failure has been sent */
    uint64_t here;   /* call in which it said that it waits too */
    uint32_t mark;   /* the least of its node then, of rank mark_rank; */
    int mark_rank;   /* UINT32_MAX: all have ended that call */
    int64_t gone_ms; /* when that was seen; while data moves elsewhere */
    bool stuck;      /* data had no place when it was looked ahead */
    char *ahead;     /* what was read then; bytes [ahead_at, ahead_n) */
    size_t ahead_at, ahead_n;
};

/* One call on its way through this process. */
struct host_run {
    struct comm_call call;
    uint64_t base;                           /* chunks before this call */
    uint64_t n;                              /* chunks */
    size_t elems;                            /* of a full chunk */
    uint64_t blocks, block_elems, per_block; /* the last: chunks */
    size_t elem_bytes, acc_bytes;
    const char *from;    /* what this rank gives, and where it takes to; */
    char *to;            /* NULL where it does neither */
    uint64_t in, out;    /* chunks given, taken, of [n] */
    uint64_t *part;      /* (hops) own parts done */
    uint64_t *acc_sent;  /* (hops) leader: passed on to the next run */
    uint64_t *acc_got;   /* (hops) leader */
    uint64_t res_queued; /* leader */
    bool *passed;        /* (local_size) leader: calls passed on */
    bool follows;        /* as the learnt step has it: no agreement */
    int64_t moved_ms;    /* last progress */
};

/* The learnt step, and who does not follow it (host_step.c). */
struct host_step {
    const struct comm_call *learnt; /* (n) */
    uint64_t n, seq;                /* the first is call [seq] */
    uint32_t said;                  /* of head, when it was looked at last */
    bool look;                      /* it must be, whatever [said] says */
    uint64_t first, last; /* calls that ranks wait in to agree, since the last
                             agreement; UINT64_MAX and 0: none */
};

struct host {
    const char *name;
    int64_t timeout_ms;
    int rank, size, local_rank, local_size, node, nodes;
    int *node_of;            /* (size) */
    int *leader_of;          /* (nodes) rank */
    int *local;              /* (local_size) ranks of this node */
    int *local_of;           /* (size) index in [local], -1 elsewhere */
    struct layout_run *runs; /* all */
    int n_runs;
    int *hop_run; /* (hops) runs of this node */
    int hops;
    struct seg seg;
    struct peer *peers;   /* (nodes) leader of more than one node, else NULL */
    struct pollfd *polls; /* (1 + nodes) */
    unsigned queue_max;
    uint64_t chunks;     /* of all calls so far */
    const void **in_ptr; /* (local_size) scratch */
    int64_t watched_ms;  /* when it last looked for the dead and the late */
    uint64_t agreed;     /* calls that the ranks have compared */
    uint64_t agreed_seq; /* the last of them */
    struct host_step step;
    uint64_t here; /* call in which this leader said that it waits */
    bool spins;    /* a wait for calls begins without sleep */
    _Atomic bool aborted;
    void (*progress) (void *arg); /* of who moves data elsewhere: called while
                                     this rank waits; NULL: nobody */
    void *progress_arg;
    char hint[256];         /* where its messages are; "": NCCL's */
    struct host_idle *idle; /* of a leader of several nodes, else NULL */
    train_error_t telling;  /* the failure that leaders are told */
    struct host_run run;
};

static inline bool host_is_leader (const struct host *host)
{
    return host->local_rank == 0;
}

static inline size_t host_chunk_elems (const struct host_run *run, uint64_t k)
{
    uint64_t left = run->block_elems - k % run->per_block * run->elems;

    return left < run->elems ? (size_t)left : run->elems;
}

static inline size_t host_chunk_bytes (const struct host_run *run, uint64_t k)
{
    return host_chunk_elems (run, k) * run->elem_bytes;
}

/* The counters that the ranks of a node synchronise by. */
static inline uint64_t host_load (const _Atomic uint64_t *counter)
{
    return atomic_load_explicit (counter, memory_order_acquire);
}

static inline void host_publish (struct host *host, _Atomic uint64_t *counter,
                                 uint64_t value)
{
    atomic_store_explicit (counter, value, memory_order_release);
    seg_signal (&host->seg);
}

static inline void *host_res_slot (struct host *host, uint64_t chunk)
{
    return seg_slot (&host->seg, host->seg.res, 0, chunk);
}

/* net_init - connect the leaders with each other.
 *   listener   of this leader
 *   cards      (size) what the ranks said: addresses and ports
 *   nonce      of the whole group, keeps strangers out
 * net_fini - say goodbye, close. */
struct host_card;
train_status_t net_init (struct host *host, int listener,
                         const struct host_card *cards, uint64_t nonce,
                         int64_t deadline_ms, train_error_t *err);
void net_fini (struct host *host, uint64_t done_seq);

/* net_put - queue a frame; its data must stay until it is sent. */
void net_put (struct peer *peer, const struct host *host, struct frame head,
              const void *data);
/* net_move - send and receive what can be without waiting. Returns whether
 * anything moved; a broken protocol is recorded as the node's failure. */
bool net_move (struct host *host);
/* net_look_ahead - for a leader in no call: hear what is said behind data that
 * has no place yet. ahead_recv - as recv, but first of what was read then.
 * net_is_word - a frame that is no data. net_take_word - what it says; its
 * [text] is complete. False: it is wrong. */
void net_look_ahead (struct host *host);
ssize_t ahead_recv (struct peer *peer, char *to, size_t n);
bool net_is_word (uint32_t type);
bool net_take_word (struct host *host, int node, const struct frame *f,
                    const char *text);
/* net_wait - sleep while the event still is [event] and nothing comes. */
void net_wait (struct host *host, uint32_t event);
/* net_idle - is all sent? */
bool net_idle (const struct host *host);
/* net_results_sent - the first result that is still queued, or [queued]. */
uint64_t net_results_sent (const struct host *host, uint64_t queued);
/* net_tell_failure - say the recorded failure to all leaders, once. */
void net_tell_failure (struct host *host);

/* host_place - where the data of a frame from [node] goes (host_frames.c).
 *   ret_to   NULL: no slot is free yet, ask again
 * False: the frame is wrong. */
bool host_place (struct host *host, int node, const struct frame *frame,
                 char **ret_to);
/* host_res_is_free - has the slot of the result ring that chunk [k] of this call
 * takes been left by the ranks of this node, and by the leader?
 * host_say - what a rank calls, where the node's ranks see it. */
bool host_res_is_free (const struct host *host, uint64_t k);
void host_say (struct host *host, struct seg_call *c,
               const struct comm_call *call);

/* host_pass_calls - leader: calls of this node's ranks that other leaders have
 * not seen, into their queues. Returns whether there was one. */
bool host_pass_calls (struct host *host);

/* host_arrived - the data of that frame is complete. False: it is wrong. */
bool host_arrived (struct host *host, int node, const struct frame *frame,
                   const char *data);

/* What a rank tells the others when the group begins. Sent as it stands. */
struct host_card {
    int32_t code; /* TRAIN_OK, or why it cannot go on */
    uint16_t port;
    uint16_t zero;
    uint64_t nonce; /* of rank 0 counts */
    char shm[HOST_NAME_MAX];
    char addresses[256];
    char text[256];
};

/* host_run_call - the slot run of comm_host. */
train_status_t host_run_call (void *state, const struct comm_call *call,
                              const void *from, void *to, train_error_t *err);

/* host_follow - the slot follow; host_step - the slot step. */
train_status_t host_follow (void *state, const struct comm_call *call,
                            const void *from, void *to, train_error_t *err);
void host_step (void *state, const struct comm_call *learnt, size_t n,
                uint64_t seq);
/* step_watch - does a rank wait to agree on a call that another took for
 * learnt? Records the failure of the node then. Cheap: for every turn of a
 * loop.
 * step_agreed - the ranks have agreed on the call of this run. */
void step_watch (struct host *host);
/* step_may_send - may [rank], another leader, send data of this call or a later
 * one, or does it not wait for the agreement that we wait for? Its call comes
 * before its data. Records the failure then. */
bool step_may_send (struct host *host, int rank);
void step_agreed (struct host *host);

/* host_is_silent - the leader of another node that has given no sign of life of
 * call [seq]: it has neither said that it waits too, nor left after it. */
static inline bool host_is_silent (const struct host *host, int rank,
                                   uint64_t seq)
{
    int node = host->node_of[rank];
    const struct peer *peer = host->peers ? &host->peers[node] : NULL;

    return peer && node != host->node && rank == host->leader_of[node]
           && peer->here < seq && !(peer->left && peer->left_seq >= seq);
}

/* host_calls - what the ranks said of the agreement under way, or next. One
 * table an agreement: while ranks follow a learnt step one may be in its next
 * agreement before another has left the last. */
static inline struct seg_call *host_calls (const struct host *host)
{
    return host->seg.calls[host->agreed & 1];
}

/* A call whose data moves elsewhere, as NCCL's does: host_agree compares the
 * calls, and moves nothing. While the data is on its way each rank that waits
 * for it calls host_look, which finds out who has ended meanwhile, or says at
 * the deadline who does not go on; host_end says that this rank has its result.
 *   since_ms   when the wait began
 *   follow     the call is one of a learnt step: nothing is compared, and
 *              host_look finds out too whether a rank departs
 * After a failure only fini is legal. */
train_status_t host_agree (void *state, const struct comm_call *call,
                           bool follow, train_error_t *err);
train_status_t host_look (void *state, const struct comm_call *call,
                          int64_t since_ms, train_error_t *err);
void host_end (void *state, const struct comm_call *call);
/* host_mark - this rank's data has come so far in the call that it is in.
 * host_least_mark - the least of all ranks that have not ended call [seq], as
 * far as this one knows, and whose; of other nodes when their leaders have said
 * at the deadline where they are. UINT32_MAX: it knows of none.
 * host_hint - where more about the data is said, for messages; "": by NCCL. */
void host_mark (void *state, uint32_t mark);
uint32_t host_least_mark (void *state, uint64_t seq, int *ret_rank);
void host_hint (void *state, const char *hint);
/* host_fail - the data's own failure, to all ranks. Another's may be first:
 * returns the one that stands. */
train_status_t host_fail (void *state, const struct comm_call *call,
                          const train_error_t *why, train_error_t *err);

/* host_is_here - is result [k] of this call in the ring of this node? */
bool host_is_here (const struct host *host, uint64_t k);

/* plan_begin - cut the call of [host] into blocks and chunks.
 * plan_reduces - does it combine what the ranks give?
 * plan_share - elements [from, to) of a chunk, which this rank combines.
 * plan_giver - the rank that gives chunk [k], where it does not.
 * plan_source - the node where the result of chunk [k] is made.
 * plan_from - where this rank, the giver, has chunk [k].
 * plan_to - where this rank wants chunk [k]: from byte [skip] of the chunk on,
 *   [bytes] of it; NULL if it does not. */
void plan_begin (struct host *host);
bool plan_reduces (const struct host_run *run);
void plan_share (const struct host *host, size_t elems, size_t *from,
                 size_t *to);
int plan_giver (const struct host *host, uint64_t k);
int plan_source (const struct host *host, uint64_t k);
const char *plan_from (const struct host *host, uint64_t k);
char *plan_to (const struct host *host, uint64_t k, size_t *skip,
               size_t *bytes);

#endif
