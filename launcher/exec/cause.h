/* SPDX-License-Identifier: Apache-2.0
 * cause.h - one rank names the cause, however many end badly.
 *
 * When a rank dies, others often fail a moment later because of it, before
 * they are killed. So rank 0's rv-exec listens while its own child runs; a
 * rank that ended badly asks it, and within CAUSE_WINDOW_MS of the first
 * question one is chosen: a fatal signal before other ends, then who asked
 * first. The others keep quiet and wait to be ended. Where rank 0 is gone
 * already, whoever asks speaks.
 *
 * Wire: "rvca" token:8 rank:4 signal:4 (little endian), answered by 'n', or by
 * 'y' count:4 and the ranks (4 each) of the others that asked meanwhile. The
 * token is random and came through the fence. */
#ifndef RV_EXEC_CAUSE_H
#define RV_EXEC_CAUSE_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "exec/child.h"

#define CAUSE_OTHERS 64 /* as many are told */

struct cause_claim {
    int fd; /* -1: our own child's */
    unsigned char buf[20];
    size_t have;
    uint32_t rank;
    int signal;
    bool whole;
};

struct cause {
    uint32_t rank;
    uint64_t token;
    uint16_t port; /* 0: nobody listens */
    char addr[64];
    /* rank 0 */
    int listen_fd;
    struct cause_claim *claim; /* (n) in order of arrival */
    size_t n;
    int64_t decide_ms;     /* when to choose; 0: nobody asked yet */
    bool decided;          /* somebody has it: all others are answered 'n' */
    int64_t deaf_until_ms; /* descriptors ran out: none is taken before */
    bool said_deaf;
    /* where the word is ours: who ended badly too, if that is known */
    bool knows_others;
    uint32_t other[CAUSE_OTHERS]; /* (n_others) */
    size_t n_others;
};

void cause_init (struct cause *c, uint32_t rank);

/* cause_listen - rank 0: open the port. Not being able to is no error: then
 * each rank speaks for itself. */
void cause_listen (struct cause *c, uint32_t size, bool loopback);

/* cause_watch - for child_run, on rank 0. */
struct child_watch cause_watch (struct cause *c);

/* cause_is_ours - may this rank, whose child ended badly by [signal] (0: an
 * exit status), name the cause? Takes up to CAUSE_WINDOW_MS, and not more than
 * 3 s when rank 0 hangs. */
bool cause_is_ours (struct cause *c, int signal);

void cause_fini (struct cause *c);

#endif
