/* SPDX-License-Identifier: Apache-2.0
 * nccl_ranks.h - ranks of backend nccl on real GPUs, one process each, forked
 * before anything of CUDA has run. What they saw is in memory that the parent
 * reads. */
#ifndef TESTS_GPU_NCCL_RANKS_H
#define TESTS_GPU_NCCL_RANKS_H

#include <stdatomic.h>
#include <stdbool.h>
#include <stdint.h>

#include <train/group.h>

#define RANKS    2 /* at most */
#define N        100003
#define LARGE    (16u << 20) /* elements */
#define TIME_MS  5000
#define START_MS 60000

struct seen {
    train_error_t err;
    int status;
    int64_t ms;
    char note[300];
    _Atomic int calls, over;
};

struct shared {
    struct seen rank[RANKS];
};

struct rank {
    int rank;
    train_group_t *group;
    struct seen *seen;
    void *stream;   /* whose work the group's calls come after */
    char *in, *out; /* (LARGE * 4 bytes) of the GPU */
    char *host;     /* the same of the host */
    train_error_t err;
};

typedef void (*body_f) (struct rank *r);

extern struct shared *shared;
extern int ranks;     /* 2, or 1 where there is one GPU */
extern bool as_hosts; /* each rank plays a machine of its own */
extern bool at_home;  /* its thread is on its GPU from the beginning */

/* open_ranks - how many GPUs are there? False: none, or no NCCL. */
bool open_ranks (void);

/* run - both ranks; [sig], if not 0, strikes rank 1 once it has called a few
 * times. False: a rank noted something, failed or hung.
 * said - what rank [rank] saw. */
bool run (body_f body, int sig);
bool said (int rank, train_status_t status, const char *text, int max_ms);

/* In a rank. note - what is wrong; the first stays. try_ok - it is right, or
 * noted. upload, download - between r->host and the GPU. fill - what this rank
 * gives. */
void note (struct rank *r, const char *what, const char *text);
bool try_ok (struct rank *r, const char *what, train_status_t status);
void upload (struct rank *r, char *to, size_t bytes);
void download (struct rank *r, const char *from, size_t bytes);
void fill (struct rank *r, char *to, train_dtype_t dtype, size_t n);

/* want - [n] elements of the GPU, of which the first is number [first], are
 * what the ranks' values make, or what rank [of] gave. */
void want (struct rank *r, const char *what, const char *data,
           train_dtype_t dtype, size_t n, size_t first, train_op_t op, int of);

#endif
