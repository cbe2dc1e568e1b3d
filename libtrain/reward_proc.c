/* SPDX-License-Identifier: Apache-2.0
 * reward_proc.c - a program behind two pipes: started, stopped, waited for
 *
 * clone (2) with CLONE_VM and CLONE_VFORK, as posix_spawn (3) does it: fork
 * would copy the page tables of a process that holds a model, and posix_spawn
 * has no way to ask for PR_SET_PDEATHSIG. */
#include "config.h"

#include "reward_proc.h"

#include <dirent.h>
#include <errno.h>
#include <fcntl.h>
#include <sched.h>
#include <signal.h>
#include <stdbool.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/prctl.h>
#include <sys/stat.h>
#include <sys/syscall.h>
#include <sys/wait.h>
#include <time.h>
#include <unistd.h>

#include "err.h"
#include "reward_tree.h"

#define STACK_BYTES 65536
#define KILLED_MS   1000

struct start {
    char *const *argv, *const *envp;
    int in, out; /* its ends; both above 2 */
    pid_t parent;
    int error; /* written by the child: errno of what failed */
};

/* Handlers of this process are no business of the child, which shares its
 * memory until exec. */
static void reset_signals (void)
{
    struct sigaction act = {.sa_handler = SIG_DFL};
    sigset_t none;

    for (int sig = 1; sig < NSIG; sig++)
        sigaction (sig, &act, NULL);
    sigemptyset (&none);
    sigprocmask (SIG_SETMASK, &none, NULL);
}

/* Descriptors from 3 on, by their names in /proc, with what may be called
 * between vfork and exec. */
static void close_listed (void)
{
    union {
        struct dirent64 align;
        char bytes[2048];
    } room;
    int dir = open ("/proc/self/fd", O_RDONLY | O_DIRECTORY | O_CLOEXEC);
    long n;

    while (dir >= 0
           && (n = syscall (SYS_getdents64, dir, &room, sizeof (room))) > 0)
        for (long at = 0; at < n;) {
            const struct dirent64 *d = (const void *)(room.bytes + at);
            int fd = 0;

            for (const char *c = d->d_name; *c >= '0' && *c <= '9'; c++)
                fd = 10 * fd + (*c - '0');
            if (fd > 2 && fd != dir)
                close (fd);
            at += d->d_reclen;
        }
    if (dir >= 0)
        close (dir);
}

static void close_others (void)
{
#ifdef SYS_close_range
    if (syscall (SYS_close_range, 3u, ~0u, 0u) == 0) /* Linux 5.9 */
        return;
#endif
    close_listed ();
}

__attribute__ ((no_sanitize ("address", "undefined"))) static int child (
    void *arg)
{
    struct start *s = arg;

    setpgid (0, 0);
    if (prctl (PR_SET_PDEATHSIG, SIGKILL) < 0 || getppid () != s->parent
        || dup2 (s->in, 0) < 0 || dup2 (s->out, 1) < 0) {
        s->error = errno ? errno : ESRCH;
        _exit (127);
    }
    close_others ();
    reset_signals ();
    execvpe (s->argv[0], s->argv, s->envp);
    s->error = errno;
    _exit (127);
}

static train_status_t cannot_start (const char *name, int error,
                                    train_error_t *err)
{
    return err_set (err, error == ENOENT ? TRAIN_ENOTFOUND : TRAIN_EIO,
                    "cannot start '%s': %s", name, strerror (error));
}

static train_status_t clone_it (struct start *s, pid_t *ret_pid,
                                train_error_t *err)
{
    char *stack = malloc (STACK_BYTES);
    sigset_t all, old;
    pid_t pid;

    if (!stack)
        return err_set (err, TRAIN_ENOMEM, "no memory to start a program");
    sigfillset (&all);
    pthread_sigmask (SIG_SETMASK, &all, &old);
    pid =
        clone (child, stack + STACK_BYTES, CLONE_VM | CLONE_VFORK | SIGCHLD, s);
    if (pid < 0)
        s->error = errno;
    pthread_sigmask (SIG_SETMASK, &old, NULL);
    free (stack);
    while (pid > 0 && s->error && waitpid (pid, NULL, 0) < 0 && errno == EINTR)
        ;
    if (s->error)
        return cannot_start (s->argv[0], s->error, err);
    *ret_pid = pid;
    return TRAIN_OK;
}

/* 0, or what execve (2) would say of the file. */
static int look_at (const char *path)
{
    struct stat st;

    if (stat (path, &st) < 0 || access (path, X_OK) < 0)
        return errno;
    return S_ISREG (st.st_mode) ? 0 : EACCES;
}

