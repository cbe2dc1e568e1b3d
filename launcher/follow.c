/* SPDX-License-Identifier: Apache-2.0
 * follow.c - show a job's output until it ends, and say how it ended
 *
 * The end is known from status.json, looked at every 25 ms. Slurm is asked
 * seldom, in a child, for what status.json cannot tell: why the job waits, and
 * that it ended without its batch step (cancelled while it waited, a node that
 * died). A question that fails decides nothing. */
#ifdef HAVE_CONFIG_H
#include "config.h"
#endif
#include "follow.h"

#include <errno.h>
#include <poll.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#include "cluster.h"
#include "exec/advice.h"
#include "exec/claim.h"
#include "failure.h"
#include "jobfile.h"
#include "logset.h"
#include "plan/fsio.h"
#include "plan/waiting.h"
#include "proc.h"

#define TICK_MS        25
#define ASK_FIRST_MS   1000
#define ASK_PENDING_MS 3000
#define ASK_RUNNING_MS 15000
#define GRACE_MS       3000 /* for status.json to arrive after the job's end */
#define LAST_ASK_MS    2000 /* for one more word about an end */
#define AGAIN_MS       2000 /* within which a second ^C cancels */

struct follow {
    const struct request *req;
    struct request own; /* what [req] points to; texts are borrowed, but for
                           gpu_type */
    int claim;          /* number of the last one seen; -1 = none */
    bool over[REQUEST_ROOTS]; /* of several jobs that wait */
    const struct follow_opts *opts;
    struct logset logs;
    char *status_path;
    struct timespec seen; /* modification time of the status.json last read */
    struct request_status status;
    struct slurm_ask ask;
    int64_t ask_at, gone_at, interrupt_at;
    int missing; /* answers in a row that know no such job */
    bool mute;   /* already said that the controller does not answer */
    bool told_run, cancelled;
    char told[300];           /* last state line printed */
    struct cluster_jobs last; /* the last answer; n is 0 or 1 */
};

static volatile sig_atomic_t caught_int, caught_leave;

static void on_signal (int number)
{
    if (number == SIGINT)
        caught_int++;
    else
        caught_leave = number;
}

static void signals_take (struct sigaction saved[4])
{
    static const int numbers[] = {SIGINT, SIGQUIT, SIGTERM, SIGHUP};
    struct sigaction act = {.sa_handler = on_signal};

    caught_int = caught_leave = 0;
    for (int i = 0; i < 4; i++) {
        sigaction (numbers[i], NULL, &saved[i]);
        if (saved[i].sa_handler != SIG_IGN) /* nohup rv run -f ... */
            sigaction (numbers[i], &act, NULL);
    }
}

static void signals_restore (const struct sigaction saved[4])
{
    static const int numbers[] = {SIGINT, SIGQUIT, SIGTERM, SIGHUP};

    for (int i = 0; i < 4; i++)
        sigaction (numbers[i], &saved[i], NULL);
}

/* Does this line of the batch step say how the ranks ended? rv says it once,
 * at the end, of the rank that failed first. */
static bool tells_end (const char *line, size_t len)
{
    static const char *const begin[] = {
        ("rv: cannot run the command: " JOBFILE_NOT_GRANTED),
        "rv: rank ",
        "rv: no rank ",
        "rv: the job was told to end",
        FAILURE_MARK,
        "srun: Job step aborted: ",
        "srun: launch/slurm: _step_signal: ",
        "srun: Force Terminated ",
    };

    for (size_t i = 0; i < sizeof (begin) / sizeof (*begin); i++)
        if (len > strlen (begin[i])
            && !strncmp (line, begin[i], strlen (begin[i])))
            return true;
    return len > 13 && !strncmp (line, "srun: error: ", 13)
           && (memmem (line, len, ": task ", 7)
               || memmem (line, len, ": tasks ", 8));
}

/* The batch step wrote in its log what judge () says. */
static bool not_granted (const struct request_status *status)
{
    static const char begin[] = JOBFILE_NOT_GRANTED;

    return status->cause && !strncmp (status->cause, begin, strlen (begin));
}

