/* SPDX-License-Identifier: Apache-2.0
 * proc.c - run a program: argument vector in, output and status out */
#ifdef HAVE_CONFIG_H
#include "config.h"
#endif
#include "proc.h"

#include <errno.h>
#include <fcntl.h>
#include <limits.h>
#include <poll.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/wait.h>
#include <time.h>
#include <unistd.h>

#define MAX_OUTPUT ((size_t)16 << 20)

struct stream {
    int fd; /* -1 once it ended */
    char *buf;
    size_t len, size;
};

long long proc_now_ms (void)
{
    struct timespec t;

    clock_gettime (CLOCK_MONOTONIC, &t);
    return (long long)t.tv_sec * 1000 + t.tv_nsec / 1000000;
}

static void close_fd (int *fd)
{
    if (*fd >= 0)
        close (*fd);
    *fd = -1;
}

/* In the child, after fork: only returns by exec or _exit. A failure travels
 * as errno through [report], which exec closes. */
static void child_exec (const char *path, char *const argv[], char *const *env,
                        const char *dir, const int fd[3], int report)
{
    int kept[3];
    sigset_t none;

    sigemptyset (&none);
    sigprocmask (SIG_SETMASK, &none, NULL);
    /* Move them above 2 first: one may be another's target. */
    for (int i = 0; i < 3; i++)
        kept[i] = fd[i] < 0 ? -1 : fcntl (fd[i], F_DUPFD_CLOEXEC, 3);
    for (int i = 0; i < 3; i++)
        if (fd[i] >= 0 && dup2 (kept[i], i) < 0)
            goto fail;
    if (dir && chdir (dir))
        goto fail;
    execvpe (path, argv, env ? env : environ);
fail:
    if (write (report, &errno, sizeof (errno)) < 0)
        _exit (126);
    _exit (127);
}

/* One of the commands that rv calls, by its name alone. */
static bool is_slurms (const char *name)
{
    static const char *const all[] = {"sbatch", "srun", "scontrol", "scancel"};

    for (size_t i = 0; i < sizeof (all) / sizeof (all[0]); i++)
        if (!strcmp (name, all[i]))
            return true;
    return false;
}

int proc_spawn (char *const argv[], char *const *env, const char *dir, int in,
                int out, int err_fd, pid_t *ret_pid, struct rv_error *err)
{
    int report[2], fd[3] = {in, out, err_fd}, why = 0;
    char *found = NULL;
    ssize_t n;
    pid_t pid;

    if (pipe2 (report, O_CLOEXEC))
        return error_set (err, RV_EIO, "pipe: %s", strerror (errno));
    if ((pid = fork ()) < 0) {
        error_set (err, RV_EIO, "fork: %s", strerror (errno));
        close (report[0]);
        close (report[1]);
        return RV_EIO;
    }
    if (!pid) {
        found = is_slurms (argv[0]) ? proc_find (argv[0]) : NULL;
        child_exec (found ? found : argv[0], argv, env, dir, fd, report[1]);
    }
    close (report[1]);
    do
        n = read (report[0], &why, sizeof (why));
    while (n < 0 && errno == EINTR);
    close (report[0]);
    if (n == 0) {
        *ret_pid = pid;
        return RV_OK;
    }
    while (waitpid (pid, NULL, 0) < 0 && errno == EINTR)
        ;
    return error_set (err, why == ENOENT ? RV_ENOTFOUND : RV_EIO, "%s: %s",
                      argv[0], strerror (n > 0 ? why : EIO));
}

static int exit_status (int status)
{
    return WIFSIGNALED (status) ? 128 + WTERMSIG (status)
                                : WEXITSTATUS (status);
}

int proc_wait (pid_t pid, int deadline_ms, int *ret_status,
               struct rv_error *err)
{
    long long end = proc_now_ms () + deadline_ms;

