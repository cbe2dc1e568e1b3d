/* SPDX-License-Identifier: Apache-2.0
 * segment_run.c - one segment within the batch step
 *
 * Slurm signals the batch step alone (sbatch --signal=B:USR1@S). A signal of
 * Slurm to the step's tasks would, with proctrack/linuxproc, reach all of
 * their processes and end torchrun's agent, so the ranks get SIGURG, which
 * nobody minds, and each rv-exec hands the real one on (deliver.h). */
#include "config.h"

#include "exec/segment_run.h"

#include <poll.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>
#include <unistd.h>

#include "exec/log.h"
#include "exec/segment_ask.h"
#include "exec/tail.h"
#include "jobfile.h"
#include "proc.h"
#include "where.h"

#define SIGNAL_MS         10000 /* of one scancel */
#define AGAIN_MS          2000
#define STARTED_MS        250 /* between two looks whether the command has begun */
#define SIBLINGS_MS       30000
#define SIBLINGS_AGAIN_MS 10000
#define NO_SLURMCTLD      3 /* of rv: no controller, or it does not answer */
#define SLACK_S           90 /* Slurm looks every 30 s, and signals up to 60 s early */
#define WAIT_MS           (10 * 60 * 1000) /* for slurmctld's word about an end */

/* A chain's jobs write to the folder of its first; job.sh knows its own id. */
static void keep_output (const struct segment_run *r)
{
    const char *dir = getenv ("RV_OUTPUT_DIR");
    char own[16], *kept;
    size_t len, tail;

    snprintf (own, sizeof (own), "-%u", r->job_id);
    len = dir ? strlen (dir) : 0;
    tail = strlen (own);
    if (r->log.log_id == r->job_id || len < tail
        || strcmp (dir + len - tail, own)
        || asprintf (&kept, "%.*s-%u", (int)(len - tail), dir, r->log.log_id)
               < 0)
        return;
    rmdir (dir); /* job.sh has just made it */
    setenv ("RV_OUTPUT_DIR", kept, 1);
    free (kept);
}

int segment_run_begin (struct segment_run *r, const char *own,
                       struct rv_error *err)
{
    char text[24];
    int rc;

    r->asked = r->q->checkpoint.signal != 0;
    rc = segment_log_begin (own, r->job_id, r->restart, r->claim->root,
                            r->asked, &r->log, err);
    if (rc)
        return rc;
    snprintf (text, sizeof (text), "%u", r->log.number);
    setenv ("RV_SEGMENT", text, 1);
    snprintf (text, sizeof (text), "%lld", (long long)r->log.elapsed_s);
    setenv ("RV_TOTAL_ELAPSED", text, 1);
    keep_output (r);
    if (r->asked && r->log.retries > SEGMENT_RETRIES)
        return error_set (err, RV_ESTATE,
                          "preemptions and lost nodes put it back %u times; "
                          "submit again to go on from its checkpoints",
                          r->log.retries);
    return RV_OK;
}

static bool scancel (const struct segment_run *r, bool kill)
{
    char id[24];
    char *urge[] = {"scancel", "--signal=URG", id, NULL};
    char *end[] = {"scancel", id, NULL};
    struct proc_opts opts = {.deadline_ms = SIGNAL_MS};
    struct proc_result result;
    struct rv_error err = {0};
    bool done;

    snprintf (id, sizeof (id), "%u.0", r->job_id);
    if (proc_run (kill ? end : urge, &opts, &result, &err)) {
        log_line (LOG_WARN, "cannot signal the ranks: %s", err.text);
        return false;
    }
    done = result.status == 0;
    if (!done)
        log_line (LOG_WARN, "cannot signal the ranks: %.200s", result.err);
    proc_result_fini (&result);
    return done;
}

/* When a command that goes on is ended, so that the job can still be put back
 * before Slurm ends it. */
