/* SPDX-License-Identifier: Apache-2.0
 * group_calls.h - every collective, with values that its result is checked by */
#ifndef GROUP_CALLS_H
#define GROUP_CALLS_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include <train.h>

#define MAX_RANKS 16
#define ELEMENTS  ((size_t)1 << 18) /* of a block: some chunks */

enum fault { KILL, STOP, COUNT, SLOW, N_FAULTS };

/* One rank of one case. */
struct run {
    char name[64], collective[32];
    enum fault fault;
    int victim, rank, size;
    train_group_t *group;
    float *in, *out;        /* (size * ELEMENTS) each */
    void *gpu_in, *gpu_out; /* the same on a GPU; NULL without one */
    DLDevice device;
    int64_t deadline_ms, grace_ms, took_ms;
    train_error_t err;
};

struct collective {
    const char *name;
    /* Call [i], of n = ELEMENTS; with another n it is another call. */
    train_status_t (*call) (struct run *run, int i, size_t n);
    bool (*right) (const struct run *run, int i);
};

/* NULL: there is none of this name. */
const struct collective *find_collective (const char *name);

/* Where the tensors are; group_place.c. */
extern const char *const place_backend;
bool place_open (struct run *run); /* after the group; false: no memory */
void place_close (struct run *run);
/* The tensor memory for run->in or run->out. */
void *place_of (const struct run *run, const float *data);
void place_give (struct run *run); /* in and out to there */
void place_take (struct run *run); /* and back */

#endif
