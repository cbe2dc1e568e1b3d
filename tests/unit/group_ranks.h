/* SPDX-License-Identifier: Apache-2.0
 * group_ranks.h - fork the ranks of a group by hand and look at what they saw
 *
 * A letter a rank says which node it plays ("aabb": two nodes of two), so that
 * shared memory and TCP both run on one machine. The ranks write what they saw
 * into memory that the parent reads. Every function fails the running cmocka
 * test on its own. */
#ifndef GROUP_RANKS_H
#define GROUP_RANKS_H

#include <stdatomic.h>
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>
#include <sys/types.h>
#include <time.h>

#include <train/group.h>

#define MAX_RANKS   7
#define PATIENCE_MS 60000 /* of a test on a loaded machine */
#define LATE_MS     30000 /* of what comes within a second on a quiet one */

/* What a rank saw. */
struct seen {
    train_error_t err;
    int status;
    int64_t ms; /* how long the call took */
    char note[200];
};

struct shared {
    struct seen seen[MAX_RANKS];
    uint64_t hash[MAX_RANKS];
    _Atomic int flag;
};

struct job;
typedef void (*rank_f) (struct job *job, int rank, train_group_t *group);
typedef void (*rank_env_f) (struct job *job, int rank);

struct job {
    const char *layout; /* node of each rank, a letter each */
    rank_f body;
    int64_t timeout_ms;
    int arg;
    const char *backend;         /* NULL = host */
    const char *device;          /* of all ranks; NULL = by the local rank */
    const char *step[MAX_RANKS]; /* RV_STEP, NULL = none */
    int exit_status;             /* 0 = _exit, no handler runs; else exit */
    bool no_node_rank;           /* leave NODE_RANK unset */
    rank_env_f env;              /* in each rank, behind its variables */
    int size;
    struct timespec begin; /* as files have it */
    pid_t pids[MAX_RANKS];
    int ends[MAX_RANKS]; /* as waitpid gives them */
    struct shared *shared;
    int hold; /* keeps the port, as rv-exec does */
    int port;
};

int64_t now_ms (void);

/* start_job - fork the ranks; each joins the group and runs job->body. */
void start_job (struct job *job);
/* end_job - wait for all of them, and see that none crashed and that nothing stays
 * in /dev/shm. A rank may have been killed (SIGKILL) on purpose. */
void end_job (struct job *job);
void run_job (struct job *job); /* both */
void free_job (struct job *job);

/* want_ok - every rank ended well, and noted nothing. */
void want_ok (const struct job *job);
/* want - every rank but those in [except] saw this. */
void want (const struct job *job, const char *except, train_status_t status,
           const char *text);
/* any_failed - while they run: has a rank seen an error? */
bool any_failed (const struct job *job);
/* once_more - after a job with a short deadline: did a rank see anything else than
 * want() would have, as it does where a busy machine lets ranks come too late? Then
 * the job is freed, has a longer deadline, and is to be run again; once that is
 * long, or where a rank crashed, no more. The caller ends with want(). */
bool once_more (struct job *job, const char *except, train_status_t status,
                const char *text);
/* note - in a rank: what is wrong; the first note stays. */
void note (struct job *job, int rank, const char *text, int a, int b, size_t n);
/* view_of - a one-dimensional view of [data]; false when it cannot be. */
bool view_of (train_tensor_t *t, void *data, train_dtype_t dtype, size_t n);

#endif
