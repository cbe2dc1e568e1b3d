/* SPDX-License-Identifier: Apache-2.0
 * child.c - run one program as our child: signals in, its end out
 *
 * All forwarded signals and SIGCHLD are blocked and read from a signalfd, so
 * everything happens in one loop. */
#include "config.h"

#include "exec/child.h"

#include <errno.h>
#include <fcntl.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/prctl.h>
#include <sys/signalfd.h>
#include <sys/syscall.h>
#include <sys/wait.h>
#include <unistd.h>

#include "exec/deliver.h"
#include "exec/log.h"
#include "exec/sweep.h"
#include "exec/tail.h"

#define WATCH_MAX 300
#define DRAIN_MS  200 /* for the rest of a dead child's stderr */
#define SWEEP_MS  500 /* for what a failed child left to be gone */
#define GRACE_MS  150 /* for the signal that ended the child to reach us too */

static const int forwarded[] = {SIGTERM, SIGINT,  SIGHUP,  SIGQUIT, SIGUSR1,
                                SIGUSR2, SIGCONT, SIGTSTP, SIGURG};

static sigset_t outer; /* the mask that we were started with */

struct run {
    const struct child_opts *o;
    struct child_result *r;
    struct tail tail;
    int signal_fd;
    int step_fd;        /* pidfd of our slurmstepd; -1: none, or gone */
    int64_t kill_at_ms; /* for SIGKILL to an orphan's child; 0: no orphan */
    pid_t parent, self;
    bool to_tree;
    bool stopping; /* SIGTSTP came: stop with the child */
    bool over;
};

int child_init (void)
{
    sigset_t set;

    signal (SIGCHLD, SIG_DFL); /* ignored, it would lose the child's end */
    sigemptyset (&set);
    for (size_t i = 0; i < sizeof (forwarded) / sizeof (forwarded[0]); i++)
        sigaddset (&set, forwarded[i]);
    sigaddset (&set, SIGCHLD);
    sigaddset (&set, SIGPIPE); /* a write to a closed stderr is just EPIPE */
    return sigprocmask (SIG_BLOCK, &set, &outer);
}

bool child_forwards (int code, bool from_step, bool to_tree)
{
    if (code == SI_KERNEL)
        return false;
    return !(from_step && to_tree);
}

bool child_tracks_cgroup (const char *text)
{
    for (const char *line = text; line && *line;) {
        size_t len = strcspn (line, "\n");
        const char *job = memmem (line, len, "/job_", 5);
        bool step =
            job && memmem (job, len - (size_t)(job - line), "/step_", 6);

        /* Version 2 has one line, "0::"; in version 1 the freezer is the one
         * that proctrack/cgroup makes. */
        if (step
            && (!strncmp (line, "0::", 3)
                || memmem (line, len, ":freezer:", 9)))
            return true;
        line += len + (line[len] == '\n');
    }
    return false;
}

int child_status (const struct child_result *r)
{
    if (r->exec_errno)
        return r->exec_errno == ENOENT ? 127 : 126;
    return r->signal ? 128 + r->signal : r->exit_status;
}

bool child_told_to_end (const struct child_result *r)
{
    return r->step_signal == SIGTERM
           || (r->step_signal && r->signal == r->step_signal);
}

const char *child_signal_name (int signal)
{
    const char *name = sigabbrev_np (signal);

    return name ? name : "?";
}

static bool reads (const char *path, char *buf, size_t size)
{
    int fd = open (path, O_RDONLY | O_CLOEXEC);
    ssize_t n = fd < 0 ? -1 : read (fd, buf, size - 1);

    if (fd >= 0)
        close (fd);
    if (n < 0)
        return false;
    buf[n] = '\0';
    return true;
}

/* 0: from outside our PID namespace, so from the node's daemons. */
static bool is_step (const struct run *run, pid_t sender)
{
    char path[40], comm[32];

    if (!run->o->in_step)
        return false;
    if (sender == 0 || sender == run->parent)
        return true;
    snprintf (path, sizeof (path), "/proc/%d/comm", (int)sender);
    return reads (path, comm, sizeof (comm))
           && !strncmp (comm, "slurmstepd", 10);
}

static void forward (const struct run *run, int signal)
{
    if (run->o->agent && (signal == SIGUSR1 || signal == SIGUSR2))
        deliver_signal (run->r->pid, signal, true);
    else
        kill (run->r->pid, signal);
}

