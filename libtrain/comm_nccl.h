/* SPDX-License-Identifier: Apache-2.0
 * comm_nccl.h - the parts of the backend nccl. Inside libtrain only.
 *
 * A group has the state of a host group beside the communicator: the ranks
 * compare their calls there, then each gives its call to NCCL and waits for an
 * event, looking meanwhile who has ended (host.h, "elsewhere").
 *
 * Calls into NCCL that may wait for other ranks - the beginning, the first
 * message between two ranks, abort and end - are made by a helper thread
 * (comm_nccl_link.c), so that the caller can give up. NCCL has no way to end
 * such a call from outside that does not free what the call still uses
 * (NVIDIA/nccl 2.28, ncclCommAbort): a helper that is given up stays until its
 * call returns, aborts the communicator then, and ends. The connections of the
 * collectives are made by the beginning (NCCL_RUNTIME_CONNECT=0). */
#ifndef TRAIN_COMM_NCCL_H
#define TRAIN_COMM_NCCL_H

#include <stdbool.h>
#include <stdint.h>

#include "backend.h"
#include "comm.h"
#include "nccl_api.h"

/* What a call needs in NCCL. The helper has a copy, as it may outlive the call. */
struct nccl_plan {
    struct comm_call call;
    const char *from;
    char *to;
    const struct comm_pieces *pieces; /* of a list, or NULL */
};

/* What the helper works on; lives until both sides have let it go. */
struct link;

enum link_job {
    LINK_BEGIN = 1, /* make the communicator */
    LINK_CALL = 2,  /* enqueue the plan */
    LINK_ABORT = 3,
    LINK_END = 4,
};

/* link_create - start the helper.
 *   ret   link_release also where its communicator was never made */
train_status_t link_create (const struct nccl_api *api,
                            const struct backend_ops *gpu, int device, int rank,
                            int size, const struct nccl_id *id,
                            struct link **ret, train_error_t *err);

/* link_run - let the helper do something.
 *   plan       of LINK_CALL: taken, and freed, its pieces too
 *   ret_rc     NCCL's result
 *   look       asked every slice; may be NULL. False: give up
 * False: it was given up, or the time was over. From then on only link_release
 * is legal. */
bool link_run (struct link *link, enum link_job job, struct nccl_plan *plan,
               int64_t deadline_ms, bool (*look) (void *arg), void *arg,
               int *ret_rc);
void *link_comm (const struct link *link); /* NULL: none */
void *link_stream (const struct link *link);

/* link_release - abort what is left, and let go; NULL is fine. Does not wait
 * for a helper that was given up. */
void link_release (struct link *link);

#define NCCL_SUSPECT_MS 1000 /* NCCL has failed: who ended is known soon */

/* Calls that were recorded. */
struct nccl_graph {
    struct nccl_graph *next;
    int id;
    void *exec;              /* of the GPU; NULL while it is recorded */
    volatile uint32_t *mark; /* pinned: how far a launch has come */
    struct comm_call *calls; /* (n) seq 0 */
    size_t n;
    void **memory; /* (n_memory) of the GPU, for its calls */
    size_t n_memory;
};

struct nccl {
    const char *name;
    int64_t timeout_ms;
    int rank, size, device;
    const struct nccl_api *api;
    const struct backend_ops *gpu;
    void *host; /* of comm_host; NULL for one rank */
    struct link *link;
    void *comm;         /* NULL: one rank, or aborted */
    void *stream;       /* of the group's calls */
    void *after;        /* stream that a call comes after */
    void *ready, *done; /* events: the caller's work; the group's */
    void *copy;         /* on the GPU, of an all-to-all in place */
    void *wire;         /* on the GPU, of a call that is cast; kept */
    size_t wire_bytes;
    const struct comm_flow *flow; /* of the call in flight, or NULL */
    struct nccl_graph *capture;   /* calls are recorded in it, or NULL */
    struct nccl_graph *running;   /* launched by the call in flight, or NULL */
    struct nccl_graph *graphs;
    int n_graphs;
    bool *sends, *recvs; /* (size) messages that have a connection */
    bool careful;        /* any call may wait for others */
    bool idle;           /* the call in flight has nothing for the GPU */
    bool broken;
    struct comm_call now; /* in flight */
    int64_t since_ms;
    int64_t looked_ms;
};