int follow_show (const struct request *req, const struct follow_opts *opts,
                 struct rv_error *err)
{
    struct logset logs = {0};
    int status = logset_init (&logs, req, opts, false, err);
    bool there = false;

    if (status == RV_OK)
        status = logset_poll (&logs, true, err);
    for (size_t i = 0; i < logs.n; i++)
        there = there || logs.tail[i].fd >= 0;
    logset_fini (&logs);
    if (status == RV_OK && !there)
        return error_set (err, RV_ENOTFOUND, "it has written no such log yet");
    return status;
}

static void say (struct follow *f, const char *text)
{
    logset_quiet (&f->logs);
    fprintf (stderr, "rv: job %u %s\n", f->req->job_id, text);
}

/* Read status.json when it has changed. */
static int look_status (struct follow *f, struct rv_error *err)
{
    struct request_status now;
    struct stat st;
    int status;

    if (stat (f->status_path, &st)
        || (st.st_mtim.tv_sec == f->seen.tv_sec
            && st.st_mtim.tv_nsec == f->seen.tv_nsec))
        return RV_OK;
    status = request_status (f->req->dir, f->req->job_id, &now, err);
    if (status != RV_OK)
        return status;
    f->seen = st.st_mtim;
    request_status_fini (&f->status);
    f->status = now;
    return RV_OK;
}

/* A batch step that a signal ended will not write status.json any more: it
 * would have turned the signal into an exit status. */
static bool batch_killed (const struct follow *f)
{
    return f->last.n && f->last.job[0].exit_signal;
}

static void tell_state (struct follow *f, const struct cluster_job *job)
{
    const struct waiting w = {.reason = job->reason,
                              .put_back = job->restarts > 0,
                              .begins_at = job->begins_at};
    char text[sizeof (f->told)], why[256];

    waiting_why (&w, why, sizeof (why));
    if (job->pending)
        snprintf (text, sizeof (text), "is waiting%s%s", *why ? ": " : "", why);
    else if (job->active && !f->told_run)
        snprintf (text, sizeof (text), "runs on %.200s", job->node_list);
    else
        return;
    f->told_run = !job->pending;
    if (strcmp (text, f->told))
        say (f, text);
    memcpy (f->told, text, sizeof (text));
}

/* One answer of Slurm. Sets gone_at when the job is over for Slurm. */
static void take_answer (struct follow *f, int status,
                         struct cluster_jobs *jobs, const struct rv_error *why)
{
    int64_t now = proc_now_ms ();

    if (status == RV_ENOTFOUND || (status == RV_OK && jobs->n == 0)) {
        /* Once may be a controller that has just restarted. */
        if (++f->missing > 1 && !f->gone_at)
            f->gone_at = now;
    } else if (status != RV_OK) {
        logset_quiet (&f->logs);
        if (!f->mute)
            fprintf (stderr, "rv: %s; still following job %u\n", why->text,
                     f->req->job_id);
        f->mute = true;
    } else {
        cluster_jobs_fini (&f->last);
        f->last = *jobs;
        f->missing = 0;
        f->mute = false;
        tell_state (f, &jobs->job[0]);
        if (jobs->job[0].active)
            f->gone_at = 0;
        else if (!f->gone_at)
            f->gone_at = now;
        return;
    }
    if (status == RV_OK)
        cluster_jobs_fini (jobs);
}

static bool is_ending (const struct follow *f)
{
    return f->last.n && !strcmp (f->last.job[0].state, "COMPLETING");
}

static void ask_slurm (struct follow *f)
{
    struct cluster_jobs jobs = {0};
    struct rv_error why = {0};
    bool done = true;
    int status;

    if (!f->ask.pid) {
        if (proc_now_ms () < f->ask_at)
            return;
        status = cluster_job_begin (&f->ask, f->req->job_id, &why);
        if (status == RV_OK)
            return;
    } else {
        status = cluster_job_poll (&f->ask, 0, &done, &jobs, &why);
    }
    if (!done)
        return;
    take_answer (f, status, &jobs, &why);
    f->ask_at = proc_now_ms ()
                + (f->missing || is_ending (f) ? ASK_FIRST_MS
                   : f->status.started         ? ASK_RUNNING_MS
                                               : ASK_PENDING_MS);
}