static int64_t kill_time (const struct segment_run *r, int64_t end_time)
{
    int64_t grace = r->q->checkpoint.seconds / 5;

    grace = grace < 1 ? 1 : grace > 10 ? 10 : grace;
    return end_time ? end_time - grace : 0;
}

/* Was that the signal before the limit? Its time tells; anybody may send one
 * like it. */
static bool is_near (const struct segment_run *r,
                     const struct segment_answer *a)
{
    return a->preempting
           || (a->end_time
               && a->end_time - time (NULL)
                      <= (int64_t)r->q->checkpoint.seconds + SLACK_S);
}

static bool judge_signal (struct segment_run *r)
{
    struct segment_answer a;
    struct rv_error err = {0};

    if (segment_ask (r->job_id, r->restart, &a, &err)) {
        log_line (LOG_WARN, "SIGUSR1 came, and slurmctld does not say why: %s",
                  err.text);
        return false;
    }
    if (is_near (r, &a)) {
        r->limit_signal = true;
        r->kill_at = kill_time (r, a.end_time);
    } else
        log_line (LOG_WARN, "SIGUSR1 came, but not from the time limit: the "
                            "ranks get their signal, and the job does not go "
                            "on after it");
    return true;
}

static void serve_signal (struct segment_run *r)
{
    if (!r->warned && r->came)
        r->warned = scancel (r, false);
    if (r->warned && r->came && judge_signal (r))
        r->came = r->warned = false;
    r->next_ms = r->came ? tail_now_ms () + AGAIN_MS : 0;
}

/* Has the request other jobs? rv may still be at their submission: it then
 * looks whether this one has begun. The jobs of an array are not such: each does
 * work of its own. */
static bool has_siblings (const struct segment_run *r)
{
    struct jobfile *list = NULL;
    bool found = r->q->candidates > 1;
    size_t n;

    if (getenv ("SLURM_ARRAY_JOB_ID"))
        return false;
    n = jobfile_list (r->dir, &list);
    for (size_t i = 0; i < n && n > 1; i++)
        found = found || list[i].root != r->claim->root;
    free (list);
    return found;
}

/* The command runs here: the other jobs of the request are for nothing. */
static void end_siblings (struct segment_run *r)
{
    char *words[] = {NULL, "stop", "--siblings", (char *)r->dir, NULL};
    struct proc_opts opts = {.deadline_ms = SIBLINGS_MS};
    struct proc_result result;
    struct rv_error err = {0};

    r->alone = true;
    if (where_program ("rv", &words[0], &err)
        || proc_run (words, &opts, &result, &err)) {
        log_line (LOG_WARN, "cannot end the other jobs of the request: %s",
                  err.text);
        free (words[0]);
        return;
    }
    /* Until it answers they wait for nothing, or start and end. */
    if (result.status == NO_SLURMCTLD) {
        r->alone = false;
        r->siblings_ms = tail_now_ms () + SIBLINGS_AGAIN_MS;
    }
    if (result.status && !r->told_silent)
        log_line (LOG_WARN,
                  "cannot end the other jobs of the request%s: %.200s",
                  r->alone ? "" : ", trying again", result.err);
    r->told_silent = result.status != 0;
    proc_result_fini (&result);
    free (words[0]);
}

static void serve (void *arg, const struct pollfd *p, size_t n)
{
    struct segment_run *r = arg;
    int64_t now = tail_now_ms ();

    (void)p;
    (void)n;
    if (now >= r->beat_ms) {
        segment_log_beat (&r->log);
        r->beat_ms = now + SEGMENT_BEAT_MS;
    }
    if (!r->alone && now >= r->siblings_ms && claim_has_started (r->claim->dir))
        end_siblings (r);
    if (r->came && now >= r->next_ms)
        serve_signal (r);
    if (r->kill_at && time (NULL) >= r->kill_at) {
        r->kill_at = 0;
        if ((r->killed = scancel (r, true)))
            log_line (LOG_WARN, "the command went on after its signal; it was "
                                "killed, just before the time limit");
        else
            r->kill_at = time (NULL) + 1;
    }
}