    for (;;) {
        int status;
        pid_t got = waitpid (pid, &status, deadline_ms < 0 ? 0 : WNOHANG);

        if (got == pid) {
            *ret_status = exit_status (status);
            return RV_OK;
        }
        if (got < 0 && errno != EINTR)
            return error_set (err, RV_EIO, "wait for process %d: %s", (int)pid,
                              strerror (errno));
        if (got == 0) {
            if (proc_now_ms () >= end)
                return error_set (err, RV_ETIMEDOUT,
                                  "process %d still runs after %d ms", (int)pid,
                                  deadline_ms);
            poll (NULL, 0, 2);
        }
    }
}

/* Take what is there. Returns an error code; the end closes the stream. */
static int stream_read (struct stream *s, size_t max, const char *program,
                        struct rv_error *err)
{
    ssize_t n;

    if (s->size - s->len < 4096) {
        size_t size = s->size ? s->size * 2 : 8192;
        char *buf = realloc (s->buf, size);

        if (!buf)
            return error_set (err, RV_ENOMEM, "out of memory");
        s->buf = buf;
        s->size = size;
    }
    n = read (s->fd, s->buf + s->len, s->size - s->len - 1);
    if (n < 0 && (errno == EINTR || errno == EAGAIN))
        return RV_OK;
    if (n < 0)
        return error_set (err, RV_EIO, "%s: read its output: %s", program,
                          strerror (errno));
    if (n == 0)
        close_fd (&s->fd);
    s->len += (size_t)n;
    s->buf[s->len] = '\0';
    if (s->len > max)
        return error_set (err, RV_EFORMAT, "%s wrote more than %zu bytes",
                          program, max);
    return RV_OK;
}

/* Hand over input; a reader that closed its end is its own affair. */
static void feed (int *fd, const struct proc_opts *opts, size_t *done)
{
    ssize_t n = write (*fd, opts->input + *done, opts->input_len - *done);

    if (n > 0)
        *done += (size_t)n;
    if ((n < 0 && errno != EINTR && errno != EAGAIN)
        || *done == opts->input_len)
        close_fd (fd);
}

/* Move bytes until both streams ended or the deadline passed. */
static int pump (const char *program, const struct proc_opts *opts, int *in,
                 struct stream s[2], long long end, struct rv_error *err)
{
    size_t max = opts->max_output ? opts->max_output : MAX_OUTPUT, done = 0;
    int rc;

    while (s[0].fd >= 0 || s[1].fd >= 0) {
        struct pollfd p[3] = {{.fd = s[0].fd, .events = POLLIN},
                              {.fd = s[1].fd, .events = POLLIN},
                              {.fd = *in, .events = POLLOUT}};
        long long left = end - proc_now_ms ();

        if (opts->deadline_ms && left <= 0)
            return error_set (err, RV_ETIMEDOUT, "%s did not end within %d ms",
                              program, opts->deadline_ms);
        if (poll (p, 3, opts->deadline_ms ? (int)left : -1) < 0) {
            if (errno == EINTR)
                continue;
            return error_set (err, RV_EIO, "poll: %s", strerror (errno));
        }
        for (int i = 0; i < 2; i++)
            if (p[i].revents && (rc = stream_read (&s[i], max, program, err)))
                return rc;
        if (p[2].revents)
            feed (in, opts, &done);
    }
    return RV_OK;
}

/* The three ends of the child and ours, -1 where there is none. */
static int open_pipes (const struct proc_opts *opts, int child[3], int ours[3],
                       struct rv_error *err)
{
    int fd[2];