/* What is known is of an earlier start, until status.json changes. */
static void begin_again (struct follow *f)
{
    logset_release (&f->logs, true, NULL);
    request_status_fini (&f->status);
    f->status.exit_status = -1;
    f->told_run = false;
    f->told[0] = '\0';
    f->gone_at = f->missing = 0;
    f->ask_at = proc_now_ms () + ASK_FIRST_MS;
}

static int begin_logs (struct follow *f, struct rv_error *err)
{
    int status = logset_init (&f->logs, f->req, f->opts, true, err);

    for (size_t i = 0; f->opts->batch && i < 2 && i < f->logs.n; i++)
        f->logs.tail[i].keep = tells_end;
    return status;
}

/* Another job of the request is the one to follow. */
static int turn_to (struct follow *f, uint32_t job_id, struct rv_error *err)
{
    int status;

    slurm_ask_cancel (&f->ask);
    if (request_turn_to (&f->own, job_id) != RV_OK)
        return error_set (err, RV_EIO, "the plan of job %u cannot be read",
                          job_id);
    logset_fini (&f->logs);
    status = begin_logs (f, err);
    begin_again (f);
    f->seen = (struct timespec){0};
    return status;
}

/* Which of several jobs runs the command? */
static int look_claim (struct follow *f, struct rv_error *err)
{
    const struct claim c = {.dir = f->req->dir};
    uint32_t root = f->own.log_id ? f->own.log_id : f->own.job_id;
    struct claim_holder h;
    int status;

    if (f->own.n_roots < 2 || claim_read (&c, &h, NULL) != RV_OK
        || h.number <= f->claim)
        return RV_OK;
    f->claim = h.number;
    if (h.root == root)
        return RV_OK;
    status = turn_to (f, h.job_id, err);
    if (status == RV_OK)
        say (f, "is the first to start: it runs the command");
    return status;
}

/* Of several jobs one has ended before a command began: another may start. */
static bool another_waits (struct follow *f, struct rv_error *err)
{
    uint32_t next = 0;

    if (f->own.n_roots < 2 || !f->gone_at || f->cancelled
        || claim_has_started (f->req->dir))
        return false;
    for (size_t i = 0; i < f->own.n_roots; i++) {
        f->over[i] = f->over[i] || f->own.root[i] == f->own.job_id;
        if (!f->over[i] && !next)
            next = f->own.root[i];
    }
    return next && turn_to (f, next, err) == RV_OK;
}

/* ^C: the first tells what a second one does, the second cancels. */
static void interrupted (struct follow *f)
{
    int64_t now = proc_now_ms ();
    struct rv_error err = {0};

    caught_int = 0;
    logset_quiet (&f->logs);
    if (!f->opts->may_cancel) {
        caught_leave = SIGINT;
        return;
    }
    if (!f->interrupt_at || now - f->interrupt_at > AGAIN_MS) {
        fprintf (stderr,
                 "rv: job %u goes on: ^C again within %d s cancels it, ^\\ "
                 "leaves it ('rv logs -f %u' follows again)\n",
                 f->req->job_id, AGAIN_MS / 1000, f->req->job_id);
        f->interrupt_at = now;
        return;
    }
    if (f->cancelled)
        return;
    f->cancelled = true;
    for (size_t i = 0; i < f->own.n_roots; i++)
        if (f->own.root[i] != f->req->job_id)
            cluster_cancel (f->own.root[i], NULL); /* it may have ended */
    if (cluster_cancel (f->req->job_id, &err) != RV_OK)
        fprintf (stderr, "rv: cannot cancel job %u: %s\n", f->req->job_id,
                 err.text);
    else
        say (f, "is being cancelled");
    f->ask_at = proc_now_ms () + ASK_FIRST_MS / 4;
}