static void take_signal (struct run *run, const struct signalfd_siginfo *s)
{
    int signal = (int)s->ssi_signo;
    bool step;

    if (signal == SIGCHLD || signal == SIGPIPE)
        return;
    step = s->ssi_code != SI_KERNEL && is_step (run, (pid_t)s->ssi_pid);
    log_line (LOG_DEBUG, "signal %d (code %d) from process %u%s", signal,
              s->ssi_code, s->ssi_pid, step ? ", the step's" : "");
    if (run->o->signalled
        && run->o->signalled (run->o->signalled_arg, run->r, signal))
        return;
    if (step && signal != SIGCONT) /* it precedes every SIGTERM */
        run->r->step_signal = signal;
    if (signal == SIGTERM)
        run->r->term = true;
    run->stopping = signal == SIGTSTP;
    if (!run->over && child_forwards (s->ssi_code, step, run->to_tree))
        forward (run, signal);
}

static void take_signals (struct run *run)
{
    struct signalfd_siginfo s;

    while (read (run->signal_fd, &s, sizeof (s)) == sizeof (s))
        take_signal (run, &s);
}

/* Did it end or stop? Called after every wake-up: SIGCHLDs merge. */
static void reap (struct run *run)
{
    pid_t which = run->o->adopt ? -1 : run->r->pid, pid;
    int status;

    while (!run->over
           && (pid = waitpid (which, &status, WNOHANG | WUNTRACED)) > 0) {
        if (pid != run->r->pid)
            continue; /* one that we adopted */
        if (WIFSTOPPED (status)) {
            if (run->stopping)
                raise (SIGSTOP); /* the shell shall see us stop too */
            run->stopping = false;
            continue;
        }
        clock_gettime (CLOCK_REALTIME, &run->r->ended);
        run->r->exit_status = WIFEXITED (status) ? WEXITSTATUS (status) : -1;
        run->r->signal = WIFSIGNALED (status) ? WTERMSIG (status) : 0;
        run->over = true;
        if (run->o->ended && (run->r->signal || run->r->exit_status))
            run->o->ended (run->o->ended_arg, run->r);
    }
}

/* Watch the slurmstepd that started us. In a container with its own process
 * ids it has none that we could name, and before Linux 5.3 nothing to watch. */
static int open_step (const struct run *run)
{
    char path[40], comm[32];

    snprintf (path, sizeof (path), "/proc/%d/comm", (int)run->parent);
    if (!run->o->in_step || run->parent <= 1
        || !reads (path, comm, sizeof (comm))
        || strncmp (comm, "slurmstepd", 10))
        return -1;
#ifdef SYS_pidfd_open
    return (int)syscall (SYS_pidfd_open, run->parent, 0);
#else
    return -1;
#endif
}

/* It is gone: end the child, first politely. */
static void lose_step (struct run *run)
{
    log_line (LOG_DEBUG, "slurmstepd %d is gone", (int)run->parent);
    close (run->step_fd);
    run->step_fd = -1;
    run->r->orphan = true;
    run->kill_at_ms = tail_now_ms () + ORPHAN_MS;
    kill (run->r->pid, SIGTERM);
    kill (run->r->pid, SIGCONT);
}

static void press_orphan (struct run *run, int *wait_ms)
{
    int64_t left = run->kill_at_ms - tail_now_ms ();

    if (!run->kill_at_ms)
        return;
    if (left <= 0)
        kill (run->r->pid, SIGKILL);
    else if (*wait_ms < 0 || left < *wait_ms)
        *wait_ms = (int)left;
}

static void loop (struct run *run)
{
    struct pollfd p[3 + WATCH_MAX];

    while (!run->over) {
        const struct child_watch *w = run->o->watch;
        int wait_ms = -1;
        size_t n;

        p[0] = (struct pollfd){.fd = run->signal_fd, .events = POLLIN};
        p[1] = (struct pollfd){.fd = run->tail.read_fd, .events = POLLIN};
        p[2] = (struct pollfd){.fd = run->step_fd, .events = POLLIN};
        n = w ? w->fill (w->arg, p + 3, WATCH_MAX, &wait_ms) : 0;
        press_orphan (run, &wait_ms);
        if (poll (p, (nfds_t)(3 + n), wait_ms) < 0 && errno != EINTR)
            return;
        take_signals (run);
        reap (run);
        if (p[1].revents)
            tail_forward (&run->tail);
        if (w)
            w->serve (w->arg, p + 3, n);
        if (!run->over && p[2].revents)
            lose_step (run);
    }
}

/* The step signals a tree of processes from its leaves, so a child may be gone
 * before we know that we were meant as well. After SIGKILL this is where we
 * are ended without having blamed anybody. */
