/* SPDX-License-Identifier: Apache-2.0
 * meet_impl.h - what both sides of a meeting know: meet.c comes, meet_host.c
 * receives. */
#ifndef TRAIN_MEET_IMPL_H
#define TRAIN_MEET_IMPL_H

#include <stdbool.h>

#include "meet.h"

#define MEET_MAGIC "RVMEET1"
#define MEET_ORDER 0x01020304u /* reads otherwise with another byte order */

/* The first bytes of a rank that comes. */
struct meet_greeting {
    char magic[8];
    uint32_t order;
    uint32_t size;
    uint32_t rank;
    uint32_t zero;
    uint64_t token;
};

/* Head of everything that rank 0 says. */
struct meet_word {
    uint32_t code; /* train_status_t */
    uint32_t len;  /* bytes that follow: data, or the text of an error */
};

struct meet {
    int rank, size;
    int fd;   /* to rank 0; -1 on rank 0 */
    int *fds; /* (size) on rank 0: to each rank, -1 for itself; else NULL */
    char host[64];
    char at[64]; /* of rank 0's addresses the one that was reached */
};

struct meet_greeting meet_greeting_of (const struct meet_place *place, int rank,
                                       int size);

/* meet_say - a word. 0, or -1 with errno. */
int meet_say (int fd, train_status_t code, const void *data, size_t len,
              int64_t deadline_ms);

/* meet_receive - rank 0's side of meet_open. */
train_status_t meet_receive (struct meet *meet, const struct meet_place *place,
                             int64_t deadline_ms, train_error_t *err);

/* meet_collect - rank 0's side of meet_exchange. */
train_status_t meet_collect (struct meet *meet, void *all, const void *mine,
                             size_t len, int64_t deadline_ms,
                             train_error_t *err);

#endif
