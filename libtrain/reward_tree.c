/* SPDX-License-Identifier: Apache-2.0
 * reward_tree.c - end a program with all that it has started */
#include "reward_tree.h"

#include <dirent.h>
#include <signal.h>
#include <stdbool.h>
#include <stdlib.h>

#include "plan/parent.h"

#define ROUNDS 64 /* deeper than what starts processes one in another */

struct tree {
    pid_t *pid; /* (n): the root first */
    size_t n;
};

static bool holds (const struct tree *t, pid_t pid)
{
    for (size_t i = 0; i < t->n; i++)
        if (t->pid[i] == pid)
            return true;
    return false;
}

static bool add (struct tree *t, pid_t pid)
{
    pid_t *grown = realloc (t->pid, (t->n + 1) * sizeof (*grown));

    if (!grown)
        return false;
    t->pid = grown;
    t->pid[t->n++] = pid;
    return true;
}

/* Children of what is there, stopped as they are found: one whose parent is
 * stopped keeps its number, dead or alive. */
static bool add_children (struct tree *t)
{
    size_t before = t->n;
    DIR *d = opendir ("/proc");
    struct dirent *e;

    while (d && (e = readdir (d))) {
        pid_t parent = parent_of (e->d_name), pid;

        if (parent == 0 || !holds (t, parent))
            continue;
        pid = (pid_t)strtol (e->d_name, NULL, 10);
        if (!holds (t, pid) && add (t, pid))
            kill (pid, SIGSTOP);
    }
    if (d)
        closedir (d);
    return t->n > before;
}

void tree_kill (pid_t root)
{
    struct tree t = {0};

    kill (-root, SIGSTOP);
    kill (root, SIGSTOP);
    if (add (&t, root))
        for (int i = 0; i < ROUNDS && add_children (&t); i++)
            ;
    kill (-root, SIGKILL);
    for (size_t i = 0; i < t.n; i++)
        kill (t.pid[i], SIGKILL);
    free (t.pid);
}