/* nccl_way - the messages of a call between [rank] and [peer]: which there are,
 * and the blocks where they begin and go to. None in a call that is one of
 * NCCL's own. */
struct nccl_way {
    bool sends, recvs;
    size_t from, to;
};

struct nccl_way nccl_way (const struct comm_call *call, int rank, int peer);

/* nccl_enqueue - give a call to NCCL. Any thread; returns NCCL's result. */
int nccl_enqueue (const struct nccl_api *api, const struct nccl_plan *plan,
                  int rank, int size, void *comm, void *stream);

/* nccl_look - while the helper works for the call in flight: has a rank ended?
 * [arg] is the struct nccl. */
bool nccl_look (void *arg);

/* nccl_start - agree, and give the call to the GPU. nccl_poll - has it ended?
 * After ret_done, or an error, nothing of it is left.
 *   pieces   instead of [from] and [to], or NULL
 *   follow   the ranks have learnt this call: they do not agree again */
train_status_t nccl_start (struct nccl *nccl, const struct comm_call *call,
                           const void *from, void *to,
                           const struct comm_pieces *pieces, bool follow,
                           train_error_t *err);
train_status_t nccl_poll (struct nccl *nccl, bool *ret_done,
                          train_error_t *err);

/* nccl_give - the GPU's part of a call that all ranks have agreed on: after the
 * caller's stream, the copies and casts, NCCL, and the event done.
 * nccl_fail, nccl_fail_rc - the group is over, by [why] or NCCL's result; or by
 * what was first. */
train_status_t nccl_give (struct nccl *nccl, struct nccl_plan *plan,
                          train_error_t *err);
train_status_t nccl_fail (struct nccl *nccl, const train_error_t *why,
                          train_error_t *err);
train_status_t nccl_fail_rc (struct nccl *nccl, int rc, train_error_t *err);

/* Graphs (comm_nccl_graph.c).
 * nccl_graph_begin, nccl_graph_end, nccl_graph_free - as comm.h has them.
 * nccl_graph_drop - what holds the communicator back: before it ends.
 * nccl_graph_alloc - memory of the GPU for a call that is recorded, which lives
 * as long as the graph.
 * nccl_graph_note, nccl_graph_noted - before and after what a call gives the
 * GPU. nccl_graph_ready - the call in flight launches [graph], or none if NULL.
 * nccl_graph_tell - to the ranks of the node, and the watch: how far it is.
 * nccl_graph_where - "; the GPU of rank 0 was in ..."; "" if none runs. */
train_status_t nccl_graph_begin (struct nccl *nccl, train_error_t *err);
train_status_t nccl_graph_end (struct nccl *nccl, struct comm_call *ret_launch,
                               struct nccl_graph **ret_graph,
                               train_error_t *err);
void nccl_graph_free (struct nccl *nccl, struct nccl_graph *graph);
void nccl_graph_drop (struct nccl *nccl);
train_status_t nccl_graph_alloc (struct nccl *nccl, size_t bytes, void **ret,
                                 train_error_t *err);
train_status_t nccl_graph_note (struct nccl *nccl, const struct comm_call *call,
                                train_error_t *err);
train_status_t nccl_graph_noted (struct nccl *nccl, train_error_t *err);
void nccl_graph_ready (struct nccl *nccl, struct nccl_graph *graph);
void nccl_graph_tell (struct nccl *nccl);
void nccl_graph_where (const struct nccl *nccl, char *text, size_t size);

#endif
