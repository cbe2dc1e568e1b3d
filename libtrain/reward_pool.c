/* SPDX-License-Identifier: Apache-2.0
 * reward_pool.c - samples to processes and replies back, with a time limit */
#include "reward_pool.h"

#include <errno.h>
#include <math.h>
#include <poll.h>
#include <signal.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>
#include <unistd.h>

#include "err.h"
#include "sock.h"

#define OWN_END_MS 200  /* for a process that closed its stdout */
#define CLOSE_MS   1000 /* at the end, for all together */
#define ASK_MS     100 /* between looks whether to end, and whether a process did */
#define LEFT_S     0.5 /* for replies that are on their way then */
#define LATE_MOST  8   /* first replies until one has time to start in again */

/* A call's state. */
struct work {
    struct pool *pool;
    const struct reward_view *view;
    float *ret;
    int n, next, left; /* next: not given out yet; left: without a result */
    train_reward_report_t *report;
    struct pollfd *fd; /* (2 pool->n) */
    int *of;           /* (2 pool->n) whose each is */
    double ends;       /* when no reply is waited for any more; 0: not known */
    double look;       /* when processes are looked at next */
};

static void done (struct work *w, struct slot *s, float reward)
{
    w->ret[s->sample] = reward;
    w->left--;
    s->sample = -1;
    free (s->request);
    s->request = NULL;
    s->line.n = 0;
}

/* The process of [s] goes; a sample that it has gets no reward.
 *   why   "" = as the process ended */
static void fault (struct work *w, struct slot *s, int64_t *count,
                   const char *why)
{
    struct pool *p = w->pool;
    char how[64];

    proc_stop (&s->proc, *why ? 0 : OWN_END_MS, how, sizeof (how));
    if (!*why)
        why = *how ? how : "closed its output";
    snprintf (p->fault, sizeof (p->fault), "%.80s %s", p->argv[0], why);
    ++*count;
    p->faults++;
    s->line.n = 0;
    if (s->sample >= 0)
        done (w, s, NAN);
}

static train_status_t start (struct pool *p, struct slot *s, train_error_t *err)
{
    train_status_t status = proc_start (&s->proc, p->argv, p->envp, err);

    s->proven = false;
    return status;
}

/* Between samples it has nothing to say, so it ended or is out of step; what held its
 * pipe when it failed goes with it. */
static void look_at_idle (struct work *w, struct slot *s)
{
    struct pollfd fd = {.fd = s->proc.out, .events = POLLIN};
    char byte;

    if (s->proc.pid == 0)
        return;
    if (poll (&fd, 1, 0) <= 0) {
        if (proc_failed (&s->proc))
            fault (w, s, &w->report->crashes, "");
    } else if (read (s->proc.out, &byte, 1) > 0)
        fault (w, s, &w->report->garbage, "wrote a line that nobody asked for");
    else
        fault (w, s, &w->report->crashes, "");
}

/* Has a process that has yet to reply the time to start in? Where others were
 * too late it may have been their samples that hung, so one tries now and then. */
static bool may_start (struct pool *p)
{
    if (p->late == 0)
        return true;
    if (p->late < LATE_MOST)
        return false;
    p->late = 1;
    return true;
}

static train_status_t give (struct work *w, struct slot *s, train_error_t *err)
{
    struct pool *p = w->pool;
    train_error_t own = {0};

    look_at_idle (w, s);
    if (s->proc.pid == 0) {
        if (start (p, s, &own) != TRAIN_OK) {
            p->faults++;
            w->report->crashes++;
            snprintf (p->fault, sizeof (p->fault), "%s", own.text);
            return TRAIN_OK;
        }
        w->report->started++;
    }
    s->id = p->next_id++;
    TRY (wire_request (&w->view[w->next], s->id, &s->request, &s->n_request,
                       err));
    s->sent = 0;
    s->sample = w->next++;
    s->limit = p->timeout_s + (s->proven || !may_start (p) ? 0 : p->start_s);
    s->deadline = clock_s () + s->limit;
    return TRAIN_OK;
}

static void send_some (struct work *w, struct slot *s)
{
    ssize_t n =
        write (s->proc.in, s->request + s->sent, s->n_request - s->sent);

    if (n >= 0)
        s->sent += (size_t)n;
    else if (errno != EAGAIN && errno != EINTR)
        fault (w, s, &w->report->crashes, "");
}