static void pause_tick (void)
{
    poll (NULL, 0, TICK_MS); /* a signal ends it early */
}

/* A segment has ended; the job goes on, or another one does. */
static void next_segment (struct follow *f)
{
    slurm_ask_cancel (&f->ask);
    if (!f->opts->batch) /* the batch step says it in its log */
        say (f, f->status.cause ? f->status.cause : "goes on");
    if (f->status.next_id) {
        if (!f->own.log_id)
            f->own.log_id = f->own.job_id;
        f->own.job_id = f->status.next_id;
    }
    begin_again (f);
}

/* The batch step was told to end: was the job put back into the queue? Then it
 * runs again under the same id, and its logs grow on. */
static bool requeued (struct follow *f)
{
    struct cluster_jobs jobs = {0};
    bool done = false, again;

    if (!f->status.told_to_end)
        return false;
    slurm_ask_cancel (&f->ask);
    if (cluster_job_begin (&f->ask, f->req->job_id, NULL) != RV_OK
        || cluster_job_poll (&f->ask, LAST_ASK_MS, &done, &jobs, NULL) != RV_OK
        || !done)
        return false;
    again = jobs.n && jobs.job[0].pending;
    cluster_jobs_fini (&jobs);
    if (!again)
        return false;
    say (f, "was put back into the queue");
    begin_again (f);
    return true;
}

/* Until the job has ended, or a signal says to leave. */
static int watch (struct follow *f, struct rv_error *err)
{
    for (;;) {
        int status = look_claim (f, err);

        if (status == RV_OK)
            status = look_status (f, err);
        if (status == RV_OK && (f->status.started || f->gone_at))
            status = logset_poll (&f->logs, false, err);
        if (status != RV_OK)
            return status;
        if (f->status.waits)
            next_segment (f);
        if (f->status.done && requeued (f))
            continue;
        if (!f->status.done && another_waits (f, err))
            continue;
        if (f->status.done || caught_leave
            || (f->gone_at && proc_now_ms () - f->gone_at > GRACE_MS)
            || (f->gone_at && batch_killed (f))
            /* What never ran writes no status.json. */
            || (f->gone_at && f->last.n && f->last.job[0].started_at == 0))
            return RV_OK;
        if (caught_int)
            interrupted (f);
        ask_slurm (f);
        pause_tick ();
    }
}

/* What Slurm says of a job without a status of its command. */
static int judge_lost (struct follow *f)
{
    const struct cluster_job *job = f->last.n ? &f->last.job[0] : NULL;
    const char *reason = "";
    char text[400];
    bool node_lost;

    if (!job || job->active) {
        say (f, "is not known to Slurm any more and left no status; see the "
                "logs");
        return f->status.started ? 1 : 125;
    }
    /* The reason of a cancelled job is what it waited for before. */
    if (strcmp (job->state, "CANCELLED"))
        reason = job->reason;
    /* Slurm 24.11 gives such a job an exit status of its own, a "signal 1". */
    node_lost = !strcmp (job->state, "NODE_FAIL");
    if (f->status.started && !job->exit_signal
        && (!strcmp (job->state, "COMPLETED")
            || !strcmp (job->state, "FAILED"))) {
        snprintf (text, sizeof (text),
                  "ended with status %d, but could not note how: its folder "
                  "is full, or was not there",
                  job->exit_status);
        say (f, text);
        return job->exit_status;
    }
    if (job->exit_signal && f->status.started && !node_lost)
        snprintf (text, sizeof (text),
                  "failed: its batch step (rv-exec on the first node) was "
                  "killed by signal %d",
                  job->exit_signal);
    else
        snprintf (text, sizeof (text), "%s: %s%s%.200s",
                  f->status.started ? "was ended by Slurm" : "never started",
                  job->state, *reason ? ", " : "", reason);
    say (f, text);
    if (node_lost)
        fprintf (stderr, FAILURE_MARK "advice: %s\n",
                 advice_of ("node_failure")->text);
    if (!f->status.started)
        return 125;
    if (node_lost)
        return 1;
    if (job->exit_signal)
        return 128 + job->exit_signal;
    if (!strcmp (job->state, "CANCELLED") || !strcmp (job->state, "TIMEOUT"))
        return 128 + SIGTERM;
    return job->exit_status ? job->exit_status : 1;
}