/* Folders of PATH in their order; one that may not be executed is passed over, and
 * told where there is no other (exec (3)). */
static int look_in_path (const char *name)
{
    const char *path = getenv ("PATH");
    int told = ENOENT, error;
    char *file;

    for (path = path ? path : "/bin:/usr/bin";; path++) {
        int n = (int)strcspn (path, ":");

        if (asprintf (&file, "%.*s%s%s", n, path, n > 0 ? "/" : "", name) < 0)
            return ENOMEM;
        error = look_at (file);
        free (file);
        if (error == 0)
            return 0;
        told = error == EACCES ? EACCES : told;
        path += n;
        if (!*path)
            return told;
    }
}

train_status_t proc_look (const char *name, train_error_t *err)
{
    int error = !*name               ? ENOENT
                : strchr (name, '/') ? look_at (name)
                                     : look_in_path (name);

    return error ? cannot_start (name, error, err) : TRAIN_OK;
}

/* Above 2, so that dup2 in the child overwrites none of them. */
static int pipe_above (int fd[2])
{
    int low[2];

    if (pipe2 (low, O_CLOEXEC) < 0)
        return -1;
    for (int i = 0; i < 2; i++)
        fd[i] = fcntl (low[i], F_DUPFD_CLOEXEC, 3);
    close (low[0]);
    close (low[1]);
    return fd[0] < 0 || fd[1] < 0 ? -1 : 0;
}

static void close_fd (int *fd)
{
    if (*fd >= 0)
        close (*fd);
    *fd = -1;
}

train_status_t proc_start (struct proc *proc, char *const *argv,
                           char *const *envp, train_error_t *err)
{
    int to[2] = {-1, -1}, from[2] = {-1, -1};
    struct start s = {.argv = argv, .envp = envp, .parent = getpid ()};
    train_status_t status = TRAIN_OK;

    *proc = (struct proc){0, -1, -1};
    if (pipe_above (to) < 0 || pipe_above (from) < 0
        || fcntl (to[1], F_SETFL, O_NONBLOCK) < 0
        || fcntl (from[0], F_SETFL, O_NONBLOCK) < 0)
        status =
            err_set (err, TRAIN_EIO, "cannot make pipes: %s", strerror (errno));
    s.in = to[0];
    s.out = from[1];
    if (status == TRAIN_OK)
        status = clone_it (&s, &proc->pid, err);
    close_fd (&to[0]);
    close_fd (&from[1]);
    if (status != TRAIN_OK) {
        close_fd (&to[1]);
        close_fd (&from[0]);
        return status;
    }
    proc->in = to[1];
    proc->out = from[0];
    return TRAIN_OK;
}

/* Has it ended? It stays a zombie, so that its group's number is not reused. */
static bool ended (pid_t pid, int wait_ms, siginfo_t *ret)
{
    const struct timespec nap = {0, 1000000};

    for (int ms = 0;; ms++) {
        memset (ret, 0, sizeof (*ret));
        if (waitid (P_PID, (id_t)pid, ret, WEXITED | WNOHANG | WNOWAIT) < 0)
            return true; /* ECHILD: SIGCHLD is ignored here */
        if (ret->si_pid == pid)
            return true;
        if (ms >= wait_ms)
            return false;
        nanosleep (&nap, NULL);
    }
}

static void say_how (const siginfo_t *info, char *how, size_t size)
{
    if (info->si_pid == 0)
        snprintf (how, size, "ended");
    else if (info->si_code == CLD_EXITED)
        snprintf (how, size, "exited with status %d", info->si_status);
    else
        snprintf (how, size, "was killed by signal %d", info->si_status);
}

bool proc_failed (const struct proc *proc)
{
    siginfo_t info;

    return proc->pid > 0 && ended (proc->pid, 0, &info) && info.si_pid != 0
           && (info.si_code != CLD_EXITED || info.si_status != 0);
}

void proc_stop (struct proc *proc, int grace_ms, char *how, size_t size)
{
    siginfo_t info;

    if (how)
        *how = '\0';
    if (proc->pid == 0)
        return;
    close_fd (&proc->in);
    if (!ended (proc->pid, grace_ms, &info))
        tree_kill (proc->pid);
    else if (how)
        say_how (&info, how, size);
    kill (-proc->pid, SIGKILL);
    if (ended (proc->pid, KILLED_MS, &info))
        waitpid (proc->pid, NULL, WNOHANG);
    close_fd (&proc->out);
    proc->pid = 0;
}
