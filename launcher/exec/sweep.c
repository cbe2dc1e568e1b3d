/* SPDX-License-Identifier: Apache-2.0
 * sweep.c - end what a program has left running */
#include "config.h"

#include "exec/sweep.h"

#include <dirent.h>
#include <poll.h>
#include <signal.h>
#include <stdint.h>
#include <stdlib.h>
#include <sys/prctl.h>
#include <sys/wait.h>
#include <unistd.h>

#include "exec/tail.h"
#include "plan/parent.h"

#define PAUSE_MS 5

void sweep_adopt (void)
{
    prctl (PR_SET_CHILD_SUBREAPER, 1);
}

static void kill_children (void)
{
    DIR *d = opendir ("/proc");
    pid_t self = getpid ();
    struct dirent *e;

    while (d && (e = readdir (d)))
        if (parent_of (e->d_name) == self)
            kill ((pid_t)strtol (e->d_name, NULL, 10), SIGKILL);
    if (d)
        closedir (d);
}

/* What a child leaves when it dies becomes ours, so there may be more. */
void sweep_children (int within_ms)
{
    int64_t end = tail_now_ms () + within_ms;
    pid_t pid;

    for (;;) {
        while ((pid = waitpid (-1, NULL, WNOHANG)) > 0)
            ;
        if (pid < 0 || tail_now_ms () >= end)
            return;
        kill_children ();
        poll (NULL, 0, PAUSE_MS);
    }
}
