/* SPDX-License-Identifier: Apache-2.0
 * child.h - run one program as our child: signals in, its end and its last
 * words out. */
#ifndef RV_EXEC_CHILD_H
#define RV_EXEC_CHILD_H

#include <poll.h>
#include <signal.h>
#include <stdbool.h>
#include <stddef.h>
#include <sys/types.h>
#include <time.h>

#include "plan/error.h"

#define TAIL_LINES 20
#define TAIL_BYTES 8192
#define ORPHAN_MS  2000

/* Something else to be served while the child runs: file descriptors of its
 * own in the same poll. */
struct child_watch {
    /* fill (required) - write at most [max] entries; returns how many.
     *   ret_wait_ms   lowered when the watch wants to run sooner */
    size_t (*fill) (void *arg, struct pollfd *p, size_t max, int *ret_wait_ms);
    /* serve (required) - what poll found in those (n) entries. */
    void (*serve) (void *arg, const struct pollfd *p, size_t n);
    void *arg;
};

struct child_result;

struct child_opts {
    char *const *argv;
    char *const *env; /* of the child */
    const char *path; /* program; NULL: argv[0] through PATH */
    bool tail;        /* keep the last lines of its stderr */
    bool in_step;     /* a task of Slurm: see child_forwards */
    bool agent; /* it starts the ranks and is none: SIGUSR1 and SIGUSR2 are for
                 * these, and it ignores them */
    bool adopt; /* what the child leaves running is ours, and ends with us where
                 * it failed: the caller has no other children meanwhile */
    const struct child_watch *watch; /* NULL: none */
    /* signalled - a signal came. True: it is dealt with, and not forwarded.
     * NULL: none. */
    bool (*signalled) (void *arg, const struct child_result *r, int signal);
    void *signalled_arg;
    /* begun - called once the program runs, or could not be executed. NULL:
     * none. */
    void (*begun) (void *arg);
    void *begun_arg;
    /* ended - called the moment the child has ended badly, before we wait for
     * what the step has to say to that; it may kill us first. [tail] is not
     * set yet. NULL: none. */
    void (*ended) (void *arg, const struct child_result *r);
    void *ended_arg;
};

struct child_result {
    pid_t pid;
    int exec_errno;  /* it could not be started; nothing else is set */
    int exit_status; /* -1 when a signal ended it */
    int signal;      /* 0 when it exited */
    bool term;       /* the step (or a user's kill) sent us SIGTERM */
    int step_signal; /* last signal but CONT that the step sent, 0 none */
    int oom;     /* something in our group was killed for want of memory: 1, 0,
              * -1 unknown; the caller's to set */
    bool orphan; /* slurmstepd went away, and we ended the child for that */
    struct timespec started, ended; /* CLOCK_REALTIME */
    char *tail;                     /* last lines, malloc'ed; NULL or "" none */
};

/* child_init - block the signals that are forwarded; first thing in main, so
 * that none is lost. The child gets the mask that stood before. */
int child_init (void);

/* child_run - start, forward signals, wait for the end.
 *   ret    written; child_result_fini frees it
 * Without the slurmstepd that started us nobody could end the child any more,
 * and it would outlive its job: it gets SIGTERM then, and ORPHAN_MS later
 * SIGKILL.
 * RV_OK also when the program could not be executed (exec_errno); else RV_EIO
 * or RV_ENOMEM. */
int child_run (const struct child_opts *opts, struct child_result *ret,
               struct rv_error *err);
void child_result_fini (struct child_result *r);

/* child_forwards - pass this signal on to the child?
 *   code          si_code: SI_KERNEL is a terminal's, which the child got too
 *   from_step     sent by the step's slurmstepd
 *   to_tree       the step's tracking plugin signals all descendants
 *                 (linuxproc, pgid), so the child has it already */
bool child_forwards (int code, bool from_step, bool to_tree);

/* child_tracks_cgroup - does [text], a /proc/self/cgroup, show that Slurm
 * tracks processes by cgroup? That plugin signals a step's tasks only, not
 * their children. */
bool child_tracks_cgroup (const char *text);

/* child_status - the exit status that stands for this end: 128+N for a signal,
 * 126 and 127 for what could not be executed. */
int child_status (const struct child_result *r);

/* child_told_to_end - did the step (scancel, srun) tell it to end? Then this
 * end is nobody's fault here. */
bool child_told_to_end (const struct child_result *r);

/* child_signal_name - "SEGV", or "?" */
const char *child_signal_name (int signal);

/* tail_trim - keep the last [lines] lines of text; returns a pointer into it. */
const char *tail_trim (const char *text, size_t lines);

#endif