static void read_line (struct work *w, struct slot *s, bool behind)
{
    train_error_t own = {0};
    float reward;

    if (wire_reply (s->line.p, s->line.n - 1, s->id, &reward, &own)
        != TRAIN_OK) {
        fault (w, s, &w->report->garbage, own.text);
        return;
    }
    w->pool->faults = 0;
    w->pool->late = 0;
    s->proven = true;
    if (isnan (reward))
        w->report->nothing++;
    else
        w->report->scored++;
    done (w, s, reward);
    if (behind)
        fault (w, s, &w->report->garbage, "wrote more than one line");
    else if (s->sent < s->n_request) /* cannot have read it */
        fault (w, s, &w->report->garbage, "replied before it was asked");
}

static train_status_t take_some (struct work *w, struct slot *s,
                                 train_error_t *err)
{
    char bytes[4096];
    ssize_t n = read (s->proc.out, bytes, sizeof (bytes));
    enum wire_take got;

    if (n < 0 && (errno == EAGAIN || errno == EINTR))
        return TRAIN_OK;
    if (n <= 0) {
        fault (w, s, &w->report->crashes, "");
        return TRAIN_OK;
    }
    got = wire_take (&s->line, bytes, (size_t)n);
    if (got == WIRE_NO_MEMORY)
        return err_set (err, TRAIN_ENOMEM, "no memory for a reply");
    if (got == WIRE_HUGE)
        fault (w, s, &w->report->garbage, "wrote a line past 1 MiB");
    else if (got != WIRE_MORE)
        read_line (w, s, got == WIRE_BEHIND);
    return TRAIN_OK;
}

/* Whom to listen to, and until when. */
static int gather (struct work *w, double *ret_until)
{
    bool look = clock_s () >= w->look;
    int n = 0;

    if (look)
        w->look = clock_s () + ASK_MS / 1000.0;
    *ret_until = INFINITY;
    for (int i = 0; i < w->pool->n; i++) {
        struct slot *s = &w->pool->slot[i];

        if (s->sample < 0)
            continue;
        w->of[n] = i;
        w->fd[n++] = (struct pollfd){.fd = s->proc.out, .events = POLLIN};
        if (s->sent < s->n_request) {
            w->of[n] = i;
            w->fd[n++] = (struct pollfd){.fd = s->proc.in, .events = POLLOUT};
        }
        s->failed = look && proc_failed (&s->proc);
        *ret_until = s->failed ? 0 : fmin (*ret_until, s->deadline);
    }
    return n;
}

static void check_deadlines (struct work *w)
{
    double t = clock_s ();
    char why[64];

    for (int i = 0; i < w->pool->n; i++) {
        struct slot *s = &w->pool->slot[i];

        if (s->sample < 0 || t < s->deadline)
            continue;
        snprintf (why, sizeof (why), "did not %s within %g s",
                  s->sent < s->n_request ? "read a request" : "reply",
                  s->limit);
        w->pool->late += !s->proven;
        fault (w, s, &w->report->timeouts, why);
    }
}

/* Its children may hold the pipe of one that failed: no end of it is seen. */
static void look_at_silent (struct work *w, struct slot *s, bool reads)
{
    if (reads && s->failed)
        fault (w, s, &w->report->crashes, "");
}

static train_status_t wait_for_some (struct work *w, train_error_t *err)
{
    double until, ms;
    int n = gather (w, &until), rc;

    if (n == 0) /* none could be started */
        return TRAIN_OK;
    ms = ceil ((until - clock_s ()) * 1000);
    rc = poll (w->fd, (nfds_t)n, ms > 0 ? (int)fmin (ms, ASK_MS) : 0);
    if (rc < 0 && errno != EINTR)
        return err_set (err, TRAIN_EIO, "poll: %s", strerror (errno));
    for (int i = 0; i < n && rc >= 0; i++) {
        struct slot *s = &w->pool->slot[w->of[i]];

        /* a fault of its first descriptor may have ended the second */
        if (s->sample < 0)
            continue;
        if (w->fd[i].revents == 0)
            look_at_silent (w, s, w->fd[i].events == POLLIN);
        else if (w->fd[i].events == POLLOUT)
            send_some (w, s);
        else
            TRY (take_some (w, s, err));
    }
    check_deadlines (w);
    return TRAIN_OK;
}