    if (!opts->input || !opts->input_len) {
        if ((child[0] = open ("/dev/null", O_RDONLY | O_CLOEXEC)) < 0)
            return error_set (err, RV_EIO, "/dev/null: %s", strerror (errno));
    } else {
        if (pipe2 (fd, O_CLOEXEC))
            return error_set (err, RV_EIO, "pipe: %s", strerror (errno));
        child[0] = fd[0];
        ours[0] = fd[1];
        fcntl (ours[0], F_SETFL, O_NONBLOCK);
    }
    for (int i = 1; i < (opts->inherit_stderr ? 2 : 3); i++) {
        if (pipe2 (fd, O_CLOEXEC))
            return error_set (err, RV_EIO, "pipe: %s", strerror (errno));
        ours[i] = fd[0];
        child[i] = fd[1];
    }
    return RV_OK;
}

static char *text_take (struct stream *s, size_t *ret_len)
{
    *ret_len = s->len;
    return s->buf ? s->buf : calloc (1, 1);
}

/* Pump and wait; a child that failed us is killed and reaped. */
static int finish (pid_t pid, const char *program, const struct proc_opts *opts,
                   int ours[3], struct proc_result *result,
                   struct rv_error *err)
{
    struct stream s[2] = {{.fd = ours[1]}, {.fd = ours[2]}};
    long long end = proc_now_ms () + opts->deadline_ms;
    int rc = pump (program, opts, &ours[0], s, end, err), ignored;

    ours[1] = s[0].fd;
    ours[2] = s[1].fd;
    if (!rc) {
        long long left = opts->deadline_ms ? end - proc_now_ms () : -1;

        if (opts->deadline_ms && left < 0)
            left = 0;
        rc = proc_wait (pid, (int)left, &result->status, err);
    }
    if (rc) {
        kill (pid, SIGKILL);
        proc_wait (pid, -1, &ignored, NULL);
        free (s[0].buf);
        free (s[1].buf);
        return rc;
    }
    result->out = text_take (&s[0], &result->out_len);
    result->err = text_take (&s[1], &result->err_len);
    if (!result->out || !result->err) {
        proc_result_fini (result);
        return error_set (err, RV_ENOMEM, "out of memory");
    }
    return RV_OK;
}

int proc_run (char *const argv[], const struct proc_opts *opts,
              struct proc_result *ret_result, struct rv_error *err)
{
    static const struct proc_opts none;
    struct proc_result result = {0};
    struct sigaction ignore = {.sa_handler = SIG_IGN}, saved;
    int child[3] = {-1, -1, -1}, ours[3] = {-1, -1, -1}, rc;
    pid_t pid;

    if (!opts)
        opts = &none;
    rc = open_pipes (opts, child, ours, err);
    if (!rc)
        rc = proc_spawn (argv, opts->env, opts->dir, child[0], child[1],
                         child[2], &pid, err);
    for (int i = 0; i < 3; i++)
        close_fd (&child[i]);
    if (!rc) {
        sigaction (SIGPIPE, &ignore, &saved);
        rc = finish (pid, argv[0], opts, ours, &result, err);
        sigaction (SIGPIPE, &saved, NULL);
    }
    for (int i = 0; i < 3; i++)
        close_fd (&ours[i]);
    if (!rc)
        *ret_result = result;
    return rc;
}

void proc_result_fini (struct proc_result *result)
{
    if (!result)
        return;
    free (result->out);
    free (result->err);
    memset (result, 0, sizeof (*result));
}

/* The first [name] that may be executed in a colon-separated list. */
static char *find_in (const char *list, const char *name)
{
    while (*list) {
        size_t n = strcspn (list, ":");
        char path[PATH_MAX];
        int len = snprintf (path, sizeof (path), "%.*s/%s", (int)n, list, name);

        if (n && list[0] == '/' && len > 0 && (size_t)len < sizeof (path)
            && !access (path, X_OK))
            return strdup (path);
        list += n + (list[n] == ':');
    }
    return NULL;
}

char *proc_find (const char *name)
{
    const char *path = getenv ("PATH");
    char *found = path ? find_in (path, name) : NULL;

    if (!found)
        found = find_in (RV_SLURM_BINDIR, name);
    return found ? found : find_in ("/usr/sbin:/sbin:/usr/bin:/bin", name);
}
