/* SPDX-License-Identifier: Apache-2.0
 * fake_nccl.h - made-up GPUs and an NCCL between processes, in host memory.
 * For tests alone.
 *
 * A stream is a queue that goes on whenever somebody asks for an event, so work
 * is asynchronous and can be stuck, as on a GPU. The ranks of a communicator
 * meet in memory that they share since before fork: fake_open first, then
 * start_job. */
#ifndef TESTS_UNIT_FAKE_NCCL_H
#define TESTS_UNIT_FAKE_NCCL_H

#include <stdatomic.h>
#include <stdbool.h>
#include <stddef.h>

#include "backend.h"
#include "nccl_api.h"

#define FAKE_RANKS 7

/* What a rank does where its communicator would do something. */
enum fake_fault {
    FAKE_NONE = 0,
    FAKE_KILL,  /* SIGKILL */
    FAKE_STOP,  /* SIGSTOP */
    FAKE_HANG,  /* never comes back, or never runs */
    FAKE_ERROR, /* NCCL's own error */
};

struct fake_orders {
    int rank; /* whose; -1: nobody's */
    enum fake_fault begin, connect, kernel;
};

/* What happened, by rank in the first communicator. */
struct fake_seen {
    _Atomic int begun, aborts, destroys, calls;
    _Atomic int held; /* graphs that were there at the end of a communicator */
};

/* fake_open - the shared memory, empty, and backend nccl over this file. Ranks
 * that are forked from now on are in it.
 * fake_close - the last one's; the real ones again. */
void fake_open (const struct fake_orders *orders);
void fake_close (void);
/* fake_take - the last one's, for fake_give, so that several jobs may run. */
void *fake_take (void);
void fake_give (void *taken);

/* fake_seen_of - what rank [rank] did with its communicators. */
struct fake_seen *fake_seen_of (int rank);

/* fake_alloc - memory of this rank's GPU [device]. Never freed.
 * fake_bytes - what this rank holds of it. */
void *fake_alloc (int device, size_t bytes);
size_t fake_bytes (int device);

/* fake_stream - a stream of the user, which is stuck until fake_release. */
void *fake_stream (void);
void fake_release (void *stream);
void fake_release_later (void *stream, int ms);
/* fake_clock - from now on this process's streams go on by themselves, as those
 * of a GPU do while its host waits for other ranks. */
void fake_clock (void);
/* fake_finish - until a stream has run empty. What a test does itself then
 * comes after it, as a kernel would that is given to the stream. */
void fake_finish (void *stream);
/* fake_queues - what is given without a stream waits from now on in a queue of the
 * thread's present GPU until that is synchronised; false: it is done at once, and
 * the queues are empty by now. */
void fake_queues (bool on);
/* fake_woken - GPUs that were present in this process, one bit each; the first a
 * thread has only once it is entered, or gone back to. */
unsigned fake_woken (void);
/* fake_at_once - [ops], but fill comes to its end at once: of a decoder whose
 * kernels, which are the host's, write there next. They live for ever. */
const struct backend_ops *fake_at_once (const struct backend_ops *ops);
/* fake_lock - what is given to that stream never ends. */
void fake_lock (void *stream);
/* fake_graphs - how many graphs of all ranks there are. */
int fake_graphs (void);
/* fake_store - what is given to that stream: an int goes to memory. */
void fake_store (void *stream, void *to, int value);

extern struct nccl_api fake_nccl; /* version may be changed */

#endif