static void sooner (int64_t left_ms, int *ret_wait_ms)
{
    if (left_ms < 0)
        left_ms = 0;
    if (*ret_wait_ms < 0 || left_ms < *ret_wait_ms)
        *ret_wait_ms = (int)left_ms;
}

static size_t fill (void *arg, struct pollfd *p, size_t max, int *ret_wait_ms)
{
    const struct segment_run *r = arg;
    int64_t now = tail_now_ms ();

    (void)p;
    (void)max;
    sooner (r->beat_ms - now, ret_wait_ms);
    if (!r->alone)
        sooner (STARTED_MS, ret_wait_ms);
    if (r->came)
        sooner (r->next_ms - now, ret_wait_ms);
    if (r->kill_at)
        sooner ((r->kill_at - time (NULL)) * 1000, ret_wait_ms);
    return 0;
}

/* SIGUSR1 is ours alone: srun would hand it to every process. */
static bool signalled (void *arg, const struct child_result *c, int signal)
{
    struct segment_run *r = arg;

    (void)c;
    if (!r->asked || signal != SIGUSR1)
        return false;
    r->came = true;
    r->next_ms = 0;
    return true;
}

void segment_run_watch (struct segment_run *r, struct child_watch *watch,
                        struct child_opts *opts)
{
    r->beat_ms = tail_now_ms () + SEGMENT_BEAT_MS;
    r->alone = !has_siblings (r);
    *watch = (struct child_watch){.fill = fill, .serve = serve, .arg = r};
    opts->watch = watch;
    opts->signalled = signalled;
    opts->signalled_arg = r;
}

static void pause_ms (int ms)
{
    poll (NULL, 0, ms);
}

/* Ask until there is an answer. */
static void ask (const struct segment_run *r, struct segment_facts *f)
{
    int64_t until = tail_now_ms () + WAIT_MS;
    struct segment_answer a;
    struct rv_error err = {0};
    int wait = 250;

    while (segment_ask (r->job_id, r->restart, &a, &err)) {
        if (wait == 250)
            log_line (LOG_WARN,
                      "asking Slurm how the job ended: %s; trying "
                      "again",
                      err.text);
        if (tail_now_ms () > until)
            return;
        pause_ms (wait);
        wait = wait < 8000 ? wait * 2 : 8000;
    }
    f->said = a.said;
    f->preempting = f->preempting || a.preempting;
    f->may_requeue = a.may_requeue;
}

static const char *words_of (enum segment_cause cause)
{
    static const char *const words[] = {
        [CAUSE_COMMAND] = "the command ended",
        [CAUSE_STOPPED] = "the job was cancelled",
        [CAUSE_LIMIT] = "the time limit",
        [CAUSE_PREEMPTION] = "a preemption",
        [CAUSE_NODE_FAILURE] = "a lost node",
        [CAUSE_HARDWARE] = "broken hardware",
        [CAUSE_REQUEUED] = "a requeue",
        [CAUSE_LOST] = "a lost batch step",
    };

    return words[cause];
}

static void chain (const struct segment_run *r, enum segment_cause cause,
                   struct segment_next *ret)
{
    struct segment_answer a;
    struct rv_error err = {0};

    if (segment_chain (r->dir, r->job_id, r->log.log_id, &a, &err)) {
        snprintf (ret->message, sizeof (ret->message),
                  "the job cannot go on after %s: %.200s", words_of (cause),
                  err.text);
        return;
    }
    if (claim_hand_on (r->claim, a.job_id, &err))
        log_line (LOG_WARN, "cannot hand the claim on to job %u: %s", a.job_id,
                  err.text);
    ret->waits = true;
    ret->job_id = a.job_id;
    snprintf (ret->message, sizeof (ret->message),
              "segment %u ended by %s; job %u goes on, for this one may not "
              "be put back",
              r->log.number, words_of (cause), a.job_id);
}