/* The command has a bad status and no rank says why: perhaps Slurm knows. */
static void explain (struct follow *f)
{
    struct cluster_jobs jobs = {0};
    struct rv_error err = {0};
    bool done = false;
    char text[400];
    int status = RV_OK;

    if (!f->ask.pid)
        status = cluster_job_begin (&f->ask, f->req->job_id, &err);
    if (status == RV_OK)
        status = cluster_job_poll (&f->ask, LAST_ASK_MS, &done, &jobs, &err);
    if (status == RV_OK && done && jobs.n
        && strcmp (jobs.job[0].state, "COMPLETING")
        && strcmp (jobs.job[0].state, "FAILED")
        && strcmp (jobs.job[0].state, "RUNNING"))
        snprintf (text, sizeof (text), "ended with status %d: %s",
                  f->status.exit_status, jobs.job[0].state);
    else
        snprintf (text, sizeof (text), "ended with status %d",
                  f->status.exit_status);
    say (f, text);
    if (status == RV_OK && done)
        cluster_jobs_fini (&jobs);
}

/* What the batch step has said of it in its log, but for the last lines of
 * stderr: they have been shown. */
static void say_more (const struct follow *f)
{
    char *text = failure_lines (f->status.failure, false);

    fputs (text ? text : "", stderr);
    free (text);
}

static int judge (struct follow *f)
{
    char text[700];

    if (caught_leave && !f->status.done) {
        logset_quiet (&f->logs);
        fprintf (stderr,
                 "rv: job %u goes on; 'rv logs -f %u' follows it, 'rv stop %u' "
                 "ends it\n",
                 f->req->job_id, f->req->job_id, f->req->job_id);
        return 128 + (int)caught_leave;
    }
    if (!f->status.done)
        return judge_lost (f);
    if (f->status.exit_status == 0)
        return 0;
    if (f->status.cause) {
        snprintf (text, sizeof (text), "(%.64s) failed: %s", f->req->name,
                  f->status.cause);
        say (f, text);
        say_more (f);
    } else {
        explain (f);
    }
    return f->status.exit_status < 0 ? 125 : f->status.exit_status;
}

int follow_job (const struct request *req, const struct follow_opts *opts,
                int *ret_status, struct rv_error *err)
{
    struct follow f = {
        .own = *req, .opts = opts, .ask = {.fd = -1}, .claim = -1};
    struct sigaction saved[4];
    int status;

    f.req = &f.own;
    f.ask_at = proc_now_ms () + ASK_FIRST_MS;
    f.status_path = fsio_join (req->dir, "status.json");
    f.own.gpu_type = strdup (req->gpu_type);
    if (!f.status_path || !f.own.gpu_type) {
        free (f.status_path);
        free (f.own.gpu_type);
        return error_set (err, RV_ENOMEM, "out of memory");
    }
    status = begin_logs (&f, err);
    if (status == RV_OK) {
        signals_take (saved);
        status = watch (&f, err);
        if (status == RV_OK)
            status = logset_poll (&f.logs, !caught_leave || f.status.done, err);
        if (status == RV_OK)
            status = logset_release (
                &f.logs, !f.status.names_rank && !not_granted (&f.status), err);
        if (status == RV_OK)
            *ret_status = judge (&f);
        signals_restore (saved);
    }
    slurm_ask_cancel (&f.ask);
    logset_fini (&f.logs);
    request_status_fini (&f.status);
    cluster_jobs_fini (&f.last);
    free (f.status_path);
    free (f.own.gpu_type);
    return status;
}
