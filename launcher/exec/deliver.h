/* SPDX-License-Identifier: Apache-2.0
 * deliver.h - bring a signal to the processes of a rank that expect it.
 *
 * A rank is often several processes: a shell or "uv run" around the trainer,
 * torchrun above several, data workers below one. The signal goes to the
 * outermost ones that handle it (or block it, to wait for it), and not to what
 * is below these: a fork inherits the handler. torchrun's own process is left
 * out, it would end all others (pytorch/pytorch#154849). Where nobody handles
 * it, it does what it does to a program by default. */
#ifndef RV_EXEC_DELIVER_H
#define RV_EXEC_DELIVER_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>
#include <sys/types.h>

struct deliver_proc {
    pid_t pid, ppid;
    bool handles; /* the signal has a handler, or is blocked */
    bool chosen;  /* by deliver_choose */
};

/* deliver_choose - mark who shall get it.
 *   procs   (n) of the machine, in any order
 *   root    the rank's own child
 *   agent   [root] starts the ranks and is none: leave it out
 * Returns how many. Pure. */
size_t deliver_choose (struct deliver_proc *procs, size_t n, pid_t root,
                       bool agent);

/* deliver_signal - choose from /proc and send. Returns how many got it. */
size_t deliver_signal (pid_t root, int signal, bool agent);

/* deliver_handles - does [status], a /proc/PID/status, show that [signal] is
 * caught or blocked? */
bool deliver_handles (const char *status, int signal);

#endif