/* Put back, by us or by Slurm. */
static void say_back (const struct segment_run *r, enum segment_cause cause,
                      const char *node, struct segment_next *ret)
{
    ret->waits = true;
    snprintf (ret->message, sizeof (ret->message),
              "segment %u ended by %s; the job is back in the queue%s%s, where "
              "Slurm holds it for about 2 minutes",
              r->log.number, words_of (cause), node ? ", without " : "",
              node ? node : "");
}

static void requeue (const struct segment_run *r,
                     const struct segment_verdict *v,
                     const struct segment_end *end, struct segment_next *ret)
{
    const char *node = v->exclude ? end->node : NULL;
    int64_t until = tail_now_ms () + WAIT_MS;
    struct segment_answer a;
    struct rv_error err = {0};

    while (segment_requeue (r->job_id, r->restart, node, &a, &err)) {
        if (tail_now_ms () > until) {
            snprintf (ret->message, sizeof (ret->message),
                      "the job cannot be put back: %.200s", err.text);
            return;
        }
        pause_ms (AGAIN_MS);
    }
    if (a.done == DONE_FORBIDDEN)
        chain (r, v->cause, ret);
    else if (a.done == DONE_STOPPED) {
        ret->stopped = true;
        snprintf (ret->message, sizeof (ret->message), "%s",
                  words_of (CAUSE_STOPPED));
    } else
        say_back (r, v->cause, a.done == DONE_REQUEUED ? node : NULL, ret);
}

static void act (const struct segment_run *r, const struct segment_verdict *v,
                 const struct segment_end *end, struct segment_next *ret)
{
    switch (v->act) {
    case SEGMENT_REQUEUE:
        requeue (r, v, end, ret);
        break;
    case SEGMENT_CHAIN:
        chain (r, v->cause, ret);
        break;
    case SEGMENT_QUEUED:
        say_back (r, v->cause, NULL, ret);
        break;
    case SEGMENT_ASK:
        snprintf (ret->message, sizeof (ret->message),
                  "slurmctld does not say why the job was signalled; it does "
                  "not go on by itself");
        break;
    case SEGMENT_END:
        ret->stopped = v->cause == CAUSE_STOPPED;
        if (v->given_up)
            snprintf (ret->message, sizeof (ret->message),
                      "ended by %s, and was put back %u times before; submit "
                      "again to go on from its checkpoints",
                      words_of (v->cause), r->log.retries);
        break;
    }
}

void segment_run_end (struct segment_run *r, const struct segment_end *end,
                      struct segment_next *ret)
{
    struct segment_facts f = {
        .asked = r->asked,
        /* Not judged yet: the job may have ended within the moment. */
        .limit_signal = r->limit_signal,
        .told = end->told,
        .exit_status = end->exit_status,
        .hardware = end->hardware,
        .retries = r->log.retries,
        .preempting =
            end->slurm_kind && !strcmp (end->slurm_kind, "preemption"),
        .node_failed =
            end->slurm_kind && !strcmp (end->slurm_kind, "node_failure"),
    };
    struct segment_verdict v;
    struct rv_error err = {0};

    *ret = (struct segment_next){0};
    if (r->came && judge_signal (r))
        f.limit_signal = r->limit_signal;
    v = segment_decide (&f);
    if (v.act == SEGMENT_ASK) {
        ask (r, &f);
        v = segment_decide (&f);
    }
    /* First the note: Slurm ends us the moment the job is back. */
    if (segment_log_end (&r->log, v.cause, end->exit_status, &err))
        log_line (LOG_WARN, "cannot note the end of the segment: %s", err.text);
    act (r, &v, end, ret);
    if (*ret->message)
        log_line (LOG_WARN, "%s", ret->message);
}

void segment_run_fini (struct segment_run *r)
{
    segment_log_fini (&r->log);
}
