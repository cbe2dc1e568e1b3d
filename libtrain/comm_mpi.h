/* SPDX-License-Identifier: Apache-2.0
 * comm_mpi.h - the parts of the backend mpi. Inside libtrain only.
 *
 * A group has the state of a host group beside the communicator: the ranks
 * compare their calls there, make objects and barriers there, and look there
 * who has ended while MPI moves the data (host.h, "elsewhere").
 *
 * MPI sees memory of the group alone, a part of the data at a time: a call that
 * is given up leaves requests behind that MPI has no way to take back, and they
 * must not find the caller's memory. That memory stays then. Parts also keep
 * the counts within MPI's int.
 *
 * Sums. Each rank gets its share of what all ranks give, combines it in rank
 * order (reduce.h), and gives the result to the others: MPI carries bytes, and
 * the results have the bits of the backend host. An operation of MPI's own may
 * be applied in any grouping (MPI-4.1, 6.9.1), and would round more often.
 *
 * libmpi is opened at run time: nothing links against it. mpi.h is needed when
 * libtrain is built, since each MPI has handles of its own. */
#ifndef TRAIN_COMM_MPI_H
#define TRAIN_COMM_MPI_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "comm.h"

/* MPI's communicators and requests, whatever they are there. */
typedef uintptr_t mpi_handle_t;

/* The calls that move data: bytes, on a communicator. They return MPI's error
 * class, 0 for success, as soon as they have begun; [req] is then asked by
 * test. Counts and places are (size) of the communicator. Any thread. */
struct mpi_api {
    int (*all_to_all) (const char *in, const int *n_in, const int *at_in,
                       char *out, const int *n_out, const int *at_out,
                       mpi_handle_t comm, mpi_handle_t *req);
    int (*all_gather) (const char *in, int n, char *out, const int *n_out,
                       const int *at_out, mpi_handle_t comm, mpi_handle_t *req);
    int (*gather) (const char *in, int n, char *out, const int *n_out,
                   const int *at_out, int root, mpi_handle_t comm,
                   mpi_handle_t *req);
    int (*scatter) (const char *in, char *out, int n, int root,
                    mpi_handle_t comm, mpi_handle_t *req);
    int (*broadcast) (char *both, int n, int root, mpi_handle_t comm,
                      mpi_handle_t *req);
    int (*send) (const char *in, int n, int to, mpi_handle_t comm,
                 mpi_handle_t *req);
    int (*recv) (char *out, int n, int from, mpi_handle_t comm,
                 mpi_handle_t *req);
    /* Has it ended? [req] is gone then. */
    int (*test) (mpi_handle_t *req, bool *ret_done);
    /* Let MPI move what is on its way. */
    void (*progress) (mpi_handle_t comm);
    /* Who this process is among those that MPI started. */
    int (*where) (int *rank, int *size);
    /* A communicator of (n) of those ranks, which all call it. Waits for them.
     * drop does not (in Open MPI and MPICH). */
    int (*make) (const int *ranks, int n, int tag, mpi_handle_t *ret_comm);
    void (*drop) (mpi_handle_t comm);
    void (*error_text) (int code, char *text, size_t size);
};

/* mpi_find - can MPI be used by this process, and how? Begins nothing, and asks
 * nobody.
 * TRAIN_ENOTSUP: built without MPI, no such library, not started by MPI;
 * TRAIN_ESTATE: MPI has ended, or has begun without MPI_THREAD_MULTIPLE. */
train_status_t mpi_find (const struct mpi_api **ret_api, train_error_t *err);

/* mpi_begin - begin MPI, if the program has not. Waits for the processes that
 * MPI started, without a deadline. MPI that begins here ends when the process
 * exits. After mpi_find, any thread. TRAIN_ENOTSUP, TRAIN_EDEVICE. */
train_status_t mpi_begin (train_error_t *err);

/* mpi_keep - a group has broken: exit does not wait for others. */
void mpi_keep (void);

struct mpi {
    const char *name;
    int64_t timeout_ms;
    int rank, size;
    const struct mpi_api *api; /* NULL for one rank */
    void *host;                /* of comm_host; NULL for one rank */
    mpi_handle_t comm;
    bool made;              /* there is a communicator */
    bool broken;            /* a call has failed */
    bool left;              /* requests may be left */
    char *in, *out, *mixed; /* of a part, or a bit more; see make_memory */
    int *counts, *places;   /* (size) */
    int *counts2, *places2; /* (size) */
    const void **pieces;    /* (size) */
    struct comm_call now;   /* in flight */
    int64_t since_ms;
    int64_t looked_ms;
};

#define MPI_PART_BYTES ((size_t)4 << 20)

/* mpi_run - agree, and move the data of one call. Slots run and follow. */
train_status_t mpi_run (void *state, const struct comm_call *call,
                        const void *from, void *to, train_error_t *err);
train_status_t mpi_follow (void *state, const struct comm_call *call,
                           const void *from, void *to, train_error_t *err);

/* mpi_progress - for the host group's waits: what MPI has taken from this rank
 * may need its help to leave. [arg] is the struct mpi. */
void mpi_progress (void *arg);

#endif
