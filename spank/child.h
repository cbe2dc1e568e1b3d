/* SPDX-License-Identifier: Apache-2.0
 * child.h - run a function in a process of its own, under a deadline.
 *
 * For calls that may hang or crash, such as into a driver's library. */
#ifndef RV_SPANK_CHILD_H
#define RV_SPANK_CHILD_H

#include <stddef.h>

/* What the child does; runs there.
 *   fd    for its answer, as much as the caller's buffer holds
 *   arg   child_run's
 * The child ends when it returns, without atexit handlers. */
typedef void (*child_f) (int fd, void *arg);

enum child_end {
    CHILD_OK,      /* the function returned */
    CHILD_TIMEOUT, /* it did not in time and was killed */
    CHILD_CRASHED, /* a signal ended it */
    CHILD_FAILED,  /* there was no child; errno says why */
};

/* child_run - fork, run, and wait for at most [deadline_ms].
 *   buf, ret_len   (size) what it wrote, also where it ended badly; what does
 *                  not fit is dropped
 * A child that even SIGKILL does not end (a driver holds it) is left to init.
 * The caller must not have SIGCHLD ignored, and should have one thread: the
 * child begins with its locks as they are. */
enum child_end child_run (child_f f, void *arg, int deadline_ms, char *buf,
                          size_t size, size_t *ret_len);

#endif