static void await_step (struct run *run)
{
    struct pollfd p = {.fd = run->signal_fd, .events = POLLIN};
    int64_t end = tail_now_ms () + GRACE_MS, left = GRACE_MS;

    if (!run->o->in_step || (!run->r->signal && !run->r->exit_status))
        return;
    while (!run->r->step_signal && left > 0) {
        if (poll (&p, 1, (int)left) > 0)
            take_signals (run);
        left = end - tail_now_ms ();
    }
}

/* A child that was told to end may have left one that saves its state. */
static void sweep (const struct run *run)
{
    if (run->o->adopt && (run->r->signal || run->r->exit_status)
        && !child_told_to_end (run->r))
        sweep_children (SWEEP_MS);
}

/* In the child, between fork and exec. */
static void become (const struct run *run, int report_fd)
{
    int failed;

    prctl (PR_SET_PDEATHSIG, SIGKILL);
    if (getppid () != run->self)
        _exit (125); /* it died before the prctl */
    if (run->tail.write_fd >= 0)
        dup2 (run->tail.write_fd, STDERR_FILENO);
    if (run->o->agent) { /* Slurm may signal every process of the step */
        signal (SIGUSR1, SIG_IGN);
        signal (SIGUSR2, SIG_IGN);
    }
    sigprocmask (SIG_SETMASK, &outer, NULL);
    if (run->o->path)
        execve (run->o->path, run->o->argv, run->o->env);
    else
        execvpe (run->o->argv[0], run->o->argv, run->o->env);
    failed = errno;
    if (write (report_fd, &failed, sizeof (failed)) < 0) {
        /* the parent is gone, and so are we */
    }
    _exit (127);
}

static int start (struct run *run, struct rv_error *err)
{
    int report[2] = {-1, -1}, failed = 0;
    ssize_t n;

    if (pipe2 (report, O_CLOEXEC))
        return error_set (err, RV_EIO, "pipe: %s", strerror (errno));
    clock_gettime (CLOCK_REALTIME, &run->r->started);
    /* fork would copy the page tables of a PMIx client for each rank; become
     * writes nothing that we read. */
    run->r->pid = vfork ();
    if (run->r->pid == 0)
        become (run, report[1]);
    close (report[1]);
    if (run->r->pid < 0) {
        close (report[0]);
        return error_set (err, RV_EIO, "fork: %s", strerror (errno));
    }
    do {
        n = read (report[0], &failed, sizeof (failed));
    } while (n < 0 && errno == EINTR);
    close (report[0]);
    if (n == sizeof (failed)) {
        run->r->exec_errno = failed;
        clock_gettime (CLOCK_REALTIME, &run->r->ended);
        while (waitpid (run->r->pid, NULL, 0) < 0 && errno == EINTR)
            ;
    }
    return RV_OK;
}

static int open_signals (void)
{
    sigset_t set;

    sigemptyset (&set);
    for (size_t i = 0; i < sizeof (forwarded) / sizeof (forwarded[0]); i++)
        sigaddset (&set, forwarded[i]);
    sigaddset (&set, SIGCHLD);
    return signalfd (-1, &set, SFD_CLOEXEC | SFD_NONBLOCK);
}

int child_run (const struct child_opts *opts, struct child_result *ret,
               struct rv_error *err)
{
    struct run run = {.o = opts,
                      .r = ret,
                      .step_fd = -1,
                      .parent = getppid (),
                      .self = getpid ()};
    char cgroup[4096] = "";
    int rc;

    *ret = (struct child_result){.exit_status = -1};
    run.to_tree = !(reads ("/proc/self/cgroup", cgroup, sizeof (cgroup))
                    && child_tracks_cgroup (cgroup));
    if ((run.signal_fd = open_signals ()) < 0)
        return error_set (err, RV_EIO, "signalfd: %s", strerror (errno));
    if (opts->adopt)
        sweep_adopt ();
    if ((rc = tail_open (&run.tail, opts->tail, err))
        || (rc = start (&run, err)))
        goto out;
    tail_started (&run.tail);
    if (opts->begun)
        opts->begun (opts->begun_arg);
    if (!ret->exec_errno) {
        run.step_fd = open_step (&run);
        loop (&run);
        await_step (&run);
        sweep (&run);
    }
    tail_drain (&run.tail, DRAIN_MS);
    ret->tail = tail_take (&run.tail);
out:
    tail_close (&run.tail);
    if (run.step_fd >= 0)
        close (run.step_fd);
    close (run.signal_fd);
    return rc;
}

void child_result_fini (struct child_result *r)
{
    free (r->tail);
    r->tail = NULL;
}
