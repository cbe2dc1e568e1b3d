/* SPDX-License-Identifier: Apache-2.0
 * reward_proc.h - a program behind two pipes. Inside libtrain only.
 *
 * It is the leader of a process group of its own, gets SIGKILL when the thread
 * that started it ends, has stdin and stdout as pipes, this process's stderr,
 * and no other descriptor. This process's ends do not block and close at exec. */
#ifndef TRAIN_REWARD_PROC_H
#define TRAIN_REWARD_PROC_H

#include <stdbool.h>
#include <stddef.h>
#include <sys/types.h>

#include <train/status.h>

struct proc {
    pid_t pid; /* 0: none runs */
    int in;    /* to its stdin; -1: closed */
    int out;   /* from its stdout */
};

/* proc_start - argv[0] is looked up in PATH, unless it has a slash.
 *   envp   its environment
 * TRAIN_ENOTFOUND, TRAIN_EIO name the program; [proc] is without one then. */
train_status_t proc_start (struct proc *proc, char *const *argv,
                           char *const *envp, train_error_t *err);

/* proc_look - is [name] there, and may it be executed? As proc_start would find it,
 * with its errors; nothing is started, so an interpreter may still be missing. */
train_status_t proc_look (const char *name, train_error_t *err);

/* proc_failed - did it end by a signal or with another status than 0? Its output may
 * be held by others of its group. Nothing is waited for. */
bool proc_failed (const struct proc *proc);

/* proc_stop - kill its group, and where it still runs its children of other groups
 * (reward_tree.h); wait for it, close the pipes.
 *   how   (size) written: "exited with status 1", "was killed by signal 9", or
 *         "" where it still ran when this was called; NULL = not wanted
 *   grace_ms   how long it may still take to end by itself; its stdin is
 *         closed before
 * One that even SIGKILL does not end within a second is left to init. */
void proc_stop (struct proc *proc, int grace_ms, char *how, size_t size);

#endif
