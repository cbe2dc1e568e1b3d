/* SPDX-License-Identifier: Apache-2.0
 * child.c - run a function in a process of its own, under a deadline */
#include "config.h"

#include "child.h"

#include <errno.h>
#include <fcntl.h>
#include <poll.h>
#include <signal.h>
#include <stdbool.h>
#include <stdint.h>
#include <sys/prctl.h>
#include <sys/resource.h>
#include <sys/wait.h>
#include <time.h>
#include <unistd.h>

/* How long a killed child may take to go. */
#define REAP_MS 200

static int64_t now_ms (void)
{
    struct timespec t;

    clock_gettime (CLOCK_MONOTONIC, &t);
    return (int64_t)t.tv_sec * 1000 + t.tv_nsec / 1000000;
}

__attribute__ ((noreturn)) static void be_child (child_f f, void *arg, int fd)
{
    const struct rlimit none = {0, 0};
    sigset_t empty;

    /* Nobody wants the core of a driver's library, and the end of the parent
     * must not leave this one behind. */
    setrlimit (RLIMIT_CORE, &none);
    prctl (PR_SET_PDEATHSIG, SIGKILL);
    for (int sig = 1; sig < NSIG; sig++)
        signal (sig, SIG_DFL);
    sigemptyset (&empty);
    sigprocmask (SIG_SETMASK, &empty, NULL);
    f (fd, arg);
    _exit (0);
}

/* collect - its answer. False when it did not end by [end]. */
static bool collect (int fd, int64_t end, char *buf, size_t size,
                     size_t *ret_len)
{
    size_t len = 0;

    for (;;) {
        struct pollfd p = {.fd = fd, .events = POLLIN};
        int64_t left = end - now_ms ();
        char rest[512];
        ssize_t n;

        *ret_len = len;
        if (left <= 0)
            return false;
        if (poll (&p, 1, (int)left) <= 0)
            continue;
        n = len < size ? read (fd, buf + len, size - len)
                       : read (fd, rest, sizeof (rest));
        if (n == 0)
            return true;
        if (n > 0 && len < size)
            len += (size_t)n;
        else if (n < 0 && errno != EINTR)
            return true;
    }
}

/* reap - its status by [end]; -1 while it lives. */
static int reap (pid_t pid, int64_t end)
{
    const struct timespec pause = {0, 2000000};
    int status;

    for (;;) {
        pid_t got = waitpid (pid, &status, WNOHANG);

        if (got == pid)
            return status;
        if ((got < 0 && errno != EINTR) || now_ms () >= end)
            return -1;
        nanosleep (&pause, NULL);
    }
}

enum child_end child_run (child_f f, void *arg, int deadline_ms, char *buf,
                          size_t size, size_t *ret_len)
{
    int64_t end = now_ms () + deadline_ms;
    int fds[2], status = -1;
    pid_t pid;

    *ret_len = 0;
    if (pipe2 (fds, O_CLOEXEC))
        return CHILD_FAILED;
    pid = fork ();
    if (pid < 0) {
        close (fds[0]);
        close (fds[1]);
        return CHILD_FAILED;
    }
    if (pid == 0) {
        close (fds[0]);
        be_child (f, arg, fds[1]);
    }
    close (fds[1]);
    if (collect (fds[0], end, buf, size, ret_len))
        status = reap (pid, end);
    close (fds[0]);
    if (status < 0) {
        kill (pid, SIGKILL);
        reap (pid, now_ms () + REAP_MS);
        return CHILD_TIMEOUT;
    }
    return WIFSIGNALED (status) ? CHILD_CRASHED : CHILD_OK;
}