static train_status_t give_all (struct work *w, train_error_t *err)
{
    for (int i = 0; i < w->pool->n && w->next < w->n; i++)
        if (w->pool->slot[i].sample < 0)
            TRY (give (w, &w->pool->slot[i], err));
    return TRAIN_OK;
}

/* Is the call to end before its replies are there? Quick ones may come. */
static bool is_over (struct work *w)
{
    const struct pool *p = w->pool;

    if (w->ends == 0 && p->ends && p->ends (p->ends_arg))
        w->ends = clock_s () + LEFT_S;
    return w->ends > 0 && clock_s () >= w->ends;
}

static train_status_t loop (struct work *w, train_error_t *err)
{
    while (w->left > 0) {
        if (is_over (w))
            return err_set (err, TRAIN_EABORTED,
                            "the wait for %d of %d replies was ended on "
                            "request",
                            w->left, w->n);
        TRY (give_all (w, err));
        if (w->pool->faults >= w->pool->max_faults)
            return err_set (err, TRAIN_EPEER,
                            "%d faults in a row (max_faults); the last: %s",
                            w->pool->faults, w->pool->fault);
        TRY (wait_for_some (w, err));
    }
    return TRAIN_OK;
}

/* After a failure no process may hold a sample of that call. */
static void drop (struct pool *p)
{
    for (int i = 0; i < p->n; i++) {
        struct slot *s = &p->slot[i];

        if (s->sample < 0)
            continue;
        proc_stop (&s->proc, 0, NULL, 0);
        free (s->request);
        s->request = NULL;
        s->sample = -1;
        s->line.n = 0;
    }
}

/* A program that ended makes SIGPIPE of a write: this thread does not get it,
 * and nobody else finds it waiting. */
static train_status_t loop_without_sigpipe (struct work *w, train_error_t *err)
{
    const struct timespec at_once = {0, 0};
    sigset_t sigpipe, old, pending;
    train_status_t status;
    bool before;

    sigemptyset (&sigpipe);
    sigaddset (&sigpipe, SIGPIPE);
    sigpending (&pending);
    before = sigismember (&pending, SIGPIPE);
    pthread_sigmask (SIG_BLOCK, &sigpipe, &old);
    status = loop (w, err);
    while (!before && sigtimedwait (&sigpipe, NULL, &at_once) < 0
           && errno == EINTR)
        ;
    pthread_sigmask (SIG_SETMASK, &old, NULL);
    return status;
}

train_status_t pool_score (struct pool *p, const struct reward_view *view,
                           int n, float *ret, train_reward_report_t *report,
                           train_error_t *err)
{
    struct work w = {.pool = p,
                     .view = view,
                     .ret = ret,
                     .n = n,
                     .left = n,
                     .report = report};
    train_status_t status;

    w.fd = calloc (2 * (size_t)p->n, sizeof (*w.fd));
    w.of = calloc (2 * (size_t)p->n, sizeof (*w.of));
    status = w.fd && w.of ? loop_without_sigpipe (&w, err)
                          : err_set (err, TRAIN_ENOMEM, "no memory to poll");
    if (status != TRAIN_OK) {
        drop (p);
        p->faults = 0; /* a caller that goes on begins anew */
    }
    free (w.fd);
    free (w.of);
    return status;
}

train_status_t pool_start (struct pool *p, train_error_t *err)
{
    for (int i = 0; i < p->n; i++)
        TRY (start (p, &p->slot[i], err));
    return TRAIN_OK;
}

void pool_stop (struct pool *p)
{
    double until = clock_s () + CLOSE_MS / 1000.0;

    for (int i = 0; i < p->n; i++)
        if (p->slot[i].proc.pid > 0 && p->slot[i].proc.in >= 0) {
            close (p->slot[i].proc.in);
            p->slot[i].proc.in = -1;
        }
    for (int i = 0; i < p->n; i++) {
        int left = (int)((until - clock_s ()) * 1000);

        proc_stop (&p->slot[i].proc, left > 0 ? left : 0, NULL, 0);
        free (p->slot[i].request);
        free (p->slot[i].line.p);
    }
}
