/* SPDX-License-Identifier: Apache-2.0
 * deliver.c - bring a signal to the processes of a rank that expect it */
#include "config.h"

#include "exec/deliver.h"

#include <dirent.h>
#include <fcntl.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

static bool has_signal (const char *status, const char *key, int signal)
{
    const char *at = strstr (status, key);

    return at
           && (strtoull (at + strlen (key), NULL, 16) >> (signal - 1) & 1) != 0;
}

bool deliver_handles (const char *status, int signal)
{
    return has_signal (status, "\nSigCgt:", signal)
           || has_signal (status, "\nSigBlk:", signal);
}

/* Mark those below [parent], each path down to its first that handles it. */
static size_t choose_below (struct deliver_proc *procs, size_t n, pid_t parent)
{
    size_t chosen = 0;

    for (size_t i = 0; i < n; i++) {
        if (procs[i].ppid != parent || procs[i].pid == parent)
            continue;
        if (procs[i].handles) {
            procs[i].chosen = true;
            chosen++;
        } else
            chosen += choose_below (procs, n, procs[i].pid);
    }
    return chosen;
}

static size_t choose_children (struct deliver_proc *procs, size_t n,
                               pid_t parent)
{
    size_t chosen = 0;

    for (size_t i = 0; i < n; i++)
        if (procs[i].ppid == parent && procs[i].pid != parent) {
            procs[i].chosen = true;
            chosen++;
        }
    return chosen;
}

size_t deliver_choose (struct deliver_proc *procs, size_t n, pid_t root,
                       bool agent)
{
    struct deliver_proc *own = NULL;
    size_t chosen = 0;

    for (size_t i = 0; i < n; i++)
        if (procs[i].pid == root)
            own = &procs[i];
    if (!own)
        return 0;
    if (agent || !own->handles)
        chosen = choose_below (procs, n, root);
    if (chosen)
        return chosen;
    if (agent)
        return choose_children (procs, n, root);
    own->chosen = true;
    return 1;
}

static bool read_status (const char *pid, char *buf, size_t size)
{
    char path[40];
    ssize_t len;
    int fd;

    snprintf (path, sizeof (path), "/proc/%.16s/status", pid);
    if ((fd = open (path, O_RDONLY | O_CLOEXEC)) < 0)
        return false;
    len = read (fd, buf, size - 1);
    close (fd);
    buf[len > 0 ? len : 0] = '\0';
    return len > 0;
}

/* Takes one more of /proc; false when out of memory. */
static bool take (struct deliver_proc **procs, size_t *n, const char *name,
                  int signal)
{
    char status[4096];
    const char *parent;
    struct deliver_proc *grown;

    if (name[0] < '0' || name[0] > '9'
        || !read_status (name, status, sizeof (status))
        || !(parent = strstr (status, "\nPPid:")))
        return true;
    if (!(*n & (*n - 1))) { /* a power of two: full */
        grown = realloc (*procs, (*n ? *n * 2 : 1) * sizeof (**procs));
        if (!grown)
            return false;
        *procs = grown;
    }
    (*procs)[(*n)++] =
        (struct deliver_proc){.pid = (pid_t)strtol (name, NULL, 10),
                              .ppid = (pid_t)strtol (parent + 6, NULL, 10),
                              .handles = deliver_handles (status, signal)};
    return true;
}

size_t deliver_signal (pid_t root, int signal, bool agent)
{
    DIR *d = opendir ("/proc");
    struct deliver_proc *procs = NULL;
    size_t n = 0, sent = 0;
    struct dirent *e;

    while (d && (e = readdir (d)) && take (&procs, &n, e->d_name, signal))
        ;
    if (d)
        closedir (d);
    deliver_choose (procs, n, root, agent);
    for (size_t i = 0; i < n; i++)
        if (procs[i].chosen && kill (procs[i].pid, signal) == 0)
            sent++;
    free (procs);
    return sent;
}
