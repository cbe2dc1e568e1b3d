/* SPDX-License-Identifier: Apache-2.0
 * proc.h - run a program: argument vector in, output and status out.
 *
 * No shell is ever between: vectors go to execve(2) unchanged. The caller is
 * single-threaded. SIGCHLD must not be ignored. */
#ifndef RV_PROC_H
#define RV_PROC_H

#include <stdbool.h>
#include <stddef.h>
#include <sys/types.h>

#include "plan/error.h"

struct proc_opts {
    char *const *env;  /* NULL: this process's environment */
    const char *dir;   /* working folder; NULL: unchanged */
    const char *input; /* bytes for stdin; NULL: /dev/null */
    size_t input_len;
    int deadline_ms;     /* then SIGKILL and RV_ETIMEDOUT; 0: no deadline */
    size_t max_output;   /* of each stream; more is RV_EFORMAT; 0: 16 MiB */
    bool inherit_stderr; /* stderr stays ours instead of being captured */
};

struct proc_result {
    int status; /* exit status, 128+N for signal N */
    char *out;  /* stdout, a NUL behind it; never NULL after success */
    size_t out_len;
    char *err; /* stderr, likewise; "" with inherit_stderr */
    size_t err_len;
};

/* proc_run - run argv[0] (searched in PATH) to its end and capture its output.
 *   argv         NULL-terminated
 *   opts         NULL: all zero
 *   ret_result   written on success only; free with proc_result_fini
 * A non-zero status of the program is success here. RV_ENOTFOUND when there is
 * no such program, RV_EIO when it cannot be started, RV_ETIMEDOUT (it was
 * killed and waited for), RV_EFORMAT for too much output. */
int proc_run (char *const argv[], const struct proc_opts *opts,
              struct proc_result *ret_result, struct rv_error *err);
void proc_result_fini (struct proc_result *result); /* NULL is fine */

/* proc_spawn - start argv[0] (searched in PATH) and return at once.
 *   env, dir          as in proc_opts
 *   in, out, err_fd   become 0, 1, 2 of the child; -1: as ours. Borrowed
 *   ret_pid           the child, to be waited for by the caller
 * Returns after the exec succeeded, so RV_ENOTFOUND and RV_EIO as above. */
int proc_spawn (char *const argv[], char *const *env, const char *dir, int in,
                int out, int err_fd, pid_t *ret_pid, struct rv_error *err);

/* proc_wait - wait for [pid] until [deadline_ms] have passed (negative: for
 * ever). Status as in proc_result. RV_ETIMEDOUT leaves the child running. */
int proc_wait (pid_t pid, int deadline_ms, int *ret_status,
               struct rv_error *err);

/* proc_find - absolute path of program [name] in PATH, then in the folder of
 * Slurm's commands that configure found, /usr/sbin, /sbin (daemons are not in a
 * plain user's PATH), /usr/bin and /bin, malloc'ed; NULL if none. proc_spawn
 * finds Slurm's commands so. */
char *proc_find (const char *name);

/* proc_now_ms - the monotonic clock, milliseconds. */
long long proc_now_ms (void);

#endif
